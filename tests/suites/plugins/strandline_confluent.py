"""For pytest in confluent-kafka-python's environment: trivup, which would start Kafka, is not installed.

The suite imports it even where BROKERS names a cluster that runs; asked to start one, it says so.
"""

import sys
from types import ModuleType
from typing import Any


class KafkaCluster:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("this test wants a cluster of its own (trivup); BROKERS names the one there is")


for name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
    sys.modules[name] = ModuleType(name)
sys.modules["trivup.clusters.KafkaCluster"].KafkaCluster = KafkaCluster  # type: ignore[attr-defined]

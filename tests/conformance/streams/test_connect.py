"""Kafka Connect, unmodified, distributed, on three brokers: lines of one file through a topic into another.

Two workers of one group (`sessioned`: incremental cooperative rebalances), an exactly-once source.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.testing import LocalCluster
from tests.conformance.probing import Absent
from tests.conformance.streams import copying as steps
from tests.conformance.streams import jvm
from tests.conformance.streams.brokers import ours
from tests.conformance.streams.copying import Copying
from tests.conformance.streams.workers import Workers

COMPACTED = {"config": 1, "offset": 25, "status": 5}


@pytest.fixture
def copying(running: LocalCluster, tmp_path: Path) -> Iterator[Copying]:
    try:
        jvm.jars()
    except Absent as absent:
        pytest.skip(str(absent))
    brokers = ours(running)
    workers = Workers(brokers, tmp_path, f"connect-{uuid.uuid4().hex[:8]}")
    lines = Copying(brokers, workers, tmp_path)
    yield lines
    workers.end()
    lines.close()


@pytest.mark.long
def test_every_line_is_copied_once_and_again_only_after_a_kill(
    copying: Copying, running: LocalCluster
) -> None:
    workers = copying.workers
    steps.in_peace(copying)
    assert workers.protocols() == {"sessioned"}
    brokers = ours(running)
    for what, partitions in COMPACTED.items():
        assert brokers.topics()[workers.topic(what)] == partitions
        assert brokers.config(workers.topic(what))["cleanup.policy"] == "compact"
    steps.whoever_dies(copying)
    steps.all_stop(copying)
    steps.begin_again(copying)

"""What ApiVersions tells whom: brokers of Apache Kafka look here before they ask the controller."""

from types import SimpleNamespace
from typing import Any

from strandline.broker.handlers import api_versions
from strandline.protocol.apis import APIS, Api
from strandline.protocol.messages.api_versions import ApiVersionsRequest

BETWEEN = {Api.LEADER_AND_ISR, Api.CONTROLLED_SHUTDOWN, Api.ALTER_PARTITION, Api.ALLOCATE_PRODUCER_IDS}


def told(internal: bool) -> dict[int, tuple[int, int]]:
    broker: Any = None
    exchange: Any = SimpleNamespace(internal=internal)
    answer = api_versions.handle(broker, exchange, ApiVersionsRequest())
    keys = [row.api_key for row in answer.api_keys]
    assert keys == sorted(set(keys)), "each once, in order"
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def test_clients_are_not_told_what_only_brokers_may_ask() -> None:
    assert BETWEEN.isdisjoint(told(internal=False))


def test_brokers_are_told_both() -> None:
    rows = told(internal=True)
    others = told(internal=False).items() - {(Api.ADD_PARTITIONS_TO_TXN, (0, 3))}
    assert rows.keys() >= BETWEEN and rows.items() >= others
    assert rows[Api.ALTER_PARTITION] == (0, 3)
    assert rows[Api.ADD_PARTITIONS_TO_TXN] == (0, 5), "else a leader of Kafka's verifies no transaction"
    assert Api.INSPECT not in rows and all(APIS[Api(key)] for key in rows)

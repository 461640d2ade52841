"""What ApiVersions tells whom: brokers of Apache Kafka look here before they ask the controller."""

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.handlers import api_versions
from strandline.broker.handlers.table import HANDLERS
from strandline.broker.network.routes import route_key, routes
from strandline.protocol.apis import APIS, Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersionsRequest, SaslHandshakeRequest
from strandline.protocol.schema import encode

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


@pytest.mark.parametrize("version", APIS[Api.SASL_HANDSHAKE].served)
@pytest.mark.parametrize("internal", [False, True])
def test_who_wants_sasl_is_told_that_there_is_none(version: int, internal: bool) -> None:
    """Not offered: librdkafka looks there, and says so itself. Java's client asks all the same."""
    assert Api.SASL_HANDSHAKE not in told(internal)
    route = routes(internal, HANDLERS)[route_key(Api.SASL_HANDSHAKE, version)]
    broker: Any = None
    answer = route.handle(broker, SimpleNamespace(version=version), SaslHandshakeRequest(mechanism="PLAIN"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [])
    assert b"".join(encode(answer, version)) == bytes((0, 33, 0, 0, 0, 0))

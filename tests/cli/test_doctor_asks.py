"""What the doctor asks and is not told: an answer that does not come is said to be missing, never taken for
nothing wrong; and what stands in ZooKeeper, or in an option, ends no diagnosis.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.doctor import ask_groups, ask_zookeeper
from strandline.cli.doctor.ask_broker import Asked
from strandline.cli.doctor.ask_groups import sample
from strandline.cli.doctor.ask_transactions import ask_transactions
from strandline.cli.doctor.ask_zookeeper import read_srvr
from strandline.cli.doctor.facts import Dial, GroupFacts, PartitionFacts, Reach, TopicFacts, ZkFacts, ZkServer
from strandline.cli.doctor.probe import Failed, connected, place_of
from strandline.protocol.errors import ApiError, ErrorCode, NotCoordinator, UnsupportedVersion
from strandline.protocol.messages.group_admin import ListGroupsRequest
from strandline.protocol.messages.group_offsets import OffsetFetchRequest
from strandline.protocol.messages.offsets import ListOffsetsRequest
from strandline.protocol.messages.transactions import DescribeProducersRequest
from strandline.zookeeper import documents
from strandline.zookeeper.client import NoNode, Stat
from tests.cli.conftest import Shell

TP = TopicPartition("t", 0)
TOPICS = {"t": TopicFacts("t", False, {0: PartitionFacts(1, 0, (1,), (1,))})}
GROUPS = {"g": GroupFacts("g", 1)}

Answers = dict[type, Callable[[Any], Any]]


def answering(answers: Answers) -> Asked:
    """Broker 1, whose answers are these; to any other request there is none in time."""

    async def ask(message: Any, version: int | None = None) -> Any:
        if type(message) not in answers:
            raise TimeoutError("no answer within 3 s")
        return answers[type(message)](message)

    probe = SimpleNamespace(ask=ask, connection=SimpleNamespace(versions={16: 5, 9: 7}))
    return Asked(1, ("h", 1), Dial("h:1", Reach.ANSWERS), cast(Any, probe))


def offsets(error: int = 0) -> Callable[[Any], Any]:
    one = SimpleNamespace(partition_index=0, offset=7, error_code=error)
    return lambda request: SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[one])])


def committed(error: int = 0) -> Callable[[Any], Any]:
    return lambda request: SimpleNamespace(error_code=error, topics=[])


def listed(request: Any) -> Any:
    return SimpleNamespace(error_code=0, groups=[])


GOOD: Answers = {ListOffsetsRequest: offsets(), OffsetFetchRequest: committed(), ListGroupsRequest: listed}


async def test_who_tells_all_has_failed_in_nothing() -> None:
    asked = answering(GOOD)
    found = await sample(GROUPS, TOPICS, {1: asked})
    assert found.ends[TP].high_watermark == 7 and not asked.failed and not asked.unseen


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        (ListOffsetsRequest, "offsets"),
        (OffsetFetchRequest, "committed offsets"),
        (ListGroupsRequest, "states of groups"),
    ],
)
async def test_lag_that_is_not_told_is_not_taken_for_none(missing: type, what: str) -> None:
    asked = answering({kind: answer for kind, answer in GOOD.items() if kind is not missing})
    await sample(GROUPS, TOPICS, {1: asked})
    assert asked.failed == {what: "no answer within 3 s"}


async def test_an_error_in_an_answer_is_told_too() -> None:
    asked = answering({**GOOD, OffsetFetchRequest: committed(ErrorCode.NOT_COORDINATOR)})
    await sample(GROUPS, TOPICS, {1: asked})
    assert asked.failed["committed offsets"].startswith(NotCoordinator("g").code.name) or "g" in str(
        asked.failed
    )
    asked = answering({**GOOD, ListOffsetsRequest: offsets(ErrorCode.KAFKA_STORAGE_ERROR)})
    found = await sample(GROUPS, TOPICS, {1: asked})
    assert not found.ends
    assert asked.unseen == {"offsets": "the lag in 1 partition that broker 1 leads: KAFKA_STORAGE_ERROR"}


async def test_more_groups_than_are_looked_at_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_groups, "GROUPS_MAX", 2)
    some = [
        SimpleNamespace(protocol_type="consumer", group_id=f"g{n}", group_type="classic") for n in range(5)
    ]
    asked = answering({ListGroupsRequest: lambda _: SimpleNamespace(error_code=0, groups=some)})
    assert set(await ask_groups.ask_groups([asked])) == {"g0", "g1"}
    assert asked.unseen == {"groups": "3 groups of broker 1: only 2 are looked at"}


def refusing(error: ApiError) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        raise error

    return answer


async def test_a_coordinator_that_does_not_tell_of_transactions_is_named() -> None:
    asked = answering({})
    assert await ask_transactions([TP], TOPICS, {1: asked}) == ()
    assert asked.failed == {"transactions": "no answer within 3 s"}
    older = answering({DescribeProducersRequest: refusing(UnsupportedVersion("no such request"))})
    assert await ask_transactions([TP], TOPICS, {1: older}) == () and not older.failed


# ------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("h:1", ("h", 1)),
        ("PLAINTEXT://[::1]:9092", ("::1", 9092)),
        ("h:²", None),
        ("h:٣", None),
        (f"h:{'9' * 5000}", None),
        ("h:", None),
        (":1", None),
    ],
)
def test_a_port_is_digits(text: str, place: tuple[str, int] | None) -> None:
    assert place_of(text) == place


async def test_a_port_that_there_cannot_be_is_an_address_that_is_not_reached() -> None:
    with pytest.raises(Failed, match="expected a port from 0 to 65535"):
        await connected(("127.0.0.1",), 99_999, 1.0)
    facts = await ask_zookeeper.ask_zookeeper("127.0.0.1:99999", 1.0)
    assert (facts.servers[0].reach, facts.servers[0].detail) == (Reach.UNREACHABLE, "there is no port 99999")


@pytest.mark.parametrize(
    "words",
    [("--watch", "nan"), ("--timeout", "nan"), ("--watch", "inf"), ("--bootstrap-server", "h:²")],
)
def test_a_number_that_is_none_is_wrong_usage(alone: Shell, words: tuple[str, str]) -> None:
    alone("doctor", *words, expect=2)


# ------------------------------------------------------------ ZooKeeper


@pytest.mark.parametrize(
    "line", ["Latency min/avg/max: 0/0.5/many", "Latency min/avg/max: 0//", "Outstanding: ²"]
)
def test_a_server_that_says_something_else_is_there_all_the_same(line: str) -> None:
    found = read_srvr("h:1", f"Zookeeper version: 3.9.2-a\n{line}\nMode: leader\n")
    assert (found.mode, found.latency_max_ms, found.outstanding) == ("leader", None, None)


class Damaged:
    """A session in which the cluster's id is no JSON, and a child of /brokers/ids no number."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def get(self, path: str) -> tuple[bytes, Stat]:
        if path == documents.CONTROLLER:
            raise NoNode(path)
        return b"\xff", cast(Any, None)

    async def children(self, path: str) -> list[str]:
        return ["1", "mine", "²"]


async def test_a_damaged_node_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_zookeeper, "KazooZkClient", Damaged)
    servers = (ZkServer("h:1", Reach.ANSWERS),)
    found: ZkFacts = await ask_zookeeper._session("h:1", "h:1", servers, 1.0)
    assert found.cluster_id is None and documents.CLUSTER_ID in found.unreadable
    assert found.registered == {1: ()}

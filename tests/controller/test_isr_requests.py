"""AlterPartition while ZooKeeper is lost for a moment, or the leader sends its request twice: on doubles."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest
import structlog.testing

from strandline.base.types import KAFKAS, TopicPartition
from strandline.controller.planning.state import Broker, ClusterState, Topic
from strandline.controller.requests import isr_changes
from strandline.controller.requests.isr_changes import IsrChanges
from strandline.controller.requests.reach import Reach
from strandline.protocol.errors import ErrorCode, NotController
from strandline.protocol.messages import control
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, Op, OpResult, SetData, Stat, Unknown, Watch
from strandline.zookeeper.znodes import ControllerTerm, create_if_absent, read_state
from tests.controller.memory_zk_client import MemoryZkClient

T0 = TopicPartition("t", 0)
ID = UUID(int=7)
THEIRS = Broker(2, incarnation=KAFKAS + 900, intact_since=1 << 62, born=900)
OTHER = Broker(3, incarnation=KAFKAS + 950, intact_since=1 << 62, born=950)
STATE = documents.StateDocument(leader=2, leader_epoch=4, isr=[2], controller_epoch=1)


class Flighty(MemoryZkClient):
    """Without a connection for so many requests, which it counts. `turns` let others run before each."""

    def __init__(self) -> None:
        super().__init__(SimZooKeeper())
        self.lost = 0
        self.asked = 0
        self.turns = 0
        self.before_write: Callable[[], Awaitable[None]] | None = None

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        await self._there()
        return await super().get(path, watch)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        await self._there()
        if self.before_write is not None:
            await self.before_write()
        return await super().multi(ops)

    async def _there(self) -> None:
        self.asked += 1
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.lost:
            self.lost -= 1
            raise Unknown("not connected; nothing was sent")


class Term:
    """A term of a controller of ours, beside two brokers of Kafka's, of which 2 leads t-0."""

    def __init__(self) -> None:
        self.zk = Flighty()
        self.ended = False
        topic = Topic("t", ID, {0: (2, 3)})
        self.state = ClusterState(5, {2: THEIRS, 3: OTHER}, topics={"t": topic})

    async def open(self) -> IsrChanges:
        zk = cast(Any, self.zk)
        for path in ("/brokers", documents.TOPICS, documents.topic_path("t")):
            await create_if_absent(zk, path, b"")
        for path in (documents.partitions_path("t"), documents.partition_path(T0)):
            await create_if_absent(zk, path, b"")
        state = Create(documents.state_path(T0), STATE.data())
        await zk.multi([Create(documents.CONTROLLER_EPOCH, b"5"), state])
        reach = Reach(
            zk, ControllerTerm(5, 0), lambda: self.state, lambda _: None, self.until, self.nothing,
            lambda _: None,
        )  # fmt: skip
        self.zk.asked = 0
        return IsrChanges(reach)

    async def until(self, condition: Any) -> None:
        if self.ended:
            raise NotController

    async def nothing(self) -> None:
        return None


def asked(isr: list[int], version: int = 0, epoch: int = 4, by_id: bool = True) -> Any:
    change = control.PartitionChange(
        partition_index=0, leader_epoch=epoch, partition_epoch=version, new_isr=isr
    )
    topic = control.TopicChange(partitions=[change], **({"topic_id": ID} if by_id else {"topic_name": "t"}))
    return control.AlterPartitionRequest(broker_id=2, broker_epoch=THEIRS.epoch, topics=[topic])


async def told(isrs: IsrChanges, request: Any) -> Any:
    return (await isrs.alter(request)).topics[0].partitions[0]


async def test_a_change_waits_until_zookeeper_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told that nobody knows, a leader asks again at once, over and over, for as long as the outage lasts."""
    monkeypatch.setattr(isr_changes, "RETRY_S", 0.0)
    term = Term()
    isrs = await term.open()
    term.zk.lost = 3
    answer = await told(isrs, asked([2, 3]))
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [2, 3], 1)


async def test_a_write_whose_answer_was_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0.0)
    term = Term()
    isrs = await term.open()
    left = iter([True])
    term.zk.loses = lambda ops: next(left, False)
    answer = await told(isrs, asked([2, 3]))
    assert (answer.error_code, answer.partition_epoch) == (0, 1)


async def test_a_term_that_ends_meanwhile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0.0)
    term = Term()
    isrs = await term.open()
    term.zk.lost = 1 << 30
    waiting = asyncio.ensure_future(told(isrs, asked([2, 3])))
    while term.zk.asked < 5:
        await asyncio.sleep(0)
    term.ended = True
    with pytest.raises(NotController):
        await waiting


async def test_after_a_while_the_leader_is_told_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "ANSWER_S", 0.05)
    monkeypatch.setattr(isr_changes, "RETRY_S", 0.01)
    term = Term()
    isrs = await term.open()
    term.zk.lost = 1 << 30
    answer = await told(isrs, asked([2, 3]))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert term.zk.asked < 20


async def test_a_request_that_is_sent_twice_is_answered_alike() -> None:
    """A connection has broken, and the leader sends again what the controller is still busy with. Told that
    its version is old it would change its ISR no more in this leader epoch.
    """
    term = Term()
    isrs = await term.open()
    term.zk.turns = 3
    answers = await asyncio.gather(*(told(isrs, asked([2, 3])) for _ in range(2)))
    assert [(each.error_code, each.partition_epoch) for each in answers] == [(0, 1), (0, 1)]
    assert (await read_state(cast(Any, term.zk), T0))[1] == 1, "it was written once"


async def test_who_is_overtaken_by_an_election_hears_so() -> None:
    term = Term()
    isrs = await term.open()
    elected = STATE.model_copy(update={"leader": 3, "leader_epoch": 5, "isr": [2, 3]})
    written: list[int] = []

    async def overtake() -> None:
        if not written:
            written.append(1)
            write = SetData(documents.state_path(T0), elected.data(), 0)
            term.zk.server.multi([write], term.zk.session_id)

    term.zk.before_write = overtake
    answer = await told(isrs, asked([2, 3]))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("by_id", [True, False], ids=["later", "2.8 to 3.2"])
async def test_the_same_refusal_is_logged_once(by_id: bool) -> None:
    """A leader asks again with each fetch of a follower that may not join."""
    term = Term()
    isrs = await term.open()
    term.state = ClusterState(5, {2: THEIRS}, topics=term.state.topics)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await told(isrs, asked([2, 3], by_id=by_id))
        await told(isrs, asked([2, 3], epoch=9, by_id=by_id))  # another refusal
        await told(isrs, asked([2, 3], by_id=by_id))
    codes = [each["code"] for each in logs if each["event"] == "isr_change_refused"]
    assert codes == ["INELIGIBLE_REPLICA", "NOT_CONTROLLER", "INELIGIBLE_REPLICA"]

"""A controller writes states in groups: one that cannot be written stops no other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from strandline.base.types import TopicPartition
from strandline.controller import state_writes
from strandline.controller.planning.state import PartitionState
from strandline.controller.state_writes import StateWrites, WriteContext
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, NoNode, Op, SetData, Unknown
from strandline.zookeeper.znodes import ControllerTerm

PARTITIONS = [TopicPartition("t", number) for number in range(4)]


class Session:
    """A session whose answers may be lost, before or after the write."""

    def __init__(self) -> None:
        self.server = SimZooKeeper()
        self.session_id = self.server.open(60.0, 0.0).id
        self.multis: list[int] = []
        self.loses: list[str] = []  # of the next multis: "before", "after"

    async def get(self, path: str, watch: Any = None) -> Any:
        return self.server.get(path, self.session_id, None)

    async def multi(self, ops: list[Op]) -> Any:
        self.multis.append(len(ops) - 1)
        lost = self.loses.pop(0) if self.loses else ""
        if lost == "before":
            raise Unknown("the request was lost")
        results = self.server.multi(ops, self.session_id)
        if lost == "after":
            raise Unknown("the answer was lost")
        return results


class Stage:
    def __init__(self) -> None:
        self.session = Session()
        self.ended: list[str] = []
        for path in (
            "/brokers",
            documents.TOPICS,
            documents.topic_path("t"),
            documents.CONTROLLER_EPOCH,
            documents.BROKER_INCARNATIONS,
        ):
            self.do(Create(path, b"1"))
        self.do(Create(documents.incarnation_path(1), b""))
        self.restart(0)
        connected = asyncio.Event()
        connected.set()
        zk = cast(Any, self.session)
        self.writes = StateWrites(
            WriteContext(zk, ControllerTerm(1, 0), connected, lambda: bool(self.ended), self.ended.append)
        )

    def do(self, *ops: Op) -> None:
        self.session.server.multi(ops, self.session.session_id)

    def restart(self, incarnation: int) -> None:
        """Broker 1 has started again, after that incarnation."""
        self.do(SetData(documents.incarnation_path(1), b"", incarnation))

    def epoch(self, partition: TopicPartition) -> int:
        data, _ = self.session.server.get(documents.state_path(partition), self.session.session_id, None)
        return documents.parse(documents.StateDocument, data).leader_epoch

    async def created(self, partitions: list[TopicPartition] = PARTITIONS) -> Any:
        return await self.writes.create({q: state(0) for q in partitions})


def state(epoch: int, version: int = 0) -> PartitionState:
    return PartitionState(1, epoch, (1, 2), {1: 1, 2: 1}, 1, version=version)


def play(monkeypatch: Any, story: Callable[[Stage], Awaitable[None]]) -> None:
    monkeypatch.setattr(state_writes, "RETRY_S", 0.001)

    async def run() -> None:
        await story(Stage())

    asyncio.run(run())


def test_states_are_created_and_replaced_together(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        done = await stage.created()
        assert set(done.written) == set(PARTITIONS) and not done.moved
        assert stage.session.multis == [8, 0, 8], "the parent of all was missing"
        done = await stage.writes.replace({q: state(1) for q in PARTITIONS})
        assert {s.version for s in done.written.values()} == {1} and not done.moved
        assert stage.session.multis[3:] == [4 + 1], "and one look whether their leader is still that start"
        assert [stage.epoch(q) for q in PARTITIONS] == [1] * 4

    play(monkeypatch, story)


def test_groups_are_small_enough_for_zookeeper(monkeypatch: Any) -> None:
    monkeypatch.setattr(state_writes, "TOGETHER_MAX", 3)

    async def story(stage: Stage) -> None:
        await stage.created()
        stage.session.multis.clear()
        done = await stage.writes.replace({q: state(1) for q in PARTITIONS})
        assert len(done.written) == 4 and stage.session.multis == [3 + 1, 1 + 1]

    play(monkeypatch, story)


def test_one_that_has_moved_stops_no_other(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        await stage.created()
        stage.do(SetData(documents.state_path(PARTITIONS[2]), state(7).document().data(), 0))
        done = await stage.writes.replace({q: state(1) for q in PARTITIONS})
        assert done.moved == {PARTITIONS[2]}
        assert [stage.epoch(q) for q in PARTITIONS] == [1, 1, 7, 1]
        assert {s.version for s in done.written.values()} == {1}

    play(monkeypatch, story)


def test_a_write_that_lands_late_elects_no_start_that_is_over(monkeypatch: Any) -> None:
    """The next one may have lost what its broker was elected for; and the others are written."""

    async def story(stage: Stage) -> None:
        await stage.created()
        stage.restart(1)
        other = PartitionState(2, 1, (1, 2), {1: 1}, 1)  # whose leader knows no incarnations
        done = await stage.writes.replace({**{q: state(1) for q in PARTITIONS}, PARTITIONS[3]: other})
        assert done.moved == set(PARTITIONS[:3])
        assert [stage.epoch(q) for q in PARTITIONS] == [0, 0, 0, 1]
        renewed = {q: PartitionState(1, 1, (1, 2), {1: 2, 2: 1}, 1) for q in PARTITIONS[:3]}
        assert not (await stage.writes.replace(renewed)).moved

    play(monkeypatch, story)


def test_one_that_exists_or_whose_parent_does_stops_no_other(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        await stage.created(PARTITIONS[:1])
        stage.do(Create(documents.partition_path(PARTITIONS[1]), b""))
        done = await stage.created()
        assert (set(done.written), done.moved) == (set(PARTITIONS[1:]), {PARTITIONS[0]})

    play(monkeypatch, story)


def test_a_topic_that_is_gone_is_no_reason_to_resign(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        gone = TopicPartition("gone", 0)
        done = await stage.writes.create({q: state(0) for q in [gone, *PARTITIONS]})
        assert (done.moved, stage.ended) == ({gone}, [])

    play(monkeypatch, story)


def test_a_lost_answer_is_asked_for_again(monkeypatch: Any) -> None:
    for lost in ("before", "after"):

        async def story(stage: Stage, lost: str = lost) -> None:
            await stage.created()
            stage.session.loses = [lost]
            done = await stage.writes.replace({q: state(1) for q in PARTITIONS})
            assert set(done.written) == set(PARTITIONS) and not done.moved
            assert {s.version for s in done.written.values()} == {1}, "no attempt has won twice"
            assert [stage.epoch(q) for q in PARTITIONS] == [1] * 4

        play(monkeypatch, story)


def test_what_others_have_written_meanwhile_is_not_taken_for_ours(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        await stage.created()
        stage.session.loses = ["after", "before"]
        real = stage.session.multi

        async def multi(ops: list[Op]) -> Any:
            if len(stage.session.multis) == before + 1:  # after the first, lost attempt
                stage.do(SetData(documents.state_path(PARTITIONS[0]), state(9).document().data(), 1))
            return await real(ops)

        before = len(stage.session.multis)
        stage.session.multi = multi  # type: ignore[method-assign]
        done = await stage.writes.replace({q: state(1) for q in PARTITIONS})
        assert (done.moved, set(done.written)) == ({PARTITIONS[0]}, set(PARTITIONS[1:]))
        assert [stage.epoch(q) for q in PARTITIONS] == [9, 1, 1, 1]

    play(monkeypatch, story)


def test_a_newer_controller_ends_the_term_and_nothing_is_reported(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        await stage.created()
        stage.do(SetData(documents.CONTROLLER_EPOCH, b"2", 0))
        assert await stage.writes.replace({q: state(1) for q in PARTITIONS}) is None
        assert len(stage.ended) == 1
        assert [stage.epoch(q) for q in PARTITIONS] == [0] * 4

    play(monkeypatch, story)


def test_a_state_that_is_gone_is_reported(monkeypatch: Any) -> None:
    async def story(stage: Stage) -> None:
        await stage.created(PARTITIONS[:2])
        done = await stage.writes.replace({q: state(1) for q in PARTITIONS[:3]})
        assert done.moved == {PARTITIONS[2]}
        try:
            stage.epoch(PARTITIONS[2])
        except NoNode:
            return
        raise AssertionError("nothing is created by a replacement")

    play(monkeypatch, story)

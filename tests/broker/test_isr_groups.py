"""Thousands of ISR changes at once: written together, each with the outcome that is its own."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from strandline.base.tasks import Tasks
from strandline.base.types import BrokerId, Epoch, Incarnation, Offset, TopicPartition
from strandline.broker.replicas.isr_writer import IsrWriter
from strandline.replication.isr import Growing, Settled, Shrinking
from strandline.replication.leader import Leader, LeaderOptions, LiveBrokers, Mandate
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, Delete, Op, SetData, Unknown
from tests.broker.replica_harness import DirectRegistry, until

ME, OTHER = BrokerId(1), BrokerId(2)

LAG_S = 1.0  # after it a follower is late


class FakePartition:
    def __init__(self, number: int, leader: Leader, shared: Any) -> None:
        self.shared = shared
        self.tp = TopicPartition("t", number)
        self.leading: Leader | None = leader
        self.log = SimpleNamespace(topic_id=None)  # as made by a tool that knows none
        self.marked = 0

    def mark(self) -> None:
        self.marked += 1

    def resign(self, successor: tuple[int, int]) -> None:
        self.leading = None


class Stage:
    """Broker 1 leads some partitions, whose ISR broker 2 wishes to join."""

    def __init__(self, count: int = 5) -> None:
        self.zookeeper = SimZooKeeper()
        self.zk = DirectRegistry(self.zookeeper)
        self.multis: list[list[Op]] = []
        self.lose = ""
        real = self.zk.multi

        async def multi(ops: Any) -> Any:
            if not ops[0].path.endswith("/state"):
                return await real(ops)
            self.multis.append(list(ops))
            lost, self.lose = self.lose, ""
            if lost != "before":
                result = await real(ops)
            if lost:
                raise Unknown("lost")
            return result

        self.zk.multi = multi  # type: ignore[method-assign]
        for path in (
            "/brokers",
            *documents.PERSISTENT_PATHS[2:5],
            documents.ISR_CHANGES,
            documents.topic_path("t"),
            documents.partitions_path("t"),
        ):
            self.do(Create(path, b""))
        for broker in (ME, OTHER):
            self.do(
                Create(documents.broker_path(broker), b'{"incarnation":1}'),
                Create(documents.incarnation_path(broker), b""),
            )
        loop = asyncio.get_running_loop()
        recorder = SimpleNamespace(note=lambda *a, **k: None)
        self.shared = SimpleNamespace(
            me=ME, incarnation=Incarnation(0), loop=loop, recorder=recorder, untold=lambda: None
        )
        self.tasks = Tasks("test")
        self.writer = IsrWriter(cast(Any, self.zk), self.tasks)
        self.partitions = [self.led(number) for number in range(count)]
        self.loop = loop

    def do(self, *ops: Op) -> None:
        self.zookeeper.multi(ops, 1)

    def led(self, number: int, isr: tuple[int, ...] = (1,)) -> FakePartition:
        state = documents.StateDocument(
            leader=1, leader_epoch=0, isr=list(isr), controller_epoch=1, isr_epochs=dict.fromkeys(isr, 0)
        )
        tp = TopicPartition("t", number)
        self.do(Create(documents.partition_path(tp), b""), Create(documents.state_path(tp), state.data()))
        mandate = Mandate(Epoch(0), (ME, OTHER), tuple(map(BrokerId, isr)), 0)
        live = LiveBrokers(frozenset({ME, OTHER}))
        leader = Leader(ME, mandate, Offset(0), Offset(0), 0.0, live, LeaderOptions())
        return FakePartition(number, leader, self.shared)

    def all_join(self, incarnation: int = 0) -> None:
        for partition in self.partitions:
            leader = partition.leading
            assert leader is not None
            effects = leader.fetched(OTHER, Incarnation(incarnation), Offset(0), self.loop.time())
            self.writer.perform(cast(Any, partition), leader, effects)

    def isr(self, number: int) -> list[int]:
        data, _ = self.zookeeper.get(documents.state_path(TopicPartition("t", number)), 1, None)
        return documents.parse(documents.StateDocument, data).isr

    def settled(self, *members: int) -> list[bool]:
        want = Settled(frozenset(map(BrokerId, members)))
        return [p.leading is not None and p.leading.isr == want for p in self.partitions]


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage()
        await story(stage)
        await stage.tasks.stop()

    asyncio.run(run())


def test_what_is_asked_for_in_one_turn_is_one_write() -> None:
    async def story(stage: Stage) -> None:
        stage.all_join()
        await until(lambda: all(stage.settled(1, 2)))
        (ops,) = stage.multis
        kinds = [type(op).__name__ for op in ops]
        assert kinds == ["SetData"] * 5 + ["Check"] * 3, "the states stand before the checks"
        assert [op.path for op in ops[5:]] == [
            documents.broker_path(2), documents.incarnation_path(2), documents.incarnation_path(1),
        ]  # fmt: skip
        assert [stage.isr(n) for n in range(5)] == [[1, 2]] * 5
        assert all(p.leading is not None and p.leading.version == 1 for p in stage.partitions)

    play(story)


def test_one_that_has_moved_on_stops_no_other() -> None:
    async def story(stage: Stage) -> None:
        stage.all_join()
        other = documents.StateDocument(leader=2, leader_epoch=4, isr=[2], controller_epoch=2, isr_epochs={})
        path = documents.state_path(TopicPartition("t", 3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the states have been read
        stage.do(SetData(path, other.data(), 0))
        await until(lambda: sum(stage.settled(1, 2)) == 4)
        await until(lambda: stage.partitions[3].leading is None)
        assert [stage.isr(n) for n in range(5)] == [[1, 2], [1, 2], [1, 2], [2], [1, 2]]

    play(story)


def test_a_leadership_that_has_ended_writes_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.all_join()
        await asyncio.sleep(0)
        stage.partitions[1].leading = None
        await until(lambda: sum(stage.settled(1, 2)) == 4)
        assert stage.isr(1) == [1]

    play(story)


def test_who_is_not_registered_joins_none_of_them() -> None:
    async def story(stage: Stage) -> None:
        stage.do(Delete(documents.broker_path(2), 0))
        stage.all_join()
        await until(lambda: all(stage.settled(1)))
        assert len(stage.multis) == 1 and [stage.isr(n) for n in range(5)] == [[1]] * 5
        stage.do(Create(documents.broker_path(2), b'{"incarnation":1}'))
        stage.all_join(incarnation=1)
        await asyncio.sleep(0.05)
        assert all(stage.settled(1)), "refused a moment ago: not asked for again at once"

    play(story)


def test_another_life_of_the_follower_is_written_by_itself() -> None:
    async def story(stage: Stage) -> None:
        first, second = stage.partitions[:2], stage.partitions[2:]
        stage.partitions = first
        stage.all_join(0)
        stage.partitions = second
        stage.all_join(7)
        await until(lambda: len(stage.multis) == 2)
        await until(lambda: all(stage.settled(1)))
        stage.partitions = first
        await until(lambda: all(stage.settled(1, 2)))

    play(story)


def test_while_nobody_knows_all_stay_pending_and_a_repetition_settles_them() -> None:
    for lost in ("before", "after"):

        async def story(stage: Stage, lost: str = lost) -> None:
            stage.lose = lost
            stage.all_join()
            await until(lambda: not stage.lose and stage.partitions[4].marked > 0)
            for partition in stage.partitions:
                assert partition.leading is not None and isinstance(partition.leading.isr, Growing)
            later = stage.loop.time() + LAG_S
            for partition in stage.partitions:
                leader = partition.leading
                assert leader is not None
                stage.writer.perform(cast(Any, partition), leader, leader.tick(later))
            await until(lambda: all(stage.settled(1, 2)))
            for partition in stage.partitions:
                assert partition.leading is not None and partition.leading.version == 1, "one attempt has won"

        play(story)


def test_a_landed_attempt_is_found_although_the_follower_has_died_since() -> None:
    """The states stand first: a repetition fails on them and adopts, and is not dropped for the check."""

    async def story(stage: Stage) -> None:
        stage.lose = "after"
        stage.all_join()
        await until(lambda: not stage.lose and stage.partitions[4].marked > 0)
        stage.do(Delete(documents.broker_path(2), 0))
        later = stage.loop.time() + LAG_S
        for partition in stage.partitions:
            leader = partition.leading
            assert leader is not None
            stage.writer.perform(cast(Any, partition), leader, leader.tick(later))
        await until(lambda: all(stage.settled(1, 2)))
        assert [stage.isr(n) for n in range(5)] == [[1, 2]] * 5

    play(story)


def test_late_followers_leave_together() -> None:
    async def story(stage: Stage) -> None:
        stage.partitions = [stage.led(10 + n, (1, 2)) for n in range(3)]
        for partition in stage.partitions:
            leader = partition.leading
            assert leader is not None
            leader.appended(Offset(1), Offset(1), 1.0)
            effects = leader.tick(100.0)
            assert isinstance(leader.isr, Shrinking)
            stage.writer.perform(cast(Any, partition), leader, effects)
        await until(lambda: all(stage.settled(1)))
        (ops,) = stage.multis
        assert [type(op).__name__ for op in ops] == ["SetData"] * 3 + ["Check"]

    play(story)


def test_states_that_are_read_again_are_read_together() -> None:
    async def story(stage: Stage) -> None:
        reads: list[int] = []
        real = stage.zk.get_many

        async def get_many(paths: Any) -> Any:
            reads.append(len(paths))
            return await real(paths)

        stage.zk.get_many = get_many  # type: ignore[method-assign]
        path = documents.state_path(TopicPartition("t", 2))
        taken = documents.StateDocument(leader=2, leader_epoch=3, isr=[2], controller_epoch=2, isr_epochs={})
        stage.do(SetData(path, taken.data(), 0))
        broken = documents.state_path(TopicPartition("t", 4))
        stage.do(SetData(broken, b"{", 0))
        for partition in stage.partitions:
            leader = partition.leading
            assert leader is not None
            stage.writer.perform(cast(Any, partition), leader, leader.tick(stage.loop.time() + 100))
        await until(lambda: stage.partitions[2].leading is None)
        assert reads == [5] and stage.settled(1) == [True, True, False, True, True]

    play(story)

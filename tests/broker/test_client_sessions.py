"""Fetch sessions of clients, at the broker: what is told, when they end, and who gets none."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from strandline.broker.fetch.client_sessions import EVICTABLE_AGAIN_S, UNUSED_S, ClientSessions
from strandline.client.network.connection import Connection
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.broker.replica_harness import (
    TOPIC,
    TOPIC_ID,
    Cluster,
    ask,
    batch,
    cluster,
    fetched,
    outcome,
    produce,
    until,
)

ABSENT = 5  # a partition that is nowhere


class Consumer:
    """A consumer's session driven by hand."""

    def __init__(self, connection: Connection, version: int = 16) -> None:
        self.connection = connection
        self.version = version
        self.id, self.epoch = 0, 0

    async def full(self, *offsets: tuple[int, int], **options: Any) -> Any:
        self.epoch = 0
        return await self.next(*offsets, **options)

    async def next(self, *offsets: tuple[int, int], **options: Any) -> Any:
        return await self.send(*offsets, **options)

    def send(
        self, *offsets: tuple[int, int], forget: tuple[int, ...] = (), max_wait_ms: int = 0, **options: Any
    ) -> Awaitable[Any]:
        """The next fetch, with these partitions and offsets."""
        of = {"topic": TOPIC} if self.version < 13 else {"topic_id": TOPIC_ID}
        asked = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 20) for p, o in offsets]
        gone = [ForgottenTopic(partitions=list(forget), **of)] if forget else []
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, session_id=self.id, session_epoch=self.epoch,
            topics=[FetchTopic(partitions=asked, **of)] if asked else [],
            forgotten_topics_data=gone, **options,
        )  # fmt: skip
        waiting = asyncio.ensure_future(ask(self.connection, request, self.version))

        async def answer() -> Any:
            response = await waiting
            if not response.error_code:
                self.id, self.epoch = response.session_id, self.epoch + 1
            return response

        return asyncio.ensure_future(answer())


def told(response: Any) -> list[tuple[int, int, int]]:
    """Of each partition of an answer: its number, error, and bytes of records."""
    rows = [each for topic in response.responses for each in topic.partitions]
    return [(each.partition_index, each.error_code, len(bytes(each.records))) for each in rows]


def with_consumer(
    tmp_path: Path, story: Callable[[Cluster, Consumer], Awaitable[None]], members: int = 1, **options: Any
) -> None:
    async def play() -> None:
        async with cluster(tmp_path, members, **options) as stage:
            await stage.elect(1, list(range(1, members + 1)))
            connection = await stage.members[1].connect()
            await story(stage, Consumer(connection))
            await connection.close()

    asyncio.run(play())


async def append(stage: Cluster) -> None:
    client = await stage.members[1].connect()
    assert outcome(await ask(client, produce(batch(b"x"), acks=1)))[0] == 0
    await client.close()


def test_a_full_fetch_is_told_of_all_it_names_and_the_next_ones_of_news(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        first = await consumer.full((0, 0), (ABSENT, 0))
        assert first.session_id > 0
        assert told(first) == [(0, 0, 0), (ABSENT, 6, 0)], "none missing, none extra, or Java drops it all"
        assert told(await consumer.next(forget=(ABSENT,))) == []
        waiting = consumer.send(max_wait_ms=4000)
        await append(stage)
        answer = await waiting
        assert told(answer)[0][2] > 0, "not named, but it has news"
        assert answer.session_id == consumer.id
        assert told(await consumer.next())[0][2] > 0, "not named again: the answer was not taken"
        assert told(await consumer.next((0, 1))) == [], "it knows the watermark from the last answer"
        assert told(await consumer.next((0, 2))) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, 0)]
        back = await consumer.next((0, 1))
        assert (told(back), fetched(back).high_watermark) == ([(0, 0, 0)], 1), "after an error it is told"
        assert told(await consumer.next()) == []

    with_consumer(tmp_path, story)


def test_a_consumer_waits_for_the_watermark_not_for_the_log(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await stage.silence(2)
        await consumer.full((0, 0))
        waiting = consumer.send(max_wait_ms=300)
        await append(stage)
        assert told(await waiting) == [], "written, but not committed: nothing to tell"
        waiting = consumer.send(max_wait_ms=5000)
        await until(lambda: len(stage.members[1].parts.shared.deadlines))
        await stage.elect(1, [1])
        while not (rows := told(await waiting)) or rows[0][1]:
            waiting = consumer.send((0, 0), max_wait_ms=5000)
        assert rows[0][2] > 0, "the leader alone is the ISR now: it is committed"

    with_consumer(tmp_path, story, members=2)


def test_what_is_committed_wakes_a_consumer(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await consumer.full((0, 0))
        waiting = consumer.send(max_wait_ms=60_000)
        await until(lambda: len(stage.members[1].parts.shared.deadlines))
        await append(stage)  # first the log grows, then the follower has it, then it is committed
        async with asyncio.timeout(20):
            assert told(await waiting)[0][2] > 0

    with_consumer(tmp_path, story, members=2)


def test_a_partition_that_comes_here_is_found_without_being_named(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        client = await stage.members[1].connect("CLIENT")
        late = Consumer(client)
        held = stage.members[1].replicas.partitions
        partition = held.pop(stage.members[1].partition.tp)
        assert told(await late.full((0, 0))) == [(0, 6, 0)]
        assert told(await late.next()) == [(0, 6, 0)], "an error is told until it is gone"
        held[partition.tp] = partition
        assert told(await late.next()) == [(0, 0, 0)]
        assert told(await late.next()) == []
        partition.offline = "as one that was removed"
        del held[partition.tp]
        partition.stir()
        assert told(await late.next()) == [(0, 6, 0)]
        partition.offline, held[partition.tp] = None, partition
        assert told(await late.next()) == [(0, 0, 0)]
        await client.close()

    with_consumer(tmp_path, story)


def test_who_is_out_of_step_is_told_to_begin_again(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await consumer.full((0, 0))
        consumer.epoch += 1
        assert (await consumer.next()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        consumer.epoch -= 1
        consumer.version = 12
        assert (await consumer.next()).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        consumer.version = 16
        other = Consumer(await stage.members[1].connect())
        other.id, other.epoch = consumer.id, consumer.epoch
        assert (await other.next()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it is not its own"
        assert (await consumer.next()).error_code == 0
        before = consumer.id
        await consumer.full((0, 0))
        assert consumer.id != before and len(stage.members[1].parts.client_sessions) == 1
        consumer.epoch = -1
        assert (await consumer.next((0, 0))).session_id == 0
        assert len(stage.members[1].parts.client_sessions) == 0, "its client wanted no session any more"
        await other.connection.close()

    with_consumer(tmp_path, story)


def test_topics_are_named_before_ids_and_the_session_too(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        consumer.version = 10
        assert told(await consumer.full((0, 0))) == [(0, 0, 0)]
        assert consumer.id > 0
        await append(stage)
        response = await consumer.next()
        assert response.responses[0].topic == TOPIC and told(response)[0][2] > 0
        assert told(await consumer.next(forget=(0,))) == []
        assert consumer.id == 0 and len(stage.members[1].parts.client_sessions) == 0

    with_consumer(tmp_path, story)


def test_nothing_is_left_when_the_connection_is_gone(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await consumer.full((0, 0))
        waiting = consumer.send(max_wait_ms=60_000)
        member = stage.members[1]
        await until(lambda: len(member.parts.shared.deadlines))
        assert len(member.partition.parked) == 1
        await consumer.connection.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: len(member.parts.client_sessions) == 0)
        assert not member.partition.parked and len(member.parts.shared.deadlines) == 0

    with_consumer(tmp_path, story)


def test_the_next_fetch_ends_the_one_that_still_waits(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await consumer.full((0, 0))
        waiting = consumer.send(max_wait_ms=60_000)
        await until(lambda: len(stage.members[1].parts.shared.deadlines))
        consumer.epoch += 1
        async with asyncio.timeout(20):
            assert told(await consumer.next((0, 0))) == [], "nothing has happened"
            assert told(await waiting) == []

    with_consumer(tmp_path, story)


def test_a_log_start_that_moved_without_a_word_is_told(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        await append(stage)
        await consumer.full((0, 1))
        assert stage.members[1].partition.log.move_start(1)
        async with asyncio.timeout(20):
            while not (answer := await consumer.next()).responses:
                pass
        assert fetched(answer).log_start_offset == 1

    with_consumer(tmp_path, story)


def test_where_there_are_no_slots_everything_is_named_each_time(tmp_path: Path) -> None:
    async def story(stage: Cluster, consumer: Consumer) -> None:
        for _ in range(2):
            answer = await consumer.full((0, 0))
            assert (answer.session_id, told(answer)) == (0, [(0, 0, 0)])

    with_consumer(tmp_path, story, fetch_session_slots_max=0)


class Slots:
    """Two slots, a clock that is set, and clients that ask for so many partitions."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shared: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: self.now))
        self.sessions = ClientSessions(self.shared, 2)

    def begin(self, size: int) -> Any:
        exchange: Any = SimpleNamespace(version=16, channel=SimpleNamespace())
        asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(size)]
        topics = [FetchTopic(topic_id=TOPIC_ID, partitions=asked)]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)
        session = self.sessions.of(exchange, request)
        if session is not None:
            session.take(request, lambda _: None, lambda *_: None)  # type: ignore[arg-type,return-value]
            session.use = lambda: self.sessions.of(  # type: ignore[attr-defined]
                exchange,
                FetchRequest(
                    max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=session.next_epoch,
                    topics=[],
                ),
            )  # fmt: skip
        return session


def test_a_session_gives_way_when_it_was_not_used_for_long() -> None:
    slots = Slots()
    first, second = slots.begin(9), slots.begin(9)
    assert slots.begin(9) is None, "nobody who is young gives way"
    slots.now = UNUSED_S + 1
    first.use()
    assert slots.begin(1) is not None, "whatever its size"
    assert first.id in slots.sessions._sessions and second.id not in slots.sessions._sessions


def test_an_old_session_gives_way_to_one_that_is_no_smaller() -> None:
    slots = Slots()
    large, small = slots.begin(9), slots.begin(3)
    slots.now = UNUSED_S + 1
    large.use()
    small.use()
    assert slots.begin(2) is None, "both are larger"
    assert slots.begin(3) is None, "nobody searches all of them for each who asks"
    slots.now += EVICTABLE_AGAIN_S
    assert slots.begin(3) is not None and small.id not in slots.sessions._sessions
    large.use()
    slots.now += EVICTABLE_AGAIN_S
    assert slots.begin(8) is None, "the smaller one is young"
    assert len(slots.sessions) == 2

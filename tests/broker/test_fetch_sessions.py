"""Fetch sessions between brokers, at the leader: what is told, and what silence means."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.base.types import BrokerId, Incarnation, Offset
from strandline.broker.fetch.parked import ParkedReplicas
from strandline.broker.fetch.sessions import NO_SESSION_EPOCH, SessionReading
from strandline.broker.replicas.purgatory import Waiter
from strandline.client.network.connection import Connection
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import (
    FetchResponse,
    ForgottenTopic,
    ReplicaState,
)
from strandline.replication.isr import Settled
from strandline.replication.progress import Progress, Pulse
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, Delete
from tests.broker.replica_harness import (
    TOPIC_ID,
    Cluster,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    outcome,
    produce,
    until,
)
from tests.patience import HANG_S

LONG_MS = round(HANG_S * 1000)
LAG_S = 1.0
"""After so long a follower is late here (replica_harness.py)."""

FOLLOWER = ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True)


class Peer:
    """Broker 2 as the leader hears it: a session driven by hand."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.id, self.epoch = 0, 0

    async def full(self, offset: int, **options: Any) -> FetchResponse:
        self.id, self.epoch = 0, 0
        return await self.next(offset, **options)

    async def next(self, offset: int | None = None, **options: Any) -> FetchResponse:
        return cast(FetchResponse, await self.send(offset, **options))

    def send(self, offset: int | None = None, forget: bool = False, **options: Any) -> Awaitable[Any]:
        epoch = options.pop("epoch", 0)
        options = {"replica_state": FOLLOWER, **options}
        request = fetch(offset or 0, current_leader_epoch=epoch, **options)
        if offset is None:
            request.topics = []
        request.session_id, request.session_epoch = self.id, self.epoch
        if forget:
            request.forgotten_topics_data = [ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])]
        waiting = self.connection.submit(request, deadline=asyncio.get_running_loop().time() + HANG_S)

        async def answer() -> Any:
            response = await waiting
            if not response.error_code:
                self.id, self.epoch = response.session_id, self.epoch + 1
            return response

        return asyncio.ensure_future(answer())


def with_peer(tmp_path: Path, story: Callable[[Cluster, Peer], Awaitable[None]]) -> None:
    """Broker 1 leads alone or with broker 2, whose own fetcher is silent."""

    async def play() -> None:
        async with cluster(tmp_path, 2) as stage:
            stage.members[2].parts.fetchers.stop()
            connection = await stage.members[1].connect("PLAINTEXT")
            await stage.elect(1, [1, 2])
            await story(stage, Peer(connection))
            await connection.close()

    asyncio.run(play())


async def append(stage: Cluster, value: bytes = b"x") -> None:
    client = await stage.members[1].connect()
    assert outcome(await ask(client, produce(batch(value), acks=1)))[0] == 0
    await client.close()


def test_each_side_tells_only_what_has_changed(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        first = await peer.full(0)
        assert first.session_id > 0 and fetched(first).high_watermark == 0, "all that is named is told of"
        assert (await peer.next()).responses == []
        waiting = peer.send(max_wait_ms=4000)
        await append(stage)
        grown = fetched(await waiting)
        assert bytes(grown.records), "a partition that was not named is told of when it grows"
        assert grown.high_watermark == 0, "before anything is committed"
        assert bytes(fetched(await peer.next()).records), "not named again: it has not arrived"
        named = fetched(await peer.next(1))
        assert (bytes(named.records), named.high_watermark) == (b"", 1)
        assert (await peer.next()).responses == []

    with_peer(tmp_path, story)


def test_a_watermark_is_told_when_there_is_an_answer_and_wakes_nobody(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        await append(stage)
        await peer.next()
        assert fetched(await peer.next(1)).high_watermark == 1
        partition, loop = stage.members[1].partition, asyncio.get_running_loop()
        began = loop.time()
        waiting = peer.send(max_wait_ms=200)
        await until(lambda: len(stage.members[1].parts.shared.deadlines))
        (entry,) = partition.parked
        entry.told = (0, 0, 0)  # another one than it is now
        entry.news(grown=False, risen=True)
        answer = await waiting
        assert loop.time() - began > 0.15
        assert fetched(answer).high_watermark == 1

    with_peer(tmp_path, story)


def test_who_speaks_in_another_session_is_told_to_start_over(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        known, peer.epoch = peer.epoch, peer.epoch + 1
        assert (await peer.next()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        peer.epoch, peer.id = known, peer.id + 1
        assert (await peer.next()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        peer.id -= 1
        other = await peer.next(replica_state=ReplicaState(replica_id=2, replica_epoch=2, counts_starts=True))
        assert other.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "another life of the follower"
        assert (await peer.next()).error_code == 0
        before = peer.id
        await peer.full(0)
        assert peer.id != before
        peer.epoch = -1
        assert (await peer.next()).session_id == 0
        assert len(stage.members[1].partition.parked) == 0, "the session has ended"

    with_peer(tmp_path, story)


@pytest.mark.parametrize("names_it", [True, False], ids=["named", "silent"])
def test_a_session_speaks_for_the_life_that_opened_it(tmp_path: Path, names_it: bool) -> None:
    """A fetch of the life before is still under way when the follower, started again, has fetched alone."""

    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        follower = stage.members[1].partition.leading.progress_of(2)
        assert follower.pulse is not None
        again = fetch(
            0,
            current_leader_epoch=0,
            replica_state=ReplicaState(replica_id=2, replica_epoch=2, counts_starts=True),
        )
        again.session_epoch = -1
        assert fetched(await ask(peer.connection, again)).error_code == 0
        heard = follower.last_fetch
        assert follower.incarnation == 2
        assert (await peer.next(0 if names_it else None)).error_code == 0
        follower.beat(Offset(0))
        assert (follower.last_fetch, follower.pulse) == (heard, None), "it is no word of the life of now"

    with_peer(tmp_path, story)


def test_a_session_remembers_the_leader_epoch_of_each_partition(tmp_path: Path) -> None:
    """KAFKA-9338: what was asked in an earlier epoch is refused, although it is not named again."""

    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        await peer.next()
        waiting = peer.send(max_wait_ms=4000)
        await stage.elect(1, [1, 2])
        assert fetched(await waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH
        leading = stage.members[1].partition.leading
        assert leading.progress_of(2).end_offset == -1, "an earlier epoch proves nothing now"
        again = await peer.next()
        assert fetched(again).error_code == ErrorCode.FENCED_LEADER_EPOCH, "told until it is asked otherwise"
        assert leading.progress_of(2).pulse is None and leading.progress_of(2).end_offset == -1
        assert (await peer.next(forget=True)).responses == []
        assert fetched(await peer.next(0, epoch=1)).error_code == 0
        assert leading.progress_of(2).end_offset == 0

    with_peer(tmp_path, story)


def test_silence_means_the_same_offset_and_ends_when_a_partition_is_forgotten(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        leading = stage.members[1].partition.leading
        first = leading.progress_of(2).last_caught_up
        await asyncio.sleep(0.02)
        await peer.next()
        second = leading.progress_of(2).last_caught_up
        assert second > first, "it had all when it fetched the others"
        await peer.next(forget=True)
        third = leading.progress_of(2).last_caught_up
        await asyncio.sleep(0.02)
        await peer.next()
        assert leading.progress_of(2).last_caught_up == third, "it is fetched no more"
        assert not stage.members[1].partition.parked

    with_peer(tmp_path, story)


def test_a_follower_that_only_waits_is_not_late_when_the_log_grows(tmp_path: Path) -> None:
    """Lag time is 1 s here: for longer than that it names nothing, and it must not leave the ISR for it."""

    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        loop = asyncio.get_running_loop()
        leader = stage.members[1].partition.leading
        until_then = loop.time() + 1.5 * LAG_S
        while loop.time() < until_then:
            await peer.next(max_wait_ms=100)
        await append(stage)
        assert leader.tick(loop.time()) == () and leader.isr == Settled(frozenset({1, 2}))
        until_then = loop.time() + 1.6 * LAG_S
        while loop.time() < until_then and stage.state().isr == [1, 2]:
            await peer.next(0, max_wait_ms=0)  # it never gets further: now it is late
            await asyncio.sleep(0.05)
        await until(lambda: stage.state().isr == [1])

    with_peer(tmp_path, story)


def test_who_was_refused_is_considered_again_without_being_named(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await stage.zk.multi([Delete(documents.broker_path(2), 0)])
        await stage.elect(1, [1])
        leader = stage.members[1].partition.leading
        await peer.full(0, epoch=1)
        await until(lambda: leader.progress_of(2).refused_until > 0)
        await stage.zk.multi([Create(documents.broker_path(2), b'{"incarnation":1}')])
        async with asyncio.timeout(20):
            while stage.state().isr != [1, 2]:
                await peer.next(max_wait_ms=20)

    with_peer(tmp_path, story)


def test_who_was_dropped_after_it_had_told_all_is_let_in_without_being_named(tmp_path: Path) -> None:
    """Its last word came while the leader, late itself, was dropping it: nobody looked at its fetches again.

    Below min.insync.replicas nothing is appended, so nothing would ever have been named again.
    """

    async def story(stage: Cluster, peer: Peer) -> None:
        await append(stage)
        await peer.full(0)
        await peer.next(1, max_wait_ms=0)
        await peer.next(max_wait_ms=0)
        partition, leader = stage.members[1].partition, stage.members[1].partition.leading
        assert leader.high_watermark == 1, "nothing will change any more"
        state, version = await znodes.read_state(stage.zk, partition.tp)
        alone = state.model_copy(update={"isr": [1], "isr_epochs": {1: 1}})
        version = await znodes.write_state(stage.zk, partition.tp, alone, version, [])
        now = asyncio.get_running_loop().time()
        effects = leader.state_read(BrokerId(1), leader.epoch, [BrokerId(1)], version, now)
        partition.shared.perform(partition, leader, effects)
        assert stage.state().isr == [1]
        async with asyncio.timeout(20):
            while stage.state().isr != [1, 2]:
                await peer.next(max_wait_ms=20)

    with_peer(tmp_path, story)


def test_a_log_start_that_moved_without_a_word_is_told(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        await append(stage)
        await peer.next()
        await peer.next(1)
        assert stage.members[1].partition.log.move_start(1)
        async with asyncio.timeout(20):
            while not (answer := await peer.next()).responses:
                pass
        assert fetched(answer).log_start_offset == 1

    with_peer(tmp_path, story)


def test_what_was_parked_at_connections_that_have_ended_is_forgotten() -> None:
    """A follower of Kafka may come over ever new ones."""

    class Answered(Waiter):
        __slots__ = ("__weakref__",)

    parked, follower = ParkedReplicas(0.0), BrokerId(2)
    fetches = [Answered() for _ in range(3)]
    seen = [weakref.ref(one) for one in fetches]
    for one in fetches:
        parked.put(follower, cast(Any, one), cast(Any, object()))
    fetches.clear()
    del one
    assert [ref() is None for ref in seen] == [True, True, False]


def test_each_thread_of_a_follower_of_kafka_has_its_session_and_its_wait(tmp_path: Path) -> None:
    """Kafka's num.replica.fetchers: each fetches some of the partitions, at its own connection."""

    kafkas = ReplicaState(replica_id=2, replica_epoch=77)

    async def story(stage: Cluster, peer: Peer) -> None:
        leader = stage.members[1]
        other = Peer(await leader.connect("PLAINTEXT"))
        for each in (peer, other):
            assert (await each.full(0, replica_state=kafkas)).error_code == 0
        waiting = peer.send(replica_state=kafkas, max_wait_ms=LONG_MS)
        for _ in range(3):
            assert (await other.next(replica_state=kafkas)).error_code == 0
        assert not cast(Any, waiting).done(), "what another thread fetches does not answer it"
        await append(stage)
        assert fetched(await waiting).records
        assert peer.id != other.id and len(leader.parts.sessions) == 2
        waiting = peer.send(1, replica_state=kafkas, max_wait_ms=LONG_MS)
        loose = Peer(peer.connection)
        loose.epoch = NO_SESSION_EPOCH
        assert (await loose.next(1, replica_state=kafkas)).error_code == 0
        assert (await waiting).error_code == 0, "the next fetch at its connection answers it"
        third = Peer(other.connection)
        await third.full(0, replica_state=ReplicaState(replica_id=3, replica_epoch=78))
        assert len(leader.parts.sessions) == 3
        await other.connection.close()
        await until(lambda: len(leader.parts.sessions) == 1)
        assert len(leader.partition.parked) == 1
        assert (await peer.next(1, replica_state=kafkas)).error_code == 0
        await peer.full(1)
        assert len(leader.parts.sessions) == 1, "the id is one of ours now"

    with_peer(tmp_path, story)


def test_brokers_that_are_gone_keep_no_session(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        shared = stage.members[1].parts.shared
        shared.brokers_are(frozenset(map(BrokerId, (1, 2))))
        assert (await peer.next()).error_code == 0
        shared.brokers_are(frozenset(map(BrokerId, (1,))))
        assert not stage.members[1].partition.parked
        assert (await peer.next()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    with_peer(tmp_path, story)


async def test_two_brokers_start_a_new_one_when_a_session_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        sessions = stage.members[1].parts.sessions
        (held,) = sessions._of.values()
        assert len(held) == 1
        sessions.keep_only(frozenset())
        assert outcome(await ask(client, produce(batch(b"b")))) == (0, 1)
        (again,) = sessions._of.values()
        assert again is not held and stage.members[2].partition.log.end_offset == 2
        stage.members[2].parts.shared.incarnation = Incarnation(2)
        assert outcome(await ask(client, produce(batch(b"c")))) == (0, 2)
        (third,) = sessions._of.values()
        assert third.fetcher.incarnation == 2
        await client.close()


def test_who_is_at_the_end_of_the_log_is_not_read_for_until_there_is_something_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[SessionReading] = []

    def read(reading: SessionReading, original: Any = SessionReading.read) -> Any:
        reads.append(reading)
        return original(reading)

    monkeypatch.setattr(SessionReading, "read", read)

    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0)
        reads.clear()
        waiting = peer.send(0, max_wait_ms=LONG_MS)
        await until(lambda: len(stage.members[1].parts.shared.deadlines) == 1)
        assert reads == [], "there is nothing yet"
        await append(stage)
        assert bytes(fetched(await waiting).records) and len(reads) == 1
        assert bytes(fetched(await peer.next(0, max_wait_ms=LONG_MS)).records), "there is something already"
        beyond = await peer.next(9, max_wait_ms=LONG_MS)
        assert fetched(beyond).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an error is told at once"
        assert fetched(await peer.next(1, min_bytes=0, max_wait_ms=LONG_MS)).error_code == 0, (
            "nothing is enough"
        )
        await stage.elect(1, [1, 2])
        late = await peer.next(max_wait_ms=LONG_MS)
        assert fetched(late).error_code == ErrorCode.FENCED_LEADER_EPOCH
        await append(stage)
        parted = await peer.next(2, epoch=1, last_fetched_epoch=0, max_wait_ms=LONG_MS)
        assert fetched(parted).diverging_epoch.end_offset == 1, "and so is where the logs have parted"
        stranger = ReplicaState(replica_id=3, replica_epoch=1, counts_starts=True)
        refused = await peer.full(2, epoch=1, replica_state=stranger, max_wait_ms=LONG_MS)
        assert fetched(refused).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH, "it is no replica"

    with_peer(tmp_path, story)


def test_a_pulse_counts_only_up_to_the_moment_when_the_log_grew() -> None:
    progress = Progress(caught_up=0.0)
    progress.fetched(Offset(5), Incarnation(1), Offset(5), 1.0)
    progress.pulse = Pulse(9.0)
    progress.beat(Offset(5))
    assert (progress.last_caught_up, progress.last_fetch) == (9.0, 9.0)
    progress.pulse.at = 12.0
    progress.beat(Offset(6))
    assert (progress.last_caught_up, progress.last_fetch) == (9.0, 12.0), "it was behind then"

"""What a reader may ask, and what it is answered: Fetch, ListOffsets, OffsetForLeaderEpoch."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from strandline.broker.replicas.cold_reads import ColdReads
from strandline.client.network.connection import Connection
from strandline.protocol.batches import seal
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.fetch import ReplicaState
from strandline.protocol.records import BatchBuilder
from tests.broker.replica_harness import (
    Cluster,
    ask,
    batch,
    cluster,
    end_of_epoch,
    fetch,
    fetched,
    list_offsets,
    outcome,
    produce,
    until,
)
from tests.patience import HANG_S

Story = Callable[[Cluster, Connection], Coroutine[Any, Any, None]]


def run(directory: Path, story: Story, members: int = 1, isr: tuple[int, ...] = (1,)) -> None:
    async def play() -> None:
        async with cluster(directory, members) as stage:
            await stage.elect(1, isr)
            client = await stage.members[1].connect()
            await story(stage, client)
            await client.close()

    asyncio.run(play())


async def listed(client: Connection, timestamp: int, version: int = 8, **options: Any) -> tuple[int, int]:
    answer = await ask(client, list_offsets(timestamp, **options), version)
    only = answer.topics[0].partitions[0]
    return only.error_code, only.offset


def test_offsets_epochs_sessions_and_ids(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        for value in (b"a", b"b", b"c"):
            assert outcome(await ask(client, produce(batch(value))))[0] == 0

        async def code(*args: Any, version: int = 16, **options: Any) -> int:
            return int(fetched(await ask(client, fetch(*args, **options), version)).error_code)

        assert await code(3) == 0
        assert await code(4) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code(-1) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code(0, current_leader_epoch=0) == 0
        assert await code(0, current_leader_epoch=7) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await code(0, version=4) == 0
        assert await code(0, version=12) == 0
        session = await ask(client, fetch(0, session_id=5, session_epoch=1))
        assert (session.error_code, session.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        old = await ask(client, fetch(0, session_id=0, session_epoch=0), 9)
        assert (old.error_code, old.session_id) == (0, 0), "each fetch is checked for zstd"
        stranger = fetch(0)
        stranger.topics[0].topic_id = UUID(int=99)  # type: ignore[misc]
        assert fetched(await ask(client, stranger)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        parting = fetched(await ask(client, fetch(3, last_fetched_epoch=0)))
        assert parting.diverging_epoch is None
        assert await code(9, last_fetched_epoch=5) == ErrorCode.OFFSET_OUT_OF_RANGE
        await stage.elect(1, [1])
        parting = fetched(await ask(client, fetch(9, last_fetched_epoch=0)))
        assert (parting.diverging_epoch.epoch, parting.diverging_epoch.end_offset) == (0, 3)
        assert await code(0, current_leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
        committed = fetched(await ask(client, fetch(0, isolation_level=1)))
        assert (committed.last_stable_offset, committed.aborted_transactions) == (3, [])
        assert fetched(await ask(client, fetch(0))).aborted_transactions is None

    run(tmp_path, story)


def test_an_error_has_empty_records_and_a_hint(tmp_path: Path) -> None:
    """librdkafka takes null records for damage, throws the answer away unread and asks again at once."""

    async def story(stage: Cluster, client: Connection) -> None:
        follower = await stage.members[2].connect()
        stranger = fetch(0)
        stranger.topics[0].topic_id = UUID(int=99)  # type: ignore[misc]
        for isolation, aborted in ((0, None), (1, [])):
            elsewhere = await ask(follower, fetch(0, isolation_level=isolation))
            told = fetched(elsewhere)
            assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (told.current_leader.leader_id, elsewhere.node_endpoints[0].node_id) == (1, 1)
            assert (bytes(told.records), told.aborted_transactions) == (b"", aborted)
            for refused in (
                fetch(99, isolation_level=isolation),
                fetch(0, isolation_level=isolation, replica_state=ReplicaState(replica_id=2)),
            ):
                told = fetched(await ask(client, refused))
                assert told.error_code in (
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
                assert (bytes(told.records), told.aborted_transactions) == (b"", aborted)
        assert bytes(fetched(await ask(client, stranger)).records) == b""
        await follower.close()

    run(tmp_path, story, members=2, isr=(1, 2))


def test_limits_let_at_least_one_batch_through(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        size = len(batch(b"x" * 500))
        for _ in range(4):
            await ask(client, produce(batch(b"x" * 500)))

        async def got(**options: Any) -> int:
            return len(bytes(fetched(await ask(client, fetch(0, **options))).records))

        assert await got(partition_max_bytes=1) == size
        assert await got(max_bytes=0) == size
        assert await got(partition_max_bytes=2 * size + 10) == 2 * size
        assert await got() == 4 * size

    run(tmp_path, story)


def test_a_follower_is_sent_no_more_than_fits_a_segment(tmp_path: Path) -> None:
    """Kafka's appends an answer as a whole, and gives the partition up if it is larger than a segment."""

    async def story(stage: Cluster, client: Connection) -> None:
        size = len(batch(b"x" * 500))
        follower = await stage.members[1].connect("PLAINTEXT")
        await stage.elect(1, (1,), [TopicConfigEntry(name="segment.bytes", value=str(2 * size + 10))])
        for _ in range(5):
            await ask(client, produce(batch(b"x" * 500)))
        who = {"replica_id": 2, "current_leader_epoch": stage.epoch, "last_fetched_epoch": -1}
        for offset, batches in ((0, 2), (2, 2), (4, 1)):
            found = fetched(await ask(follower, fetch(offset, **who), 12))
            assert (found.error_code, len(bytes(found.records))) == (0, batches * size)
        assert len(bytes(fetched(await ask(client, fetch(0))).records)) == 5 * size
        await follower.close()

    run(tmp_path, story, members=2)


def test_a_parked_fetch_is_woken_or_times_out(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        loop = asyncio.get_running_loop()
        producer = await stage.members[1].connect()
        waiting = client.submit(fetch(0, max_wait_ms=4000), deadline=loop.time() + HANG_S)
        await until(lambda: stage.members[1].partition.parked)
        await ask(producer, produce(batch(b"a")))
        assert len(bytes(fetched(await waiting).records)) > 0
        began = loop.time()
        assert bytes(fetched(await ask(client, fetch(1, max_wait_ms=100))).records) == b""
        assert loop.time() - began > 0.09
        began = loop.time()
        patient = client.submit(fetch(1, max_wait_ms=300, min_bytes=10_000), deadline=loop.time() + HANG_S)
        await ask(producer, produce(batch(b"b")))
        assert len(bytes(fetched(await patient).records)) > 0
        assert loop.time() - began > 0.29
        assert not stage.members[1].partition.parked
        assert len(stage.members[1].parts.shared.deadlines) == 0
        await producer.close()

    run(tmp_path, story)


def test_a_time_that_no_number_can_hold_is_told_as_the_largest(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        builder, largest = BatchBuilder(), (1 << 63) - 1
        builder.append(10_000, None, b"a")
        builder.append(10_000 + largest, None, b"b")
        builder._max_timestamp = 20_000
        await ask(client, produce(builder.build()))
        found = (await ask(client, list_offsets(15_000))).topics[0].partitions[0]
        assert (found.error_code, found.timestamp, found.offset) == (0, largest, 1)

    run(tmp_path, story)


def test_a_parked_fetch_may_name_a_partition_twice(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        producer = await stage.members[1].connect()
        twice = fetch(0, max_wait_ms=4000)
        twice.topics[0].partitions.extend(twice.topics[0].partitions[:])
        waiting = client.submit(twice, deadline=asyncio.get_running_loop().time() + HANG_S)
        await until(lambda: stage.members[1].partition.parked)
        await ask(producer, produce(batch(b"a")))
        assert len(bytes(fetched(await waiting).records)) > 0
        assert not stage.members[1].partition.parked
        await producer.close()

    run(tmp_path, story)


def test_consumers_do_not_see_beyond_the_watermark(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        await stage.silence(2)
        await ask(client, produce(batch(b"a"), acks=1))
        assert stage.members[1].partition.log.end_offset == 1
        answer = fetched(await ask(client, fetch(0)))
        assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 0, b"")
        assert fetched(await ask(client, fetch(1))).error_code == 0, "within the log, but not committed yet"
        assert await listed(client, -1) == (0, 0)
        assert await listed(client, -1, replica_id=-2) == (0, 1)

    run(tmp_path, story, members=2, isr=(1, 2))


def test_followers_are_served_only_where_brokers_speak(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        await ask(client, produce(batch(b"a")))
        liar = fetch(0, replica_state=ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True))
        assert fetched(await ask(client, liar)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        old = fetch(0, replica_id=2)
        assert fetched(await ask(client, old, 12)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        unassigned = fetch(0, replica_state=ReplicaState(replica_id=9, replica_epoch=1, counts_starts=True))
        answer = await ask(stage.members[1].control, unassigned, 17)
        assert fetched(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, story)


def test_list_offsets(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        for value in (b"a", b"b"):
            await ask(client, produce(batch(value)))
        assert await listed(client, -1) == (0, 2)
        assert await listed(client, -2) == (0, 0)
        assert await listed(client, -4) == (0, 0)
        assert (await listed(client, -3))[0] == 0
        assert await listed(client, -5, version=9) == (0, -1), "nothing is in remote storage"
        for place, before in ((-3, 6), (-4, 7), (-5, 8), (-6, 9)):
            refused = await listed(client, place, version=before)
            assert refused == (ErrorCode.UNSUPPORTED_VERSION, -1), "it is no time"
        assert await listed(client, 1000) == (0, 0)
        assert await listed(client, 1001) == (0, -1)
        stage.members[1].partition.leading.epoch_start = 5
        assert await listed(client, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await listed(client, -1, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert await listed(client, -2) == (0, 0)

    run(tmp_path, story)


def test_a_partition_named_again_is_not_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lookup takes a thread, and all requests share a queue for it."""
    begun, run_one = [], ColdReads.run

    def counted(self: ColdReads, *given: Any) -> bool:
        begun.append(given)
        return run_one(self, *given)

    async def story(stage: Cluster, client: Connection) -> None:
        await ask(client, produce(batch(b"a")))
        monkeypatch.setattr(ColdReads, "run", counted)
        many = list_offsets(1000)
        many.topics[0].partitions *= 2000
        answer = await ask(client, many)
        assert [(p.error_code, p.offset) for p in answer.topics[0].partitions] == [(0, 0)] * 2000
        assert len(begun) == 1

    run(tmp_path, story)


def test_epoch_ends(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        await ask(client, produce(batch(b"a")))
        await stage.elect(1, [1])
        await ask(client, produce(batch(b"b")))

        async def end(epoch: int, current: int = -1, replica: int = -1) -> tuple[int, int, int]:
            request = end_of_epoch(epoch, current, replica_id=replica)
            only = (await ask(client, request)).topics[0].partitions[0]
            return only.error_code, only.leader_epoch, only.end_offset

        assert await end(0) == (0, 0, 1)
        assert await end(1) == (0, 1, 2)
        assert await end(5) == (0, -1, -1)
        assert (await end(0, current=0))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await end(0, replica=2))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(tmp_path, story)


def test_a_log_that_has_rotted_takes_its_replica_offline_and_not_the_broker(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        for value in (b"a", b"b", b"c"):
            await ask(client, produce(batch(value)))
        partition = stage.members[1].partition
        segment = partition.log.segments[0]
        segment.file.pwrite(segment.size // 3 + 16, b"\x63")  # the magic of the second batch
        answer = await ask(client, fetch(2))
        assert fetched(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.offline is not None
        assert (await listed(client, 1000))[0] == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, story)


def test_a_batch_that_lies_about_its_records_does_not_break_lookups(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        lying = bytearray(batch(b"a"))
        lying[-3] = 0x7F  # a length inside the record
        seal(lying, 0, len(lying))
        await ask(client, produce(bytes(lying)))
        await ask(client, produce(batch(b"b")))
        assert await listed(client, 1000) == (0, 0), "the batch's own word is what there is"
        assert await listed(client, -3) == (0, 0)

    run(tmp_path, story)


async def test_a_followers_parked_fetch_is_woken_after_the_append_and_before_the_watermark(
    tmp_path: Path,
) -> None:
    """The order of a leader: append, its log ends later, the waiting fetch wakes, and only what the follower
    asks next raises the watermark. Woken before the append it would bring nothing; a watermark raised at the
    wake-up would show consumers what the follower has not got yet."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        leader = stage.members[1].partition
        follower = await stage.members[1].connect("PLAINTEXT")
        client = await stage.members[1].connect()
        me = ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True)
        soon = asyncio.get_running_loop().time() + HANG_S
        in_epoch = {"replica_state": me, "current_leader_epoch": stage.epoch}
        waiting = follower.submit(fetch(0, 5_000, **in_epoch), deadline=soon)
        await until(lambda: leader.parked)
        acknowledged = client.submit(produce(batch(b"a")), deadline=soon)
        woken = fetched(await waiting)
        assert len(woken.records) and woken.high_watermark == 0, "with the record, and the old watermark"
        assert (leader.log.end_offset, leader.high_watermark) == (1, 0) and not acknowledged.done()
        told = follower.submit(fetch(1, 0, **in_epoch), deadline=soon)
        assert outcome(await acknowledged) == (0, 0), "that it asks from 1 says that it has 0"
        assert fetched(await told).high_watermark == 1
        await client.close()
        await follower.close()

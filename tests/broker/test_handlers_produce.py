"""What a producer may send, and what it is answered."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.replicas.partition import Partition
from strandline.client.network.connection import Connection, ConnectionLost
from strandline.protocol.batches import seal
from strandline.protocol.errors import ErrorCode, UnknownProducerId
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.records import BatchBuilder
from tests.broker.replica_harness import TOPIC, Cluster, ask, batch, cluster, outcome, produce, until
from tests.patience import HANG_S

Story = Callable[[Cluster, Connection], Coroutine[Any, Any, None]]


def run(directory: Path, story: Story, members: int = 1, isr: tuple[int, ...] = (1,), **configs: str) -> None:
    async def play() -> None:
        async with cluster(directory, members) as stage:
            await stage.elect(1, isr, [TopicConfigEntry(name=n, value=v) for n, v in configs.items()])
            client = await stage.members[1].connect()
            await story(stage, client)
            await client.close()

    asyncio.run(play())


def broken(records: bytes, at: int, value: int) -> bytes:
    return records[:at] + bytes([value]) + records[at + 1 :]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (produce(batch(b"a"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(batch(b"a"), acks=-2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(None), ErrorCode.INVALID_RECORD),
        (produce(b""), ErrorCode.INVALID_RECORD),
        (produce(batch(b"a")[:60]), ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a")[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a") + batch(b"b")), ErrorCode.INVALID_RECORD),
        (produce(broken(batch(b"a"), 65, 99)), ErrorCode.CORRUPT_MESSAGE),
        (produce(batch(b"a"), topic="__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (produce(batch(b"a"), topic="other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(b"a"), index=5), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (produce(batch(b"a", transactional=True)), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_refused_leaves_the_log_alone(
    tmp_path: Path, request_: ProduceRequest, code: ErrorCode
) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        assert outcome(await ask(client, request_)) == (code, -1)
        assert stage.members[1].partition.log.end_offset == 0

    run(tmp_path, story)


def test_acks_1_and_a_duplicate(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        first = batch(b"a", b"b", producer_id=5, sequence=0)
        assert outcome(await ask(client, produce(first, acks=1))) == (0, 0)
        second = batch(b"c", producer_id=5, sequence=2)
        assert outcome(await ask(client, produce(second, acks=1))) == (0, 2)
        assert outcome(await ask(client, produce(first, acks=1))) == (0, 0)
        gap = batch(b"d", producer_id=5, sequence=9)
        assert outcome(await ask(client, produce(gap)))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert stage.members[1].partition.log.end_offset == 3

    run(tmp_path, story)


def test_an_unknown_producer_is_told_where_the_log_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it Java's producer sends the batch again until its time is over."""

    def refuse(*_: object) -> None:
        raise UnknownProducerId()

    async def story(stage: Cluster, client: Connection) -> None:
        monkeypatch.setattr(Partition, "append", refuse)
        response = await ask(client, produce(batch(b"a", producer_id=5, sequence=0)))
        (topic,) = response.responses
        (refused,) = topic.partition_responses
        assert (refused.error_code, refused.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)

    run(tmp_path, story)


def test_a_duplicate_with_acks_all_waits_for_the_watermark(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        follower = stage.members[2].partition
        await stage.silence(2)
        again = batch(b"a", producer_id=5, sequence=0)
        loop = asyncio.get_running_loop()
        first = client.submit(produce(again, timeout_ms=100), deadline=loop.time() + HANG_S)
        assert outcome(await first)[0] == ErrorCode.REQUEST_TIMED_OUT
        second = client.submit(produce(again), deadline=loop.time() + HANG_S)
        await until(lambda: len(stage.members[1].partition.acks) > 0)
        assert not second.done()
        stage.members[2].parts.fetchers.follow(follower)
        assert outcome(await second) == (0, 0)
        assert stage.members[1].partition.log.end_offset == 1

    run(tmp_path, story, members=2, isr=(1, 2))


def test_min_insync_replicas(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        await stage.silence(2)
        after = client.submit(produce(batch(b"a")), deadline=asyncio.get_running_loop().time() + HANG_S)
        assert outcome(await after)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert stage.members[1].partition.log.end_offset == 1
        refused = (await ask(client, produce(batch(b"b")))).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        sentence = "Messages are rejected since there are fewer in-sync replicas than required."
        assert refused.error_message == sentence, "what Kafka's clients know it by"
        assert outcome(await ask(client, produce(batch(b"b"), acks=1))) == (0, 1)

    run(tmp_path, story, members=2, isr=(1, 2), **{"min.insync.replicas": "2"})


def test_acks_0_is_not_answered_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        soon = asyncio.get_running_loop().time() + HANG_S
        client.submit(produce(batch(b"a"), acks=0), deadline=soon)
        assert outcome(await ask(client, produce(batch(b"b"), acks=1))) == (0, 1)
        client.submit(produce(batch(b"a"), acks=0, index=5), deadline=soon)
        with pytest.raises(ConnectionLost):
            await ask(client, produce(batch(b"b"), acks=1))

    run(tmp_path, story)


def test_one_request_for_many_partitions_is_answered_in_its_order(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        places = [5, 0, 0]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=TOPIC,
                    partition_data=[PartitionProduceData(index=i, records=batch(b"a")) for i in places],
                )
            ],
        )
        answers = (await ask(client, request)).responses[0].partition_responses
        assert [(a.index, a.error_code) for a in answers] == [(5, 6), (0, 0)]
        assert stage.members[1].partition.log.end_offset == 1, "a partition named twice is written once"

    run(tmp_path, story)


def test_compacted_topics_want_keys_and_append_time_is_told(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        answer = (await ask(client, produce(batch(b"a")))).responses[0].partition_responses[0]
        assert answer.error_code == 0
        assert answer.log_append_time_ms > 1_000_000

    run(
        tmp_path,
        story,
        **{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
    )


def test_times_that_the_broker_replaces_have_no_bounds(tmp_path: Path) -> None:
    """Kafka looks at them only where the topic keeps them."""
    bounds = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}

    async def replaced(stage: Cluster, client: Connection) -> None:
        for version in (6, 11):
            answer = await ask(client, produce(batch(b"a")), version)
            assert outcome(answer)[0] == 0

    async def kept(stage: Cluster, client: Connection) -> None:
        assert outcome(await ask(client, produce(batch(b"a")))) == (ErrorCode.INVALID_TIMESTAMP, -1)

    run(tmp_path / "replaced", replaced, **{"message.timestamp.type": "LogAppendTime", **bounds})
    run(tmp_path / "kept", kept, **bounds)


def test_a_repetition_is_answered_with_the_time_that_its_records_have(tmp_path: Path) -> None:
    """A producer that is not told takes its own time for theirs."""

    async def story(stage: Cluster, client: Connection) -> None:
        numbered = produce(batch(b"a", producer_id=5, sequence=0))
        times = [
            (await ask(client, numbered)).responses[0].partition_responses[0].log_append_time_ms
            for _ in range(2)
        ]
        assert times[0] == times[1] > 1_000_000
        assert stage.members[1].partition.log.end_offset == 1

    run(tmp_path, story, **{"message.timestamp.type": "LogAppendTime"})


def test_looking_inside(tmp_path: Path) -> None:
    lying = bytearray(batch(b"a"))
    lying[23:27], lying[57:61] = (6).to_bytes(4, "big"), (7).to_bytes(4, "big")
    seal(lying, 0, len(lying))
    nameless = BatchBuilder()
    nameless.append(1000, None, b"v", [])

    async def story(stage: Cluster, client: Connection) -> None:
        for records in (bytes(lying), nameless.build()):
            assert outcome(await ask(client, produce(records))) == (ErrorCode.INVALID_RECORD, -1)
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)

    run(tmp_path, story, **{"cleanup.policy": "compact"})


@pytest.mark.parametrize("count", [3, 100])
def test_two_records_at_one_offset_come_into_no_compacted_topic(tmp_path: Path, count: int) -> None:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(1000, b"k", b"v", [])
    twice = bytearray(builder.build())
    at = 61 + 9 + 3  # the second record's: nine bytes each, behind length, attributes and time
    assert twice[at] == 2
    twice[at] = 0
    seal(twice, 0, len(twice))

    async def story(stage: Cluster, client: Connection) -> None:
        answer = (await ask(client, produce(bytes(twice)), 8)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "do not increase" in answer.error_message
        assert stage.members[1].partition.log.end_offset == 0

    run(tmp_path, story, **{"cleanup.policy": "compact"})


@pytest.mark.parametrize("count", [3, 100])
def test_each_record_without_a_key_is_named_where_the_version_can(tmp_path: Path, count: int) -> None:
    mixed = BatchBuilder()
    for number in range(count):
        mixed.append(1000, None if number in (1, count - 1) else b"k", b"v", [])

    async def story(stage: Cluster, client: Connection) -> None:
        answer = (await ask(client, produce(mixed.build()), 8)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, count - 1]
        assert all("key" in error.batch_index_error_message for error in answer.record_errors)
        assert "2 records have no key" in answer.error_message
        assert outcome(await ask(client, produce(mixed.build()), 7)) == (ErrorCode.INVALID_RECORD, -1)
        assert stage.members[1].partition.log.end_offset == 0

    run(tmp_path, story, **{"cleanup.policy": "compact"})

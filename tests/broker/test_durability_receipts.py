"""Who had a batch when acks=all was answered: told to a producer that asks, and to nobody else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import BrokerId, Incarnation, Offset
from strandline.client.network.connection import Connection
from strandline.protocol.apis import Api
from strandline.protocol.connection import ClientEnd, frame_response
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.produce import (
    BatchDurability,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaCopy,
    TopicProduceResponse,
)
from strandline.protocol.primitives import skip_tags
from strandline.replication.leader import Leader
from tests.broker.replica_harness import Cluster, ask, batch, cluster, outcome, produce, until

ASK_BEFORE_TAGS = 8  # the last version of Produce without tagged fields


def asking(records: bytes, **of: Any) -> ProduceRequest:
    plain = produce(records, **of)
    return ProduceRequest(
        acks=plain.acks, timeout_ms=plain.timeout_ms, topic_data=plain.topic_data, wants_durability=True
    )


def told(response: Any) -> BatchDurability | None:
    found: BatchDurability | None = response.responses[0].partition_responses[0].durability
    return found


def copies(durability: BatchDurability | None) -> dict[int, int]:
    assert durability is not None
    return {one.broker: one.after_us for one in durability.copies}


async def test_the_isr_members_and_when_each_was_seen_to_have_it(tmp_path: Path) -> None:
    """Followers that fetch by hand, and a clock that stands: the times are exact."""
    async with cluster(tmp_path, 3) as stage:
        await stage.elect(1, [1, 2, 3])
        await stage.silence(2)
        await stage.silence(3)
        partition = stage.members[1].partition
        leader = partition.leading
        client = await stage.members[1].connect()
        before = leader.progress_of(BrokerId(2)).incarnation
        answer = client.submit(asking(batch(b"a", b"b")), deadline=asyncio.get_running_loop().time() + 20)
        await until(lambda: len(leader.copies) == 1)
        (watched,) = leader.copies

        def fetches(follower: int, offset: int, after_s: float) -> None:
            now = watched.appended_at + after_s
            life = Incarnation(max(before, 0))
            effects = leader.fetched(BrokerId(follower), life, Offset(offset), now)
            partition.mark()
            partition.shared.perform(partition, leader, effects)

        fetches(2, 1, 0.0001)
        fetches(2, 2, 0.0012)
        assert not answer.done()
        fetches(3, 2, 0.0305)
        durability = told(await answer)
        assert copies(durability) == {1: 0, 2: 1_200, 3: 30_500}
        assert durability is not None and (durability.replicas, durability.min_isr) == (3, 1)
        assert not durability.is_flushed, "nothing has asked for a flush"
        assert not leader.copies, "forgotten with the answer"
        await client.close()


async def test_real_followers_are_named_with_their_times(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as stage:
        await stage.elect(1, [1, 2, 3])
        client = await stage.members[1].connect()
        began = asyncio.get_running_loop().time()
        all_three = copies(told(await ask(client, asking(batch(b"a")))))
        took_us = (asyncio.get_running_loop().time() - began) * 1_000_000
        assert list(all_three) == [1, 2, 3] and all_three[1] == 0
        assert all(0 < after < took_us for broker, after in all_three.items() if broker != 1)
        await client.close()


async def test_a_batch_that_is_sent_again_was_there_before(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        again = batch(b"a", producer_id=5, sequence=0)
        assert copies(told(await ask(client, asking(again))))[2] >= 0
        assert copies(told(await ask(client, asking(again)))) == {1: 0, 2: -1}
        await client.close()


async def test_flushed_where_it_is_flushed_before_it_is_acknowledged(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1], [TopicConfigEntry(name="flush.messages", value="1")])
        client = await stage.members[1].connect()
        durability = told(await ask(client, asking(batch(b"a"))))
        assert durability is not None and durability.is_flushed and copies(durability) == {1: 0}
        await client.close()


async def test_what_is_not_acknowledged_is_forgotten(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        await stage.silence(2)
        leader = stage.members[1].partition.leading
        client = await stage.members[1].connect()
        late = await ask(client, asking(batch(b"a"), timeout_ms=50))
        assert outcome(late)[0] == ErrorCode.REQUEST_TIMED_OUT and told(late) is None
        assert not leader.copies
        await client.close()


async def plain_answers(stage: Cluster, client: Connection) -> list[ProduceResponse]:
    return [
        await ask(client, produce(batch(b"a"))),
        await ask(client, produce(batch(b"a"), acks=1)),
        await ask(client, asking(batch(b"a"), acks=1)),
        await ask(client, asking(batch(b"a")), ASK_BEFORE_TAGS),
    ]


async def test_nobody_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tag, with acks=1, before there were tags: nothing is watched, and nothing is answered."""
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        leader = stage.members[1].partition.leading
        monkeypatch.setattr(Leader, "watch", None)  # it would raise
        assert [told(one) for one in await plain_answers(stage, client)] == [None] * 4
        assert not leader.copies
        await client.close()


# --- on the wire -----------------------------------------------------------------------------------


def answered(durability: BatchDurability | None) -> ProduceResponse:
    one = PartitionProduceResponse(
        index=3, base_offset=7, log_append_time_ms=-1, log_start_offset=2, durability=durability
    )
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[one])])


WITNESSED = BatchDurability(
    copies=[ReplicaCopy(broker=1, after_us=0), ReplicaCopy(broker=2, after_us=900)], replicas=3, min_isr=2
)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_an_answer_without_it_has_the_bytes_of_kafkas_schema(version: int) -> None:
    """Field by field as Kafka's JSON has them: no byte tells that there is such a tag."""
    (sent,) = frame_response(Api.PRODUCE, version, 5, answered(None))
    expected = (
        (5).to_bytes(4, "big") + b"\0"  # correlation id, tags of the header
        + b"\x02" + b"\x02t" + b"\x02"  # one topic, its name, one partition
        + (3).to_bytes(4, "big") + (0).to_bytes(2, "big") + (7).to_bytes(8, "big")
        + (-1).to_bytes(8, "big", signed=True) + (2).to_bytes(8, "big")
        + b"\x01" + b"\0" + b"\0"  # no record errors, no message, no tags
        + b"\0" + (0).to_bytes(4, "big") + b"\0"  # tags of the topic, throttle time, tags
    )  # fmt: skip
    assert bytes(sent) == len(expected).to_bytes(4, "big") + expected


@pytest.mark.parametrize("version", [9, 10, 11])
def test_a_reader_that_does_not_know_the_tag_skips_it(version: int) -> None:
    with_it = bytes(frame_response(Api.PRODUCE, version, 5, answered(WITNESSED))[0])
    without = bytes(frame_response(Api.PRODUCE, version, 5, answered(None))[0])
    at = next(i for i in range(4, len(without)) if with_it[i] != without[i])
    assert with_it[at] == 1 and without[at] == 0, (
        "the count of tags of the partition is all that differs before"
    )
    behind = skip_tags(with_it, at + 1, with_it[at], len(with_it), "Partition", None)
    assert with_it[behind:] == without[at + 1 :]
    assert with_it[4:at] == without[4:at]


@pytest.mark.parametrize("version", range(3, 12))
def test_a_request_without_the_wish_has_the_bytes_that_it_had(version: int) -> None:
    def sent(request: ProduceRequest) -> bytes:
        return b"".join(bytes(part) for part in ClientEnd("c").send(request, version))

    plain, wishing = sent(produce(batch(b"a"))), sent(asking(batch(b"a")))
    if version < 9:
        assert plain == wishing, "there are no tags to wish with"
    else:
        assert plain[4:-1] == wishing[4 : len(plain) - 1] and plain[-1] == 0, "its last byte: no tags"
        assert wishing[len(plain) - 1 :] == b"\x01\x90\x4e\x01\x01", "one tag, 10000, one byte long: true"

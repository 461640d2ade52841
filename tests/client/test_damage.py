"""Damaged batches: what lies before them is handed out, what lies behind is not skipped."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client import Consumer
from strandline.client.consumer.buffer import Handout
from strandline.client.consumer.positions import FetchedBatches, PartitionPosition, surveyed
from strandline.client.consumer.unpacking import Unpacker
from strandline.protocol.batches import LEADER_EPOCH_AT
from strandline.protocol.errors import ApiError, CorruptMessage
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import Double

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch_at(base: int, count: int = 3) -> bytearray:
    builder = BatchBuilder()
    for n in range(base, base + count):
        builder.append(1, None, b"%d" % n)
    data = bytearray(builder.build())
    data[0:8] = base.to_bytes(8, "big")
    return data


def damaged(base: int) -> bytearray:
    data = batch_at(base)
    data[-2] ^= 0xFF
    return data


def place_with(partition: TopicPartition, *chunks: bytes) -> PartitionPosition:
    place = PartitionPosition(partition)
    place.seek(0)
    for chunk in chunks:
        hold(place, chunk)
    return place


def hold(place: PartitionPosition, chunk: bytes) -> None:
    found = surveyed(chunk, place.fetch_at)
    place.fetched(FetchedBatches(chunk, place.fetch_at, found.end, found.batches))


def handout_of(*places: PartitionPosition) -> Handout:
    by_name = {place.partition: place for place in places}
    return Handout(lambda: by_name, Unpacker(lambda key: key, lambda value: int(value), True))


def poll(handout: Handout) -> list[tuple[int, int]]:
    handout.came_back()
    handout.fill(500)
    return [(one.partition, one.offset) for one in handout.take(500)]


def poll_batch(handout: Handout) -> list[tuple[int, int]]:
    handout.came_back()
    return [
        (partition.partition, int(offset))
        for partition, columns in handout.columns()
        for offset in columns.offset
    ]


@pytest.mark.parametrize("ask", [poll, poll_batch])
@pytest.mark.parametrize("in_chunks", [False, True], ids=["one fetch", "two fetches"])
def test_damage_is_raised_until_the_caller_seeks_past_it(ask: Any, in_chunks: bool) -> None:
    """As in Kafka: good records before it are handed out, those behind it only after a seek."""
    parts = (
        (batch_at(0), damaged(3) + batch_at(6)) if in_chunks else (batch_at(0) + damaged(3) + batch_at(6),)
    )
    place = place_with(T0, *map(bytes, parts))
    handout = handout_of(place)
    assert ask(handout) == [(0, 0), (0, 1), (0, 2)]
    for _ in range(3):
        with pytest.raises(CorruptMessage):
            ask(handout)
        assert (place.position, place.processed) == (3, 3)
    place.seek(6)
    hold(place, bytes(batch_at(6)))
    assert ask(handout) == [(0, 6), (0, 7), (0, 8)]


@pytest.mark.parametrize("ask", [poll, poll_batch])
@pytest.mark.parametrize("first", [T0, T1], ids=["behind the good one", "before the good one"])
def test_damage_in_one_partition_costs_no_record_of_another(ask: Any, first: TopicPartition) -> None:
    good, bad = place_with(T0, bytes(batch_at(0, 9))), place_with(T1, bytes(damaged(0)))
    handout = handout_of(*sorted((good, bad), key=lambda one: one.partition != first))
    seen: list[tuple[int, int]] = []
    raised = 0
    for _ in range(4):
        try:
            seen += ask(handout)
        except CorruptMessage:
            raised += 1
    handout.came_back()
    assert seen == [(0, n) for n in range(9)] and raised == 3
    assert (good.processed, bad.processed) == (9, 0)


@pytest.mark.parametrize("ask", [poll, poll_batch])
def test_a_batch_that_is_damaged_behind_its_checksum_is_raised_too(ask: Any) -> None:
    """A count that cannot be true, under a checksum that was made for it: nothing is passed over."""
    bad = batch_at(3)
    bad[57:61] = (1000).to_bytes(4, "big")
    place = place_with(T0, bytes(batch_at(0) + bad + batch_at(6)))
    by_name = {T0: place}
    handout = Handout(lambda: by_name, Unpacker(lambda key: key, lambda value: int(value), False))
    assert ask(handout) == [(0, 0), (0, 1), (0, 2)]
    for _ in range(2):
        with pytest.raises((Malformed, ApiError)):
            ask(handout)
    assert place.processed == 3


@pytest.mark.parametrize("ask", [poll, poll_batch])
def test_records_before_a_marker_that_is_damaged_are_handed_out(ask: Any) -> None:
    marker = marker_batch(1, 0, EndMarker(True, 0), 1)
    marker[0:8] = (3).to_bytes(8, "big")
    marker[-1] ^= 0xFF
    place = place_with(T0, bytes(batch_at(0) + marker + batch_at(4)))
    assert ask(handout_of(place)) == [(0, 0), (0, 1), (0, 2)]
    assert place.fetch_at == 3, "the next fetch begins with the marker, and tells"
    with pytest.raises(Malformed):
        hold(place, bytes(marker + batch_at(4)))


@pytest.mark.parametrize("policy", ["latest", "earliest", "none"])
def test_a_damaged_header_that_names_an_offset_beyond_the_log_moves_nobody(run: Any, policy: str) -> None:
    """The next fetch begins where the header says that its batch ends: the answer, that there is no such
    offset, was taken for a reason to reset, and what was damaged was passed over in silence."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            for base in (0, 3, 6):
                log.append(bytes(batch_at(0)))
                assert log.end == base + 3
            at, whole = log.batches[1]
            bad = bytearray(whole)
            bad[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4] = (-1).to_bytes(4, "big", signed=True)
            bad[23] ^= 0x10  # the highest byte of the last offset delta
            log.batches[1:] = [(at, bytes(bad))]
            options: dict[str, Any] = {"auto_offset_reset": policy, "fetch_max_wait_ms": 20}
            async with Consumer(double.servers, **options) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert [one.offset for one in await consumer.poll(2000)] == [0, 1, 2]
                for _ in range(20):
                    with pytest.raises(CorruptMessage):
                        await consumer.poll(2000)
                    await asyncio.sleep(0.02)
                assert await consumer.position(T0) == 3

    run(story())


def test_an_offset_that_cannot_be_ends_no_other_partition(run: Any, monkeypatch: Any) -> None:
    """The offset of a batch is not under its checksum. One that no fetch could name ended them all."""

    async def story() -> None:
        async with Double(1) as double:
            bad, good = double.topic("t", 2)
            for log in (bad, good):
                log.append(bytes(batch_at(0)))
            odd = ((1 << 63) - 2).to_bytes(8, "big") + bytes(batch_at(0))[8:]
            monkeypatch.setattr(bad, "read", lambda *_: odd)
            async with Consumer(double.servers, fetch_max_wait_ms=20) as consumer:
                consumer.assign([T0, T1])
                consumer.seek(T0, 0)
                consumer.seek(T1, 0)
                seen: list[int] = []
                for want in (3, 6):
                    while len(seen) < want:
                        with suppress(CorruptMessage):
                            seen += [one.offset for one in await consumer.poll(100)]
                    good.append(bytes(batch_at(0)))
                assert seen == list(range(6)) and await consumer.position(T0) == 0

    run(story())

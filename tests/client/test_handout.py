"""What a consumer hands out of what it has fetched, and how far it says that its caller is.

All of it holds for the compiled kernel, for its source run as Python, and without a kernel.
"""

import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.consumer.buffer import Handout
from strandline.client.consumer.positions import FetchedBatches, PartitionPosition, surveyed
from strandline.client.consumer.unpacking import Unpacker
from strandline.client.results import ConsumerRecord
from strandline.client.serializers import bytes_in
from strandline.protocol import kernel
from strandline.protocol.batches import headers, stamp, stamp_append_time
from strandline.protocol.compression import Codec
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, iterate
from tests.protocol import damaged
from tests.protocol.kernel_forms import FORMS, kernel_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WRAPPED = 1 << 64


@pytest.fixture(scope="module", params=FORMS, autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way the records are made: "numpy" stands for no kernel."""
    chosen = kernel_of(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", lambda: chosen)
        yield request.param


def fetched(place: PartitionPosition, data: bytes, aborted: list[tuple[int, int]] | None = None) -> None:
    """The answer to the place's next fetch."""
    found = surveyed(memoryview(data), place.fetch_at, aborted or ())
    place.fetched(FetchedBatches(memoryview(data), place.fetch_at, found.end, found.batches))


def place_at(offset: int, *chunks: bytes, partition: TopicPartition = T0) -> PartitionPosition:
    place = PartitionPosition(partition)
    place.seek(offset)
    for chunk in chunks:
        fetched(place, chunk)
    return place


def handout_of(*places: PartitionPosition, value_in: Any = bytes_in, **more: Any) -> Handout:
    by_name = {place.partition: place for place in places}
    return Handout(lambda: by_name, Unpacker(bytes_in, value_in, True), **more)


def log_of(source: random.Random, batches: int, records_max: int = 8) -> bytes:
    """Batches of all kinds, with gaps between them and headers here and there."""
    parts, offset = [], 10
    for _ in range(batches):
        builder = BatchBuilder(source.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]))
        count = source.randint(1, records_max)
        for nth in range(count):
            key = source.choice([None, b"", b"key"])
            value = source.choice([None, b"", b"v" * 90])
            pairs = [("n", b"1"), ("ü", None), ("", b"")][: source.choice([0, 0, 1, 3])]
            builder.append(1000 + nth, key, value, pairs)
        data = bytearray(builder.build())
        stamp(data, 0, offset, source.randint(0, 5))
        if source.random() < 0.3:
            stamp_append_time(data, 0, 99_000)
        parts.append(bytes(data))
        offset += count + source.choice([0, 0, 7])
    return b"".join(parts)


def wanted(run: bytes, least: int) -> list[tuple[Any, ...]]:
    """What the reference makes of it."""
    return [
        (T0.topic, T0.partition, *record, int(header.is_log_append_time), header.leader_epoch)
        for pos, header in headers(run)
        for record in iterate(run[pos : pos + header.size])
        if record.offset >= least
    ]


def taken(handout: Handout, source: random.Random) -> Iterator[ConsumerRecord]:
    """All records, some one by one, some many at once."""
    while True:
        handout.came_back()
        handout.fill(source.randint(1, 30))
        if handout.is_empty:
            return
        if source.random() < 0.5:
            yield from handout.take(source.randint(1, 30))
        else:
            yield handout.next()
            while handout.run.at < handout.run.end and source.random() < 0.9:
                handout.run.at += 1
                yield handout.run.records[handout.run.at - 1]


@pytest.mark.parametrize("seed", range(12))
def test_records_are_those_of_the_reference_however_they_are_taken(seed: int) -> None:
    source = random.Random(seed)
    run = log_of(source, 12)
    ends = [header.next_offset for _, header in headers(run)]
    least = source.randint(10, ends[-1] - 1)
    place = place_at(least, run)
    found = list(taken(handout_of(place), source))
    assert found == wanted(run, least)
    assert all(type(one) is ConsumerRecord for one in found)
    assert {one.timestamp_type.name for one in found} <= {"CREATE_TIME", "LOG_APPEND_TIME"}
    assert (place.position, place.processed, len(place.chunks)) == (ends[-1], ends[-1], 0)


@pytest.mark.parametrize("seed", range(4))
def test_damage_costs_none_of_the_records_before_it_and_has_the_references_sentence(
    seed: int, form: str
) -> None:
    source = random.Random(seed)
    errors = 0
    for _ in range(60 if form == "plain" else 200):
        run = damaged.batch(source)
        want, said = list[Any](), ""
        try:
            for record in iterate(run):
                want.append(record._replace(timestamp=record.timestamp % WRAPPED))
        except Malformed as error:
            said = str(error)
        want = rising(want)
        found, heard = list[Any](), ""
        handout = handout_of(place_at(7, run))
        try:
            for record in taken(handout, source):
                found.append((record[2], record[3] % WRAPPED, *record[4:7]))
        except Malformed as error:
            heard = str(error)
        assert found == want, run.hex()
        assert heard == said, run.hex()
        if said:
            errors += 1
            with pytest.raises(Malformed) as again:
                handout.fill(1)
            assert str(again.value) == said
    assert errors > 10


def rising(records: list[Any]) -> list[Any]:
    """Without those whose offset is below the one before, which no reader goes back to."""
    least, kept = 0, []
    for record in records:
        if record.offset >= least:
            kept.append(record)
            least = record.offset + 1
    return kept


def test_a_failed_checksum_is_raised_after_the_records_before_it() -> None:
    source = random.Random(3)
    good, bad = log_of(source, 2), bytearray(log_of(source, 1))
    bad[:8] = (100).to_bytes(8, "big")
    bad[-1] ^= 1
    place = place_at(0, good + bytes(bad))
    handout = handout_of(place)
    found = []
    for _ in range(3):
        with pytest.raises(CorruptMessage):
            found += list(taken(handout, source))
            raise AssertionError("the damaged batch was passed over")
    place = place_at(0, good + bytes(bad))
    handout = handout_of(place)
    handout.fill(1000)
    assert handout.take(1000) == wanted(good, 0)
    assert place.position == found_end(good)


def found_end(run: bytes) -> int:
    return wanted(run, 0)[-1][2] + 1


def test_what_cannot_be_deserialized_is_raised_until_the_caller_seeks_past_it() -> None:
    builder = BatchBuilder()
    for n in range(6):
        builder.append(1, None, b"x" if n == 3 else b"%d" % n)
    run = builder.build()
    place = place_at(0, run)
    handout = handout_of(place, value_in=int)
    handout.fill(500)
    assert [one.value for one in handout.take(500)] == [0, 1, 2]
    for _ in range(3):
        handout.came_back()
        with pytest.raises(ValueError, match="invalid literal"):
            handout.fill(500)
        assert (place.position, place.processed) == (3, 3)
    place.seek(4)
    fetched(place, run)
    handout.fill(500)
    assert [one.value for one in handout.take(500)] == [4, 5]


@pytest.mark.parametrize("seed", range(6))
def test_the_position_follows_each_record_and_what_is_done_each_coming_back(seed: int) -> None:
    """A model: an iterator's caller is done with a record when it takes the next one."""
    source = random.Random(seed)
    run = log_of(source, 6)
    place = place_at(10, run)
    handout = handout_of(place, observed=source.random() < 0.3)
    position, done = 10, 10
    while True:
        handout.came_back()
        done = position
        handout.fill(7)
        if handout.is_empty:
            break
        if source.random() < 0.4:
            position = handout.take(source.randint(1, 9))[-1].offset + 1
        else:
            position = handout.next().offset + 1
            while handout.run.at < handout.run.end and source.random() < 0.8:
                done = position
                handout.run.at += 1
                position = handout.run.records[handout.run.at - 1].offset + 1
                if source.random() < 0.5:
                    assert (place.position, place.processed) == (position, done)
        assert (place.position, place.processed) == (position, done)
        assert handout.in_hand == {T0: place}


def test_a_run_ends_when_its_partition_is_read_from_elsewhere() -> None:
    run = log_of(random.Random(1), 5)
    for change in ("seek", "revoke", "lose", "pause", "end"):
        place, other = place_at(10, run), place_at(10, run, partition=T1)
        handout = handout_of(place, other)
        handout.fill(1000)
        first = handout.next()
        mine = place if first.partition == 0 else other
        ready = handout.run
        at = ready.at
        assert at < ready.end
        if change == "seek":
            handout.drop({mine.partition})
            mine.seek(10)
        elif change == "revoke":
            mine.go_on()
            handout.drop({mine.partition})
        elif change == "lose":
            handout.drop({mine.partition})
            mine.lose(-1)
        elif change == "pause":
            handout.send_back({mine.partition})
        else:
            handout.end()
        assert ready.at >= ready.end, change
        assert mine.processed in (None, 10)
        assert mine.position == {"seek": 10, "lose": None}.get(change, first.offset + 1)
        assert handout.is_empty == (change == "end")
        if change == "revoke":
            handout.came_back()
            assert mine.processed == first.offset + 1, "the caller is done with what it had"


class Held:
    """A deserialized value: who still holds it can be counted."""

    def __init__(self, raw: bytes | None) -> None:
        self.raw = raw
        ALIVE.add(self)


ALIVE: "weakref.WeakSet[Held]" = weakref.WeakSet()


def held_of(raw: bytes | None) -> Held:
    return Held(raw)


@pytest.mark.parametrize("way", ["iterate", "poll", "poll a few"])
def test_records_that_were_handed_out_are_not_held_any_more(way: str) -> None:
    """Not by the position of each partition, and not by what lies ready."""
    ALIVE.clear()
    builder = BatchBuilder()
    for n in range(20):
        builder.append(1, None, b"%d" % n)
    places = [place_at(0, builder.build(), partition=TopicPartition("t", n)) for n in range(5)]
    handout = handout_of(*places, value_in=held_of)
    count = 0
    handout.fill(1000)
    while not handout.is_empty:
        if way == "iterate":
            handout.next()
            count += 1 + handout.run.end - handout.run.at
            handout.run.at = handout.run.end
            handout.came_back()
        else:
            count += len(handout.take(1000 if way == "poll" else 7))
        assert handout.is_empty == (count == 100)
        left = sum(len(run.records) for run in handout._ready if run.at < run.end)
        assert len(ALIVE) == left, "only runs that are not at their end"
    assert (count, len(ALIVE)) == (100, 0)
    assert {place.position for place in places} == {20}
    handout.came_back()
    assert {place.processed for place in places} == {20}


@pytest.mark.parametrize("way", ["iterate", "poll"])
def test_whoever_ends_holds_nothing(way: str) -> None:
    ALIVE.clear()
    place = place_at(10, log_of(random.Random(1), 5))
    handout = handout_of(place, value_in=held_of)
    handout.fill(1000)
    at = (handout.next() if way == "iterate" else handout.take(1)[0]).offset
    assert len(ALIVE) > 1
    handout.end()
    assert (place.position, len(ALIVE)) == (at + 1, 0)


def test_an_interrupt_amid_records_is_not_taken_for_damage() -> None:
    """It is raised at once, and costs no record."""
    interrupts = [KeyboardInterrupt()]

    def value_in(raw: bytes | None) -> bytes | None:
        if raw == b"3" and interrupts:
            raise interrupts.pop()
        return raw

    builder = BatchBuilder()
    for n in range(6):
        builder.append(1, None, b"%d" % n)
    place = place_at(0, builder.build())
    handout = handout_of(place, value_in=value_in)
    with pytest.raises(KeyboardInterrupt):
        handout.fill(500)
    assert place.position == 0
    handout.fill(500)
    assert [one.offset for one in handout.take(500)] == [0, 1, 2, 3, 4, 5]


def test_an_observed_record_is_never_taken_past_its_observer() -> None:
    handout = handout_of(place_at(10, log_of(random.Random(2), 3)), observed=True)
    handout.fill(100)
    for _ in range(3):
        handout.next()
        assert handout.run.at >= handout.run.end


def test_a_fetch_is_surveyed_up_to_what_is_no_batch() -> None:
    run = log_of(random.Random(4), 2)
    bad = bytearray(log_of(random.Random(5), 1))
    bad[16] = 1  # the magic
    found = surveyed(run + bytes(bad), 10)
    assert found.end == [header.next_offset for _, header in headers(run)][-1] and len(found.batches) == 2
    with pytest.raises(Malformed, match="magic"):
        surveyed(bytes(bad), 10)

"""Planning, keys and the offset map: the pure parts of compaction."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.records import signed
from strandline.storage.cleaning.job import (
    Cleaned,
    Done,
    Failed,
    Job,
    dump_job,
    dump_report,
    load_job,
    load_report,
)
from strandline.storage.cleaning.keys import Hashes, hash_keys
from strandline.storage.cleaning.offset_map import SLOT_BYTES, OffsetMap
from strandline.storage.cleaning.plan import LogFacts, SourceSegment, dirt, first_dirty, groups, is_due
from strandline.storage.cleaning.retime import encoded
from strandline.storage.config import StorageConfig, TopicConfig

NOW_MS = 1_700_000_000_000
GIB = 1 << 30


@dataclass
class Seg:
    """A segment as planning sees it."""

    base_offset: int
    size: int = 100
    age_from_ms: int = NOW_MS - 10_000
    first: int = NOW_MS - 20_000

    def first_ms(self) -> int:
        return self.first


def facts(segments: Sequence[Seg], **changed: Any) -> LogFacts:
    settings = {name: changed.pop(name) for name in list(changed) if "." in name}
    told: dict[str, Any] = {"start_offset": 0, "end_offset": 50, "stable": 50, "cleaned_to": None}
    config = TopicConfig.from_names({"cleanup.policy": "compact", **settings}, StorageConfig())
    return LogFacts(segments, **{**told, **changed}, config=config)


FIVE = [Seg(0), Seg(10), Seg(20), Seg(30), Seg(40)]


@pytest.mark.parametrize(
    ("changed", "begin", "upper"),
    [
        ({}, 0, 40),  # never the segment that grows
        ({"cleaned_to": 20}, 20, 40),
        ({"cleaned_to": 25}, 25, 40),
        ({"cleaned_to": 60}, 0, 40),  # past the end: it cannot be true
        ({"cleaned_to": 5, "start_offset": 15}, 15, 40),
        ({"stable": 35}, 0, 30),
        ({"stable": 40}, 0, 40),
        ({"stable": 5}, 0, 0),
        ({"cleaned_to": 30, "stable": 10}, 30, 30),
        ({"min.compaction.lag.ms": "10000"}, 0, 40),
        ({"min.compaction.lag.ms": "10001"}, 0, 0),
    ],
)
def test_from_where_to_where(changed: dict[str, Any], begin: int, upper: int) -> None:
    told = facts(FIVE, **changed)
    found = dirt(told, NOW_MS)
    assert (found.first_dirty, found.upper) == (begin, upper)
    assert first_dirty(told) == begin


def test_a_young_segment_keeps_later_ones_from_being_cleaned() -> None:
    segments = [Seg(0), Seg(10), Seg(20, age_from_ms=NOW_MS), Seg(30), Seg(40)]
    assert dirt(facts(segments, **{"min.compaction.lag.ms": "5000"}), NOW_MS).upper == 20
    assert dirt(facts(segments, cleaned_to=30, **{"min.compaction.lag.ms": "5000"}), NOW_MS).upper == 40


def test_the_share_of_dirt_decides() -> None:
    found = dirt(facts(FIVE, cleaned_to=20), NOW_MS)
    assert (found.clean_bytes, found.dirty_bytes, found.ratio) == (200, 200, 0.5)
    config = facts(FIVE).config
    assert not is_due(found, config)
    assert is_due(found, config.model_copy(update={"min_cleanable_dirty_ratio": 0.49}))
    assert is_due(dirt(facts(FIVE, cleaned_to=10), NOW_MS), config)
    nothing = dirt(facts(FIVE, cleaned_to=40), NOW_MS)
    assert not is_due(nothing, config.model_copy(update={"min_cleanable_dirty_ratio": 0.0}))


def test_what_has_waited_too_long_is_due() -> None:
    for lag_ms, due in ((19_999, True), (20_000, False)):
        told = facts(FIVE, cleaned_to=30, **{"max.compaction.lag.ms": str(lag_ms)})
        assert is_due(dirt(told, NOW_MS), told.config) == due
    told = facts(FIVE, cleaned_to=40, **{"max.compaction.lag.ms": "1"})
    assert not is_due(dirt(told, NOW_MS), told.config)


def test_neighbours_come_together_while_they_fit() -> None:
    def grouped(sources: list[SourceSegment], **limits: int) -> list[list[int]]:
        told = {"upper": 99, "segment_bytes": 250, "index_bytes_max": 100, **limits}
        return [[source.base_offset for source in group] for group in groups(sources, **told)]

    five = [SourceSegment(base, 100, 16, 24) for base in (0, 10, 20, 30, 40)]
    assert grouped(five) == [[0, 10], [20, 30], [40]]
    assert grouped(five, segment_bytes=10) == [[0], [10], [20], [30], [40]]
    assert grouped(five, segment_bytes=GIB, index_bytes_max=48) == [[0, 10], [20, 30], [40]]
    assert grouped(five, segment_bytes=GIB, index_bytes_max=72) == [[0, 10, 20], [30, 40]]
    far = [SourceSegment(0, 1, 0, 0), SourceSegment(10, 1, 0, 0), SourceSegment(1 << 31, 1, 0, 0)]
    assert grouped(far, upper=(1 << 31) + 5) == [[0, 10], [1 << 31]]
    assert grouped(far[:2], upper=1 << 31) == [[0, 10]]
    assert grouped(far[:2], upper=(1 << 31) + 1) == [[0], [10]]


# -- keys


def reference(secret: bytes, key: bytes) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits, as its authors write it."""
    mask = (1 << 64) - 1
    low, high = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]
    v[1] ^= 0xEE

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = turned(v[1], 13) ^ v[0]
            v[0] = turned(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = turned(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = turned(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = turned(v[1], 17) ^ v[2]
            v[2] = turned(v[2], 32)

    padded = key + bytes(7 - len(key) % 8) + bytes([len(key) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def hashed(keys: Sequence[bytes], secret: bytes) -> list[tuple[int, int]]:
    data = b"".join(keys)
    length = np.array([len(key) for key in keys], np.int64)
    found = hash_keys(np.frombuffer(data, np.uint8), np.cumsum(length) - length, length, secret)
    return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


def test_the_hash_is_the_published_one() -> None:
    low, high = reference(bytes(range(16)), b"")
    assert (
        low.to_bytes(8, "little") + high.to_bytes(8, "little")
    ).hex() == "a3817f04ba25a8e66df67214c7550293"


@given(
    keys=st.lists(st.binary(max_size=40), min_size=1, max_size=30), secret=st.binary(min_size=16, max_size=16)
)
def test_many_keys_have_the_hashes_of_each(keys: list[bytes], secret: bytes) -> None:
    assert hashed(keys, secret) == [reference(secret, key) for key in keys]


# -- the map


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    slots=st.integers(5, 200),
    load=st.floats(0.1, 1.0),
    kinds=st.integers(1, 300),
)
def test_the_map_is_a_dictionary_with_a_bound(seed: int, slots: int, load: float, kinds: int) -> None:
    draw = random.Random(seed)
    table = OffsetMap(slots * SLOT_BYTES, load)
    assert table.nbytes <= slots * SLOT_BYTES
    plain: dict[int, int] = {}
    offset, refused = 0, False
    while offset < 400 and not refused:
        numbers = [draw.randrange(kinds) for _ in range(draw.randint(1, 60))]
        keys = keys_of(numbers)
        fits = table.put(keys, np.arange(offset, offset + len(numbers)))
        for place, number in enumerate(numbers):
            if number not in plain and len(plain) == table.room:
                assert fits == place
                refused = True
                break
            plain[number] = offset + place
        else:
            assert fits == len(numbers)
        offset += len(numbers)
    asked = list(range(kinds + 5))
    assert table.get(keys_of(asked)).tolist() == [plain.get(number, -1) for number in asked]
    assert table.count == len(plain)


def keys_of(numbers: list[int]) -> Hashes:
    """Hashes of which many share a half."""
    values = np.array(numbers, np.uint64)
    return Hashes(values % np.uint64(7), values * np.uint64(0x9E3779B97F4A7C15))


# -- what goes through the pipe, and varints


def test_jobs_and_reports_are_the_same_behind_the_pipe() -> None:
    job = Job(
        "/d", [(0, 5), (7, 9)], [(8, 2)], 3, 8, 9, 1, 2, 3, 4, 5, 6, 0.5, 1.7976931348623157e308,
        [(1, -1, 0)], "00" * 16,
    )  # fmt: skip
    assert load_job(dump_job(job)) == job
    done = Done(1, 2, 3, 4), Done(1, 2, 3, 4, 5, 6)
    for report in (Cleaned([1, 2], 3), *done, Failed("why\nnot", damaged=True)):
        line = dump_report(report)
        assert line.count(b"\n") == 1
        assert load_report(line) == report


@given(values=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_varints_of_many(values: list[int]) -> None:
    rows, size = encoded(np.array(values, np.int64))
    assert [bytes(row[:count]) for row, count in zip(rows, size, strict=True)] == [signed(v) for v in values]

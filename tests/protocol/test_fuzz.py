"""Damaged frames: every decoder either reads a message within the frame or says `Malformed`."""

import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.apis import APIS
from strandline.protocol.connection import ClientEnd, FrameSplitter, parse_head
from strandline.protocol.primitives import Malformed
from strandline.protocol.schema import SPECS, decode, encode, spec_of
from tests.protocol.damaged import damaged

PAIRS = [
    (cls, version)
    for entry in APIS.values()
    for cls in (entry.request, entry.response)
    for version in spec_of(cls).versions
]
REQUESTS = [pair for pair in PAIRS if pair[0].__name__.endswith("Request")]
FRAMES = 100_000
SAMPLES = 6
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\x3f\xff\xff\xff")
Sampled = Callable[[type[Any], int, Random], Any]


def survives(cls: type[Any], version: int, frame: bytes) -> bool:
    """Decode a view that has a fence of other bytes behind it; True if there was a message."""
    fenced = memoryview(frame + b"\x01" * 64)[: len(frame)]
    try:
        value, end = decode(cls, version, fenced)
    except Malformed:
        return False
    assert type(value) is cls
    assert 0 <= end <= len(frame), f"{cls.__name__} v{version} read past its end"
    return True


def test_a_hundred_thousand_damaged_frames(sampled: Sampled) -> None:
    decoded = 0
    rounds = FRAMES // len(PAIRS) + 1
    for cls, version in PAIRS:
        random = Random(f"{cls.__name__} {version}")
        frames = [b"".join(encode(sampled(cls, version, random), version)) for _ in range(SAMPLES)]
        for n in range(rounds):
            decoded += survives(cls, version, damaged(frames[n % SAMPLES], random))
    assert rounds * len(PAIRS) >= FRAMES
    assert FRAMES * 0.05 < decoded < FRAMES * 0.95, "the damage is neither harmless nor total"


@given(data=st.binary(max_size=200), pair=st.sampled_from(PAIRS))
@settings(max_examples=500, deadline=None)
def test_bytes_out_of_nowhere(data: bytes, pair: tuple[type[Any], int]) -> None:
    survives(*pair, data)


@given(random=st.integers(0, 1 << 62).map(Random), pair=st.sampled_from(PAIRS))
@settings(max_examples=300, deadline=None)
def test_damage_that_shrinks(sampled: Sampled, random: Random, pair: tuple[type[Any], int]) -> None:
    cls, version = pair
    survives(cls, version, damaged(b"".join(encode(sampled(cls, version, random), version)), random))


def without_the_guard(version: int) -> None:
    """The tester tested: an unchecked `IndexError` is not `Malformed`."""
    cls = APIS[next(iter(APIS))].request
    SPECS[cls].decoder(version)(b"", 0, None)


def test_the_bare_decoder_would_not_survive() -> None:
    with pytest.raises(IndexError):
        without_the_guard(9)


def test_no_length_is_believed(sampled: Sampled) -> None:
    """Each position of a frame of each message claims two milliard of whatever stands there."""
    latest = [(cls, max(v for c, v in PAIRS if c is cls)) for cls in dict.fromkeys(c for c, _ in PAIRS)]
    oldest = [(cls, spec_of(cls).versions[0]) for cls, _ in latest]
    for cls, version in dict.fromkeys(latest + oldest):
        frame = b"".join(encode(sampled(cls, version, Random(1)), version))[:400]
        survives(cls, version, frame)
        tracemalloc.start()
        for position in range(len(frame)):
            for lie in HUGE:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                survives(cls, version, frame[:position] + lie + frame[position + len(lie) :])
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < 200_000, f"{cls.__name__} v{version}: {peak} bytes, lie at {position}"
        tracemalloc.stop()


@given(data=st.binary(max_size=60))
def test_headers_out_of_nowhere(data: bytes) -> None:
    try:
        head = parse_head(memoryview(data))
    except Malformed:
        return
    assert 10 <= head.body_at <= len(data)


@given(
    data=st.binary(max_size=60), pair=st.sampled_from([p for p in PAIRS if p[0].__name__.endswith("Request")])
)
@settings(deadline=None)
def test_answers_out_of_nowhere(sampled: Sampled, data: bytes, pair: tuple[type[Any], int]) -> None:
    cls, version = pair
    client = ClientEnd("c")
    client.send(sampled(cls, version, Random(2)), version)
    if not client.waiting:  # acks=0
        return
    try:
        client.receive(b"\0\0\0\0" + data)
    except Malformed:
        return


@given(chunks=st.lists(st.binary(max_size=30), max_size=6))
def test_streams_out_of_nowhere(chunks: list[bytes]) -> None:
    splitter = FrameSplitter(64)
    try:
        for chunk in chunks:
            assert all(len(frame) <= 64 for frame in splitter.feed(chunk))
    except Malformed:
        return

"""Frames and headers: what a broker reads, what it answers, how a client matches answers to requests."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.apis import Api
from strandline.protocol.connection import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    KEPT_BYTES_MAX,
    KEPT_MAX,
    ClientEnd,
    FrameSplitter,
    RequestHead,
    frame_response,
    parse_head,
)
from strandline.protocol.messages import api_versions, fetch, groups, produce
from strandline.protocol.messages.header import RequestHeader, ResponseHeader
from strandline.protocol.primitives import Malformed, Slices
from strandline.protocol.schema import decode, encode


def heartbeat() -> groups.HeartbeatRequest:
    return groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def acks(level: int) -> produce.ProduceRequest:
    return produce.ProduceRequest(acks=level, timeout_ms=1, topic_data=[])


def framed(parts: list[object]) -> memoryview:
    """The one frame that `parts` are."""
    (frame,) = FrameSplitter(1 << 20).feed(b"".join(parts))  # type: ignore[arg-type]
    return frame


def test_a_header_written_out_by_hand() -> None:
    old = bytes.fromhex("0000 0007 00000005 0002 6162 ff".replace(" ", ""))
    assert parse_head(old) == RequestHead(0, 7, 5, "ab", 12)
    new = bytes.fromhex("0000 0009 00000005 ffff 00 ff".replace(" ", ""))
    assert parse_head(memoryview(new)) == RequestHead(0, 9, 5, None, 11)
    tagged = bytes.fromhex("0000 0009 00000005 0000 01 07 01 aa ff".replace(" ", ""))
    assert parse_head(tagged) == RequestHead(0, 9, 5, "", 14)


def test_the_header_of_a_request_we_do_not_know_is_read_all_the_same() -> None:
    frame = bytes.fromhex("0012 0063 00000005 0001 61".replace(" ", ""))
    assert parse_head(frame) == RequestHead(18, 99, 5, "a", 11)


@pytest.mark.parametrize("version", [1, 2])
def test_the_declared_header_agrees_with_the_one_read_by_hand(version: int) -> None:
    header = RequestHeader(
        request_api_key=0, request_api_version=7 + version, correlation_id=3, client_id="client"
    )
    frame = b"".join(encode(header, version))
    assert decode(RequestHeader, version, frame) == (header, len(frame))
    assert parse_head(frame) == RequestHead(0, 7 + version, 3, "client", len(frame))


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "0000 0007 00000005",
        "0000 0007 00000005 fffe",
        "0000 0007 00000005 0003 6162",
        "0000 0007 00000005 0002 fffe",
        "0000 0009 00000005 0000",
        "0000 0009 00000005 0000 01 07 05 aa",
    ],
)
def test_a_damaged_header_is_malformed(damaged: str) -> None:
    with pytest.raises(Malformed):
        parse_head(bytes.fromhex(damaged.replace(" ", "")))


def test_a_response_is_framed_with_its_header() -> None:
    answer = groups.HeartbeatResponse(error_code=27)
    (plain,) = frame_response(Api.HEARTBEAT, 0, 7, answer)
    assert bytes(plain) == bytes.fromhex("00000006 00000007 001b".replace(" ", ""))
    (flexible,) = frame_response(Api.HEARTBEAT, 4, 7, answer)
    assert bytes(flexible) == bytes.fromhex("0000000c 00000007 00 00000000 001b 00".replace(" ", ""))


def test_api_versions_is_answered_with_the_oldest_header() -> None:
    (frame,) = frame_response(Api.API_VERSIONS, 3, 7, api_versions.ApiVersionsResponse(api_keys=[]))
    assert decode(ResponseHeader, 0, frame, 4) == (ResponseHeader(correlation_id=7), 8)
    assert bytes(frame)[8:] == bytes.fromhex("0000 01 00000000 00".replace(" ", ""))


def test_fetched_records_are_not_copied() -> None:
    records = memoryview(bytes(70_000))
    partition = fetch.PartitionData(
        partition_index=0, high_watermark=1, records=Slices([records, records[:10]])
    )
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition])
    parts = frame_response(Api.FETCH, 12, 1, fetch.FetchResponse(responses=[topic]))
    assert any(part is records for part in parts)
    assert int.from_bytes(bytes(parts[0])[:4]) == sum(map(len, parts)) - 4


def test_a_conversation() -> None:
    client = ClientEnd("me")
    first = framed([*client.send(heartbeat(), 4)])
    second = framed([*client.send(acks(1), 9)])
    head = parse_head(first)
    assert (head.api_key, head.version, head.client_id) == (Api.HEARTBEAT, 4, "me")
    assert decode(groups.HeartbeatRequest, 4, first, head.body_at) == (heartbeat(), len(first))
    assert parse_head(second).correlation_id != head.correlation_id
    answers = [
        frame_response(Api.HEARTBEAT, 4, head.correlation_id, groups.HeartbeatResponse()),
        frame_response(
            Api.PRODUCE, 9, parse_head(second).correlation_id, produce.ProduceResponse(responses=[])
        ),
    ]
    assert client.waiting == 2
    assert client.receive(framed([*answers[0]])) == (head.correlation_id, groups.HeartbeatResponse())
    assert client.receive(framed([*answers[1]]))[1] == produce.ProduceResponse(responses=[])
    assert client.waiting == 0


def test_a_produce_without_acks_waits_for_no_answer() -> None:
    client = ClientEnd(None)
    client.send(acks(0), 9)
    later = parse_head(framed([*client.send(heartbeat(), 0)]))
    answer = frame_response(Api.HEARTBEAT, 0, later.correlation_id, groups.HeartbeatResponse())
    assert client.receive(framed([*answer]))[0] == later.correlation_id


def test_a_broker_too_old_for_our_api_versions_is_understood() -> None:
    client = ClientEnd(None)
    head = parse_head(framed([*client.send(api_versions.ApiVersionsRequest(), 4)]))
    row = api_versions.ApiVersion(api_key=18, min_version=0, max_version=2)
    refusal = api_versions.ApiVersionsResponse(error_code=35, api_keys=[row])
    _, read = client.receive(framed([*frame_response(Api.API_VERSIONS, 0, head.correlation_id, refusal)]))
    assert read == refusal


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "without a correlation id"),
        (b"\0\0\0\5\0\0", "correlation id 5 in a response: expected 0"),
        (b"\0\0\0\0\0", "HeartbeatResponse"),
        (b"\0\0\0\0\0\0!", "1 bytes are left after"),
    ],
)
def test_an_answer_that_does_not_fit_is_malformed(frame: bytes, why: str) -> None:
    client = ClientEnd(None)
    client.send(heartbeat(), 0)
    with pytest.raises(Malformed, match=why):
        client.receive(frame)


def test_an_answer_to_nothing_is_malformed() -> None:
    with pytest.raises(Malformed, match="without a pending request"):
        ClientEnd(None).receive(b"\0\0\0\0")


# ---- cutting frames


@given(frames=st.lists(st.binary(max_size=40), max_size=8), seed=st.integers(0, 1 << 30))
def test_frames_come_out_whole_however_the_stream_is_cut(frames: list[bytes], seed: int) -> None:
    stream = b"".join(len(f).to_bytes(4) + f for f in frames)
    splitter, random, pos = FrameSplitter(1000), Random(seed), 0
    found: list[memoryview] = []
    while pos < len(stream):
        step = random.choice((1, 2, 3, 5, 50))
        found += splitter.feed(random.choice((bytes, bytearray))(stream[pos : pos + step]))
        pos += step
    assert [bytes(f) for f in found] == frames


@pytest.mark.parametrize("size", [-1, 101, (1 << 31) - 1, -(1 << 31)])
def test_a_frame_of_a_forbidden_size_is_refused_before_it_is_read(size: int) -> None:
    splitter = FrameSplitter(100)
    assert len(splitter.feed((100).to_bytes(4) + bytes(100))) == 1
    with pytest.raises(Malformed, match=str(size)):
        splitter.feed(size.to_bytes(4, signed=True))


def test_a_large_frame_in_small_pieces_is_looked_at_once() -> None:
    """Sixteen megabytes in pieces of a kilobyte: quadratic work would take minutes."""
    size = 16 << 20
    splitter = FrameSplitter(size)
    assert splitter.feed(size.to_bytes(4)) == []
    piece = bytes(1024)
    for _ in range(size // 1024 - 1):
        assert splitter.feed(piece) == []
    (frame,) = splitter.feed(piece + b"\0\0")
    assert len(frame) == size
    assert [bytes(f) for f in splitter.feed(b"\0\1z")] == [b"z"]


def test_a_frame_is_not_written_over_by_those_that_follow() -> None:
    """Whoever holds a frame holds its bytes, whatever is received later."""
    splitter = FrameSplitter(1 << 20)
    sizes = (10, CHUNK_BYTES_MIN, 3, 100_000, 20, 5 * CHUNK_BYTES_MIN, 7)
    held: list[memoryview] = []
    for number, size in enumerate(sizes * 3):
        held += splitter.feed(size.to_bytes(4) + bytes([number]) * size)
    assert [bytes(frame) for frame in held] == [
        bytes([number]) * size for number, size in enumerate(sizes * 3)
    ]


HOLDERS: dict[str, Callable[[memoryview], Any]] = {
    "a frame": lambda frame: frame,
    "a part of it": lambda frame: frame[len(frame) // 2 :],
    "an array": lambda frame: np.frombuffer(frame, np.uint8)[1:],
    "a buffer of Arrow": lambda frame: pa.py_buffer(frame).slice(1),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("holder", HOLDERS)
def test_only_memory_that_nobody_holds_is_received_into_again(holder: str, seed: int) -> None:
    """Frames are let go in any order, and what is still held is as it was."""
    hold, random, splitter = HOLDERS[holder], Random(seed), FrameSplitter(16 << 20)
    held: list[tuple[Any, int]] = []
    memories: list[object] = []
    for number in range(100):
        size = random.choice((30_000, 50_000, 80_000))
        frames = splitter.feed(size.to_bytes(4) + bytes([number]) * size)
        held += [(hold(frame), number) for frame in frames]
        frames.clear()
        random.shuffle(held)
        del held[random.randrange(5) :]
        for kept, of in held:
            assert bytes(kept) == bytes([of]) * len(bytes(kept)), (
                f"frame {of} was written over while it was held"
            )
        memories.append(splitter.room().obj)
    assert len({id(memory) for memory in memories}) < len(memories) // 2, "and the rest is used again"


def test_a_stream_of_large_frames_needs_no_new_memory() -> None:
    """A consumer has two answers that wait, one in its hands, and another one arrives."""
    splitter = FrameSplitter(16 << 20)
    held: list[memoryview] = []
    memories: list[object] = []
    for _ in range(20):
        held += splitter.feed((1 << 20).to_bytes(4) + bytes(1 << 20))
        del held[:-3]
        memories.append(splitter.room().obj)
    assert len({id(memory) for memory in memories[2:]}) <= KEPT_MAX


def test_small_frames_between_large_ones_leave_the_memory_where_it_is() -> None:
    splitter, random = FrameSplitter(16 << 20), Random(1)
    memories: list[object] = []
    for size in (2 << 20, *random.choices((100, 5000, 200_000, 1 << 20, 2 << 20), k=60)):
        assert len(splitter.feed(size.to_bytes(4) + bytes(size))) == 1
        memories.append(splitter.room().obj)
    assert len({id(memory) for memory in memories}) <= KEPT_MAX


def test_a_frame_that_is_dealt_with_at_once_leaves_its_memory_to_the_next() -> None:
    splitter = FrameSplitter(16 << 20)
    memories: list[object] = []
    for _ in range(8):
        assert len(splitter.feed((1 << 20).to_bytes(4) + bytes(1 << 20))) == 1
        memories.append(splitter.room().obj)
    assert len({id(memory) for memory in memories[2:]}) == 1


@contextmanager
def taken() -> Iterator[Callable[[], int]]:
    """How many bytes of Python's memory have been taken since it began."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_memory_for_large_frames_goes_when_frames_are_small_again() -> None:
    size = 3 << 20
    with taken() as bytes_taken:
        splitter = FrameSplitter(16 << 20)
        held = [splitter.feed(size.to_bytes(4) + bytes(size)) for _ in range(KEPT_MAX)]
        assert bytes_taken() >= KEPT_MAX * size
        held.clear()
        for _ in range(100):
            assert len(splitter.feed((100).to_bytes(4) + bytes(100))) == 1
        splitter.room()
        assert bytes_taken() < size // 2


def test_memory_that_is_kept_has_a_bound() -> None:
    """Of frames of any size: a chunk that is too large to keep is gone with the frames in it."""
    with taken() as bytes_taken:
        splitter = FrameSplitter(64 << 20)
        for size in (KEPT_BYTES_MAX // 2, 24 << 20, KEPT_BYTES_MAX // 2):
            held = [splitter.feed(size.to_bytes(4) + bytes(size)) for _ in range(2 * KEPT_MAX)]
            held.clear()
            splitter.room()
            assert bytes_taken() <= (KEPT_MAX + 1) * KEPT_BYTES_MAX


def test_a_size_like_that_of_the_last_frame_is_believed() -> None:
    """A frame larger than what is allocated for any is received where it stays, if one came before it."""
    size = KEPT_BYTES_MAX + (1 << 20)
    splitter = FrameSplitter(1 << 30)
    splitter.feed(size.to_bytes(4) + bytes(size))
    splitter.feed((size + 1000).to_bytes(4) + b"begun")
    assert len(splitter.room()) >= size + 1000 - len(b"begun")
    splitter.feed(bytes(size + 1000 - len(b"begun")))
    splitter.feed((1 << 30).to_bytes(4))
    assert len(splitter.room()) <= 2 * size, "and one of a gigabyte is not"


def test_a_size_that_is_only_claimed_takes_no_memory() -> None:
    splitter = FrameSplitter(1 << 30)
    assert splitter.feed((1 << 30).to_bytes(4)) == []
    assert len(splitter.room()) <= CHUNK_BYTES_MAX


def test_frames_of_one_size_are_received_where_they_stay() -> None:
    """The second large frame finds room for all of itself at once: nothing is copied on the way."""
    splitter = FrameSplitter(1 << 20)
    splitter.feed((300_000).to_bytes(4) + bytes(300_000))
    splitter.feed((300_000).to_bytes(4) + bytes(300_000))
    assert len(splitter.room()) >= 300_004

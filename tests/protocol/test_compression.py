"""Codecs: what goes in comes out, whoever compressed it, and nothing grows past its cap."""

import tracemalloc
import zlib

import cramjam
import pytest
from aiokafka import codec as peer
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.compression import NO_ROOM, XERIAL_HEADER, Codec, compress, decompress
from strandline.protocol.primitives import Malformed

SQUEEZERS = [codec for codec in Codec if codec != Codec.NONE]
PEERS = {
    Codec.GZIP: (peer.gzip_encode, peer.gzip_decode),
    Codec.SNAPPY: (peer.snappy_encode, peer.snappy_decode),
    Codec.LZ4: (peer.lz4_encode, peer.lz4_decode),
    Codec.ZSTD: (peer.zstd_encode, peer.zstd_decode),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(1, 2000))
def test_data_comes_back(codec: Codec, data: bytes, times: int) -> None:
    data = data * times
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), 1 << 30) == data
    if data:
        with pytest.raises(Malformed):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", SQUEEZERS)
def test_peers_understand_each_other(codec: Codec) -> None:
    encode, decode = PEERS[codec]
    data = b"the same strand, again and again; " * 10_000
    assert decode(compress(codec, data)) == data
    assert decompress(codec, encode(data)) == data


@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_the_codecs_own(level: int) -> None:
    data = b"abcabcabd" * 1000
    for codec in SQUEEZERS:
        assert decompress(codec, compress(codec, data, level)) == data


def test_lz4_blocks_are_independent_since_java_reads_no_others() -> None:
    flags = compress(Codec.LZ4, bytes(1 << 20))[4]
    assert flags & 0x20


def test_snappy_is_read_framed_and_raw() -> None:
    data = b"0123456789" * 10_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Codec.SNAPPY, raw) == data
    assert compress(Codec.SNAPPY, data).startswith(XERIAL_HEADER)
    assert decompress(Codec.SNAPPY, XERIAL_HEADER) == b""


def test_several_gzip_members_are_one_section() -> None:
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"ab") + compress(Codec.GZIP, b"cd")) == b"abcd"


def bombs() -> list[tuple[Codec, bytes]]:
    zeros = bytes(1 << 28)
    gzip = zlib.compressobj(9, wbits=31)
    return [
        (Codec.ZSTD, bytes(cramjam.zstd.compress(zeros))),
        (Codec.LZ4, bytes(cramjam.lz4.compress(zeros))),
        (Codec.GZIP, gzip.compress(zeros) + gzip.flush()),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (Codec.SNAPPY, XERIAL_HEADER + b"\x00\x00\x00\x08" + b"\xff\xff\xff\x7f" + bytes(4)),
        (Codec.SNAPPY, XERIAL_HEADER + b"\xff\xff\xff\xff"),
        (Codec.SNAPPY, XERIAL_HEADER + b"\xff"),
    ]


def test_a_bomb_costs_its_reader_no_more_than_the_cap() -> None:
    cap = 1 << 20
    for codec, bomb in bombs():
        tracemalloc.start()
        with pytest.raises(Malformed):
            decompress(codec, bomb, cap)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3 * cap, codec.name


@pytest.mark.parametrize("codec", SQUEEZERS)
def test_damage_is_malformed(codec: Codec) -> None:
    packed = compress(codec, b"some text that repeats, some text that repeats" * 50)
    for cut in (1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(Malformed):
            decompress(codec, packed[:-cut])
    with pytest.raises(Malformed):
        decompress(codec, b"\x01\x02\x03" * 20)


def test_an_unknown_codec_is_malformed() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(Malformed):
            decompress(codec, b"")


@pytest.mark.parametrize("codec", [cramjam.gzip, cramjam.lz4, cramjam.zstd])
def test_the_library_still_says_no_room_in_the_words_we_know(codec: object) -> None:
    packed = codec.compress(bytes(100))  # type: ignore[attr-defined]
    with pytest.raises(cramjam.DecompressionError, match=NO_ROOM):
        codec.decompress_into(bytes(packed), bytearray(10))  # type: ignore[attr-defined]

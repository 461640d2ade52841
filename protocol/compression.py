"""The five codecs that a batch's attributes may name, each decoded with an absolute limit.

Compressed bytes are not trusted: the size that they claim is never allocated up front. The output buffer
grows from a guess up to the limit, so a decompression bomb costs at most `cap` bytes. Framing is Kafka's:
gzip members, LZ4 frames with independent blocks (Java reads no others), zstd frames, and for snappy the
blocks of the Java library snappy-java; raw snappy is read too (librdkafka, Go).
Why: docs/decisions/0015-cramjam-for-codecs.md
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam

from .primitives import Buffer, Malformed


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CAP = 128 << 20  # decompressed bytes of one batch, unless the caller says otherwise
FIRST_GUESS_MIN = 1 << 16
GROWTH = 4
NO_ROOM = "failed to write whole buffer"  # cramjam's message when the output buffer is too small

LZ4_QUICK = 0
LZ4_PIECE = 16 << 10

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, oldest readable version
XERIAL_BLOCK = 32 << 10
BLOCK_LENGTH = Struct(">I")
SNAPPY_RATIO_MAX = 22  # a copy of 64 bytes takes three


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as one compressed section; the meaning of `level` depends on the codec, snappy has none."""
    return _COMPRESS[Codec(codec)](data, level)


def decompress(codec: int, data: Buffer, cap: int = CAP) -> bytes:
    """`data` decompressed; Malformed if it is damaged or would exceed `cap` bytes."""
    decoder = _DECOMPRESS.get(codec)
    if decoder is None:
        raise Malformed(f"unknown codec {codec}")
    return decoder(data, cap)


def _compress_none(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # cramjam's plain `compress` links blocks, which Kafka's Java reader refuses. Its default level is of the
    # high-compression mode, ten times slower than the usual LZ4. And it holds the interpreter lock during a
    # call, hence the pieces
    frame = cramjam.lz4.Compressor(level=level or LZ4_QUICK, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for at in range(0, len(view), LZ4_PIECE):
        frame.compress(bytes(view[at : at + LZ4_PIECE]))
    return bytes(frame.finish())


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for at in range(0, len(view), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK]))
        parts += (BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_none(data: Buffer, cap: int) -> bytes:
    if len(data) > cap:
        raise Malformed(f"batch of {len(data)} bytes exceeds the limit of {cap}")
    return bytes(data)


def _growing(decompress_into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], bytes]:
    def decode(data: Buffer, cap: int) -> bytes:
        room = min(cap, max(FIRST_GUESS_MIN, GROWTH * len(data)))
        while True:
            out = bytearray(room)
            try:
                return bytes(memoryview(out)[: decompress_into(data, out)])
            except cramjam.DecompressionError as error:
                if NO_ROOM not in str(error):
                    raise Malformed(f"damaged compressed records: {error}") from error
            if room >= cap:
                raise Malformed(f"records decompress to more than {cap} bytes")
            room = min(cap, room * GROWTH)

    return decode


def _decompress_snappy(data: Buffer, cap: int) -> bytes:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(view, cap)
    parts: list[bytes] = []
    pos, room = len(XERIAL_HEADER), cap
    while pos < len(view):
        if len(view) - pos < BLOCK_LENGTH.size:
            raise Malformed("snappy block without its length")
        (length,) = BLOCK_LENGTH.unpack_from(view, pos)
        pos += BLOCK_LENGTH.size
        if length > len(view) - pos:
            raise Malformed("snappy block ends beyond its batch")
        parts.append(_decompress_block(view[pos : pos + length], room))
        room -= len(parts[-1])
        pos += length
    return b"".join(parts)


def _decompress_block(block: memoryview, cap: int) -> bytes:
    try:
        claimed: int = cramjam.snappy.decompress_raw_len(block)
        if claimed > min(cap, SNAPPY_RATIO_MAX * len(block)):
            raise Malformed(
                f"snappy block of {len(block)} bytes declares {claimed} uncompressed bytes, the limit "
                f"is {cap}"
            )
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Malformed(f"damaged compressed records: {error}") from error


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[int, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _growing(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _growing(cramjam.lz4.decompress_into),
    Codec.ZSTD: _growing(cramjam.zstd.decompress_into),
}

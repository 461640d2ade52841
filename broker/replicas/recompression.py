"""compression.type: recompresses a batch whose codec is not its topic's, before the append.

As in Kafka (LogValidator): the records and all other header fields stay, followers and consumers get what the
leader has stored, and `producer`, the default, keeps each batch as it came. Recompression takes milliseconds,
so threads do it. A produce request with such batches is held (network/exchange.py): none of it is done yet,
later requests of its connection wait, and every check is repeated afterwards. Batches that would be refused,
and duplicates, are not recompressed.
Left to others: the append (partition.py), what is answered (handlers/produce.py).
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ...base.tasks import FailureHook
from ...protocol.batches import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, read_header, seal
from ...protocol.compression import CAP, Codec, compress
from ...protocol.errors import ApiError, InvalidRecord
from ...protocol.primitives import Malformed
from ...protocol.records import open_batch
from ...storage.config import TopicConfig
from ..network.exchange import Exchange, Place, Recoded

THREADS = 2
LZ4_DEFAULT_LEVEL = 9  # Kafka's default: the fast compressor, not level 9 of LZ4 HC
LZ4_LEVEL_MAX = 12  # the highest of LZ4 HC


class Target(NamedTuple):
    """The codec of a topic, and the level in the codec's own scale; None is its default."""

    codec: Codec
    level: int | None = None


class Work(NamedTuple):
    """A batch to recompress; it owns its bytes."""

    records: bytes
    target: Target


def target_of(config: TopicConfig) -> Target | None:
    """The codec of a topic; None if each batch keeps its own."""
    match config.compression_type:
        case "producer":
            return None
        case "uncompressed":
            return Target(Codec.NONE)
        case "gzip":
            level = config.compression_gzip_level
            return Target(Codec.GZIP, None if level < 0 else level)
        case "snappy":
            return Target(Codec.SNAPPY)
        case "lz4":
            level = config.compression_lz4_level
            return Target(Codec.LZ4, None if level == LZ4_DEFAULT_LEVEL else min(level, LZ4_LEVEL_MAX))
        case "zstd":
            return Target(Codec.ZSTD, config.compression_zstd_level)


def recoded(records: bytes, target: Target) -> memoryview:
    """The same batch in another codec. Raises InvalidRecord if it cannot be decompressed."""
    header = read_header(records)
    try:
        section = bytes(open_batch(records, 0, header, verify=False, cap=CAP))
    except Malformed as error:
        raise InvalidRecord(
            f"cannot recompress to compression.type={target.codec.name.lower()}: {error}"
        ) from error
    packed = compress(target.codec, section, target.level)
    batch = bytearray(HEADER_SIZE + len(packed))
    attributes = header.attributes & ~CODEC_MASK | target.codec
    told = header._replace(attributes=attributes, batch_length=len(batch) - LENGTH_END)
    HEADER.pack_into(batch, 0, *told)
    batch[HEADER_SIZE:] = packed
    seal(batch, 0, len(batch))
    return memoryview(batch)


class Recoding:
    """The threads of one broker that recompress."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: FailureHook | None) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="recode")
        self._under_way: dict[asyncio.Future[Recoded], Exchange] = {}
        self.is_wanted = False  # whether any topic here has ever asked for it

    def begin(self, exchange: Exchange, works: Mapping[Place, Work]) -> asyncio.Future[Recoded]:
        """Recompress these batches. When the future is done, `exchange.recoded` holds the results."""
        step = self._loop.run_in_executor(self._executor, _do, works)
        self._under_way[step] = exchange
        step.add_done_callback(self._ended)
        return step

    def _ended(self, step: asyncio.Future[Recoded]) -> None:
        exchange = self._under_way.pop(step)
        if step.cancelled():
            return
        trouble = step.exception()
        if trouble is None:
            exchange.recoded = {**(exchange.recoded or {}), **step.result()}
        elif self._on_failure is not None:
            self._on_failure(trouble)

    async def stop(self) -> None:
        """Wait for what is under way."""
        if self._under_way:
            await asyncio.wait(list(self._under_way))
        self._executor.shutdown(wait=False)


def _do(works: Mapping[Place, Work]) -> Recoded:
    done: Recoded = {}
    for place, work in works.items():
        try:
            done[place] = recoded(work.records, work.target)
        except ApiError as error:
            done[place] = error
    return done

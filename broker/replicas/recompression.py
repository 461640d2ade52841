"""compression.type: a batch that came in another codec than its topic's is compressed anew before it is kept.

As in Kafka (LogValidator): the records and the header's other words stay, followers and readers get what the
leader has stored, and `producer`, the default, keeps each batch as it came. Opening and compressing is work
of milliseconds, so threads do it. A produce request with such batches is held (network/exchange.py): nothing
of it has been done, nothing behind it on its connection is executed, and every check is made again
afterwards. What would be refused, and what a producer has sent before, is not worked on.
Left to others: the append (partition.py), what is answered (handlers/produce.py).
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...base.tasks import FailureHook
from ...protocol.batches import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, read_header, seal
from ...protocol.compression import CAP, Codec, compress
from ...protocol.errors import ApiError, InvalidRecord
from ...protocol.primitives import Malformed
from ...protocol.records import open_batch
from ...storage.config import TopicConfig

if TYPE_CHECKING:
    from ..network.exchange import Exchange
    from .partition import Partition

THREADS = 2
LZ4_DEFAULT_LEVEL = 9  # as Kafka has it: the quick compressor, not the ninth of the thorough one's levels
LZ4_LEVEL_MAX = 12  # the thorough one knows no more

Place: TypeAlias = tuple[str, int]  # topic and partition of a produce request
Recoded: TypeAlias = dict[Place, "memoryview | ApiError"]


class Target(NamedTuple):
    """What a topic wants its batches compressed with; the level is the codec's own, None its default."""

    codec: Codec
    level: int | None = None


class Work(NamedTuple):
    """A batch to be made anew; the bytes are its own."""

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
    """The same batch in another codec. Raises InvalidRecord if it cannot be opened."""
    header = read_header(records)
    try:
        section = bytes(open_batch(records, 0, header, verify=False, cap=CAP))
    except Malformed as error:
        raise InvalidRecord(f"compression.type asks for {target.codec.name.lower()}: {error}") from error
    packed = compress(target.codec, section, target.level)
    batch = bytearray(HEADER_SIZE + len(packed))
    attributes = header.attributes & ~CODEC_MASK | target.codec
    told = header._replace(attributes=attributes, batch_length=len(batch) - LENGTH_END)
    HEADER.pack_into(batch, 0, *told)
    batch[HEADER_SIZE:] = packed
    seal(batch, 0, len(batch))
    return memoryview(batch)


class Recoding:
    """The threads of one broker that compress anew."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: FailureHook | None) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="recode")
        self._under_way: dict[asyncio.Future[Recoded], Exchange] = {}
        self.is_wanted = False  # some topic here has asked for it, once

    def begin(self, exchange: "Exchange", works: Mapping[Place, Work]) -> "asyncio.Future[Recoded]":
        """Do this for `exchange`, which has it in `recoded` when the future is done."""
        step = self._loop.run_in_executor(self._executor, _do, works)
        self._under_way[step] = exchange
        step.add_done_callback(self._ended)
        return step

    def _ended(self, step: "asyncio.Future[Recoded]") -> None:
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


def work_for(partition: "Partition", records: memoryview, acks: int, zstd_allowed: bool) -> Work | None:
    """What is to be done with a batch that its partition would take; None if nothing, or if it would not."""
    target = partition.target
    if target is None:
        return None
    try:
        header = partition.would_take(records, acks, zstd_allowed)
        if header.codec == target.codec or partition.log.producers.check(header) is not None:
            return None
    except ApiError:
        return None  # the append says so
    return Work(bytes(records), target)

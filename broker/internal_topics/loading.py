"""Reads a partition of an internal topic from start to end, when this broker begins to lead it.

The log is read in slices, so that other tasks run in between. Once it is read only this broker writes it.
A read that fails is tried again as long as we lead: what cannot be read for lack of a file descriptor, say,
can be read a moment later, and nobody else would do it.
Left to others: what the records mean (groups/offset_loading.py), serving what was found (groups/shards.py).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from ...base.types import TopicPartition
from ...protocol.primitives import Buffer, Slices
from ...storage.disk import DiskError

logger = structlog.get_logger(__name__)

LOAD_BYTES = 1 << 16  # of log read at once
READ_AGAIN_S = (0.1, 5.0)  # after a read that failed, at first and at most


class LedLog(Protocol):
    """What loading needs of a log."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def read(self, offset: int, bytes_max: int, end: int) -> Slices: ...


class LedPartition(Protocol):
    """What a coordinator needs of a partition that this broker leads."""

    @property
    def log(self) -> LedLog: ...
    @property
    def may_be_replaced(self) -> bool: ...
    def disk_failed(self, error: DiskError) -> object: ...
    def mark(self) -> None: ...


class Loaded(Protocol):
    """What takes in the records. `after` is the offset after the last batch taken in."""

    after: int

    def feed(self, batches: Buffer) -> Iterator[None]:
        """Take in complete batches. Yields where other tasks may run."""


async def read_whole(source: LedPartition, loaded: Loaded, is_wanted: Callable[[], bool]) -> bool:
    """Feed `loaded` with the log, up to the log end offset of now. False if it is not wanted any more (asked
    after each slice): where the disk has failed for good we lead no more.
    """
    log, pause_s = source.log, READ_AGAIN_S[0]
    position, end = log.start_offset, log.end_offset
    while position < end:
        position = max(position, log.start_offset)
        try:
            batches: Buffer = bytes(log.read(position, LOAD_BYTES, end))
        except DiskError as error:
            logger.error("internal_topic_load_failed", partition=str(log.partition), offset=position)
            source.disk_failed(error)  # if that is for good it resigns, so that another replica may lead
            if is_wanted():
                await asyncio.sleep(pause_s)
            if not is_wanted():
                return False
            pause_s = min(2 * pause_s, READ_AGAIN_S[1])
            continue
        for _ in loaded.feed(batches):
            await asyncio.sleep(0)
            if not is_wanted():
                return False
        position = loaded.after if loaded.after > position else end  # compaction may have emptied the rest
    return is_wanted()

"""Flushing: which part of a log is synced to disk, and how the rest gets there.

A flush has three steps. `begin`, on the event loop, collects what must be synced: a second handle on the
active file, which may be closed, truncated or deleted meanwhile, and the names of closed segments.
`Flush.run`, in a thread, syncs them and touches nothing of the log. `finish`, on the loop again, counts the
result only if no record was removed meanwhile.
The directory and the small files beside the segments are synced when they have changed.
Left to others: when to flush (broker/replicas/flushing.py, broker/upkeep/passes.py), what a failed flush
means (broker/upkeep/disk_failures.py).
"""

import errno
from collections.abc import Iterable
from contextlib import suppress

from ..disk import File, NoDescriptor, disk_error
from ..segment.file_names import LOG
from ..segment.segment import Segment
from . import checkpoints
from .segments import Segments

WITH_DATA = (checkpoints.EPOCHS, checkpoints.TOPIC_CONFIG)  # without them the data would be misread


class Flush:
    """One flush of one log."""

    __slots__ = ("_beside", "_chain", "_growing", "_names", "_sealed", "end", "error", "generation", "gone")

    def __init__(
        self,
        chain: Segments,
        end: int,
        sealed: list[Segment],
        growing: File | None,
        beside: Iterable[str],
        names: bool,
    ) -> None:
        self._chain = chain
        self.generation = chain.generation
        self.end = end  # all before it is synced, if this goes well
        self.error: OSError | None = None
        self.gone: list[Segment] = []  # their files had been renamed or deleted
        self._sealed = sealed
        self._growing = growing
        self._beside = tuple(beside)
        self._names = names

    def is_of(self, chain: Segments) -> bool:
        """Whether it is a flush of that log."""
        return self._chain is chain

    def run(self) -> None:
        """Sync. Blocking, for any thread. Sets `error` and `gone`."""
        try:
            for segment in self._sealed:
                try:
                    segment.sync()
                except FileNotFoundError:
                    self.gone.append(segment)
            if self._growing is not None:
                self._growing.sync()
            with suppress(FileNotFoundError):  # the log has been deleted: `finish` sees that
                for name in self._beside:
                    _sync_beside(self._chain, name)
                if self._names:
                    self._chain.disk.sync_dir(self._chain.directory)
        except OSError as error:
            self.error = error
        finally:
            if self._growing is not None:
                self._growing.close()


class FlushState:
    """Up to where a log is synced: `offset`."""

    __slots__ = ("_beside", "_chain", "_names", "_running", "offset")

    def __init__(self, chain: Segments, flushed_offset: int) -> None:
        self._chain = chain
        self.offset = flushed_offset  # everything before it is synced
        self._beside = set(WITH_DATA)  # small files that were replaced and not synced since
        self._names: tuple[object, ...] = ()  # what identified the directory's content at its last sync
        self._running = 0

    def cut(self, end: int) -> None:
        """The log is about to end at `end`; its generation has risen."""
        assert end >= 0, f"no log ends at {end}"
        self.offset = min(self.offset, end)

    def restart(self, offset: int, sync: bool) -> None:
        """The log is empty and begins at `offset`; its generation has risen."""
        if sync:  # at once: old files must not come back after we reported the new start
            with self._chain.guarded():
                self._chain.disk.sync_dir(self._chain.directory)
        self.offset = offset

    def relocated(self, end: int) -> None:
        """The log has other files, synced up to its `end`; its generation has risen."""
        self.offset = end
        self._beside.update(WITH_DATA)
        self._names = ()

    def written(self, name: str) -> None:
        """A small file has been replaced and is not synced yet."""
        self._beside.add(name)

    @property
    def sealed_is_flushed(self) -> bool:
        """Whether all closed segments are synced."""
        return self._chain.active.base_offset <= self.offset

    def begin(self, end: int, sealed_only: bool = False) -> Flush:
        """Collect what must be synced so that everything before `end`, the current log end, is durable.

        With `sealed_only` the active segment is left out. Two flushes of one log may overlap; then each
        does all of the work.
        """
        chain = self._chain
        assert end >= chain.active.base_offset, "the log ends in its active segment"
        sealed, at = [], len(chain.segments) - 1
        while (
            at and chain.segments[at].base_offset >= self.offset
        ):  # equal: its indexes came after its records
            at -= 1
            sealed.append(chain.segments[at])
        names = (chain.generation, chain.active, chain.segments[0])
        if self._running:
            self._beside.update(WITH_DATA)
        beside = self._beside.copy()
        self._beside.difference_update(beside)  # what a thread has written meanwhile stays
        flush = Flush(
            chain,
            chain.active.base_offset if sealed_only else end,
            sealed[::-1],
            None if sealed_only else chain.active.file.share(),
            sorted(beside),
            bool(beside) or names != self._names,
        )
        self._names = names
        self._running += 1
        return flush

    def finish(self, flush: Flush) -> None:
        """Account for a flush. DiskFailed if a sync has failed: it must never be retried.

        NoDescriptor if no file could be opened for it: that may be retried.
        """
        assert flush.is_of(self._chain) and self._running > 0, "each flush of a log ends once"
        self._running -= 1
        chain = self._chain
        if flush.error is not None:
            self._beside.update(WITH_DATA)
            trouble = disk_error(chain.directory, flush.error)
            raise (trouble if isinstance(trouble, NoDescriptor) else chain.fail(flush.error)) from flush.error
        if flush.generation != chain.generation or chain.closed or chain.failed:
            return  # after a failed sync, a later one proves nothing: the pages count as clean
        lost = [segment for segment in flush.gone if segment in chain.segments]
        if lost:
            raise chain.fail(OSError(errno.ENOENT, f"{lost[0].path(LOG)} has disappeared"))
        self.offset = max(self.offset, flush.end)


def _sync_beside(chain: Segments, name: str) -> None:
    """Sync one of the small files, if it exists."""
    path = f"{chain.directory}/{name}"
    if chain.disk.exists(path):
        file = chain.disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

"""Which part of a log is on the medium, and how more of it gets there.

A flush has three steps. `begin`, on the loop, takes what is to be synced: a second handle on the file that
grows, so that whoever closes, cuts or retires it meanwhile is not in the way, and the names of closed
segments. `Flush.run`, in a thread, syncs that and touches nothing of the log. `finish`, on the loop again,
believes it only if no record was taken away meanwhile.
The directory and the small files beside the segments are synced when something has changed in them.
Left to others: when to flush (broker/replicas/flushing.py, broker/upkeep/passes.py), what a failed flush
means (broker/upkeep/disk_failures.py).
"""

import errno
from collections.abc import Iterable
from contextlib import suppress

from ..disk import File, NoDescriptor, disk_error
from ..segment.segment import Segment
from . import checkpoints, metadata_files
from .segments import Segments

WITH_DATA = (checkpoints.EPOCHS, checkpoints.TOPIC_CONFIG)  # without them the data is read wrongly


class Flush:
    """One flush of one log, from its beginning to its end."""

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
        self.end = end  # all before it is on the medium, if this goes well
        self.error: OSError | None = None
        self.gone: list[Segment] = []  # whose files had been renamed or deleted
        self._sealed = sealed
        self._growing = growing
        self._beside = tuple(beside)
        self._names = names

    def run(self) -> None:
        """Sync. Blocking, for any thread; how it went stands in `error` and `gone`."""
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
                    metadata_files.sync(self._chain, name)
                if self._names:
                    self._chain.disk.sync_dir(self._chain.directory)
        except OSError as error:
            self.error = error
        finally:
            if self._growing is not None:
                self._growing.close()


class FlushState:
    """Up to where a log is on the medium: `offset`."""

    __slots__ = ("_beside", "_chain", "_names", "_running", "offset")

    def __init__(self, chain: Segments, flushed_offset: int) -> None:
        self._chain = chain
        self.offset = flushed_offset  # everything before it is on the medium
        self._beside = set(WITH_DATA)  # small files that were put in place and not synced since
        self._names: tuple[object, ...] = ()  # the directory as it was when it was last synced
        self._running = 0

    def cut(self, end: int) -> None:
        """The log is about to end at `end`; its generation has risen."""
        self.offset = min(self.offset, end)

    def restart(self, offset: int, sync: bool) -> None:
        """The log is empty and begins at `offset`; its generation has risen."""
        if sync:  # at once: whoever is told "I hold all before" must not see old files again
            with self._chain.guarded():
                self._chain.disk.sync_dir(self._chain.directory)
        self.offset = offset

    def written(self, name: str) -> None:
        """A small file has been replaced, and is not on the medium yet."""
        self._beside.add(name)

    @property
    def sealed_is_flushed(self) -> bool:
        """Whether all that stands in closed segments is on the medium."""
        return self._chain.active.base_offset <= self.offset

    def begin(self, end: int, sealed_only: bool = False) -> Flush:
        """Take what is to be synced so that everything before `end`, the log's present end, is safe.

        With `sealed_only` the segment that grows is left out. Two flushes of one log may overlap; then each
        does all of the work.
        """
        chain = self._chain
        sealed, at = [], len(chain.segments) - 1
        while (
            at and chain.segments[at].base_offset >= self.offset
        ):  # equal: its indexes came after its records
            at -= 1
            sealed.append(chain.segments[at])
        names = (chain.generation, chain.active, chain.segments[0])
        if self._running:
            self._beside.update(WITH_DATA)
        flush = Flush(
            chain,
            chain.active.base_offset if sealed_only else end,
            sealed[::-1],
            None if sealed_only else chain.active.file.share(),
            sorted(self._beside),
            bool(self._beside) or names != self._names,
        )
        self._beside.clear()
        self._names = names
        self._running += 1
        return flush

    def finish(self, flush: Flush) -> None:
        """Take note of how a flush went. DiskFailed if a sync has failed: it must never be tried again.

        NoDescriptor if it never came to a sync: then it may be.
        """
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
            raise chain.fail(OSError(errno.ENOENT, f"{lost[0].path('.log')} has vanished"))
        self.offset = max(self.offset, flush.end)

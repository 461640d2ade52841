"""Relocation: a log in use is copied to another directory, and then, at once, the copy is the log.

Closed segments do not change, but may be retired, cleaned or cut; the active one grows. So a thread copies
what is there, step by step, until little is left, and the small files, which seldom change. The event loop
copies that little, and the small files that have changed since, and from then on the log uses the other
files. Its state in memory stays as it is. All of the copy is synced before.
Left to others: in which directory, and what a crash in between leaves (directories/log_manager.py), the
threads (broker/upkeep/log_dir_moves.py).
"""

import errno
from collections.abc import Sequence
from contextlib import suppress

from ..disk import Disk, disk_error
from ..segment.file_names import INDEX, LOG, SNAPSHOT, SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, file_name
from ..segment.segment import Segment
from . import checkpoints
from .log import Log

STEP_BYTES = 32 << 20
PIECE_BYTES = 1 << 20
TAIL_BYTES = 256 << 10  # so little the event loop copies itself
MOVED_FROM = "moved-from"  # a file in the copy: which directory it takes the place of
BESIDE = (checkpoints.PARTITION_METADATA, checkpoints.TOPIC_CONFIG, checkpoints.EPOCHS)
WITH_SEALED = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)

Small = dict[str, bytes | None]  # small files, by name; None: it is not there
Part = tuple[Segment, int, int, bool]  # bytes from, up to; whether it is closed


class Copying:
    """One step of a copy, for a thread."""

    def __init__(
        self,
        disk: Disk,
        source: str,
        target: str,
        came_from: str,
        parts: Sequence[Part],
        stale: Sequence[int],
        afresh: bool,
        last: Segment | None,
    ) -> None:
        """`came_from`: the log directory of the source, as it is configured.
        `last`: the active segment, if this is all there is: the small files are copied with it.
        """
        self.parts = parts
        self.last = last
        self.small: Small = {}
        self.nbytes = sum(end - start for _, start, end, _ in parts)
        self.error: OSError | None = None
        self.missing: set[Segment] = set()
        self._disk = disk
        self._source = source
        self._target = target
        self._came_from = came_from
        self._stale = stale
        self._afresh = afresh

    def run(self) -> None:
        """Copy, and sync. Blocking, for any thread. Sets `error`."""
        try:
            if self._afresh:
                with suppress(FileNotFoundError):
                    self._disk.rmtree(self._target)
                self._disk.mkdir(self._target)
                self._disk.unlink(f"{self._source}/{MOVED_FROM}")  # of an earlier move: only one counts,
                self._disk.sync_dir(self._source)  # after a power loss too
            for base in self._stale:
                for suffix in (*SUFFIXES, TRANSACTION_INDEX, SNAPSHOT):
                    self._disk.unlink(f"{self._target}/{file_name(base, suffix)}")
            for segment, start, end, sealed in self.parts:
                try:
                    self._copy(segment.base_offset, start, end, sealed)
                except FileNotFoundError:  # retired or cleaned meanwhile: the next step sees that
                    self.missing.add(segment)
            if self.last is not None:
                for name in small_files(self.last):
                    self.small[name] = copy_file(self._disk, self._source, self._target, name)
                self._disk.replace(f"{self._target}/{MOVED_FROM}", self._came_from.encode())
            self._disk.sync_dir(self._target)
        except OSError as error:
            self.error = error

    def _copy(self, base: int, start: int, end: int, sealed: bool) -> None:
        name = file_name(base, LOG)
        copy_bytes(self._disk, f"{self._source}/{name}", f"{self._target}/{name}", start, end)
        if not sealed:
            return
        for suffix in WITH_SEALED:
            copy_file(self._disk, self._source, self._target, file_name(base, suffix))
        written = self._disk.modified_ms(f"{self._source}/{name}")  # retention may go by it
        self._disk.set_modified_ms(f"{self._target}/{name}", written)


class Relocation:
    """One log on its way to `path`, where only its copy is. All but `Copying.run` is for the event loop."""

    def __init__(self, held: Log, path: str) -> None:
        self.held = held
        self.path = path
        self._copied: dict[Segment, int] = {}
        self._sealed: set[Segment] = set()  # closed, and copied with all that belongs to it
        self._generation: int | None = None
        self._last: Segment | None = None  # was the active one when the small files were copied
        self._small: Small = {}

    @property
    def nbytes(self) -> int:
        """Bytes copied so far."""
        return sum(self._copied.values())

    @property
    def end_offset(self) -> int:
        """Everything before it is copied, at least."""
        for segment in self.held.segments:
            if self._copied.get(segment, 0) < segment.size:
                return segment.base_offset
        return self.held.end_offset

    def next_step(self) -> Copying | None:
        """What is to be copied next; None if that is little enough for `complete`."""
        held, afresh = self.held, self._generation != self.held.generation
        if afresh:  # the first time, and when records were removed: what was copied may not be there any more
            self._generation = held.generation
            self._copied.clear()
            self._sealed.clear()
            self._last = None
        segments = held.segments
        bases = {segment.base_offset for segment in segments}
        stale = [segment.base_offset for segment in self._copied if segment.base_offset not in bases]
        for gone in [segment for segment in self._copied if segment not in segments]:
            del self._copied[gone]
            self._sealed.discard(gone)
        parts, left = [], STEP_BYTES
        for segment in segments:
            is_sealed, start = segment is not segments[-1], self._copied.get(segment, 0)
            if segment in self._sealed or (not is_sealed and start == segment.size and start):
                continue
            end = min(segment.size, start + left)
            parts.append((segment, start, end, is_sealed and end == segment.size))
            left -= end - start
            if left <= 0:
                break
        little = sum(end - start for _, start, end, _ in parts) <= TAIL_BYTES
        is_small_change = not afresh and not stale and self._last is segments[-1]
        if little and is_small_change and all(part[0] is segments[-1] for part in parts):
            return None
        last = segments[-1] if left > 0 else None
        came_from = held.directory.removesuffix(f"/{held.partition}")
        return Copying(held.disk, held.directory, self.path, came_from, parts, stale, afresh, last)

    def copied(self, step: Copying) -> None:
        """A step has ended. Raises DiskError."""
        if step.error is not None:
            raise disk_error(self.path, step.error) from step.error
        if step.last is not None:
            self._last, self._small = step.last, step.small
        for segment, _, end, sealed in step.parts:
            if segment in step.missing:  # a part of it may be in the copy, so it counts as begun: if it is
                self._copied.setdefault(segment, 0)  # gone the next step removes that, else copies it again
                continue
            self._copied[segment] = end
            if sealed:
                self._sealed.add(segment)

    def complete(self) -> None:
        """Copy the rest. Blocking. Raises DiskError, and the log is where it was."""
        held, disk = self.held, self.held.disk
        active = held.segments[-1]
        assert self._generation == held.generation, "nothing was removed since the last step"
        try:
            name = file_name(active.base_offset, LOG)
            copied = self._copied.get(active, 0)
            copy_bytes(disk, f"{held.directory}/{name}", f"{self.path}/{name}", copied, active.size)
            assert self._last is active, "the small files were copied with what is active now"
            for file, before in self._small.items():
                if read_file(disk, f"{held.directory}/{file}") != before:
                    copy_file(disk, held.directory, self.path, file)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def take_over(self, path: str) -> None:
        """The copy is called `path` now, and is the log: all of it is synced."""
        held, self.held.directory = self.held, path
        held._chain.relocate(path)
        held._flush_state.relocated(held.end_offset)


def copy_bytes(disk: Disk, source: str, target: str, start: int, end: int) -> None:
    """Make `target` what `source` is up to `end`, synced; before `start` it is already."""
    origin = disk.open(source)
    try:
        copy = disk.open(target, create=True)
        try:
            if copy.size() > start:
                copy.truncate(start)
            if copy.size() != start:
                raise OSError(errno.EIO, f"{target} has lost what was copied")
            while start < end:
                data = origin.pread(start, min(end - start, PIECE_BYTES))
                if not data:
                    raise FileNotFoundError(f"{source} has been cut")
                start += copy.append((data,))
            copy.sync()
        finally:
            copy.close()
    finally:
        origin.close()


def small_files(active: Segment) -> tuple[str, ...]:
    """What is beside the segments, and what belongs to the active one."""
    return (*BESIDE, file_name(active.base_offset, SNAPSHOT))


def read_file(disk: Disk, path: str) -> bytes | None:
    """A small file; None if it is not there."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def copy_file(disk: Disk, source: str, target: str, name: str) -> bytes | None:
    """Copy a small file, synced; one that is not there is removed. Returns what was copied."""
    data = read_file(disk, f"{source}/{name}")
    if data is None:
        disk.unlink(f"{target}/{name}")
        disk.sync_dir(target)
    else:
        disk.replace(f"{target}/{name}", data)
    return data

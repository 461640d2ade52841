"""Quarantine: records removed from a log, kept beside its log directory with a note on what, when and why.

`<log.dir>.aside/<topic>-<partition>.<wall ms>-<n>/` holds the files and `removal.json`. They are written
before the first byte leaves the log, and synced if they may be the only copy of acknowledged records. It is
outside the log directory because Kafka does not start on one with folders that it does not know. Bounded by
age and by size; the oldest are deleted first, each with a log line.
What may be the only copy of acknowledged records is never deleted for size, and for age only if another
replica is in sync.
Left to others: what must be removed (recovery/recover_log.py), when the bounds are applied
(broker/upkeep/passes.py).
Why: docs/decisions/0022-what-must-leave-a-log-is-kept-aside.md
"""

import errno
import posixpath
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import structlog
from pydantic import BaseModel, ValidationError

from ..base.types import TopicPartition
from ..base.values import dataclass
from .disk import Disk

ASIDE = ".aside"
NOTE = "removal.json"
COPY_BYTES = 1 << 20
NAME_MAX = 255  # of a file, for the kernel
FOREVER = -1

Cause = Literal["recovery", "truncation"]
Acknowledged = Literal["all", "leader", "none"]

logger = structlog.get_logger(__name__)


class Removal(BaseModel, frozen=True, extra="forbid"):
    """Which records were removed from a log, and why. None means not known."""

    version: int = 1
    partition: str
    topic_id: str | None = None
    at_ms: int
    cause: Cause
    reason: str
    from_offset: int
    end_offset: int | None = None  # exclusive
    epochs: tuple[tuple[int, int], ...] = ()  # (leader epoch, first offset), as far as known
    high_watermark: int | None = None  # as this replica knew it
    acknowledged: Acknowledged | None = None  # the acks that their producers had asked for
    leader: int | None = None  # the replica whose log decided it
    leader_epoch: int | None = None
    unclean: bool | None = None  # that leader was elected without being in sync


@dataclass(frozen=True, slots=True)
class Kept:
    """One removal as it is kept; `removal` is None if its note cannot be read."""

    path: str
    removal: Removal | None
    at_ms: int
    nbytes: int


class Shelf:
    """The folder that takes the files of one removal."""

    def __init__(self, disk: Disk, path: str, sync: bool = True) -> None:
        self.disk = disk
        self.path = path
        self._sync = sync

    def move(self, path: str) -> None:
        """Move a file here; by copying it, if the shelf is on another file system."""
        target = f"{self.path}/{posixpath.basename(path)}"
        try:
            self.disk.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy(path, 0, target)
            self.disk.unlink(path)

    def copy(self, path: str, position: int) -> None:
        """Copy a file from `position` on; the copy's name tells the position."""
        self._copy(path, position, f"{self.path}/{posixpath.basename(path)}@{position}")

    def _copy(self, path: str, position: int, target: str) -> None:
        source, copy = self.disk.open(path), self.disk.open(target, create=True)
        try:
            copy.truncate(0)
            while data := source.pread(position, COPY_BYTES):
                copy.append((data,))
                position += len(data)
            if self._sync:
                copy.sync()
        finally:
            copy.close()
            source.close()

    def close(self) -> None:
        """Everything is here: sync the folder."""
        if self._sync:
            self.disk.sync_dir(self.path)


class Aside:
    """The `.aside` folder of one log directory."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self.disk = disk
        self.path = f"{log_dir}{ASIDE}"

    def shelf(self, removal: Removal, sync: bool = True) -> Shelf:
        """A new folder with its note, synced; without `sync` the caller syncs many at once (`Aside.sync`)."""
        self._make_place(sync)
        count = 0
        while self.disk.exists(path := f"{self.path}/{_name(removal, count)}"):
            count += 1
        self.disk.mkdir(path)
        try:
            self.disk.replace(f"{path}/{NOTE}", removal.model_dump_json(indent=1).encode() + b"\n", sync)
            if sync:
                self.disk.sync_dir(self.path)
        except OSError:
            with suppress(OSError):  # a caller that retries every second would leave a folder each time
                self.disk.rmtree(path)
            raise
        return Shelf(self.disk, path, sync)

    def _make_place(self, sync: bool) -> None:
        """Make the `.aside` folder; its name is synced, too, before anything is moved there."""
        if not self.disk.exists(self.path):
            self.disk.mkdir(self.path)
            if sync:
                with suppress(PermissionError):  # the parent may not be readable
                    self.disk.sync_dir(posixpath.dirname(self.path))

    def sync(self) -> None:
        """Sync everything here. Blocking."""
        self.disk.sync_all(self.path)

    def all(self, partition: TopicPartition | None = None) -> list[Kept]:
        """What is kept, of one partition or of all, the oldest first."""
        if not self.disk.exists(self.path):
            return []
        found = []
        for name in self.disk.listdir(self.path):
            of, _, stamp = name.rpartition(".")
            at_ms = stamp.partition("-")[0]
            if of and at_ms.isascii() and at_ms.isdigit():
                kept = self._look_at(f"{self.path}/{name}", int(at_ms))
                found += [] if kept is None else [kept]
        wanted = [kept for kept in found if partition is None or _is_of(kept, partition)]
        return sorted(wanted, key=lambda kept: (kept.at_ms, kept.path))

    def _look_at(self, path: str, at_ms: int) -> Kept | None:
        try:
            names = self.disk.listdir(path)
        except (NotADirectoryError, FileNotFoundError):  # a file, or just deleted
            return None
        removal, nbytes = None, 0
        for name in names:
            try:
                file = self.disk.open(f"{path}/{name}")
            except (FileNotFoundError, IsADirectoryError):
                continue
            nbytes += file.size()
            file.close()
        try:
            removal = Removal.model_validate_json(self.disk.read(f"{path}/{NOTE}"))
        except (OSError, ValidationError) as error:
            logger.warning("removal_unreadable", path=path, reason=str(error))
        return Kept(path, removal, at_ms, nbytes)


def _name(removal: Removal, count: int) -> str:
    """Partition, time and a count; a long topic name is shortened, the note has all of it."""
    tail = f".{removal.at_ms}-{count}"
    return removal.partition[: NAME_MAX - len(tail)] + tail


def _is_of(kept: Kept, partition: TopicPartition) -> bool:
    return _partition_of(kept) == str(partition)


def _partition_of(kept: Kept) -> str:
    """By its note, or by its folder's name if the note cannot be read."""
    if kept.removal is not None:
        return kept.removal.partition
    return posixpath.basename(kept.path).rpartition(".")[0]


def may_be_the_only_copy(removal: Removal | None) -> bool:
    """Whether this may be the only copy of acknowledged records.

    Recovery removes what perhaps only this replica had. A truncation below the high watermark, or by a leader
    that was elected uncleanly, removes committed records. Without a note it may be anything.
    """
    return (
        removal is None
        or removal.cause == "recovery"
        or bool(removal.unclean)
        or removal.acknowledged == "all"
        or (removal.high_watermark is not None and removal.from_offset < removal.high_watermark)
    )


def nowhere(_partition: str) -> bool:
    """No other replica is known to be in sync."""
    return False


def expired(
    kept: Iterable[Kept],
    now_ms: int,
    retention_ms: int,
    bytes_max: int,
    is_elsewhere: Callable[[str], bool] = nowhere,
) -> list[Kept]:
    """What to delete: what is too old, and the oldest beyond `bytes_max`. Pure; -1 is no bound.

    What may be the only copy is never deleted for size, and does not count in the size of the others. It is
    deleted for age only if the partition has another replica in sync (`is_elsewhere`).
    """
    newest_first = sorted(kept, key=lambda each: (each.at_ms, each.path), reverse=True)
    going, total = [], 0
    for each in newest_first:
        old = retention_ms != FOREVER and now_ms - each.at_ms > retention_ms
        if may_be_the_only_copy(each.removal):
            if old and is_elsewhere(_partition_of(each)):
                going.append(each)
            continue
        total += each.nbytes
        if old or (bytes_max != FOREVER and total > bytes_max):
            going.append(each)
    return going[::-1]


def tidy(
    disk: Disk,
    dirs: Sequence[str],
    now_ms: int,
    retention_ms: int,
    bytes_max: int,
    is_elsewhere: Callable[[str], bool] = nowhere,
) -> list[str]:
    """Delete what the bounds no longer allow beside each of `dirs`; returns the paths. Blocking.

    `is_elsewhere`: whether another replica of a partition, by its name, is in sync.
    """
    gone = []
    for log_dir in dirs:
        try:
            going = expired(Aside(disk, log_dir).all(), now_ms, retention_ms, bytes_max, is_elsewhere)
        except OSError as error:  # it cannot be listed; go on with the others
            logger.error("removals_unreadable", path=f"{log_dir}{ASIDE}", reason=str(error))
            continue
        for each in going:
            try:
                disk.rmtree(each.path)
            except OSError as error:
                logger.error("removal_not_deleted", path=each.path, reason=str(error))
                continue
            gone.append(each.path)
            logger.warning(
                "removal_deleted",
                path=each.path,
                bytes=each.nbytes,
                reason=each.removal and each.removal.reason,
            )
    return gone


def removal_rows(disk: Disk, log_dir: str, partition: TopicPartition | None = None) -> list[dict[str, Any]]:
    """What is kept beside a log directory, as plain values, the oldest first."""
    rows = []
    for kept in Aside(disk, log_dir).all(partition):
        try:
            files = [name for name in disk.listdir(kept.path) if name != NOTE]
        except FileNotFoundError:  # just deleted
            continue
        removal = None if kept.removal is None else kept.removal.model_dump()
        rows.append(
            {
                "path": kept.path,
                "at_ms": kept.at_ms,
                "bytes": kept.nbytes,
                "files": files,
                "removal": removal,
            }
        )
    return rows


def removed_bytes(disk: Disk, log_dir: str, path: str, position: int, size: int) -> bytes | None:
    """Bytes of a file that is kept beside this log directory; None for any other path."""
    shelf, name = posixpath.split(path)
    aside = Aside(disk, log_dir)
    if shelf not in {kept.path for kept in aside.all()} or name not in disk.listdir(shelf):
        return None
    file = disk.open(path)
    try:
        return file.pread(position, size)
    finally:
        file.close()

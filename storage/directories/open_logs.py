"""Opening all logs of a broker: look into every directory first, then recover, several logs at a time.

Nothing is changed before it is certain that no partition is in two directories. Names that are not ours are
left alone. The progress of a long recovery is logged once a second.
Left to others: one log (recovery/recover_log.py), what a log is once it is open (log/log.py).
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import partial
from threading import Lock
from typing import TypeVar
from uuid import UUID

import structlog

from ...base.types import Clock, TopicPartition
from ...base.values import dataclass
from ..cleaning.checkpoint import CLEANER_OFFSETS
from ..config import StorageConfig
from ..decision_log import FLIGHT_RECORDER
from ..disk import Disk, DiskFailed, disk_error
from ..log import checkpoints
from ..log.checkpoints import Unreadable
from ..log.log import Log
from ..log.relocation import MOVED_FROM
from ..quarantine import NAME_MAX, Aside
from ..recovery.failure_scope import DISK_FAILS, Obstructed, Spoilt, Waits, contained
from ..recovery.recover_log import BeforeLoss, Known, LogRecovery, Recovered, Surroundings
from ..segment.file_names import DIRECTORY_DELETED, FUTURE
from ..segment.open_files import OpenSegments
from .offset_checkpoints import ALL as PROMISES
from .offset_checkpoints import Bounds
from .progress import RecoveryProgress, tell
from .workers import Crew, one_by_one

logger = structlog.get_logger(__name__)

MANY_LOGS, SMALL_LOG_BYTES, SMALL_LOGS_AT_ONCE = 64, 1 << 20, 16  # to scan, on average
NAMES_SHOWN_MAX = 10
# <topic>-<number>.<32 hexadecimal digits>-<what happens to it>
MARKED = re.compile(r"([A-Za-z0-9._-]+)-(\d+)\.([0-9a-f]{32})-(delete|stray|future)")
PARTITION_MAX = (1 << 31) - 1
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # as Kafka's Topic.validate
T = TypeVar("T")
MEND = (
    "repair it or move it out of the log directory, then restart the broker; until then its replica "
    "is offline"
)


class AmbiguousDirectory(Exception):
    """Two log directories hold the same partition, and we cannot tell which is right."""


@dataclass(frozen=True, slots=True)
class Stop:
    """How the previous process ended, as far as its log directories tell."""

    clean: bool
    same_boot: bool = True  # what it wrote is still there, on disk or in the page cache
    doubts: Collection[str] = ()  # partitions in which it found damage


@dataclass(slots=True)
class Directory:
    """One log directory, while it is being opened and after."""

    path: str
    recoveries: list[tuple[LogRecovery, Known]] = field(default_factory=list)
    condemned: list[str] = field(default_factory=list)
    opened: list[tuple[Log, Recovered, Known]] = field(default_factory=list)
    closed: dict[TopicPartition, Known] = field(default_factory=dict)  # no room to recover them
    spoilt: dict[TopicPartition, tuple[Known, str]] = field(default_factory=dict)  # what is wrong with them
    cleaned: Mapping[TopicPartition, int] = field(default_factory=dict)  # up to where logs are compacted
    promised: set[TopicPartition] = field(default_factory=set)  # logs that the checkpoints name
    removed: list[str] = field(default_factory=list)  # folder names of removed logs
    coming: list[TopicPartition] = field(default_factory=list)  # logs that were moving here
    failure: OSError | DiskFailed | None = None  # it cannot be used

    def holds(self) -> set[TopicPartition]:
        """The partitions whose logs are there, before they are opened."""
        return (
            {recovery.partition for recovery, _ in self.recoveries} | self.closed.keys() | self.spoilt.keys()
        )

    def let_go(self, partition: TopicPartition) -> None:
        """Its log here is none any more, before any is opened."""
        self.recoveries = [each for each in self.recoveries if each[0].partition != partition]
        self.closed.pop(partition, None)
        self.spoilt.pop(partition, None)
        self.cleaned = {p: end for p, end in self.cleaned.items() if p != partition}

    def keep(self, wanted: Collection[TopicPartition]) -> None:
        """Close and drop all other logs, which may already be open."""
        for each, _, _ in self.opened:
            if each.partition not in wanted:
                each.abandon()
        self.opened = [each for each in self.opened if each[0].partition in wanted]
        self.closed = {p: known for p, known in self.closed.items() if p in wanted}
        self.spoilt = {p: each for p, each in self.spoilt.items() if p in wanted}
        self.cleaned = {p: end for p, end in self.cleaned.items() if p in wanted}


class Opening:
    """The opening of several log directories at once. Blocking."""

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        open_segments: OpenSegments,
        stop: Stop,
        before_loss: BeforeLoss,
        crew: Crew = one_by_one,
    ) -> None:
        self.disk = disk
        self.config = config
        self.clock = clock
        self.stop = stop
        self._open_segments = open_segments
        self._before_loss = before_loss
        self._crew = crew
        self._noting = Lock()

    def open(self, dirs: Iterable[str]) -> list[Directory]:
        """Open all of `dirs`; they keep their order, and the logs of each are in name order."""
        directories = [Directory(path) for path in dirs]
        for directory in directories:
            self._guarded(directory, self._look)
        for directory in directories:
            self._guarded(directory, partial(self._finish_moves, directories))
        self._insist_on_one_place(directories)
        for directory in directories:
            self._guarded(directory, self._insist_on_format)
        self._miss(directories)
        self._crew([partial(self._guarded, each, self._recover) for each in directories], len(directories))
        for directory in directories:
            self._guarded(directory, self._promise_no_more)
        return directories

    def open_again(
        self, path: str, partitions: Collection[TopicPartition], promise_no_more: Callable[[list[Log]], None]
    ) -> Directory:
        """Open the logs of one directory for which there was no room before.

        Other logs are in use meanwhile. So this thread must not close their files (it gets its own
        `OpenSegments`), nor change their entries in the checkpoints.
        """
        apart = copy(self)
        apart._open_segments = OpenSegments(self.config.sealed_open_max)
        directory = apart._open_again(path, partitions)
        promise_no_more([opened for opened, _, _ in directory.opened])
        return directory

    def _open_again(self, path: str, partitions: Collection[TopicPartition]) -> Directory:
        directory = Directory(path)
        self._guarded(directory, self._look)
        directory.recoveries = [each for each in directory.recoveries if each[0].partition in partitions]
        directory.cleaned = {p: end for p, end in directory.cleaned.items() if p in partitions}
        directory.spoilt = {p: each for p, each in directory.spoilt.items() if p in partitions}
        directory.condemned.clear()
        directory.coming.clear()  # one may be on its way now
        self._guarded(directory, self._recover)
        return directory

    def _guarded(self, directory: Directory, work: Callable[[Directory], None]) -> None:
        if directory.failure is None:
            try:
                work(directory)
            except IsADirectoryError as error:
                raise Obstructed(f"{error.filename} is a directory: expected a file") from error
            except (OSError, DiskFailed) as error:
                directory.failure = error
                directory.keep(directory.holds())  # drop the logs that are already open

    # Look.

    def _look(self, directory: Directory) -> None:
        self.disk.mkdir(directory.path)
        directory.cleaned = self._offsets(directory.path, CLEANER_OFFSETS) or {}
        known = self._known(directory)
        around = Surroundings(
            disk=self.disk,
            storage=self.config,
            open_segments=self._open_segments,
            before_loss=self._note,
            aside=Aside(self.disk, directory.path),
            now_ms=self.clock.wall_ms(),
        )
        foreign = []
        for name in self.disk.listdir(directory.path):
            path = f"{directory.path}/{name}"
            partition, mark = parse_directory(name), MARKED.fullmatch(name)
            if not (partition or mark) or not self._is_directory(path):
                foreign.append(name)
            elif partition is not None:
                each = known(partition)
                begin = partial(self._begin, around, path, partition, each)
                recovery = self._contained(directory, partition, each, begin)
                if recovery is not None:
                    directory.recoveries.append((recovery, each))
            else:
                directory.removed.append(name)
                if name.endswith(FUTURE):
                    assert mark is not None, "it has the name of a log with a mark"
                    if len(name) < NAME_MAX:  # else the topic's name was shortened
                        directory.coming.append(TopicPartition(mark[1], int(mark[2])))
                    directory.condemned.append(path)
                elif name.endswith(DIRECTORY_DELETED):
                    directory.condemned.append(path)
                else:
                    logger.info("leftover_dir_kept", path=path)
        unknown = [name for name in foreign if name not in OUR_FILES and not name.startswith(".")]
        if unknown:
            logger.info("foreign_files_found", directory=directory.path, names=unknown[:NAMES_SHOWN_MAX])

    def _known(self, directory: Directory) -> Callable[[TopicPartition], Known]:
        points, starts, watermarks = (
            self._offsets(directory.path, name)
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.START_OFFSETS, checkpoints.HIGH_WATERMARKS)
        )
        directory.promised = {*(points or {}), *(watermarks or {})}
        stop, cleaned = self.stop, directory.cleaned

        def known(partition: TopicPartition) -> Known:
            flushed = (points or {}).get(partition, 0)
            return Known(
                stop.clean,
                flushed,
                None if starts is None else starts.get(partition, 0),
                (watermarks or {}).get(partition, 0),
                same_boot=stop.same_boot or stop.clean,
                doubted=str(partition) in stop.doubts,
                compacted=partition in cleaned,
                gaps_below=flushed if points is not None else cleaned.get(partition, 0),
            )

        return known

    def _offsets(self, directory: str, name: str) -> Mapping[TopicPartition, int] | None:
        """A checkpoint's entries; None if it cannot be read, which costs only a longer recovery."""
        try:
            return checkpoints.read_offsets(self.disk, f"{directory}/{name}")
        except Unreadable as error:
            logger.warning("checkpoint_unreadable", path=f"{directory}/{name}", reason=str(error))
            return None

    def _begin(self, around: Surroundings, path: str, partition: TopicPartition, known: Known) -> LogRecovery:
        if self.disk.is_link(path):
            raise Obstructed(f"{path} is a symbolic link: expected a directory")
        return LogRecovery(around, path, partition, known)

    def _is_directory(self, path: str) -> bool:
        try:
            self.disk.listdir(path)
        except NotADirectoryError:
            return False
        except OSError as error:
            if error.errno in DISK_FAILS:
                raise
            # opening the log reports the error
        return True

    def _finish_moves(self, directories: Sequence[Directory], directory: Directory) -> None:
        """Finish what a process was killed in: a log has moved here, and is not removed from where it was.

        A note goes when nothing is there any more: the log may move back one day. It stays while its
        directory is offline.
        """
        others = {each.path.encode(): each for each in directories if each is not directory}
        for partition in directory.holds() if others else ():
            note = f"{directory.path}/{partition}/{MOVED_FROM}"
            left = others.get(self.disk.read(note)) if self.disk.exists(note) else None
            if left is None:
                continue
            if partition in left.holds():
                logger.warning("log_move_finished", partition=str(partition), directory=directory.path)
                left.let_go(partition)
                self._guarded(left, partial(self._remove_moved, partition))
            if left.failure is None:
                self.disk.unlink(note)

    def _remove_moved(self, partition: TopicPartition, directory: Directory) -> None:
        name = UUID(int=self.clock.wall_ms() << 64)
        target = marked(directory.path, partition, name, DIRECTORY_DELETED)
        self.disk.rename(f"{directory.path}/{partition}", target)
        self.disk.sync_dir(directory.path)
        directory.condemned.append(target)
        directory.removed.append(posixpath.basename(target))

    def _insist_on_one_place(self, directories: Iterable[Directory]) -> None:
        places: dict[TopicPartition, str] = {}
        for directory in directories:
            for partition in directory.holds():
                other = places.setdefault(partition, directory.path)
                if other != directory.path:
                    raise AmbiguousDirectory(
                        f"{directory.path}/{partition} and {other}/{partition} both hold "
                        f"{partition}: keep one and move the other away"
                    )

    def _insist_on_format(self, directory: Directory) -> None:
        """Raise OldFormat while nothing has been changed yet."""
        for recovery, known in directory.recoveries:
            found = self._contained(directory, recovery.partition, known, recovery.old_format)
            if found is not None:
                raise found
        shut = directory.spoilt.keys() | directory.closed.keys()
        directory.recoveries = [each for each in directory.recoveries if each[0].partition not in shut]

    def _miss(self, directories: Iterable[Directory]) -> None:
        """Note as lost each log that checkpoints name and that is missing, unless we removed it.

        Removing a log also removes its entries. Only a crash in between leaves an entry, and then the log's
        new folder name shows that it was removed.
        """
        there = {partition for each in directories for partition in each.holds()}
        removed = [name for each in directories for name in each.removed]
        for directory in directories:
            if directory.failure is not None:
                continue
            for partition in sorted(directory.promised - there):
                if not any(was_called(name, partition) for name in removed):
                    logger.error("log_missing", partition=str(partition), directory=directory.path)
                    self._note(partition, "its directory is missing")

    # Recover.

    def _recover(self, directory: Directory) -> None:
        recoveries = [
            (recovery, known)
            for recovery, known in directory.recoveries
            if self._contained(directory, recovery.partition, known, recovery.survey) is not None
        ]
        progress = RecoveryProgress(
            directory.path, self.clock, [recovery.surveyed for recovery, _ in recoveries]
        )

        def work(recovery: LogRecovery, known: Known) -> tuple[Log, Recovered, Known] | None:
            run = partial(recovery.run, progress.advance)
            result = self._contained(directory, recovery.partition, known, run)
            if result is None:
                return None
            opened, cost = result
            progress.opened(len(recovery.surveyed.to_scan))
            tell(opened, cost)
            return opened, cost, known

        works = [partial(work, *each) for each in recoveries]
        found = self._crew(works, self._threads(progress))
        directory.opened = [each for each in found if each is not None]
        ends = {opened.partition: opened.end_offset for opened, _, _ in directory.opened}
        directory.cleaned = {p: min(at, ends.get(p, at)) for p, at in directory.cleaned.items()}
        directory.recoveries = []
        progress.end()

    def _promise_no_more(self, directory: Directory) -> None:
        """Lower the checkpoints to what is there, durably, before anything is appended or created.

        Otherwise the next start would apply an old high watermark to records that came later, or take those
        for flushed, and entries of a log that is gone would count for the next one of its name.
        If there is no room for the write, nothing can be appended either.
        """
        there = [each for each, _, _ in directory.opened]
        bounds = {each.partition: Bounds(each.end_offset, each.start_offset) for each in there}
        shut = directory.holds()  # what they hold is not known
        for name in (*PROMISES, CLEANER_OFFSETS):
            said = self._offsets(directory.path, name) or {}
            now = {p: min(at, bounds[p].of(name)) for p, at in said.items() if p in bounds}
            now |= {p: at for p, at in said.items() if p in shut}
            if now != said:
                path = f"{directory.path}/{name}"
                try:
                    checkpoints.write_offsets(self.disk, path, now)
                except OSError as error:
                    if isinstance(trouble := disk_error(path, error), DiskFailed):
                        raise trouble from error
                    logger.warning("checkpoint_not_written", path=path, reason=str(trouble))

    def _contained(
        self, directory: Directory, partition: TopicPartition, known: Known, work: Callable[[], T]
    ) -> T | None:
        """Do the work of one log; None if it cannot be opened: the others are served all the same.

        The content of a spoilt log is unknown, so it is noted as a loss. OSError means the disk fails.
        """
        path = f"{directory.path}/{partition}"
        try:
            return contained(work)
        except Waits as error:
            directory.closed[partition] = known
            logger.error(
                "log_not_opened",
                path=path,
                reason=str(error),
                remedy="none: it is opened when there is free space",
            )
        except Spoilt as error:
            self._note(partition, str(error))
            directory.spoilt[partition] = known, str(error)
            logger.error("log_not_opened", path=path, reason=str(error), remedy=MEND, exc_info=error)
        return None

    def _threads(self, progress: RecoveryProgress) -> int:
        """How many logs at once. Each is synced by itself, so many small ones wait for the disk together."""
        logs = progress.logs_total
        is_small = logs >= MANY_LOGS and progress.bytes_total < logs * SMALL_LOG_BYTES
        return max(self.config.recovery_threads, SMALL_LOGS_AT_ONCE if is_small else 0)

    def _note(self, partition: TopicPartition, reason: str) -> None:
        with self._noting:  # logs are recovered in several threads
            self._before_loss(partition, reason)


def marked(directory: str, partition: TopicPartition, name: UUID, mark: str) -> str:
    """The path of a log with a mark, as Kafka names it; a long topic name is shortened."""
    tail = f"-{partition.partition}.{name.hex}{mark}"
    return f"{directory}/{partition.topic[: NAME_MAX - len(tail)]}{tail}"


def was_called(name: str, partition: TopicPartition) -> bool:
    """Whether the removed log `name` was the partition's; a long topic name was shortened to fit."""
    found = MARKED.fullmatch(name)
    return (
        found is not None
        and int(found[2]) == partition.partition
        and (found[1] == partition.topic or (len(name) == NAME_MAX and partition.topic.startswith(found[1])))
    )


def parse_directory(name: str) -> TopicPartition | None:
    """The partition whose directory is called `name`; None for a name that is not ours."""
    topic, dash, number = name.rpartition("-")
    plain = number.isascii() and number.isdigit() and (number == "0" or number[0] != "0")
    plain = plain and len(number) <= len(str(PARTITION_MAX))  # int() refuses thousands of digits
    if not (TOPIC.fullmatch(topic) and dash and plain) or int(number) > PARTITION_MAX:
        return None
    return TopicPartition(topic, int(number))


OUR_FILES = frozenset(
    {
        checkpoints.HIGH_WATERMARKS,
        checkpoints.RECOVERY_POINTS,
        checkpoints.START_OFFSETS,
        checkpoints.META_PROPERTIES,
        checkpoints.DIRECTORY_PROPERTIES,
        CLEANER_OFFSETS,
        "incarnation.json",
        "zookeeper.session",
        FLIGHT_RECORDER,
    }
)

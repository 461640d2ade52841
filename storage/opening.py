"""Opening all logs of a broker: look into every directory first, then recover, several at a time.

Nothing is changed before it is known that no partition lies in two places. Names that are not ours are left
alone. How far a long recovery has come is told once a second.
Left to others: one log (storage/recovery.py), what a log is once it is open (storage/log.py).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Protocol, TypeVar

import structlog

from ..protocol.kinds import Clock, TopicPartition
from . import checkpoints
from .aside import NAME_MAX, Aside
from .checkpoints import Unreadable
from .cleaning.checkpoint import CLEANER_OFFSETS
from .condemned import DELETED
from .config import StorageConfig
from .disk import FULL, Disk, DiskFailed
from .handles import OpenSegments
from .log import Log
from .recovery import BeforeLoss, Known, Obstructed, Recovered, Recovery, Surroundings, Survey
from .rings import FLIGHT_RECORDER

log = structlog.get_logger(__name__)

MANY_LOGS, SMALL_LOG_BYTES, SMALL_LOGS_AT_ONCE = 64, 1 << 20, 16  # to scan, on average
PROGRESS_MS = 1_000
NAMES_SHOWN_MAX = 10
# <topic>-<number>.<32 hexadecimal digits>-<what happens to it>
MARKED = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|stray|future)")

T = TypeVar("T")


class AmbiguousDirectory(Exception):
    """Two log directories hold the same partition: nobody can say which is right."""


class Crew(Protocol):
    """Does several things, and returns what they gave, in their order."""

    def __call__(self, works: Sequence[Callable[[], T]], threads: int) -> list[T]: ...


def one_by_one(works: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """In the thread that asks."""
    return [work() for work in works]


def in_threads(works: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """So many at a time; the first failure, in the order of `works`, is raised when all have ended."""
    if min(threads, len(works)) <= 1:
        return one_by_one(works, 1)
    with ThreadPoolExecutor(threads, "recovery") as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]


@dataclass(frozen=True, slots=True)
class Stop:
    """How the previous process ended, as far as its log directories tell."""

    clean: bool
    same_boot: bool = True  # what it wrote is still there, on the medium or in memory
    doubts: Collection[str] = ()  # partitions in which it had found damage


@dataclass(slots=True)
class Directory:
    """One log directory, while it is being opened and after."""

    path: str
    recoveries: list[tuple[Recovery, Known]] = field(default_factory=list)
    condemned: list[str] = field(default_factory=list)
    opened: list[tuple[Log, Recovered, Known]] = field(default_factory=list)
    closed: dict[TopicPartition, Known] = field(default_factory=dict)  # no room to mend them
    cleaned: Mapping[TopicPartition, int] = field(default_factory=dict)  # up to where logs are compacted
    promised: set[TopicPartition] = field(default_factory=set)  # whose logs were here, as checkpoints say
    removed: list[str] = field(default_factory=list)  # names of logs that were taken away
    failure: OSError | DiskFailed | None = None  # it cannot be used


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
        """All of `dirs`, in their order, with the logs of each in the order of their names."""
        directories = [Directory(path) for path in dirs]
        for directory in directories:
            self._guarded(directory, self._look)
        self._insist_on_one_place(directories)
        self._miss(directories)
        self._crew([partial(self._guarded, each, self._recover) for each in directories], len(directories))
        return directories

    def open_again(self, path: str, partitions: Collection[TopicPartition]) -> Directory:
        """Logs of one directory for which there was no room before."""
        directory = Directory(path)
        self._guarded(directory, self._look)
        directory.recoveries = [each for each in directory.recoveries if each[0].partition in partitions]
        directory.cleaned = {p: end for p, end in directory.cleaned.items() if p in partitions}
        directory.condemned.clear()
        self._guarded(directory, self._recover)
        return directory

    def _guarded(self, directory: Directory, work: Callable[[Directory], None]) -> None:
        if directory.failure is None:
            try:
                work(directory)
            except IsADirectoryError as error:
                raise Obstructed(f"{error.filename} is a directory where a file should be") from error
            except (OSError, DiskFailed) as error:
                directory.failure = error

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
            partition, marked = parse_directory(name), MARKED.fullmatch(name)
            if not (partition or marked) or not self._is_directory(path):
                foreign.append(name)
            elif partition is not None:
                directory.recoveries.append(
                    (Recovery(around, path, partition, known(partition)), known(partition))
                )
            else:
                directory.removed.append(name)
                if name.endswith(DELETED):
                    directory.condemned.append(path)
                else:
                    log.info("log_left_alone", path=path)
        unknown = [name for name in foreign if name not in OUR_FILES and not name.startswith(".")]
        if unknown:
            log.info("foreign_names", directory=directory.path, names=unknown[:NAMES_SHOWN_MAX])

    def _known(self, directory: Directory) -> Callable[[TopicPartition], Known]:
        points, starts, watermarks = (
            self._offsets(directory.path, name)
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.START_OFFSETS, checkpoints.HIGH_WATERMARKS)
        )
        directory.promised = {*(points or {}), *(watermarks or {})}
        stop, cleaned = self.stop, directory.cleaned

        def known(partition: TopicPartition) -> Known:
            return Known(
                stop.clean,
                (points or {}).get(partition, 0),
                None if starts is None else starts.get(partition, 0),
                (watermarks or {}).get(partition, 0),
                same_boot=stop.same_boot or stop.clean,
                doubted=str(partition) in stop.doubts,
                compacted=partition in cleaned,
            )

        return known

    def _offsets(self, directory: str, name: str) -> Mapping[TopicPartition, int] | None:
        """A checkpoint that cannot be read (None) costs a longer recovery, nothing else."""
        try:
            return checkpoints.read_offsets(self.disk, f"{directory}/{name}")
        except Unreadable as error:
            log.warning("checkpoint_unreadable", path=f"{directory}/{name}", reason=str(error))
            return None

    def _is_directory(self, path: str) -> bool:
        if self.disk.is_link(path):
            raise Obstructed(f"{path} is a symbolic link; a log lies in the directory itself")
        try:
            self.disk.listdir(path)
        except NotADirectoryError:
            return False
        return True

    def _insist_on_one_place(self, directories: Iterable[Directory]) -> None:
        places: dict[TopicPartition, str] = {}
        for directory in directories:
            for recovery, _ in directory.recoveries:
                other = places.setdefault(recovery.partition, recovery.directory)
                if other != recovery.directory:
                    raise AmbiguousDirectory(
                        f"{recovery.directory} and {other} both hold {recovery.partition}"
                    )

    def _miss(self, directories: Iterable[Directory]) -> None:
        """A log that checkpoints name and that nobody here has taken away is lost: its replica begins empty.

        The files are written again when logs are removed, so they name a removed one only after a crash in
        between, which its new name tells.
        """
        there = {recovery.partition for each in directories for recovery, _ in each.recoveries}
        removed = [name for each in directories for name in each.removed]
        for directory in directories:
            if directory.failure is not None:
                continue
            for partition in sorted(directory.promised - there):
                if not any(was_called(name, partition) for name in removed):
                    log.error("log_missing", partition=str(partition), directory=directory.path)
                    self._note(partition, "its directory is gone")

    # Recover.

    def _recover(self, directory: Directory) -> None:
        surveys = [recovery.survey() for recovery, _ in directory.recoveries]
        progress = Progress(directory.path, self.clock, surveys)

        def work(recovery: Recovery, known: Known) -> tuple[Log, Recovered, Known] | None:
            try:
                opened, cost = recovery.run(progress.advance)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                directory.closed[recovery.partition] = known
                log.error("log_not_opened", partition=str(recovery.partition), reason=str(error))
                return None
            progress.opened(len(recovery.surveyed.to_scan))
            tell(opened, cost)
            return opened, cost, known

        works = [partial(work, *each) for each in directory.recoveries]
        found = self._crew(works, self._threads(progress))
        directory.opened = [each for each in found if each is not None]
        directory.recoveries = []
        progress.end()

    def _threads(self, progress: "Progress") -> int:
        """Each log is synced by itself. Where that is all the work, many wait for the disk at once."""
        logs = progress.logs_total
        is_small = logs >= MANY_LOGS and progress.bytes_total < logs * SMALL_LOG_BYTES
        return max(self.config.recovery_threads, SMALL_LOGS_AT_ONCE if is_small else 0)

    def _note(self, partition: TopicPartition, reason: str) -> None:
        with self._noting:  # logs are recovered in several threads
            self._before_loss(partition, reason)


class Progress:
    """How far the recovery of a directory has come. Told once a second, and at the end, if there was any."""

    def __init__(self, directory: str, clock: Clock, surveys: Sequence[Survey]) -> None:
        self.directory = directory
        self.clock = clock
        self.logs_total = len(surveys)
        self.segments_total = sum(len(survey.to_scan) for survey in surveys)
        self.bytes_total = sum(survey.scan_bytes for survey in surveys)
        self.logs = self.segments = self.bytes = 0
        self._began_ms = self._told_ms = clock.wall_ms()
        self._turn = Lock()

    def advance(self, nbytes: int) -> None:
        """So many more bytes have been scanned."""
        with self._turn:
            self.bytes += nbytes
            now_ms = self.clock.wall_ms()
            if abs(now_ms - self._told_ms) >= PROGRESS_MS:  # the clock may have been set
                self._told_ms = now_ms
                self._tell("recovery_progress")

    def opened(self, segments: int) -> None:
        """One more log is open, `segments` of which have been scanned."""
        with self._turn:
            self.logs += 1
            self.segments += segments

    def end(self) -> None:
        """All logs of the directory are open."""
        if self.bytes_total:
            self._tell("recovery_finished")

    def _tell(self, event: str) -> None:
        log.info(
            event,
            directory=self.directory,
            logs=f"{self.logs}/{self.logs_total}",
            segments=f"{self.segments}/{self.segments_total}",
            bytes=f"{self.bytes}/{self.bytes_total}",
            elapsed_ms=self.clock.wall_ms() - self._began_ms,
        )


def tell(opened: Log, cost: Recovered) -> None:
    """One line about a log in which something was wrong."""
    if cost.torn_bytes or cost.lost or cost.repairs:
        report = log.warning if cost.torn_bytes or cost.lost else log.info
        report(
            "log_recovered",
            partition=str(opened.partition),
            torn_bytes=cost.torn_bytes,
            losses=list(cost.losses),
            repairs=list(cost.repairs),
            end_offset=opened.end_offset,
            aside=cost.aside,
        )


def was_called(name: str, partition: TopicPartition) -> bool:
    """Whether the log that is set aside as `name` was that of the partition; a long name was cut to fit."""
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
    if not (topic and dash and plain) or len(number) > 10:
        return None
    return TopicPartition(topic, int(number))


OUR_FILES = frozenset(
    {
        checkpoints.HIGH_WATERMARKS,
        checkpoints.RECOVERY_POINTS,
        checkpoints.START_OFFSETS,
        checkpoints.META_PROPERTIES,
        CLEANER_OFFSETS,
        "incarnation.json",
        "zookeeper.session",
        FLIGHT_RECORDER,
    }
)

"""Logs: all partitions of a broker, over one or more log directories.

Opening, creating and removing them, the checkpoints they share, and passes that the broker calls from its
own tasks. What says "blocking" may run in a thread: it works on copies and never touches a log's state.
Left to others: when passes run (broker/node.py), who is told of a failed directory (broker/replicas.py).
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from uuid import UUID

import structlog

from ..protocol.kinds import Clock, TopicPartition
from . import checkpoints
from .checkpoints import Unreadable
from .config import StorageConfig, TopicConfig
from .disk import Disk, DiskError, disk_error
from .epochs import EpochHistory
from .log import Log
from .producers import ProducerStates
from .recovery import BeforeLoss, Known, Recovered, Surroundings, open_log
from .retention import SegmentFacts, expired
from .segment import OpenSegments, Segment

log = structlog.get_logger(__name__)

DELETED = "-delete"
STRAY = "-stray"
ASIDE = ".aside"
NAME_MAX = 255  # of a file, for the kernel


class AmbiguousDirectory(Exception):
    """Two log directories hold the same partition: nobody can say which is right."""


def parse_directory(name: str) -> TopicPartition | None:
    """The partition whose directory is called `name`; None for a name that is not ours."""
    topic, dash, number = name.rpartition("-")
    plain = number.isascii() and number.isdigit() and (number == "0" or number[0] != "0")
    if not (topic and dash and plain) or len(number) > 10:
        return None
    return TopicPartition(topic, int(number))


class Logs:
    """The logs of a broker. `recovered` tells what opening them has cost."""

    def __init__(self, dirs: Sequence[str], disk: Disk, config: StorageConfig, clock: Clock) -> None:
        self.dirs = list(dirs)
        self.disk = disk
        self.config = config
        self.clock = clock
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.recovered: list[Recovered] = []
        self.condemned: list[str] = []  # directories and files to be deleted, by `purge`
        self._recovery_points: dict[TopicPartition, int] = {}  # as they stand in the checkpoint files
        self._writing = Lock()  # one checkpoint at a time: they come from a thread and from cuts
        self._dir_of: dict[TopicPartition, str] = {}
        self._open_segments = OpenSegments(config.sealed_open_max)

    @classmethod
    def open(
        cls,
        dirs: Sequence[str],
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        *,
        clean: bool,
        before_loss: BeforeLoss,
    ) -> "Logs":
        """Open every log in `dirs`. Blocking.

        `clean` says that the previous process closed them all (Incarnations.clean). `before_loss` must
        have written its note to the medium when it returns.
        """
        logs = cls(dirs, disk, config, clock)
        for directory in dirs:
            logs._open_directory(directory, clean, before_loss)
        return logs

    def _open_directory(self, directory: str, clean: bool, before_loss: BeforeLoss) -> None:
        self.disk.mkdir(directory)
        around = Surroundings(
            disk=self.disk,
            storage=self.config,
            open_segments=self._open_segments,
            before_loss=before_loss,
            aside=f"{directory}{ASIDE}",
            now_ms=self.clock.wall_ms(),
        )
        recovery_points = self._offsets(directory, checkpoints.RECOVERY_POINTS)
        start_offsets = self._offsets(directory, checkpoints.START_OFFSETS)
        high_watermarks = self._offsets(directory, checkpoints.HIGH_WATERMARKS)
        for name in self.disk.listdir(directory):
            path = f"{directory}/{name}"
            if name.endswith(DELETED):
                self.condemned.append(path)
                continue
            partition = parse_directory(name)
            if partition is None or not self._is_directory(path):
                continue
            if partition in self.logs:
                raise AmbiguousDirectory(f"{path} and {self._dir_of[partition]} both hold {partition}")
            known = Known(
                clean,
                recovery_points.get(partition, 0),
                start_offsets.get(partition, 0),
                high_watermarks.get(partition, 0),
            )
            self._open_one(around, path, directory, partition, known)

    def _open_one(
        self, around: Surroundings, path: str, directory: str, partition: TopicPartition, known: Known
    ) -> None:
        opened, cost = open_log(around, path, partition, known)
        self._adopt(opened, directory)
        self._recovery_points[partition] = known.recovery_point
        self.recovered.append(cost)
        self.high_watermarks[partition] = max(
            opened.start_offset, min(known.high_watermark, opened.end_offset)
        )
        if cost.torn_bytes or cost.lost:
            log.warning(
                "log_recovered",
                partition=str(partition),
                torn_bytes=cost.torn_bytes,
                losses=list(cost.losses),
                end_offset=opened.end_offset,
            )

    def _is_directory(self, path: str) -> bool:
        try:
            self.disk.listdir(path)
        except NotADirectoryError:
            return False
        return True

    def _offsets(self, directory: str, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read costs a longer recovery, nothing else."""
        try:
            return checkpoints.read_offsets(self.disk, f"{directory}/{name}")
        except Unreadable as error:
            log.warning("checkpoint_unreadable", path=f"{directory}/{name}", reason=str(error))
            return {}

    # -- one log

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def directory_of(self, partition: TopicPartition) -> str:
        """The log directory that holds the partition."""
        return self._dir_of[partition]

    def create(self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig) -> Log:
        """An empty log in the directory with the fewest; the log that is there if there is one."""
        existing = self.logs.get(partition)
        if existing is not None:
            return existing
        used = list(self._dir_of.values())
        directory = min(self.dirs, key=used.count)
        path = f"{directory}/{partition}"
        try:
            self.disk.mkdir(path)
            if topic_id is not None:
                checkpoints.write_partition_metadata(
                    self.disk, f"{path}/{checkpoints.PARTITION_METADATA}", topic_id
                )
            segment = Segment(self.disk, path, 0, self.clock.wall_ms(), create=True)
            self.disk.sync_dir(directory)
        except OSError as error:
            raise disk_error(path, error) from error
        fresh = Log(
            self.disk,
            path,
            partition,
            config,
            segments=[segment],
            start_offset=0,
            end_offset=0,
            epochs=EpochHistory(),
            producers=ProducerStates(self.config.producer_ids_max),
            open_segments=self._open_segments,
            topic_id=topic_id,
            tail_bytes_max=self.config.tail_cache_bytes,
        )
        fresh.save_config()
        self._adopt(fresh, directory)
        return fresh

    def _adopt(self, each: Log, directory: str) -> None:
        partition = each.partition
        self.logs[partition] = each
        self._dir_of[partition] = directory
        each.before_cut = lambda end: self._lower(partition, end)

    def _lower(self, partition: TopicPartition, end: int) -> None:
        """A log is about to be cut: its checkpoints must not promise more than will be there.

        Else recovery would take the cut for a loss, and new records below the old recovery point for flushed.
        """
        for name, offsets in (
            (checkpoints.RECOVERY_POINTS, self._recovery_points),
            (checkpoints.HIGH_WATERMARKS, self.high_watermarks),
        ):
            with self._writing:  # before the look: a thread may be writing what is higher
                if offsets.get(partition, 0) > end:
                    offsets[partition] = end
                    self._checkpoint(name, offsets)

    def remove(self, partition: TopicPartition, name: UUID, suffix: str = DELETED) -> str:
        """Take a log away at once by renaming its directory; `purge` deletes it later.

        With `suffix=STRAY` the data is kept for an operator and never served.
        """
        gone = self.logs.pop(partition)
        directory = self._dir_of.pop(partition)
        self.high_watermarks.pop(partition, None)
        self._recovery_points.pop(partition, None)
        gone.abandon()
        tail = f"-{partition.partition}.{name.hex}{suffix}"
        target = f"{directory}/{partition.topic[: NAME_MAX - len(tail)]}{tail}"
        try:
            self.disk.rename(gone.directory, target)
            self.disk.sync_dir(directory)
        except OSError as error:
            raise disk_error(gone.directory, error) from error
        if suffix == DELETED:
            self.condemned.append(target)
        return target

    def purge(self, paths: Sequence[str] | None = None) -> None:
        """Delete what has been condemned. Blocking: a gigabyte takes a quarter of a second."""
        for path in list(self.condemned) if paths is None else paths:
            if path.endswith(DELETED):
                self.disk.rmtree(path)
            else:
                self.disk.unlink(path)
            if path in self.condemned:
                self.condemned.remove(path)

    # -- checkpoints

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write down the watermarks; partitions not given keep theirs (KAFKA-1647). Blocking."""
        with self._writing:
            for partition, offset in high_watermarks.items():
                if partition in self.logs:
                    self.high_watermarks[partition] = offset
            self._checkpoint(checkpoints.HIGH_WATERMARKS, dict(self.high_watermarks))

    def checkpoint_recovery_points(self) -> None:
        """Write down up to where each log is on the medium, and where it starts. Blocking."""
        with self._writing:
            logs = dict(self.logs)
            points = {partition: each.flushed_offset for partition, each in logs.items()}
            self._checkpoint(checkpoints.RECOVERY_POINTS, points)
            self._recovery_points.update(points)
            self._checkpoint(checkpoints.START_OFFSETS, {p: each.start_offset for p, each in logs.items()})

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        where = dict(self._dir_of)
        for directory in self.dirs:
            path = f"{directory}/{name}"
            mine = {p: offset for p, offset in offsets.items() if where.get(p) == directory}
            try:
                checkpoints.write_offsets(self.disk, path, mine)
            except OSError as error:
                raise disk_error(path, error) from error

    # -- passes

    def retention_pass(self, high_watermarks: Mapping[TopicPartition, int]) -> list[str]:
        """Take expired segments out of their logs; returns renamed files for `purge`, after their delay."""
        now_ms = self.clock.wall_ms()
        going: list[str] = []
        for partition, each in self.logs.items():
            watermark = high_watermarks.get(partition, self.high_watermarks.get(partition, 0))
            count = expired(facts_of(each), each.config, now_ms, each.start_offset, watermark)
            if count and not each.failed:
                paths = each.retire(count, now_ms)
                going += paths
                log.info("segments_retired", partition=str(partition), start_offset=each.start_offset)
        self.condemned += going
        return going

    def expire_producers(self) -> int:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        now_ms, after_ms = self.clock.wall_ms(), self.config.producer_id_expiration_ms
        return sum(each.producers.expire(now_ms, after_ms) for each in self.logs.values())

    def close(self, clean: bool = True) -> bool:
        """Close all logs; True if every one is whole on the medium, so that a clean marker may be written.

        With `clean=False` nothing is written. Blocking.
        """
        good = clean
        for each in self.logs.values():
            try:
                if clean:
                    each.close()
                    good = good and not each.failed
                else:
                    each.abandon()
            except DiskError as error:
                log.error("log_not_closed", partition=str(each.partition), reason=str(error))
                good = False
        if clean:
            self.checkpoint_recovery_points()
        return good


def facts_of(each: Log) -> list[SegmentFacts]:
    """A log's segments as retention sees them."""
    following = [segment.base_offset for segment in each.segments[1:]] + [each.end_offset]
    return [
        SegmentFacts(after, segment.size, segment.age_from_ms)
        for segment, after in zip(each.segments, following, strict=True)
    ]

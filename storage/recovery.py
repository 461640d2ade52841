"""Open a log after a stop, clean or not: cut what was torn, set aside what is corrupt, rebuild the rest.

Nothing good is dropped without a word: what must go although it was complete is first reported through
`before_loss`, which writes it down, and then kept in `<log dir>.aside/`. Kafka's own recovery drops it.
Left to others: what a loss means for elections (storage/incarnation.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ..protocol.kinds import TopicPartition
from . import checkpoints, snapshots
from .checkpoints import Unreadable
from .config import StorageConfig, TopicConfig
from .disk import Disk, DiskError
from .epochs import EpochHistory
from .log import Log
from .producers import ProducerStates
from .scan import Fault, Scan, scan
from .segment import INDEX, LOG, TIME_INDEX, CorruptBatch, OpenSegments, Segment, file_name

LEFT_OVERS = (".deleted", ".tmp", ".cleaned")
COPY_BYTES = 1 << 20

BeforeLoss = Callable[[TopicPartition, str], None]


@dataclass(frozen=True, slots=True)
class Known:
    """What the checkpoints say of a log that is about to be opened."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    high_watermark: int = 0


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a log has cost."""

    partition: TopicPartition
    torn_bytes: int = 0
    losses: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Complete batches are gone, or records that the checkpoints know of."""
        return bool(self.losses)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What opening any log of a directory needs."""

    disk: Disk
    storage: StorageConfig
    open_segments: OpenSegments
    before_loss: BeforeLoss
    aside: str  # where corrupt data is kept, beside the log directory
    now_ms: int


class Recovery:
    """The opening of one log. Look first, then report, and only then change anything."""

    def __init__(self, around: Surroundings, directory: str, partition: TopicPartition, known: Known) -> None:
        self.around = around
        self.disk = around.disk
        self.directory = directory
        self.partition = partition
        self.known = known
        self.losses: list[str] = []
        self.torn_bytes = 0
        self.scans: dict[int, Scan] = {}  # by base offset
        self.config, self.gaps = self._kept_config()

    def _kept_config(self) -> tuple[TopicConfig, bool]:
        try:
            kept = checkpoints.read_topic_config(self.disk, f"{self.directory}/{checkpoints.TOPIC_CONFIG}")
        except Unreadable:
            kept = None
        return (kept.config, kept.gaps) if kept else (TopicConfig.of(self.around.storage), False)

    def run(self) -> tuple[Log, Recovered]:
        segments = self._find_segments()
        end, good = self._judge(segments)
        self._note_shortfall(end)
        if self.losses:
            self.around.before_loss(self.partition, "; ".join(self.losses))
        segments = self._mend(segments, good)
        if not segments or end < self.known.start_offset:
            self._set_aside(segments)
            end = self.known.start_offset
            segments = [Segment(self.disk, self.directory, end, self.around.now_ms, create=True)]
        return self._assemble(segments, end)

    def _find_segments(self) -> list[Segment]:
        names = self.disk.listdir(self.directory)
        for name in names:
            if name.endswith(LEFT_OVERS):
                self.disk.unlink(f"{self.directory}/{name}")
        bases = [int(name[:20]) for name in names if name.endswith(LOG) and is_segment_name(name)]
        for name in names:  # an index without its segment
            if name.endswith((INDEX, TIME_INDEX)) and is_segment_name(name) and int(name[:20]) not in bases:
                self.disk.unlink(f"{self.directory}/{name}")
        segments = []
        for base in sorted(bases):
            segment = Segment(self.disk, self.directory, base, self.around.now_ms, create=False)
            segment.release()
            segments.append(segment)
        return segments

    def _judge(self, segments: list[Segment]) -> tuple[int, int]:
        """Look at every segment that may be damaged: (end offset, how many segments are good so far).

        The last good one may still have to be cut, as its scan says.
        """
        expected, epoch = self.known.start_offset, -1
        for place, segment in enumerate(segments):
            following = segments[place + 1].base_offset if place + 1 < len(segments) else None
            if (
                place
                and segment.base_offset != expected
                and not (self.gaps and segment.base_offset > expected)
            ):
                self.losses.append(f"segment {segment.base_offset} where {expected} was next")
                return expected, place
            end = self._trusted_end(segment, following)
            if end is None:
                found = scan(segment, segment.base_offset, epoch, self.gaps, self.config.index_interval_bytes)
                self.scans[segment.base_offset] = found
                end, epoch = found.end_offset, max(epoch, found.latest_epoch)
                segment.release()
                if found.fault is Fault.CORRUPT or (found.fault is Fault.TORN and following is not None):
                    self.losses.append(found.reason)
                    return end, place + 1
            expected = end
        return expected, len(segments)

    def _trusted_end(self, segment: Segment, following: int | None) -> int | None:
        """Where a segment ends that need not be scanned; None if it must be."""
        if following is not None:
            flushed = self.known.clean or following <= self.known.recovery_point
            return following if flushed and segment.indexes_plausible() else None
        if not self.known.clean or not segment.indexes_plausible():
            return None
        end, position = segment.base_offset, 0
        try:
            for position, header in segment.headers(segment.index.floor_position(segment.size)):
                end, position = header.next_offset, position + header.size
        except CorruptBatch:
            return None
        return end if position == segment.size else None

    def _note_shortfall(self, end: int) -> None:
        """The checkpoints are tripwires: they never cut a log, but what they know of must be there."""
        known = self.known
        for what, offset in (
            ("high watermark", known.high_watermark),
            ("recovery point", known.recovery_point),
            ("log start", known.start_offset),
        ):
            if end < offset:
                self.losses.append(f"ends at {end}, before its {what} {offset}")

    def _mend(self, segments: list[Segment], good: int) -> list[Segment]:
        """Cut the torn, set the corrupt aside, write the rebuilt indexes."""
        self._set_aside(segments[good:])
        segments = segments[:good]
        for segment in segments:
            found = self.scans.get(segment.base_offset)
            if found is None:
                continue
            segment.adopt_indexes(found.index, found.times, found.valid_bytes)
            if found.fault is Fault.TORN and segment is segments[-1] and not self.losses:
                self.torn_bytes += segment.size - found.valid_bytes
            elif found.fault is not Fault.NONE:
                self._keep_copy(segment, found.valid_bytes)
            if found.valid_bytes < segment.size:
                segment.cut(found.valid_bytes, found.end_offset)
            segment.write_indexes()
            segment.release()
        return segments

    def _aside_path(self, name: str) -> str:
        """A name that is free in this partition's place in the aside directory."""
        directory = f"{self.around.aside}/{self.partition}"
        self.disk.mkdir(directory)
        count, path = 0, f"{directory}/{name}"
        while self.disk.exists(path):
            count += 1
            path = f"{directory}/{name}.{count}"
        return path

    def _set_aside(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.close()
            for suffix in (LOG, INDEX, TIME_INDEX):
                if self.disk.exists(segment.path(suffix)):
                    target = self._aside_path(file_name(segment.base_offset, suffix))
                    self.disk.rename(segment.path(suffix), target)

    def _keep_copy(self, segment: Segment, position: int) -> None:
        """Copy what is about to be cut; the name tells where it stood."""
        target = self._aside_path(f"{file_name(segment.base_offset, LOG)}@{position}")
        copy = self.disk.open(target, create=True)
        try:
            while data := segment.file.pread(position, COPY_BYTES):
                copy.append((data,))
                position += len(data)
            copy.sync()
        finally:
            copy.close()

    def _assemble(self, segments: list[Segment], end: int) -> tuple[Log, Recovered]:
        known, storage = self.known, self.around.storage
        start = max(known.start_offset, segments[0].base_offset)
        history = self._epochs(segments, start, end)
        producers = ProducerStates(storage.producer_ids_max)
        snapshots.drop(self.disk, self.directory, high=end)
        snapshots.rebuild(self.disk, self.directory, producers, segments, end)
        for segment in segments[:-1]:
            segment.release()
        segments[-1].take_up()
        log = Log(
            self.disk,
            self.directory,
            self.partition,
            self.config,
            segments=segments,
            start_offset=start,
            end_offset=end,
            epochs=history,
            producers=producers,
            open_segments=self.around.open_segments,
            topic_id=self._topic_id(),
            flushed_offset=end if known.clean and not self.losses else min(known.recovery_point, end),
            gaps_allowed=self.gaps,
            tail_bytes_max=storage.tail_cache_bytes,
        )
        if not known.clean or self.losses:
            self._make_last(log)
        return log, Recovered(self.partition, self.torn_bytes, tuple(self.losses))

    def _make_last(self, log: Log) -> None:
        """A writeback error of the previous process is told to the next one that syncs: that is us."""
        try:
            log.save_epochs()
            log.flush()
        except DiskError as error:
            self.losses.append(str(error))
            self.around.before_loss(self.partition, str(error))

    def _topic_id(self) -> UUID | None:
        """None also for a damaged file: the controller tells the id again."""
        path = f"{self.directory}/{checkpoints.PARTITION_METADATA}"
        try:
            return checkpoints.read_partition_metadata(self.disk, path)
        except Unreadable:
            return None

    def _epochs(self, segments: list[Segment], start: int, end: int) -> EpochHistory:
        """The kept history, corrected by what the scans saw; from the batches alone if it is unreadable."""
        try:
            kept = checkpoints.read_epochs(self.disk, f"{self.directory}/{checkpoints.EPOCHS}")
        except Unreadable:
            kept = None
        history = EpochHistory(kept or ())
        if kept is None:
            for segment in segments:
                for _, header in segment.headers():
                    if header.leader_epoch >= 0:
                        history.assign(max(header.leader_epoch, history.latest), header.base_offset)
        elif self.scans:
            history.truncate_from_end(min(self.scans))
            for base in sorted(self.scans):
                for epoch, offset in self.scans[base].epochs:
                    if epoch >= 0:
                        history.assign(epoch, offset)
        history.truncate_from_end(end)
        history.truncate_from_start(start)
        if history.entries != (kept or []):
            path = f"{self.directory}/{checkpoints.EPOCHS}"
            checkpoints.write_epochs(self.disk, path, history.entries, sync=True)
        return history


def is_segment_name(name: str) -> bool:
    """Twenty digits and a suffix."""
    return len(name) > 21 and name[:20].isascii() and name[:20].isdigit() and name[20] == "."


def open_log(
    around: Surroundings, directory: str, partition: TopicPartition, known: Known
) -> tuple[Log, Recovered]:
    """Open the log in `directory`, whatever state it is in."""
    return Recovery(around, directory, partition, known).run()

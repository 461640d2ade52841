"""Open a log after a stop, clean or not: truncate torn batches, set corrupt ones aside, rebuild the rest.

First all segments are surveyed (`survey`) to learn which must be scanned. Then those are scanned, and what
will be lost is reported through `before_loss`, which makes the report durable. Only then is anything changed.
Complete batches that must go are kept in `<log dir>.aside/`. Kafka's own recovery drops them.
Left to others: what a loss means for elections (directories/incarnation.py), many logs
(directories/open_logs.py).
"""

from collections.abc import Callable
from contextlib import closing
from uuid import UUID

from ...base.types import TopicPartition
from ...base.values import dataclass
from ..config import StorageConfig, TopicConfig
from ..disk import FULL, Disk, DiskError
from ..log import checkpoints
from ..log.checkpoints import Torn, Unreadable
from ..log.log import Log
from ..log.producer_state import ProducerStates
from ..quarantine import Aside, Removal, Shelf
from ..segment.file_names import INDEX, LOG, SUFFIXES, TIME_INDEX, TRANSACTION_INDEX
from ..segment.open_files import OpenSegments
from ..segment.segment import CorruptBatch, Segment
from .check_sealed import SegmentEnd
from .epoch_check import KeptHistory, rebuilt
from .old_formats import OldFormat, find_old_format, old_message_at
from .recover_producers import recover_producers
from .scan_segment import Expected, Fault, Scan, scan
from .survey import Known, Survey, look_into

__all__ = ["BeforeLoss", "Known", "LogRecovery", "Recovered", "Surroundings", "Survey"]

BeforeLoss = Callable[[TopicPartition, str], None]
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a log has cost: losses, repairs, bytes scanned."""

    partition: TopicPartition
    torn_bytes: int = 0
    losses: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()  # what was wrong and was repaired without a loss
    scanned_bytes: int = 0
    aside: str | None = None  # where the removed data is kept

    @property
    def lost(self) -> bool:
        """Whether complete batches are gone, or records that the checkpoints know of."""
        return bool(self.losses)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What opening a log needs, the same for all logs of a directory."""

    disk: Disk
    storage: StorageConfig
    open_segments: OpenSegments
    before_loss: BeforeLoss
    aside: Aside
    now_ms: int


class LogRecovery:
    """The opening of one log: survey first, then report, and only then change anything."""

    def __init__(self, around: Surroundings, directory: str, partition: TopicPartition, known: Known) -> None:
        self.around = around
        self.disk = around.disk
        self.directory = directory
        self.partition = partition
        self.known = known
        self.losses: list[str] = []
        self.repairs: list[str] = []
        self.torn_bytes = 0
        self.scans: dict[int, Scan] = {}  # by base offset
        self.surveyed = Survey()
        self._shelf: Shelf | None = None
        self._epochs = KeptHistory(self.disk, directory)
        self._log_start = self._epochs.start if known.start_offset is None else known.start_offset
        self.config, gaps = self._kept_config()
        self.gaps = gaps or known.compacted

    def _kept_config(self) -> tuple[TopicConfig, bool]:
        """Settings, and whether gaps between offsets are allowed.

        If the file is missing or damaged they are: Kafka keeps none, and the log may have been compacted. If
        it is torn they are not: the power has failed, and a gap may come from that. `known.compacted`, which
        was synced, counts in any case.
        """
        kept, torn = None, False
        try:
            kept = checkpoints.read_topic_config(self.disk, f"{self.directory}/{checkpoints.TOPIC_CONFIG}")
        except Unreadable as error:
            self.repairs.append(str(error))
            torn = isinstance(error, Torn)
        self._is_foreign = kept is None
        return (kept.config, kept.gaps) if kept else (TopicConfig.of(self.around.storage), not torn)

    # Look.

    def old_format(self) -> OldFormat | None:
        """Why this log must be left alone: it has messages of an old format that we do not read."""
        return find_old_format(self.disk, self.directory) if self._is_foreign else None

    def survey(self) -> Survey:
        """Find the segments and which of them must be scanned. Deletes only leftovers, no records."""
        found = look_into(self.disk, self.directory, self.around.now_ms)
        if not self.known.doubted:
            self.repairs += found.trust(self.known, self.gaps)
            self._epochs.compare(found.segments, found.ends, self._log_start, self.gaps)
            if self._epochs.wrong or self._epochs.disputed:
                found.ends.clear()
        self.surveyed = found
        return found

    # Judge.

    def run(self, advance: Advance = lambda _: None) -> tuple[Log, Recovered]:
        """Scan, report, repair, open. `advance` is told of bytes as they are scanned."""
        segments = self.surveyed.segments
        end, good = self._judge(advance)
        if (end < self.known.recovery_point and self.surveyed.ends) or self._is_misled():
            self.surveyed.ends.clear()  # what that checkpoint calls flushed need not have been
            end, good = self._judge(advance)
        self._note_shortfall(segments, end)
        if self.losses:
            self.around.before_loss(self.partition, "; ".join(self.losses))
        kept = self._mend(segments, good, end)
        if not kept or end < self._log_start:
            self._set_aside(kept, self._log_start)
            end = self._log_start
            kept = [Segment(self.disk, self.directory, end, self.around.now_ms, create=True)]
            self.scans.clear()
        return self._assemble(kept, end)

    def _is_misled(self) -> bool:
        """Whether an index of the future active segment points to where no batch begins."""
        last = self.surveyed.segments[-1:]
        if not last or last[0].base_offset not in self.surveyed.ends:
            return False
        try:
            last[0].take_up()
        except CorruptBatch as error:
            self.repairs.append(f"an index was wrong: {error}")
            return True
        finally:
            last[0].release()
        return False

    def _judge(self, advance: Advance) -> tuple[int, int]:
        """Scan what must be scanned: (end offset, how many segments are good).

        The last good one may still have to be truncated, as its scan says.
        """
        segments, self.losses = self.surveyed.segments, []
        expected, epoch = self._log_start, -1
        for place, segment in enumerate(segments):
            base = segment.base_offset
            if place and self._is_hollow(segment, expected):
                self.surveyed.hollow.append(segments.pop())
                break
            if place and not self._may_follow(base, expected):
                self.losses.append(f"found segment {base}: expected {expected}")
                return expected, place
            end = self.surveyed.ends.get(base)
            if end is None:
                found = self._scan(segment, epoch, advance)
                end = SegmentEnd(found.end_offset, max(epoch, found.latest_epoch))
                self._insist_on_damage(segment, found)
                is_last = not any(segment.size for segment in segments[place + 1 :])
                if found.fault is Fault.CORRUPT or (found.fault is Fault.TORN and not is_last):
                    self.losses.append(found.reason)
                    return found.end_offset, place + 1
            expected, epoch = end.offset, max(epoch, end.epoch)
        return expected, len(segments)

    def _insist_on_damage(self, segment: Segment, found: Scan) -> None:
        """Raise OldFormat if it is an old message that stopped the scan: then the log stays as it is."""
        if found.fault is not Fault.NONE:
            with closing(self.disk.open(segment.path(LOG))) as file:
                magic = old_message_at(file, found.valid_bytes)
            if magic is not None:
                raise OldFormat(segment.path(LOG), magic)

    def _may_follow(self, base: int, expected: int) -> bool:
        """Whether a segment may begin at `base` when `expected` is the next offset.

        Only the cleaner removes records between two segments, and only synced ones. Beyond those, after
        another boot, a hole means that the end of the first segment was lost.
        """
        is_gap = self.gaps and base > expected
        return base == expected or (is_gap and (self.known.same_boot or base <= self.known.gaps_below))

    def _is_hollow(self, last: Segment, expected: int) -> bool:
        """Whether it is empty and was never part of the log: a failed roll made it, and the segment before it
        stayed active. After another boot, one that begins too late may be the sign of a loss.
        """
        if last.size:
            return False
        base = last.base_offset
        return base < expected or (self.known.same_boot and not self._may_follow(base, expected))

    def _scan(self, segment: Segment, epoch: int, advance: Advance) -> Scan:
        first = self.surveyed.segments[0].base_offset
        certain = self._epochs.covers(max(first, self._log_start))
        before = self._epochs.epoch_before(segment.base_offset) if certain else None
        expected = Expected(
            offset=segment.base_offset,
            epoch=epoch if before is None else min(epoch, before),
            gaps=self.gaps,
            index_interval=self.config.index_interval_bytes,
            epochs=dict(self._epochs.entries) if certain else None,
            same_boot=self.known.same_boot,
            producers_max=self.around.storage.producer_ids_max,
        )
        found = self.scans[segment.base_offset] = scan(segment, expected, advance)
        segment.release()
        return found

    def _note_shortfall(self, segments: list[Segment], end: int) -> None:
        """Note a loss if the log ends before a checkpoint, or begins after its first epoch. Neither makes us
        truncate it.
        """
        known, first = self.known, segments[0].base_offset if segments else end
        if end < self._log_start and 0 < max(known.high_watermark, known.recovery_point) < self._log_start:
            self.repairs.append(
                f"the log start offset {self._log_start} is after everything else that is known"
            )
            self._log_start = first
        for what, offset in (
            ("high watermark", known.high_watermark),
            ("recovery point", known.recovery_point),
            ("log start", self._log_start),
        ):
            if end < offset:
                self.losses.append(f"ends at {end}, below its {what} {offset}")
        epochs = self._epochs.entries
        if (
            known.same_boot
            and not self._epochs.wrong
            and epochs
            and max(epochs[0][1], self._log_start) < first
        ):
            self.losses.append(f"starts at {first}, but its first leader epoch at {epochs[0][1]}")

    # Mend.

    def _mend(self, segments: list[Segment], good: int, end: int) -> list[Segment]:
        """Set corrupt segments aside, truncate torn ones."""
        assert 0 <= good <= len(segments), "the good ones are the first"
        for segment in self.surveyed.hollow:
            self.repairs.append(f"segment {segment.base_offset} was empty and is removed")
            for path in map(segment.path, (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)):
                self.disk.unlink(path)
        self._set_aside(segments[good:], end)
        segments = segments[:good]
        for segment in segments:
            found = self.scans.get(segment.base_offset)
            if found is None:
                continue
            segment.adopt_indexes(found.index, found.times, found.newest, found.unindexed)
            segment.transactions.begin()  # until it is known what was aborted
            if found.valid_bytes < segment.size:
                self._cut(segment, found, end)
        return segments

    def _write_indexes(self, segment: Segment) -> None:
        """Write its indexes. On a full disk delete them: the old ones are wrong, and reads can do without."""
        try:
            segment.write_indexes()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.repairs.append(f"no space for the indexes of segment {segment.base_offset}")
            for suffix in (INDEX, TIME_INDEX):
                self.disk.unlink(segment.path(suffix))

    def _cut(self, segment: Segment, found: Scan, end: int) -> None:
        """Truncate a segment. Anything but a batch that was never complete is copied aside first."""
        if found.fault is Fault.TORN and found.is_prefix and not self.losses:
            self.torn_bytes += segment.size - found.valid_bytes
        else:
            shelf = self._shelf_from(end, found.reason)
            shelf.copy(segment.path(LOG), found.valid_bytes)
            shelf.close()
        segment.cut(found.valid_bytes, found.end_offset)

    def _set_aside(self, segments: list[Segment], end: int) -> None:
        """Move segments aside, the last one first: so a crash leaves a log without a gap."""
        if not segments:
            return
        shelf = self._shelf_from(end, "")
        for segment in reversed(segments):
            segment.close()
            for path in filter(self.disk.exists, map(segment.path, (*SUFFIXES, TRANSACTION_INDEX))):
                shelf.move(path)
        shelf.close()
        self.disk.sync_dir(self.directory)

    def _shelf_from(self, end: int, reason: str) -> Shelf:
        """The one place for everything that this recovery removes, from offset `end` on."""
        if self._shelf is None:
            self._shelf = self.around.aside.shelf(self._removal(end, "; ".join(self.losses) or reason))
        return self._shelf

    def _removal(self, from_offset: int, reason: str) -> Removal:
        topic_id = self._topic_id()
        return Removal(
            partition=str(self.partition),
            topic_id=None if topic_id is None else checkpoints.kafka_uuid(topic_id),
            at_ms=self.around.now_ms,
            cause="recovery",
            reason=reason,
            from_offset=from_offset,
            epochs=self._epochs.since(from_offset),
            high_watermark=self.known.high_watermark,
        )

    # Open.

    def _assemble(self, segments: list[Segment], end: int) -> tuple[Log, Recovered]:
        known, storage = self.known, self.around.storage
        assert segments and segments[0].base_offset <= end, "a log has a segment to append to"
        start = max(self._log_start, segments[0].base_offset)
        history = rebuilt(segments, self.scans, self._epochs, end, self.gaps)
        history.truncate_from_start(start)
        changed = False
        if history.entries != self._epochs.entries or not self._epochs.found:
            wrong = self._epochs.wrong or self._epochs.disputed
            if wrong and history.entries:
                self.repairs.append(f"leader epochs were rebuilt from the log: {wrong}")
            changed = True
        producers = self._producers(segments, end)
        for segment in segments:
            if segment.base_offset in self.scans:
                self._write_indexes(segment)  # last: with them it counts as whole
                segment.close()  # the last one's indexes stay in memory: appends need them
        for segment in segments[:-1]:
            segment.release()
        segments[-1].take_up(reckoned=segments[-1].base_offset in self.scans)
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
        elif changed:
            log.save_epochs_if_room()
        return log, Recovered(
            self.partition,
            self.torn_bytes,
            tuple(self.losses),
            tuple(self.repairs),
            sum(found.segment.size for found in self.scans.values()),
            None if self._shelf is None else self._shelf.path,
        )

    def _producers(self, segments: list[Segment], end: int) -> ProducerStates:
        """From the newest snapshot and the batches after it; scanned segments are not read again.

        After a power loss a snapshot beyond the recovery point may be stale: a truncation had deleted it, and
        other records came to its offsets. Up to that point the directory was synced with the records.
        """
        known, producers = self.known, ProducerStates(self.around.storage.producer_ids_max)
        high = end if known.same_boot else min(end, known.recovery_point)
        recover_producers(self.disk, self.directory, producers, segments, self.scans, end, high)
        return producers

    def _make_last(self, log: Log) -> None:
        """Sync the log, now: the kernel reports a writeback error of the old process to the next sync."""
        try:
            log.save_epochs_if_room()
            log.flush()
        except DiskError as error:
            self.losses.append(str(error))
            self.around.before_loss(self.partition, str(error))

    def _topic_id(self) -> UUID | None:
        """None for a damaged file, too: the controller sends the id again."""
        path = f"{self.directory}/{checkpoints.PARTITION_METADATA}"
        try:
            return checkpoints.read_partition_metadata(self.disk, path)
        except Unreadable:
            return None

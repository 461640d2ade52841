"""Where epochs begin in a log that is being opened: the kept file, if the batches agree with it.

The file has no checksum, so each entry is checked against the two batches around it. If they disagree the
batches are right, and the history is made from them alone.
Left to others: its rules (log/leader_epochs.py), batches whose own epoch is wrong (scan_segment.py).
"""

from collections.abc import Mapping, Sequence

from ..disk import Disk
from ..log import checkpoints
from ..log.checkpoints import Unreadable
from ..log.leader_epochs import Entry, EpochHistory
from ..segment.segment import Segment
from .check_sealed import SegmentEnd, headers_from
from .scan_segment import Scan


class KeptHistory:
    """The entries of a leader-epoch-checkpoint.

    `wrong` says why the file cannot be used; `disputed` says where the batches disagree with it, and then all
    batches are read. Both are empty if nothing is known against it.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{checkpoints.EPOCHS}"
        self.entries: list[Entry] = []
        self.found = False
        self.wrong = self.disputed = ""
        try:
            kept = checkpoints.read_epochs(disk, self.path)
        except Unreadable as error:
            self.wrong = str(error)
        else:
            self.found, self.entries = kept is not None, kept or []
            self.wrong = "" if self.found else "the checkpoint is missing"

    def compare(
        self, segments: Sequence[Segment], ends: Mapping[int, SegmentEnd], start: int, gaps: bool
    ) -> None:
        """Check each entry that lies in a segment which need not be scanned, by the batches around it.

        `ends` has the ends of those segments, by base offset; `start` is the log start offset.
        """
        history, before = EpochHistory(self.entries), -1
        if self.wrong:
            return
        for segment in segments:
            end = ends.get(segment.base_offset)
            if end is None:
                before = -1
                continue
            for epoch, first in self.entries:
                if max(segment.base_offset, start) <= first < end.offset:
                    at_start = first == start  # records before it may be of that epoch, too
                    if not borne_out(segment, epoch, first, -1 if at_start else before, gaps, at_start):
                        self.disputed = f"epoch {epoch} does not start at {first}"
            last = history.epoch_at(end.offset - 1)
            if not gaps and -1 < end.epoch != last > -1:
                self.disputed = f"offset {end.offset - 1} has epoch {end.epoch}, the checkpoint says {last}"
            before = end.epoch

    @property
    def start(self) -> int:
        """The log start as far as the history tells: the start of its first epoch."""
        return 0 if self.wrong or not self.entries else self.entries[0][1]

    def covers(self, offset: int) -> bool:
        """Whether it has all epochs from `offset` on."""
        return not self.wrong and bool(self.entries) and self.entries[0][1] <= offset

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record before `offset`, if known."""
        if self.wrong:
            return None
        epoch = EpochHistory(self.entries).epoch_at(offset - 1)
        return epoch if epoch >= 0 else None

    def since(self, offset: int) -> tuple[Entry, ...]:
        """The epochs of the records from `offset` on."""
        history = EpochHistory(self.entries)
        history.truncate_from_start(offset)
        return tuple(history.entries)


def borne_out(segment: Segment, epoch: int, start: int, before: int, gaps: bool, at_start: bool) -> bool:
    """Whether `epoch` begins at `start`, by the batch there and the one before it.

    `before` is the epoch of the last batch before the segment, -1 if unknown. If the beginning of a log was
    deleted, its first epoch begins at the log start (`at_start`), even in the middle of that epoch or of a
    batch.
    """
    for header in headers_from(segment, start - 1):
        if header.next_offset <= start:
            before = header.leader_epoch
            continue
        if at_start:
            return header.leader_epoch == epoch or (gaps and header.leader_epoch > epoch)
        right = header.base_offset == start and header.leader_epoch == epoch
        if gaps:
            right = header.base_offset >= start and header.leader_epoch >= epoch
        return right and before < epoch
    return before < epoch


def rebuilt(
    segments: Sequence[Segment], scans: Mapping[int, Scan], kept: KeptHistory, end: int, gaps: bool
) -> EpochHistory:
    """The history of a log that ends at `end`: from its scans where there are any, else from the file."""
    entries = [] if kept.disputed else kept.entries
    first = segments[0].base_offset if segments else end
    history = EpochHistory(entry for entry in entries if entry[1] <= first)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        found = scans.get(segment.base_offset)
        stop = end if following is None else following.base_offset
        seen = [entry for entry in entries if segment.base_offset <= entry[1] < stop]
        if found is not None:
            seen = _with_gaps(segment, found, seen) if gaps else found.epochs
        elif entries and segment.base_offset < entries[0][1]:
            history.clear()  # deleted records have come back: no earlier epoch may reach over them
        for epoch, offset in seen:
            if epoch >= 0:
                history.assign(epoch, offset)
    history.truncate_from_end(end)
    return history


def _with_gaps(segment: Segment, found: Scan, kept: Sequence[Entry]) -> list[Entry]:
    """The epochs of a scanned segment. Compaction may have removed the first batch, or all batches, of some.

    Only the file can tell where such an epoch began. It is believed if the batches around it allow that.
    """
    starts = dict(found.epochs)
    for epoch, start in kept:
        if start <= starts.get(epoch, start) and borne_out(
            segment, epoch, start, -1, gaps=True, at_start=False
        ):
            starts[epoch] = start
    return sorted(starts.items())

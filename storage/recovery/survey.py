"""Survey of a log before it is opened: its segments, and which of them must be scanned.

Segments below the recovery point, and all of them after a clean stop, are trusted if their files fit each
other. Leftovers of swaps and unfinished writes are removed first.
Left to others: the reading (scan_segment.py), what follows from it (recover_log.py).
"""

from dataclasses import field
from itertools import zip_longest

from ...base.values import dataclass
from ..disk import Disk
from ..segment.file_names import (
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNFINISHED,
    file_name,
    is_segment_file,
)
from ..segment.segment import Segment
from ..segment.segment_swap import clear, finish_swaps
from .check_sealed import SegmentEnd, sealed_end
from .failure_scope import Obstructed


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a log that is about to be opened."""

    clean: bool
    recovery_point: int = 0
    start_offset: int | None = 0  # None if the checkpoint could not be read
    high_watermark: int = 0
    same_boot: bool = True  # whatever was written is still there
    doubted: bool = False  # damage was found in it before this stop: scan all of it
    compacted: bool = False  # offsets may be missing, whatever else is known
    gaps_below: int = 0  # records before it were synced: a gap there is compaction's, not a loss


@dataclass(slots=True)
class Survey:
    """A log's segments, and the ends of those that need not be scanned, by base offset.

    `hollow` are empty ones with others after them, left by a failed roll or a power loss. They are not part
    of the log. The first segment may be empty, and so may the last one, which tells where the log ends.
    """

    segments: list[Segment] = field(default_factory=list)
    hollow: list[Segment] = field(default_factory=list)
    ends: dict[int, SegmentEnd] = field(default_factory=dict)

    @property
    def to_scan(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.base_offset not in self.ends]

    @property
    def scan_bytes(self) -> int:
        return sum(segment.size for segment in self.to_scan)

    def trust(self, known: Known, gaps: bool) -> list[str]:
        """Fill `ends` for the segments that were synced; returns complaints about those that do not fit.

        After a clean stop the recovery point is also the log end.
        """
        wrong = []
        # flushed exactly to its end need not mean closed and flushed: a power loss may have taken its indexes
        flushed = known.recovery_point if known.same_boot else known.recovery_point - 1
        for segment, following in zip_longest(self.segments, self.segments[1:]):
            upper = None if following is None else following.base_offset
            if not known.clean and (upper is None or upper > flushed):
                continue
            end = sealed_end(segment, upper, gaps)
            if end is None or (upper is None and 0 < known.recovery_point != end.offset):
                wrong.append(f"segment {segment.base_offset} and its indexes do not match")
            else:
                self.ends[segment.base_offset] = end
        return wrong


def look_into(disk: Disk, directory: str, now_ms: int) -> Survey:
    """Remove leftovers, then list the segments in offset order, with their files closed."""
    finish_swaps(disk, directory)
    names = set(disk.listdir(directory))
    bases = sorted(int(name[:20]) for name in names if is_segment_file(name, LOG))
    for name in sorted(names):
        path = f"{directory}/{name}"
        if is_segment_file(name, LOG) and disk.is_link(path):
            raise Obstructed(f"{path} is a symbolic link: expected a file")
        is_index = any(is_segment_file(name, suffix) for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX))
        if name.endswith(UNFINISHED) or (is_index and int(name[:20]) not in bases):
            clear(disk, path)
    segments = []
    for base in bases:
        segment = Segment(disk, directory, base, now_ms, create=False)
        if file_name(base, TRANSACTION_INDEX) not in names:
            segment.transactions.begin()
        segment.release()
        segments.append(segment)
    hollow = [segment for segment in segments[1:-1] if not segment.size]
    return Survey([segment for segment in segments if segment not in hollow], hollow)

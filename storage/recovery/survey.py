"""A log before it is opened: its segments, and which of them must be read to know what they hold.

Segments below the recovery point, and all of them after a clean stop, are believed if their files fit each
other. Leftovers of what was under way go first.
Left to others: the reading (scan_segment.py), what follows from it (recover_log.py).
"""

from dataclasses import field
from itertools import zip_longest

from ...base.values import dataclass
from ..disk import Disk
from ..segment.file_names import TRANSACTION_INDEX, UNFINISHED, is_segment_file
from ..segment.segment import INDEX, LOG, TIME_INDEX, Segment
from ..segment.segment_swap import clear, finish_swaps
from .check_sealed import SegmentEnd, sealed_end
from .failure_scope import Obstructed


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a log that is about to be opened."""

    clean: bool
    recovery_point: int = 0
    start_offset: int | None = 0  # None if that could not be read
    high_watermark: int = 0
    same_boot: bool = True  # whatever was written is still there
    doubted: bool = False  # something was wrong with it before this stop: look at all of it
    compacted: bool = False  # offsets may be missing, whatever else is known
    gaps_below: int = 0  # whoever was compacted up to here was on the medium before


@dataclass(slots=True)
class Survey:
    """A log's segments, and the ends of those that need not be scanned, by base offset.

    `hollow` are empty ones that others follow: a roll that failed has left them, or a power loss. They are no
    part of the log. Before the first record one may stand, and one at the end tells where the log ends.
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
        """Take the ends of those that were on the medium; tells of those that do not fit.

        A clean stop has also written down where the log ends: that is its recovery point.
        """
        wrong = []
        # flushed up to its end is not closed and flushed: its indexes may have been lost with the memory
        flushed = known.recovery_point if known.same_boot else known.recovery_point - 1
        for segment, following in zip_longest(self.segments, self.segments[1:]):
            upper = None if following is None else following.base_offset
            if not known.clean and (upper is None or upper > flushed):
                continue
            end = sealed_end(segment, upper, gaps)
            if end is None or (upper is None and 0 < known.recovery_point != end.offset):
                wrong.append(f"segment {segment.base_offset} and its indexes do not fit")
            else:
                self.ends[segment.base_offset] = end
        return wrong


def look_into(disk: Disk, directory: str, now_ms: int) -> Survey:
    """The segments in the order of their offsets, closed, after whatever is none of them has gone."""
    finish_swaps(disk, directory)
    names = disk.listdir(directory)
    bases = sorted(int(name[:20]) for name in names if is_segment_file(name, LOG))
    for name in names:
        path = f"{directory}/{name}"
        if is_segment_file(name, LOG) and disk.is_link(path):
            raise Obstructed(f"{path} is a symbolic link where a file should be")
        is_index = any(is_segment_file(name, suffix) for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX))
        if name.endswith(UNFINISHED) or (is_index and int(name[:20]) not in bases):
            clear(disk, path)
    segments = []
    for base in bases:
        segment = Segment(disk, directory, base, now_ms, create=False)
        segment.release()
        segments.append(segment)
    hollow = [segment for segment in segments[1:-1] if not segment.size]
    return Survey([segment for segment in segments if segment not in hollow], hollow)

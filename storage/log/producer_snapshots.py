"""Producer snapshots in a log's directory: taken at each roll and clean close, used when a log is opened.

Left to others: their content (producer_state.py).
"""

from collections.abc import Iterable, Sequence

from ..disk import Disk
from ..segment.file_names import SNAPSHOT, file_name, is_segment_file
from ..segment.segment import Segment
from .producer_state import Ended, InvalidSnapshot, ProducerStates


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets of the snapshots, ascending. Each covers everything before its offset."""
    return sorted(int(name[:20]) for name in disk.listdir(directory) if is_segment_file(name, SNAPSHOT))


def take(
    disk: Disk,
    directory: str,
    producers: ProducerStates,
    end_offset: int,
    indexed: Iterable[tuple[int, int]] = (),
) -> None:
    """Write the state as of `end_offset`. Not synced: a lost one is rebuilt from headers."""
    path = f"{directory}/{file_name(end_offset, SNAPSHOT)}"
    disk.replace(path, producers.snapshot(indexed), sync=False)


def drop(disk: Disk, directory: str, low: int | None = None, high: int | None = None) -> None:
    """Remove snapshots taken before `low` or after `high`."""
    for offset in snapshot_offsets(disk, directory):
        if (low is not None and offset < low) or (high is not None and offset > high):
            disk.unlink(f"{directory}/{file_name(offset, SNAPSHOT)}")


def rebuild(
    disk: Disk,
    directory: str,
    producers: ProducerStates,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    before: int | None = None,
    apart: bool = False,
) -> list[Ended]:
    """Bring `producers` to the state as of `end_offset`: newest usable snapshot, then headers and markers.

    Returns the transactions that ended on the way; `before`: all that ended from there on, so an older
    snapshot is used. With `apart` it opens its own files, so any thread may run it. Blocking: reads up to a
    segment, or from the last snapshot on.
    """
    start = restore_newest(disk, directory, producers, end_offset if before is None else before)
    if start < segments[0].base_offset:
        producers.doubt_open()
    ended: list[Ended] = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        if not segment.size or segment.base_offset >= end_offset:
            continue
        read = segment.apart() if apart else segment
        try:
            ended += _take_in(producers, read, start, end_offset)
        finally:
            if apart:
                read.close()
    return ended


def _take_in(producers: ProducerStates, segment: Segment, start: int, end_offset: int) -> list[Ended]:
    """Take in the batches of a segment in [start, end_offset); returns the transactions that they end."""
    ended: list[Ended] = []
    found = segment.locate(max(start, segment.base_offset))
    if found is None:
        return ended
    for position, header in segment.headers(found[0]):
        if header.base_offset >= end_offset:
            break
        if header.base_offset >= start and header.producer_id >= 0:
            marker = segment.marker(position, header) if header.is_control else None
            done = producers.update(header, header.base_offset, marker=marker)
            if done is not None:
                ended.append(done)
    return ended


def restore_newest(disk: Disk, directory: str, producers: ProducerStates, end_offset: int) -> int:
    """Restore the newest good snapshot up to `end_offset`; returns its offset, 0 without one."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = f"{directory}/{file_name(offset, SNAPSHOT)}"
        if offset > end_offset:
            continue
        try:
            producers.restore(disk.read(path), offset)
        except InvalidSnapshot:
            disk.unlink(path)
        else:
            return offset
    producers.clear()
    return 0

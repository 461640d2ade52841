"""What the producers of a log have done, and which of their transactions were aborted, after a stop.

The state comes from the newest snapshot and the batches after it. Segments that were scanned are not read
again. Their index of aborted transactions is made anew, because a crash may have kept it shorter than the
log. For that the first offset of each transaction must be known, so the snapshot before the first such
segment with an abort serves. The index of a segment that need not be scanned was synced with it; if it has
not as many entries as the snapshot says, it is made anew, too. Mostly a cleaning has taken some since the
snapshot, so that is for nothing; but later the first question would do it, on the event loop (log/aborts.py).
Left to others: the scan (scan_segment.py), the state itself (log/producer_state.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ...protocol.batches import BatchHeader
from ...protocol.markers import EndMarker
from ..disk import FULL, Disk
from ..log import producer_snapshots
from ..log.aborts import aborted, made_again
from ..log.producer_state import Ended, ProducerStates
from ..segment.segment import CorruptBatch, Segment
from .check_sealed import produced_from
from .scan_segment import Scan


def recover_producers(
    disk: Disk,
    directory: str,
    producers: ProducerStates,
    segments: Sequence[Segment],
    scans: Mapping[int, Scan],
    end: int,
    snapshot_max: int,
) -> None:
    """Bring `producers` to the log end, and write the indexes of scanned segments. Blocking. Raises OSError.

    Snapshots after `snapshot_max` are not believed.
    """
    producer_snapshots.drop(disk, directory, low=segments[0].base_offset, high=snapshot_max)
    with_aborts = (base for base, found in sorted(scans.items()) if found.has_aborts)
    start = producer_snapshots.restore_newest(disk, directory, producers, min(next(with_aborts, end), end))
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        found = scans.get(segment.base_offset)
        stop = end if following is None else following.base_offset
        if found is not None:
            ended = _take_in(producers, found.of_producers(), start, stop)
            segment.transactions.take([aborted(each) for each in ended if not each.committed])
            segment.transactions.save(sync=True)
        elif stop <= start:
            count = producers.indexed.get(segment.base_offset, 0)
            if count:
                segment.transactions.expect(count)
                _hold_against_the_log(disk, directory, segments, segment, stop)
            else:
                segment.transactions.measure()
        else:
            _take_in(producers, produced_from(segment, start), start, stop)


def _hold_against_the_log(
    disk: Disk, directory: str, segments: Sequence[Segment], segment: Segment, stop: int
) -> None:
    """Make an index anew that is not as long as it should be. Where the log is damaged, readers will see."""
    if segment.transactions.is_as_long_as_expected:
        return
    with suppress(CorruptBatch):
        entries = made_again(disk, directory, segments, segment.base_offset, stop, apart=True)
        segment.transactions.take(entries)
        try:
            segment.transactions.save(sync=True)
        except OSError as error:
            if error.errno not in FULL:
                raise
        segment.transactions.release()


def _take_in(
    producers: ProducerStates, batches: Iterable[tuple[BatchHeader, EndMarker | None]], start: int, stop: int
) -> list[Ended]:
    ended = []
    for header, marker in batches:
        if start <= header.base_offset < stop:
            done = producers.update(header, header.base_offset, marker=marker)
            if done is not None:
                ended.append(done)
    return ended

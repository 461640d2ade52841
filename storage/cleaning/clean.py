"""The cleaning of one log: map the keys of the dirty part, then rewrite old segments into new ones.

Two passes. The first reads the dirty part and notes the last offset of each key, as far as there is room. The
second reads everything up to there and writes the records that stay. If there are transactions, a pass over
the headers finds how they ended; the cleaning stops before the first one without an end.
It runs in a helper process, or in the caller of the next report. It writes only `.cleaned` files, so to give
up is to delete those. Of the active segment it reads only complete batches below its size when the job was
made.
Left to others: what is due (plan.py), the swap (segment/segment_swap.py), abandoning
(broker/upkeep/compaction.py).
"""

from collections.abc import Iterator

import numpy as np

from ...protocol.batches import BatchHeader
from ...protocol.columns import joined
from ...protocol.primitives import Malformed
from ..disk import Disk, File
from ..segment.file_names import INDEX, LOG, TIME_INDEX, file_name
from ..segment.transaction_index import Aborted
from .job import Cleaned, DamagedSegment, Done, Failed, Job, Report
from .keys import hash_keys
from .offset_map import OffsetMap
from .plan import SourceSegment, groups
from .reading import NEVER, Piece, Throttle, blocks, pieces
from .rewrite import CleaningRules, rewrite
from .segment import CleanedSegment
from .transactions import Fates, Open, Undecided


def clean(disk: Disk, job: Job, throttle: Throttle) -> Iterator[Report]:
    """One report for each new segment, as soon as it is finished, and at last `Done` or `Failed`."""
    try:
        yield from Cleaning(disk, job, throttle).run()
    except DamagedSegment as error:
        yield Failed(str(error), damaged=True)
    except OSError as error:
        yield Failed(str(error), damaged=False)


class Cleaning:
    """One job in progress."""

    def __init__(self, disk: Disk, job: Job, throttle: Throttle) -> None:
        self._disk = disk
        self._job = job
        self._throttle_writes = throttle
        self._secret = bytes.fromhex(job.secret)
        self._map = OffsetMap(job.map_bytes, job.load_factor)
        self._fates: Fates | None = None
        self._upper = job.upper  # falls to the first segment with an undecided transaction
        self._bytes_read = 0
        self._bytes_written = 0

    def _throttle(self, nbytes: int) -> None:
        self._bytes_read += nbytes
        self._throttle_writes(nbytes)

    def run(self) -> Iterator[Report]:
        job = self._job
        while (end_offset := self._fill_map(self._upper)) > self._upper:  # an undecided transaction was found
            self._map = OffsetMap(job.map_bytes, job.load_factor)
        assert end_offset <= self._upper <= job.upper, "what is not known is not cleaned"
        if end_offset > job.first_dirty:
            yield from self._write_anew(end_offset)
        undecided = self._fates.undecided if self._fates is not None else None
        told = undecided or Undecided(-1, -1)
        yield Done(end_offset, self._map.count, self._bytes_read, self._bytes_written, *told)

    def _write_anew(self, end_offset: int) -> Iterator[Cleaned]:
        job = self._job
        rules = CleaningRules(
            map=self._map,
            secret=self._secret,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            upper=job.upper,
            last_of_producers={producer: (offset, epoch) for producer, offset, epoch in job.producers},
            fates=self._fates,
            aborted={entry.last_offset: entry for entry in map(Aborted._make, job.aborted)},
            open=Open(),
        )
        sources = [self._source(base, size) for base, size in job.sources if base < end_offset]
        for group in groups(sources, self._after(sources), job.segment_bytes, job.index_bytes_max):
            report = self._clean_group(group, rules)
            if report is not None:
                yield report

    # -- the first pass

    def _fill_map(self, upper: int) -> int:
        """Map the dirty keys; returns the offset before which every key is known: `upper`, if all fit."""
        for base, size in self._dirty(upper):
            file = self._open(base)
            try:
                for piece in pieces(file, size, self._throttle, self._is_mapped):
                    if not self._put(piece):
                        return self._map.latest + 1
            finally:
                file.close()
        self._map.latest = max(self._map.latest, upper - 1)
        return upper

    def _dirty(self, upper: int) -> list[tuple[int, int]]:
        """The segments before `upper` that reach over `first_dirty`."""
        sources, first = self._job.sources, self._job.first_dirty
        after = [*(base for base, _ in sources[1:]), self._job.upper]
        return [
            source for source, end in zip(sources, after, strict=True) if end > first and source[0] < upper
        ]

    def _is_mapped(self, header: BatchHeader) -> bool:
        if header.is_control or header.last_offset < self._job.first_dirty:
            return False
        if not header.is_transactional:
            return True
        if self._fates is None:
            self._fates = self._learn_fates()
            self._upper = self._decided_before(self._fates)
        return not self._fates.aborted(header)  # an aborted record must not displace others

    def _learn_fates(self) -> Fates:
        """How transactions ended; reads beyond `upper` only while one from before it has no end."""
        job = self._job
        fates = Fates(job.first_dirty, job.upper, job.committed)
        for base, size in [*self._dirty(job.upper), *job.later]:
            if base >= job.upper and fates.undecided is None:
                break
            file = self._open(base)
            try:
                fates.learn(blocks(file, size, self._throttle))
            finally:
                file.close()
        return fates

    def _decided_before(self, fates: Fates) -> int:
        """`upper`, or the base offset of the segment in which an undecided transaction begins."""
        job, undecided = self._job, fates.undecided
        if undecided is None:
            return job.upper
        return max([job.first_dirty, *(base for base, _ in job.sources if base <= undecided.offset)])

    def _put(self, piece: Piece) -> bool:
        """Whether there was room for all keys of the piece."""
        if not piece.opened:
            return True
        try:
            columns = joined(piece.data, piece.opened, 0)
        except Malformed as error:
            raise DamagedSegment(f"offset {piece.opened[0][1].base_offset}: {error}") from error
        if bool((np.diff(columns.offset) <= 0).any()):
            raise DamagedSegment(f"offsets do not increase from {piece.opened[0][1].base_offset} on")
        columns = columns.between(self._job.first_dirty, self._upper)
        keyed = np.flatnonzero(columns.key_length >= 0)
        if not keyed.size:
            return True
        keys = hash_keys(columns.array, columns.key_start[keyed], columns.key_length[keyed], self._secret)
        offset = columns.offset[keyed]
        fits = self._map.put(keys, offset)
        if fits:
            self._map.latest = int(offset[fits - 1])
        return fits == len(offset)

    # -- the second pass

    def _source(self, base: int, size: int) -> SourceSegment:
        sizes = []
        for suffix in (INDEX, TIME_INDEX):
            path = f"{self._job.directory}/{file_name(base, suffix)}"
            sizes.append(self._size_of(path))
        return SourceSegment(base, size, *sizes)

    def _size_of(self, path: str) -> int:
        if not self._disk.exists(path):
            return 0
        file = self._disk.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _after(self, sources: list[SourceSegment]) -> int:
        """The end offset (exclusive) of the segments that are rewritten."""
        bases = [base for base, _ in self._job.sources]
        return [*bases, self._job.upper][len(sources)]

    def _clean_group(self, group: list[SourceSegment], rules: CleaningRules) -> Cleaned | None:
        """Rewrite neighbouring segments into one; None if there was nothing to remove."""
        job = self._job
        out = CleanedSegment(
            self._disk,
            job.directory,
            group[0].base_offset,
            job.index_interval_bytes,
            job.index_bytes_max,
            self._throttle_writes,
        )
        read_all = self._map.latest + 1 == self._upper
        verified, written = job.first_dirty if read_all else NEVER, False
        try:
            for source in group:
                file = self._open(source.base_offset)
                try:
                    for piece in pieces(file, source.size, self._throttle, rules.opens, verified):
                        rewrite(piece, rules, out)
                finally:
                    file.close()
            if len(group) > 1 or out.copied_bytes < group[0].size:
                out.finish(self._disk.modified_ms(self._log(group[-1].base_offset)))
                written = True
        finally:
            if not written:
                out.abandon()
        self._bytes_written += out.size if written else 0
        return Cleaned([source.base_offset for source in group], out.size) if written else None

    def _open(self, base: int) -> File:
        return self._disk.open(self._log(base))

    def _log(self, base: int) -> str:
        return f"{self._job.directory}/{file_name(base, LOG)}"

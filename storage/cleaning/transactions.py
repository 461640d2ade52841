"""How transactions ended, as far as a cleaning must know: aborted records go, markers stay while needed.

A batch of a transaction is judged by the next marker of its producer. Only the dirty part is asked: what was
aborted before it went in an earlier cleaning, and a marker that was there then may be gone.
Left to others: the delete horizon of a marker (rewrite.py).
"""

from bisect import bisect_left
from collections.abc import Iterable

from ...protocol.batches import BatchHeader
from .reading import ABORT, COMMIT, Placed, control_type


class Fates:
    """The markers from `first_dirty` on."""

    def __init__(self, first_dirty: int) -> None:
        self._from = first_dirty
        self._offsets: dict[int, list[int]] = {}
        self._aborts: dict[int, list[bool]] = {}

    def learn(self, blocks: Iterable[tuple[memoryview, list[Placed]]]) -> None:
        """Take note of the markers among these batches, which follow those seen before."""
        for data, batches in blocks:
            for at, header in batches:
                if not header.is_control or header.base_offset < self._from:
                    continue
                kind = control_type(data, at, header)
                if kind in (ABORT, COMMIT):
                    self._offsets.setdefault(header.producer_id, []).append(header.base_offset)
                    self._aborts.setdefault(header.producer_id, []).append(kind == ABORT)

    def aborted(self, header: BatchHeader) -> bool:
        """Whether the transaction of a data batch was aborted. One whose end is not known counts as not."""
        if not header.is_transactional or header.base_offset < self._from:
            return False
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect_left(offsets, header.base_offset)
        return place < len(offsets) and self._aborts[header.producer_id][place]


class Open:
    """Producers of whose transaction something is still in the log, while it is read from its start."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def data(self, header: BatchHeader) -> None:
        """A data batch came by."""
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def marker_is_idle(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch that came by ends a transaction of which nothing is left."""
        if kind is None:
            return True
        if kind not in (ABORT, COMMIT):
            return False
        had_data = header.producer_id in self._producers
        self._producers.discard(header.producer_id)
        return not had_data

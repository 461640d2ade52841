"""Markers that this leader has written and that are not committed yet, in the order of the log.

The coordinator is told, and group offsets become visible, exactly when the high watermark passes a marker,
even if the request that wrote it has timed out long before. The coordinator asks again then: the same marker
is not written twice while the first waits.
Left to others: markers of earlier leaders, which whoever reads the log finds there (groups/shards.py), the
last stable offset (storage/log/log.py).
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.markers import EndMarker


class Ending(NamedTuple):
    """One marker: what it says, and the log end offset behind it."""

    end_offset: int
    producer_id: int
    producer_epoch: int
    marker: EndMarker


class EndingTransactions:
    """The markers of one partition that wait for the high watermark."""

    __slots__ = ("_newest", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Ending] = deque()  # of the lowest end offset first
        self._newest: dict[int, Ending] = {}  # by producer id

    def add(self, ending: Ending) -> None:
        """A marker is in the log."""
        assert not self.waiting or ending.end_offset > self.waiting[-1].end_offset, "the log only grows"
        self.waiting.append(ending)
        self._newest[ending.producer_id] = ending

    def same(self, producer_id: int, producer_epoch: int, marker: EndMarker) -> Ending | None:
        """The producer's newest waiting marker, if it says the same."""
        newest = self._newest.get(producer_id)
        if newest is None or (newest.producer_epoch, newest.marker) != (producer_epoch, marker):
            return None
        return newest

    def committed(self, high_watermark: int) -> Iterator[Ending]:
        """Take out the markers that are committed now."""
        waiting = self.waiting
        while waiting and waiting[0].end_offset <= high_watermark:
            ending = waiting.popleft()
            if self._newest.get(ending.producer_id) is ending:
                del self._newest[ending.producer_id]
            yield ending

    def clear(self) -> None:
        """We do not lead any more: the next leader commits them, or replaces them."""
        self.waiting.clear()
        self._newest.clear()

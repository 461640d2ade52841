"""EpochHistory: where each leader epoch begins in a log (the content of leader-epoch-checkpoint). Pure.

Two replicas find where their logs diverge by asking each other where an epoch ends
(docs/replication.md, *truncation*). The rules are those of Kafka's LeaderEpochFileCache after
KIP-101, KIP-279 and KAFKA-10706.
Left to others: the file (epoch_file.py), asking the other
replica (replication/truncation.py).
"""

from bisect import bisect_right
from collections.abc import Iterable

NONE = -1  # no epoch, no offset: as on the wire

Entry = tuple[int, int]  # (epoch, offset of its first record)


class EpochHistory:
    """Entries with rising epochs and rising start offsets."""

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self.latest = NONE
        for epoch, start in entries:
            self.assign(epoch, start)

    def assign(self, epoch: int, start: int) -> bool:
        """Epoch `epoch` begins at `start`. True if the history changed.

        Entries that this one contradicts (a later epoch, a later start) are dropped: their records were
        never written, or are being replaced.
        """
        assert epoch >= 0 and start >= 0, f"invalid epoch or offset: epoch {epoch} at {start}"
        entries = self.entries
        if entries and epoch == entries[-1][0] and start >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        assert not entries or (entries[-1][0] < epoch and entries[-1][1] < start), "epochs and starts rise"
        entries.append((epoch, start))
        self.latest = epoch
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch under which `offset` was, or would be, written; -1 before all entries."""
        place = bisect_right(self.entries, offset, key=_start)
        return self.entries[place - 1][0] if place else NONE

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and its end offset; (-1, -1) if unknown."""
        entries = self.entries
        if epoch < 0 or not entries:
            return NONE, NONE
        if epoch == self.latest:
            return epoch, end_offset
        place = bisect_right(entries, epoch, key=_epoch)
        if place == len(entries):
            return NONE, NONE
        return (entries[place - 1][0] if place else epoch), entries[place][1]

    def truncate_from_end(self, offset: int) -> bool:
        """Forget epochs that begin at or after `offset`. True if any did."""
        assert offset >= 0, f"no log ends at {offset}"
        entries = self.entries
        before = len(entries)
        while entries and entries[-1][1] >= offset:
            entries.pop()
        self.latest = entries[-1][0] if entries else NONE
        return len(entries) != before

    def truncate_from_start(self, offset: int) -> bool:
        """The log starts at `offset` now: the epoch that holds it starts there, earlier ones go."""
        place = bisect_right(self.entries, offset, key=_start)
        if place == 0 or (place == 1 and self.entries[0][1] == offset):
            return False
        self.entries[:place] = [(self.entries[place - 1][0], offset)]
        assert len(self.entries) == 1 or self.entries[1][1] > offset, "the epoch at the start is the first"
        return True

    def clear(self) -> None:
        self.entries.clear()
        self.latest = NONE


def _epoch(entry: Entry) -> int:
    return entry[0]


def _start(entry: Entry) -> int:
    return entry[1]

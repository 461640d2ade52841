"""EpochFile: a log's leader-epoch-checkpoint, kept in step with its history in memory.

An epoch is in the file before its first batch is in the log: without it a follower that asks where an epoch
ends would be told wrong. After a truncation the file may wait for room, because opening the log removes what
it has too much; it is then written before the next append.
Left to others: the history (leader_epochs.py), the file's format (checkpoints.py), syncing it with the data
(flush.py).
"""

from contextlib import suppress

from ..disk import DiskFull, NoDescriptor
from . import checkpoints
from .flush import FlushState
from .leader_epochs import NONE, EpochHistory
from .segments import Segments

UNSAVED = -2  # no epoch


class EpochFile:
    """The file of one log's epochs. Every change of `history` outside is followed by a call here."""

    __slots__ = ("_chain", "_flush_state", "history", "saved")

    def __init__(self, chain: Segments, flush_state: FlushState, history: EpochHistory) -> None:
        self.history = history
        self.saved = history.latest  # in the file, as long as it says what `history` says; else UNSAVED
        self._chain = chain
        self._flush_state = flush_state

    @property
    def waits(self) -> bool:
        """Whether the file must be written before the next append."""
        return self.saved != self.history.latest

    def open(self, epoch: int, base_offset: int) -> None:
        """Save an epoch before its first batch is written. Raises DiskError."""
        self._chain.insist_on_open()
        assert epoch >= self.history.latest, f"{self._chain.directory}: epoch {epoch} after a later one"
        self.history.assign(epoch, base_offset)
        self.save(sync=False)

    def changed(self) -> None:
        """The history has changed and is not saved yet."""
        self.saved = UNSAVED

    def save(self, sync: bool) -> None:
        """Write it. May run in a thread, if nobody else calls it meanwhile. Raises DiskError."""
        self.saved = UNSAVED
        self._write(list(self.history.entries), sync)
        self.saved = self.history.latest
        if not sync:
            self._flush_state.written(checkpoints.EPOCHS)

    def save_if_room(self, sync: bool = True) -> None:
        """Without room or a descriptor the file is written later, before the next append."""
        with suppress(DiskFull, NoDescriptor):
            self.save(sync)

    def save_empty(self, sync: bool) -> None:
        """Write an empty history, if there is room; the one in memory stays until the records are gone."""
        self.saved = UNSAVED
        with suppress(DiskFull):
            self._write([], sync)
            self.saved = NONE  # the latest epoch once the history is cleared

    def _write(self, entries: list[tuple[int, int]], sync: bool) -> None:
        with self._chain.guarded():
            checkpoints.write_epochs(
                self._chain.disk, f"{self._chain.directory}/{checkpoints.EPOCHS}", entries, sync
            )

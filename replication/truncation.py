"""Truncation: how a returning follower finds where its log parts from the leader's (KIP-101, KIP-279).

A log's history is the list of its leader epochs and where each begins. The follower names its last epoch. The
leader answers with the largest epoch it knows up to that one, and where it ends there. If the follower knows
that epoch too, both logs agree up to the smaller of the two ends. If not, it truncates to the end of what it
has below that epoch, and asks again. It never truncates to the high watermark: that lags, and acknowledged
records lie above it. (Old profiles do truncate to it, or ask only once: profiles.py.)
Left to others: asking (follower.py), keeping what goes and removing it (broker/replicas/truncation.py).
"""

from typing import Protocol

from ..base.types import Epoch, Offset
from .effects import Truncate


class History(Protocol):
    """The epochs of a log (`storage.epochs.EpochHistory`)."""

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        ...

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) when no larger one is known."""
        ...


def where_to_cut(
    history: History, end_offset: Offset, asked: Epoch, leader_epoch: Epoch, leader_end: Offset
) -> Truncate:
    """What to truncate after a leader's answer `leader_epoch ends at leader_end` about epoch `asked`."""
    assert leader_end >= 0 and leader_epoch <= asked, "the caller must refuse an answer with a later epoch"
    if leader_epoch == asked:
        return Truncate(min(leader_end, end_offset), settled=True)
    own_epoch, own_end = history.end_offset_for(leader_epoch, end_offset)
    assert own_end >= 0, "the follower must know the epoch that it asked about"
    assert own_epoch <= leader_epoch, "an epoch ends where a later one begins"
    if own_epoch == leader_epoch:
        return Truncate(Offset(min(own_end, leader_end, end_offset)), settled=True)
    return Truncate(Offset(min(own_end, end_offset)), settled=False)

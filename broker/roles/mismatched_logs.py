"""Logs that were set aside because they have the topic's name but another topic id.

Usually the topic was deleted and created again; the new topic's ISR has this broker only if it has a log of
that topic. But the id on disk may be corrupt. Then starting the replica empty, while the ISR counts it as
complete, would lose records. So we refuse while it is in that ISR; the controller elects another replica and
takes this one out.
Left to others: setting aside (replicas/replicas.py), the consequences of the refusal
(upkeep/disk_failures.py).
"""

import errno
from collections.abc import Callable

from ...base.types import BrokerId, TopicPartition
from ...protocol.messages.control import LeaderAndIsrPartitionState
from ...storage.log.new_log import ReplicaMissing

Vouches = Callable[[TopicPartition, int], bool]


class MismatchedLogs:
    """The logs that this process has set aside, and their new names."""

    def __init__(self, me: BrokerId, vouches: Vouches) -> None:
        """`vouches`: this start claims to hold all that the replica held when it joined the ISR, in the given
        earlier incarnation."""
        self._me = me
        self._vouches = vouches
        self._kept: dict[TopicPartition, str] = {}

    def add(self, tp: TopicPartition, kept_as: str) -> None:
        """The log of this name was renamed to `kept_as`."""
        self._kept[tp] = kept_as

    def check(self, tp: TopicPartition, state: LeaderAndIsrPartitionState) -> None:
        """Raises ReplicaMissing if the replica must not start empty. Outside the ISR it always may."""
        kept_as = self._kept.get(tp)
        if kept_as is None:
            return
        joined = dict(zip(state.isr, state.isr_epochs, strict=False)).get(self._me, -1)
        if self._vouches(tp, joined):
            raise ReplicaMissing(tp, kept_as, OSError(errno.EIO, "its log has another topic id"))

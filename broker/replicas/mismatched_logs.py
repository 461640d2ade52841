"""Logs that were set aside because they bear another topic's id, while this broker vouches for them.

Usually the topic was deleted and made again, and the new one's ISR knows this broker only if it has a log of
it. But the id on the disk may have changed by itself. Then the replica would begin empty, in an ISR that
takes it for whole. It is not begun while it is in that ISR; the controller elects others, and takes it out.
Left to others: setting aside (replicas.py), what follows from the refusal (upkeep/disk_failures.py).
"""

import errno
from collections.abc import Callable

from ...base.types import BrokerId, TopicPartition
from ...protocol.messages.control import LeaderAndIsrPartitionState
from ...storage.log.new_log import ReplicaMissing

Vouches = Callable[[TopicPartition, int], bool]


class MismatchedLogs:
    """Which logs were set aside by this process, and under which names."""

    def __init__(self, me: BrokerId, vouches: Vouches) -> None:
        """`vouches`: this start claims to hold what the replica held when it joined the ISR, in an earlier
        incarnation, the given one."""
        self._me = me
        self._vouches = vouches
        self._kept: dict[TopicPartition, str] = {}

    def add(self, tp: TopicPartition, kept_as: str) -> None:
        """The log that was here under this name is kept under another."""
        self._kept[tp] = kept_as

    def check(self, tp: TopicPartition, state: LeaderAndIsrPartitionState) -> None:
        """Raises ReplicaMissing if the replica must not begin empty. Who is in no ISR has not joined it."""
        kept_as = self._kept.get(tp)
        if kept_as is None:
            return
        joined = dict(zip(state.isr, state.isr_epochs, strict=False)).get(self._me, -1)
        if self._vouches(tp, joined):
            raise ReplicaMissing(tp, kept_as, OSError(errno.EIO, "its topic id is not that of the topic"))

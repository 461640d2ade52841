"""The in-sync replicas as ZooKeeper has them, and the change that is being asked of it, if any.

Until ZooKeeper has answered, nobody can know which of the two sets it holds; so a record is committed only
when both have it. Growing counts the newcomer before it is confirmed, Shrinking the leaver until it is.
"""

from typing import TypeAlias

from ..base.types import BrokerId, Incarnation
from ..base.values import dataclass


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing is being asked."""

    members: frozenset[BrokerId]

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """Whose copies make a record committed (the maximal ISR)."""
        return self.members


@dataclass(frozen=True, slots=True)
class Growing:
    """Asked to add `joining`, as long as its registration is still `incarnation`."""

    members: frozenset[BrokerId]
    joining: BrokerId
    incarnation: Incarnation

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """Whose copies make a record committed (the maximal ISR)."""
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """What ZooKeeper is asked to hold."""
        return self.members | {self.joining}


@dataclass(frozen=True, slots=True)
class Shrinking:
    """Asked to drop `leaving`."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """Whose copies make a record committed (the maximal ISR)."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """What ZooKeeper is asked to hold."""
        return self.members - self.leaving


@dataclass(frozen=True, slots=True)
class Declaring:
    """Asked to hold the same members, and to note that the leader has recovered."""

    members: frozenset[BrokerId]

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """Whose copies make a record committed (the maximal ISR)."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """What ZooKeeper is asked to hold."""
        return self.members


Isr: TypeAlias = Settled | Growing | Shrinking | Declaring

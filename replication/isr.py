"""The ISR as ZooKeeper has it, and the change that is pending there, if any.

Until ZooKeeper answers, it may hold either set. So a record is committed only when every member of both has
it: a joining replica counts before its entry is confirmed, a leaving one until its removal is confirmed.
Left to others: who lags too far to stay, and who has caught up (leader.py), the write (broker/replicas/).
"""

from typing import TypeAlias

from ..base.types import BrokerId, Incarnation
from ..base.values import dataclass


@dataclass(frozen=True, slots=True)
class Settled:
    "No change is pending."

    members: frozenset[BrokerId]

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """The replicas that must have a record before it is committed (the maximal ISR)."""
        return self.members


@dataclass(frozen=True, slots=True)
class Growing:
    """Asked to add `joining`, as long as its registration is still `incarnation`."""

    members: frozenset[BrokerId]
    joining: BrokerId
    incarnation: Incarnation

    def __post_init__(self) -> None:
        assert self.joining not in self.members, f"{self.joining} is a member already"

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """The replicas that must have a record before it is committed (the maximal ISR)."""
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that ZooKeeper is asked to hold."""
        return self.members | {self.joining}


@dataclass(frozen=True, slots=True)
class Shrinking:
    """Asked to drop `leaving`."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    def __post_init__(self) -> None:
        assert self.leaving and self.leaving <= self.members, f"{set(self.leaving)} of {set(self.members)}"

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """The replicas that must have a record before it is committed (the maximal ISR)."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that ZooKeeper is asked to hold."""
        return self.members - self.leaving


@dataclass(frozen=True, slots=True)
class Declaring:
    """Asked to hold the same members, and to note that the leader has recovered."""

    members: frozenset[BrokerId]

    @property
    def must_ack(self) -> frozenset[BrokerId]:
        """The replicas that must have a record before it is committed (the maximal ISR)."""
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that ZooKeeper is asked to hold."""
        return self.members


Isr: TypeAlias = Settled | Growing | Shrinking | Declaring

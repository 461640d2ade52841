"""Who owns what in a group for which the broker assigns (KIP-848), and how far each partition is committed.

Owning is what members believe, from what they were told: a member owns a partition from the answer that gives
it to the moment when it gives it up, is told that it is no member any more, or dies. A member that was heard
lately may rely on what it owns, so nobody else may be given that.
Left to others: members (`clients/members.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..trace import Violation


@dataclass(slots=True, eq=False)
class Owner:
    """One member, as it knows itself."""

    id: str
    epoch: int = 0
    owned: set[int] = field(default_factory=set)
    heard_at: float = float("-inf")  # when it sent the last heartbeat that was answered well

    def lose(self) -> None:
        """It is a member no more, and owns nothing."""
        self.epoch = 0
        self.owned.clear()


class Owners:
    """All members of a world. `patience_s`: for how long a member that was heard is not passed over."""

    def __init__(self, partitions: int, patience_s: float) -> None:
        self.partitions, self.patience_s = range(partitions), patience_s
        self.alive: dict[str, Owner] = {}
        self.committed = dict.fromkeys(self.partitions, 0)
        self._given: dict[tuple[int, int], str] = {}  # (epoch, partition) -> the member that had it

    def give(self, owner: Owner, epoch: int, assigned: Iterable[int], sent_at: float, now: float) -> None:
        """A heartbeat sent at `sent_at` is answered now: this is all that the member may have, and it gives
        up the rest at once. Raises Violation.
        """
        owner.epoch, owner.heard_at = epoch, sent_at
        assigned = set(assigned)
        for partition in sorted(assigned):
            first = self._given.setdefault((epoch, partition), owner.id)
            if first != owner.id:
                raise Violation(
                    f"I24: partition {partition} belongs to {first} and {owner.id}, both in epoch {epoch}"
                )
        if now - sent_at >= self.patience_s:
            others: Iterable[Owner] = ()  # the answer is so old that others may have been given it since
        else:
            others = self.alive.values()
        for other in others:
            both = other.owned & (assigned - owner.owned)
            if other is not owner and both and now - other.heard_at < self.patience_s:
                raise Violation(
                    f"I24: {owner.id} is given {sorted(both)} in epoch {epoch} while {other.id}, heard "
                    f"{now - other.heard_at:.3f} s ago, has it since epoch {other.epoch}"
                )
        owner.owned = assigned

    def stays(self, owner: Owner, epoch: int, sent_at: float, now: float) -> None:
        """The answer says nothing of an assignment: the member keeps what it has, perhaps in a new epoch."""
        self.give(owner, epoch, owner.owned, sent_at, now)

    def found(self, partition: int, offset: int, acknowledged: int) -> None:
        """This is committed, and `acknowledged` was before that was asked. Raises Violation."""
        if offset < acknowledged:
            raise Violation(f"I24: partition {partition} is committed at {offset}, after {acknowledged}")

    def accepted(self, owner: Owner, offsets: Mapping[int, int], acknowledged: Mapping[int, int]) -> None:
        """A member's commit is acknowledged; `acknowledged` was before it was sent. Raises Violation."""
        for partition, offset in offsets.items():
            known = acknowledged[partition]
            if offset < known:
                raise Violation(f"I24: {owner.id} commits {offset} for partition {partition}, after {known}")
            self.committed[partition] = max(self.committed[partition], offset)

    def nobodys(self) -> set[int]:
        """The partitions that no member owns."""
        return set(self.partitions).difference(*(owner.owned for owner in self.alive.values()))

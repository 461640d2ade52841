"""A partition's assignment, also while it moves, and the checks on a requested one. Pure.

While a partition moves, old and new replicas hold it: none leaves before those that stay are in sync.
Left to others: choosing brokers for new partitions (placement.py), when a move goes on (reassignment.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...base.values import dataclass
from ...protocol.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidTopic

PARTITIONS_MAX = 100_000  # of one topic: more is a typo
TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")

Replicas = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition's replicas. While it moves: also those it gains, will lose, and had before."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()  # the replicas before the move, in their order; only while it moves

    @property
    def is_moving(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when the move is done, the preferred leader first."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        """The replicas before the move: what a cancellation restores."""
        return self.origin if self.is_moving else self.replicas

    @property
    def abandoned(self) -> tuple[int, ...]:
        """Replicas added by a move that was cancelled or replaced."""
        return tuple(r for r in self.removing if r not in self.origin)

    def towards(self, target: Sequence[int]) -> Assignment:
        """The same, moving to `target`. Other replicas stay until `target` is in sync."""
        origin = self.before
        leaving = (*origin, *(r for r in self.replicas if r not in origin))
        leaving = tuple(r for r in leaving if r not in target)
        adding = tuple(r for r in target if r not in origin)
        if not adding and not leaving:
            return Assignment(tuple(target))
        return Assignment((*target, *leaving), adding, leaving, origin)

    def without(self, gone: Iterable[int]) -> Assignment:
        """The same without these replicas."""
        left = set(gone)
        assert left.isdisjoint(self.target), "who is in the target stays"
        removing = tuple(r for r in self.removing if r not in left)
        replicas = tuple(r for r in self.replicas if r not in left)
        if not removing and not self.adding:
            return Assignment(replicas)
        return Assignment(replicas, self.adding, removing, self.origin)


def check_assignment(
    brokers: Iterable[int], chosen: Mapping[int, Sequence[int]], first: int = 0, factor: int | None = None
) -> Replicas:
    """Replicas as the caller chose them. Raises InvalidReplicaAssignment, InvalidPartitions."""
    known = set(brokers)
    if not chosen:
        raise InvalidPartitions("the number of partitions must be at least 1")
    if sorted(chosen) != list(range(first, first + len(chosen))):
        raise InvalidReplicaAssignment(f"partition numbers must start at {first} and have no gap")
    factor = len(next(iter(chosen.values()))) if factor is None else factor
    for number, replicas in sorted(chosen.items()):
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"partition {number}: {list(replicas)} is empty or has a broker twice"
            )
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"partition {number}: expected {factor} replicas, as in the other partitions"
            )
        if unknown := sorted(set(replicas) - known):
            raise InvalidReplicaAssignment(f"partition {number}: brokers {unknown} are not registered")
    return {number: tuple(replicas) for number, replicas in sorted(chosen.items())}


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name; no other one may become part of a path."""
    return name not in ("", ".", "..") and len(name) <= TOPIC_NAME_LENGTH_MAX and bool(TOPIC_NAME.match(name))


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopic; also for a name that differs from another only in '.' and '_'."""
    if not is_topic_name(name):
        raise InvalidTopic(
            f"{name[:300]!r} is not a topic name: expected 1 to {TOPIC_NAME_LENGTH_MAX} "
            "characters of a-z A-Z 0-9 . _ -"
        )
    collapsed = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == collapsed:
            raise InvalidTopic(
                f"{name!r} collides with topic {other!r}: '.' and '_' are equal in metric names"
            )

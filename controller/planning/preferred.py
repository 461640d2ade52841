"""Elections on request: of the preferred replica, or of any at all. Pure.

The first replica of an assignment is preferred, because assignments spread first replicas evenly over the
brokers. Failures move leadership away from them; this brings it back.
Left to others: whether a replica may lead (`elections.py`), who asks (`requests/election_requests.py`,
`controller/active_controller.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...base.types import TopicPartition
from ...protocol.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopic,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from . import unclean_recovery
from .elections import prefers
from .plans import ElectionKind
from .state import ClusterState


def imbalanced(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """Partitions that can go back to their preferred leader, if it leads too few of those it should."""
    first_for: dict[int, list[TopicPartition]] = {}
    for partition in state.all_partitions():
        replicas = state.replicas(partition)
        if replicas and partition in state.partitions and partition.topic not in state.deletions:
            first_for.setdefault(replicas[0], []).append(partition)
    found: list[TopicPartition] = []
    moving = set(state.moving())
    for broker in sorted(first_for):
        away = [q for q in first_for[broker] if state.partitions[q].leader != broker]
        if len(away) * 100 > percentage * len(first_for[broker]):
            found += [q for q in away if q not in moving and prefers(state, q, state.partitions[q])]
    return found


def want(state: ClusterState, kind: ElectionKind, partitions: Iterable[TopicPartition]) -> ClusterState:
    """Note which partitions an election is asked for. It is held when the planner next judges them."""
    known = [q for q in sorted(partitions) if q in state.partitions and state.replicas(q)]
    if kind is ElectionKind.UNCLEAN:
        return unclean_recovery.force(state, known)
    return replace(state, preferring=state.preferring | frozenset(known))


def is_led(state: ClusterState, kind: ElectionKind, partition: TopicPartition) -> bool:
    """Whether the partition has what such an election would give it."""
    known = state.partitions.get(partition)
    if known is None or not state.is_live(known.leader):
        return False
    return kind is ElectionKind.UNCLEAN or known.leader == state.replicas(partition)[0]


def refusal(state: ClusterState, kind: ElectionKind, partition: TopicPartition) -> ApiError | None:
    """Why such an election cannot begin, or need not; None if it can."""
    known, replicas = state.partitions.get(partition), state.replicas(partition)
    if partition.topic in state.deletions:
        return InvalidTopic(f"topic {partition.topic!r} is being deleted")
    if known is None or not replicas:
        return UnknownTopicOrPartition(f"partition {partition} does not exist")
    if is_led(state, kind, partition):
        return ElectionNotNeeded(f"broker {known.leader} already leads {partition}")
    if partition in state.in_flight:
        return None  # it is being changed: what comes of that is not known yet
    if kind is ElectionKind.PREFERRED and not prefers(state, partition, known):
        return PreferredLeaderNotAvailable(
            f"broker {replicas[0]}, the preferred leader of {partition}, cannot be elected: it is "
            "not available, not in the ISR, or its disk is full"
        )
    if kind is ElectionKind.UNCLEAN and not any(
        unclean_recovery.is_present(state, r, partition) for r in replicas
    ):
        return EligibleLeadersNotAvailable(f"no replica of {partition} is available")
    return None

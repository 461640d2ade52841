"""Metrics of the group coordinator, under Kafka's names: gauges of now, counts since the start.

Kafka: `kafka.coordinator.group:type=GroupMetadataManager` (gauges) and `group-coordinator-metrics`. Where
Kafka has a rate, this has a count: read it twice to get the rate.
"""

from collections import Counter
from collections.abc import Sequence

from ...base.values import dataclass
from .shards import AnyGroup
from .state import GroupState, GroupType

GAUGES = {
    GroupState.PREPARING_REBALANCE: "NumGroupsPreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "NumGroupsCompletingRebalance",
    GroupState.STABLE: "NumGroupsStable",
    GroupState.DEAD: "NumGroupsDead",
    GroupState.EMPTY: "NumGroupsEmpty",
}


@dataclass(slots=True)
class GroupCounts:
    """Counts since the start of this process."""

    offsets_committed: int = 0
    offsets_expired: int = 0
    offsets_deleted: int = 0
    rebalances_completed: int = 0
    consumer_rebalances: int = 0
    load_ms_max: int = 0


def group_metrics(groups: Sequence[AnyGroup], offsets: int, counts: GroupCounts) -> dict[str, int]:
    """All metrics by name. `offsets`: how many offsets all groups here have committed."""
    states = Counter(group.state for group in groups if group.type is GroupType.CLASSIC)
    return {
        "NumGroups": len(groups),
        "NumOffsets": offsets,
        **{name: states[state] for state, name in GAUGES.items()},
        "offset-commit-count": counts.offsets_committed,
        "offset-expiration-count": counts.offsets_expired,
        "offset-deletion-count": counts.offsets_deleted,
        "group-completed-rebalance-count": counts.rebalances_completed,
        "consumer-group-count": len(groups) - states.total(),
        "consumer-group-rebalance-count": counts.consumer_rebalances,
        "partition-load-time-max": counts.load_ms_max,
    }

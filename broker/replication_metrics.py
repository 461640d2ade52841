"""Metrics of replication, the controller and compaction, under Kafka's names: gauges, and counts since start.

Where Kafka has a rate (IsrShrinksPerSec), this has a count: two readings give the rate.
Left to others: counts of requests (network/metrics.py), who asks (handlers/inspect.py).
"""

from typing import TYPE_CHECKING

from ..base.types import NO_LEADER
from ..controller.planning.decision_notes import gauges

if TYPE_CHECKING:
    from .context import BrokerContext
    from .replicas.partition import Partition
    from .replicas.replicas import Replicas
    from .upkeep.compaction import Compactor

LATE_BY_MS = 5 * 60_000  # beyond the longest timeout of a transaction, as in Kafka


def replication_metrics(broker: "BrokerContext") -> dict[str, int]:
    """All metrics, by name. Those of the controller only on the broker that is the controller."""
    controller = broker.controller
    view, decision_notes = controller.view, controller.decision_notes
    return {
        **of_replicas(broker),
        "ActiveControllerCount": int(controller.active),
        "LeaderElections": decision_notes.elections,
        "UncleanLeaderElections": decision_notes.unclean_elections,
        "PotentialDataLoss": decision_notes.potential_losses,
        "ControllerChannelFailures": decision_notes.channel_failures,
        **({} if view is None else gauges(view)),
    }


def of_replicas(broker: "BrokerContext") -> dict[str, int]:
    """The metrics of this broker's replicas."""
    partitions, isr = broker.replicas.partitions.values(), broker.isr
    led = [p for p in partitions if p.leading is not None]
    leaders = [p.leading for p in led if p.leading is not None]
    late_from = broker.clock.wall_ms() - broker.config.transactions.timeout_ms_max - LATE_BY_MS
    return {
        "PartitionCount": len(partitions),
        "LeaderCount": len(leaders),
        "UnderReplicatedPartitions": sum(leader.under_replicated for leader in leaders),
        "ReassigningPartitions": sum(leader.is_moving for leader in leaders),
        "UnderMinIsrPartitionCount": sum(leader.under_min_isr for leader in leaders),
        "AtMinIsrPartitionCount": sum(len(leader.isr.members) == leader.min_isr for leader in leaders),
        "OfflineReplicaCount": sum(p.offline is not None for p in partitions),
        "IsrShrinks": isr.shrinks,
        "IsrExpands": isr.expands,
        "FailedIsrUpdates": isr.notes.failed,
        "MaxLag": max(lags(broker.replicas).values(), default=0),
        "TruncatedBelowHighWatermark": broker.shared.truncated_below_watermark,
        "LastStableOffsetLag": max((p.high_watermark - p.last_stable_offset for p in led), default=0),
        "PartitionsWithLateTransactionsCount": sum(has_late_transaction(p, late_from) for p in led),
    }


def has_late_transaction(partition: "Partition", late_from: int) -> bool:
    """Whether a transaction is open here that its coordinator, if it had one, would have aborted before."""
    producers = partition.log.producers
    written = (producers.get(producer_id) for producer_id, _ in producers.open_transactions())
    return any(known is not None and 0 < known.last_timestamp < late_from for known in written)


def of_cleaning(cleaning: "Compactor") -> dict[str, int]:
    """The metrics of compaction. Only uncleanable-partitions-count is Kafka's name; the others are ours."""
    counts = cleaning.counts()
    return {
        "uncleanable-partitions-count": counts.uncleanable,
        "Cleanings": counts.cleanings,
        "CleaningsGivenUp": counts.given_up,
        "CleaningFailures": counts.failures,
        "BytesFreed": counts.bytes_freed,
    }


def lags(replicas: "Replicas") -> dict[int, int]:
    """By leader: the largest number of committed records that one of our followers of it lacks."""
    found: dict[int, int] = {}
    for partition in replicas.partitions.values():
        follower = partition.following
        if follower is not None and follower.leader != NO_LEADER:
            found[follower.leader] = max(found.get(follower.leader, 0), partition.missing)
    return found

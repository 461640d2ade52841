"""A document of all that this broker knows about one partition: its replica now, and past decisions.

Plain values, read without an await, so they are consistent. The reader interprets them
(why_answers.py). Left to others: the request (handlers/inspect.py), counts (replication_metrics.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base.types import BrokerId, TopicPartition
from ..controller.planning.decision_notes import view_of
from ..replication.follower import Follower, Idle
from ..replication.isr import Settled
from ..replication.leader import Leader
from ..storage.decision_log import BROKER, CONTROLLER, Decision, controllers_ring
from .replicas.isr_notes import follower_values
from .replicas.partition import Partition

if TYPE_CHECKING:
    from .context import BrokerContext

DECISIONS_MAX = 500  # of each kind, the newest


def partition_document(broker: "BrokerContext", tp: TopicPartition) -> dict[str, Any]:
    """All that explains the present state of the partition."""
    replicas, controller = broker.replicas, broker.controller
    recorder = broker.shared.recorder
    partition = replicas.find(tp)
    view = controller.view
    return {
        "broker": broker.id,
        "now_ms": broker.clock.wall_ms(),
        "incarnation": broker.incarnation,
        "controller": broker.metadata.controller_id,
        "registry_connected": controller.is_informed,
        "replica": None if partition is None else _replica(partition),
        "decisions": _told(recorder.of(str(tp))),
        "controllers_view": None if view is None else view_of(view, tp),
        "controllers_decisions": _told(recorder.of(controllers_ring(str(tp)))),
        "controller_events": _told(recorder.of(CONTROLLER)),
        "broker_events": _told(recorder.of(BROKER)),
    }


def _told(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [decision.as_dict() for decision in decisions[-DECISIONS_MAX:]]


def _replica(partition: Partition) -> dict[str, Any]:
    log, leader, follower = partition.log, partition.leading, partition.following
    return {
        "role": partition.role.value,
        "leader": partition.leader_id,
        "epoch": partition.leader_epoch,
        "start": log.start_offset,
        "end": log.end_offset,
        "watermark": partition.high_watermark,
        "flushed": log.flushed_offset,
        "offline": partition.offline,
        "full": partition.full,
        "in_transition": partition.incomplete,
        "recovering": partition.recovering,
        "leading": None if leader is None else _leading(leader, partition.shared.loop.time()),
        "following": None if follower is None else _following(partition, follower),
    }


def _leading(leader: Leader, now: float) -> dict[str, Any]:
    isr = leader.isr
    others = sorted((frozenset(leader.replicas) | isr.must_ack) - {leader.me})
    return {
        "isr": sorted(isr.members),
        "must_ack": sorted(isr.must_ack),
        "proposed": None if isinstance(isr, Settled) else sorted(isr.proposed),
        "replicas": list(leader.replicas),
        "version": leader.version,
        "end": leader.end_offset,
        "safe_end": leader.safe_end,
        "epoch_began_at": leader.epoch_start,
        "min_isr": leader.min_isr,
        "under_min_isr": leader.under_min_isr,
        "strict_min_isr": leader.options.strict_min_isr,
        "lag_max_s": leader.options.lag_seconds_max,
        "followers": [_follower(leader, BrokerId(broker), now) for broker in others],
    }


def _follower(leader: Leader, broker: BrokerId, now: float) -> dict[str, Any]:
    """`holds`: the high watermark waits for it, because it is in sync or about to be (correctness: 2.7)."""
    values = follower_values(leader, broker, now)
    progress = leader.progress_of(broker)
    assert progress is not None, "only the partition's replicas and ISR members have progress"
    recently = progress.caught_up(leader.end_offset, now, leader.options.lag_seconds_max)
    values["about_to_join"] = not values["must_ack"] and values["registered"] and recently
    values["holds"] = values["must_ack"] or values["about_to_join"]
    return values


def _following(partition: Partition, follower: Follower) -> dict[str, Any]:
    stage = follower.stage
    return {
        "leader": follower.leader,
        "stage": type(stage).__name__.lower(),
        "why": stage.why if isinstance(stage, Idle) else None,
        "missing": partition.missing,
    }

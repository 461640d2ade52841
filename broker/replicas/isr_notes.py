"""Records why ISR changes were proposed: log ends of leader and follower, and when it last was caught up.

A proposal that is repeated, after no answer or after the same refusal, is not recorded again.
Left to others: proposing (replication/leader.py), writing (isr_writer.py).
"""

from typing import Any

from ...base.types import BrokerId, TopicPartition, broker_epoch
from ...replication.effects import WriteIsr
from ...replication.isr import Growing, Isr, Shrinking
from ...replication.leader import Leader
from ...replication.progress import NEVER
from ..recorder import Recorder


def ago(then: float, now: float) -> float | None:
    """Seconds since then; None for NEVER."""
    return None if then == NEVER else round(max(now - then, 0.0), 3)


def follower_values(leader: Leader, broker: BrokerId, now: float) -> dict[str, Any]:
    """The progress of one follower, as its leader knows it."""
    progress = leader.progress_of(broker)
    assert progress is not None, "only the partition's replicas and ISR members have progress"
    return {
        "broker": broker,
        "end": progress.end_offset,
        "behind": max(leader.end_offset - progress.end_offset, 0),
        "caught_up_ago_s": ago(progress.last_caught_up, now),
        "fetched_ago_s": ago(progress.last_fetch, now),
        "has_fetched": progress.fetched_in_epoch,
        "incarnation": broker_epoch(progress.incarnation),
        "registered": broker in leader.membership.live,
        "in_isr": broker in leader.isr.members,
        "must_ack": broker in leader.isr.must_ack,
    }


class IsrNotes:
    """Records what becomes of ISR changes, each once."""

    def __init__(self) -> None:
        self._proposed: dict[TopicPartition, Isr] = {}
        self._refused: dict[TopicPartition, tuple[int, int]] = {}
        self.failed = 0  # proposals that were refused or have an unknown outcome

    def proposed(
        self, recorder: Recorder, tp: TopicPartition, leader: Leader, ask: WriteIsr, now: float
    ) -> None:
        """The leader proposes a change."""
        isr = leader.isr
        known, self._proposed[tp] = self._proposed.get(tp), isr
        if known is isr or (
            ask.joining is not None and self._refused.get(tp) == (ask.joining, ask.incarnation)
        ):
            return
        told: dict[str, Any] = {
            "epoch": leader.epoch,
            "isr": sorted(isr.members),
            "asked": list(ask.isr),
            "leader_end": leader.end_offset,
            "watermark": leader.high_watermark,
            "version": ask.expected_version,
        }
        if isinstance(isr, Growing):
            joining = follower_values(leader, isr.joining, now)
            recorder.note(
                str(tp), "isr_grow_proposed", **told, joining=joining, epoch_began_at=leader.epoch_start
            )
        elif isinstance(isr, Shrinking):
            late = [follower_values(leader, broker, now) for broker in sorted(isr.leaving)]
            lag_max_s = leader.options.lag_seconds_max
            recorder.note(str(tp), "isr_shrink_proposed", **told, leaving=late, lag_max_s=lag_max_s)

    def refused(
        self, recorder: Recorder, tp: TopicPartition, leader: Leader, ask: WriteIsr, why: str
    ) -> None:
        """A check of the write failed: nothing has changed."""
        self.failed += 1
        self._proposed.pop(tp, None)
        if ask.joining is not None:
            self._refused[tp] = (ask.joining, ask.incarnation)
        recorder.note(str(tp), "isr_refused", epoch=leader.epoch, asked=list(ask.isr), condition=why)

    def unknown(
        self, recorder: Recorder, tp: TopicPartition, leader: Leader, ask: WriteIsr, why: str
    ) -> None:
        """No answer from ZooKeeper: the write may have landed."""
        self.failed += 1
        recorder.note(str(tp), "isr_unknown", epoch=leader.epoch, asked=list(ask.isr), why=why)

    def landed(
        self,
        recorder: Recorder,
        tp: TopicPartition,
        leader: Leader,
        joined: tuple[BrokerId, ...],
        left: tuple[BrokerId, ...],
    ) -> None:
        """ZooKeeper holds a new ISR."""
        self.forget(tp)
        recorder.note(
            str(tp),
            "isr_changed",
            epoch=leader.epoch,
            isr=sorted(leader.isr.members),
            joined=list(joined),
            left=list(left),
            version=leader.version,
        )

    def forget(self, tp: TopicPartition) -> None:
        """No proposal is pending any more."""
        self._proposed.pop(tp, None)
        self._refused.pop(tp, None)

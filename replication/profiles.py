"""Semantics profiles: which rule holds where descriptions of Kafka disagree. One frozen row per profile.

Most disagreements are a matter of time: what was true of 0.8 is not true of 3.9. A broker runs by one row.
`strandline` is the default; the others exist so that the difference can be seen. Three of them lose
acknowledged records by design. No profile changes the maximal ISR, incarnations and the proof of data, or who
may lead.
Left to others: the points of disagreement one by one (disagreements.py), the rules that ask (leader.py,
follower.py), the options whose defaults a profile sets (broker/config/sections.py, storage/config.py).
Why: docs/decisions/0034-profiles-are-rows.md
"""

from collections.abc import Mapping
from enum import Enum

from ..base.types import NO_EPOCH, Epoch
from ..base.values import dataclass
from ..protocol.errors import ErrorCode


class Truncation(Enum):
    """How a returning follower finds what it must truncate."""

    WATERMARK = "to its high watermark"
    ONE_QUESTION = "to where its last epoch ends at the leader, asked once"
    COMMON_EPOCH = "to the end of the last epoch that both logs have"


class ElectionOrder(Enum):
    """Which of several eligible replicas leads."""

    ASSIGNED = "the first in the assignment"
    ISR = "the first in the ISR"


@dataclass(frozen=True, slots=True)
class Semantics:
    """The rules of one profile."""

    name: str
    unclean_election: bool  # default of unclean.leader.election.enable
    unclean_recovery: str  # default of unclean.recovery.strategy
    lag_time_max_ms: int  # default of replica.lag.time.max.ms
    lag_by_messages: bool  # replica.lag.max.messages is honoured, and a follower is late if it is silent
    strict_min_isr: bool  # default of strict.min.isr
    election_order: ElectionOrder
    truncation: Truncation
    begins_when_elected: bool  # a leader's epoch is recorded at its election, not with its first record
    fences: bool  # a fetch of another leader epoch is refused (KIP-320)
    joins_past_epoch_start: bool  # the ISR is joined past the start of the leader's epoch (KAFKA-7128)
    waits_for_joining: bool  # the watermark counts replicas that are about to join (KAFKA-4485)
    loses: str = ""  # why acknowledged records are lost under it; empty if the rules lose none

    def epoch_error(self, asked: int, known: Epoch) -> ErrorCode:
        """What a leader of epoch `known` answers to a request for the leader of epoch `asked`."""
        if asked == known:
            return ErrorCode.NONE
        if asked == NO_EPOCH or not self.fences:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if asked < known else ErrorCode.UNKNOWN_LEADER_EPOCH


_STRANDLINE = Semantics(
    name="strandline",
    unclean_election=False,
    unclean_recovery="balanced",
    lag_time_max_ms=30_000,
    lag_by_messages=False,
    strict_min_isr=False,
    election_order=ElectionOrder.ASSIGNED,
    truncation=Truncation.COMMON_EPOCH,
    begins_when_elected=True,
    fences=True,
    joins_past_epoch_start=True,
    waits_for_joining=True,
)
_BY_WATERMARK = "a returning follower cuts to its high watermark, which lags behind what was acknowledged"

PROFILES: Mapping[str, Semantics] = {
    each.name: each
    for each in (
        Semantics(
            name="0.8",
            unclean_election=True,
            unclean_recovery="manual",
            lag_time_max_ms=10_000,
            lag_by_messages=True,
            strict_min_isr=False,
            election_order=ElectionOrder.ISR,
            truncation=Truncation.WATERMARK,
            begins_when_elected=True,
            fences=False,
            joins_past_epoch_start=False,
            waits_for_joining=False,
            loses=_BY_WATERMARK,
        ),
        Semantics(
            name="0.10",
            unclean_election=True,
            unclean_recovery="manual",
            lag_time_max_ms=10_000,
            lag_by_messages=False,
            strict_min_isr=False,
            election_order=ElectionOrder.ASSIGNED,
            truncation=Truncation.WATERMARK,
            begins_when_elected=True,
            fences=False,
            joins_past_epoch_start=False,
            waits_for_joining=True,
            loses=_BY_WATERMARK,
        ),
        Semantics(
            name="0.11",
            unclean_election=False,
            unclean_recovery="manual",
            lag_time_max_ms=10_000,
            lag_by_messages=False,
            strict_min_isr=False,
            election_order=ElectionOrder.ASSIGNED,
            truncation=Truncation.ONE_QUESTION,
            begins_when_elected=False,
            fences=False,
            joins_past_epoch_start=False,
            waits_for_joining=True,
            loses="after two quick changes of leader a follower keeps records that the leader never had",
        ),
        Semantics(
            name="3.6",
            unclean_election=False,
            unclean_recovery="manual",
            lag_time_max_ms=30_000,
            lag_by_messages=False,
            strict_min_isr=False,
            election_order=ElectionOrder.ASSIGNED,
            truncation=Truncation.COMMON_EPOCH,
            begins_when_elected=True,
            fences=True,
            joins_past_epoch_start=True,
            waits_for_joining=True,
        ),
        Semantics(
            name="3.9",
            unclean_election=False,
            unclean_recovery="manual",
            lag_time_max_ms=30_000,
            lag_by_messages=False,
            strict_min_isr=True,
            election_order=ElectionOrder.ASSIGNED,
            truncation=Truncation.COMMON_EPOCH,
            begins_when_elected=True,
            fences=True,
            joins_past_epoch_start=True,
            waits_for_joining=True,
        ),
        _STRANDLINE,
    )
}

DEFAULT = "strandline"
TODAY = PROFILES[DEFAULT]

"""The follower's rules: truncate what the leader does not have, fetch, adopt its high watermark. Pure.

Nothing is fetched before the histories are known to match. Only a leader of the same epoch can decide a
truncation. An answer counts only if the log has not changed since the question was asked.
Left to others: sending (broker/follower/fetcher.py), the log itself (broker/replicas/partition.py).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, TypeAlias

from ..base.types import NO_EPOCH, NO_LEADER, BrokerId, Epoch, Offset
from ..base.values import dataclass
from ..protocol.errors import ErrorCode
from .effects import NOTHING, Effects, FailReplica, HighWatermarkMoved, RestartAt, Truncate
from .machines import FOLLOWER
from .profiles import TODAY, Semantics, Truncation
from .truncation import History, where_to_cut

NO_BOUND = (1 << 63) - 1


class LogView(Protocol):
    """What the rules read of a log (`storage.log.Log`); they never change it."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def epochs(self) -> History: ...


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to ask: no leader is known, or the controller must speak first."""

    why: str


@dataclass(frozen=True, slots=True)
class Truncating:
    """Asks the leader where `epoch`, the newest of our log, ends."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Fetching:
    """The history is the leader's; asks for what comes next."""


Stage: TypeAlias = Idle | Truncating | Fetching


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """OffsetForLeaderEpoch: where does `epoch` end with you?"""

    leader_epoch: Epoch
    epoch: Epoch
    generation: int


@dataclass(frozen=True, slots=True)
class AskRecords:
    """Fetch: I hold everything before `offset`, whose last record is of `last_epoch`."""

    leader_epoch: Epoch
    offset: Offset
    last_epoch: Epoch
    generation: int


@dataclass(frozen=True, slots=True)
class FlushFirst:
    """No question yet: a fetch from the log end would say that all before it is flushed, and it is not."""


Question: TypeAlias = AskEpochEnd | AskRecords


class Reaction(Enum):
    """What a follower does after an error."""

    RETRY = "retry after a pause"
    WAIT = "wait for LeaderAndIsr"
    OUT_OF_RANGE = "compare the ends of both logs"


REACTIONS: Mapping[int, Reaction] = {
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.WAIT,
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.OUT_OF_RANGE,
}
"""All other errors (6, 75, 3, 100, 103, 56 …) pass by themselves or with a LeaderAndIsr: RETRY."""


class Follower:
    """One followership: one partition, one leader epoch. A new epoch is a new object."""

    __slots__ = ("_log", "_truncation", "epoch", "high_watermark", "leader", "stage", "unflushed_max")

    def __init__(
        self,
        log: LogView,
        leader: BrokerId,
        epoch: Epoch,
        high_watermark: Offset,
        unflushed_max: int = NO_BOUND,
        semantics: Semantics = TODAY,
    ) -> None:
        self._log = log
        self._truncation = semantics.truncation
        self.unflushed_max = unflushed_max  # how many unflushed records it may acknowledge
        self.leader = leader
        self.epoch = epoch
        self.high_watermark = self._clamped(high_watermark)
        self.stage: Stage = Idle("no leader")
        if leader != NO_LEADER:
            self._enter(self._begin())

    def opened(self) -> Effects:
        """Followership begins. Under today's rules nothing is truncated before the leader has been asked."""
        if self._truncation is not Truncation.WATERMARK or isinstance(self.stage, Idle):
            return NOTHING
        return self._to_watermark()

    @property
    def must_flush(self) -> bool:
        """Whether too many records are unflushed to fetch: a fetch acknowledges all before its offset."""
        log = self._log
        return log.end_offset - log.flushed_offset > self.unflushed_max and isinstance(self.stage, Fetching)

    @property
    def must_truncate(self) -> bool:
        """Whether it must ask where to truncate before it may fetch."""
        return isinstance(self.stage, Truncating)

    def question(self) -> Question | FlushFirst | None:
        """What to ask the leader next."""
        stage, log = self.stage, self._log
        if isinstance(stage, Fetching):
            if self.must_flush:
                return FlushFirst()
            last_epoch = Epoch(log.epochs.latest) if log.end_offset > log.start_offset else NO_EPOCH
            if self._truncation is not Truncation.COMMON_EPOCH:
                last_epoch = NO_EPOCH  # leaders of those versions do not compare it
            return AskRecords(self.epoch, Offset(log.end_offset), last_epoch, log.generation)
        if isinstance(stage, Truncating):
            return AskEpochEnd(self.epoch, stage.epoch, log.generation)
        return None

    def accepts(self, asked: Question) -> bool:
        """Whether an answer to `asked` still speaks of this log, this epoch and this stage."""
        if asked.leader_epoch != self.epoch or asked.generation != self._log.generation:
            return False
        if isinstance(asked, AskRecords):
            return isinstance(self.stage, Fetching) and asked.offset == self._log.end_offset
        return isinstance(self.stage, Truncating) and asked.epoch == self.stage.epoch

    def epoch_ends(self, asked: AskEpochEnd, epoch: Epoch, end: Offset) -> Effects:
        """The leader answers: its largest epoch up to the asked one is `epoch`, which ends at `end`."""
        if not self.accepts(asked):
            return NOTHING
        return self._part(asked.epoch, epoch, end)

    def diverged(self, asked: AskRecords, epoch: Epoch, end: Offset) -> Effects:
        """The leader sends no records: the histories differ. Its largest epoch up to our last is `epoch`,
        which ends at `end`.
        """
        if not self.accepts(asked):
            return NOTHING
        return self._part(asked.last_epoch, epoch, end)

    def out_of_range(self, asked: AskRecords, leader_start: Offset) -> Effects:
        """The leader has no record at the asked offset: its log begins later, or it ends earlier."""
        if not self.accepts(asked):
            return NOTHING
        is_empty = self._log.end_offset == self._log.start_offset
        if leader_start > self._log.end_offset or (is_empty and leader_start >= 0):
            return (RestartAt(leader_start),)
        self._enter(self._begin())
        if self._truncation is Truncation.WATERMARK:
            self._enter(Truncating(self.epoch))  # the leader's log is the shorter one: where does it end?
        return NOTHING

    def refused(self, asked: Question, code: int) -> Reaction:
        """The leader answers with an error. A fenced follower asks nothing until it hears of a new epoch."""
        reaction = REACTIONS.get(code, Reaction.RETRY)
        if reaction is Reaction.WAIT and self.accepts(asked):
            self._enter(Idle("fenced by a later epoch"))
        return reaction

    def truncated(self, cut: Truncate) -> None:
        """The shell has truncated the log."""
        assert self._log.end_offset <= max(cut.to, self._log.start_offset), (
            "a truncated log ends at the truncation offset or below"
        )
        self.high_watermark = self._clamped(self.high_watermark)
        self._enter(Fetching() if cut.settled else self._begin())

    def restarted(self) -> None:
        """The shell has restarted the log: nothing before its start is waited for any more (KAFKA-9491)."""
        assert self._log.end_offset == self._log.start_offset, "a restarted log is empty"
        self.high_watermark = self._clamped(self.high_watermark)

    def replicated(self, leader_high_watermark: Offset) -> Effects:
        """The fetched records are in the log: adopt the leader's high watermark, up to our log end offset."""
        assert isinstance(self.stage, Fetching), "nothing is fetched before the histories are known to match"
        before = self.high_watermark
        self.high_watermark = self._clamped(leader_high_watermark)
        return NOTHING if self.high_watermark == before else (HighWatermarkMoved(self.high_watermark),)

    def _enter(self, stage: Stage) -> None:
        before, after = type(self.stage).__name__, type(stage).__name__
        assert FOLLOWER.allows(before, after), f"a follower cannot change from {before} to {after}"
        self.stage = stage

    def _begin(self) -> Stage:
        log = self._log
        if log.end_offset == log.start_offset or log.epochs.latest == NO_EPOCH:
            return Fetching()
        if self._truncation is Truncation.WATERMARK:
            return Fetching()
        return Truncating(Epoch(log.epochs.latest))

    def _clamped(self, high_watermark: Offset) -> Offset:
        return Offset(max(self._log.start_offset, min(high_watermark, self._log.end_offset)))

    def _to_watermark(self) -> Effects:
        self._enter(Fetching())
        if self._log.end_offset <= self.high_watermark:
            return NOTHING
        return (Truncate(self.high_watermark, settled=True),)

    def _part(self, asked: Epoch, epoch: Epoch, end: Offset) -> Effects:
        if self._truncation is not Truncation.COMMON_EPOCH:
            if end < 0:
                return self._to_watermark()
            return (Truncate(Offset(min(end, self._log.end_offset)), settled=True),)
        if end < 0 or epoch > asked:
            self._enter(Idle("the follower's log has a leader epoch that no leader assigned"))
            return (
                FailReplica(
                    f"asked where epoch {asked} ends, the leader answered with epoch {epoch}, end {end}"
                ),
            )
        return (where_to_cut(self._log.epochs, Offset(self._log.end_offset), asked, epoch, end),)

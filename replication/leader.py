"""The leader's rules: when the high watermark rises, who is in the ISR, min.insync.replicas. Pure.

The high watermark is the smallest log end offset among the replicas that must acknowledge (isr.py says which,
while an ISR change is pending) and the followers that had caught up a moment ago and are about to join the
ISR. A follower that has not caught up for `replica.lag.time.max.ms` is proposed out of it. An ISR change is a
conditional write. Until its outcome is certain it stays pending and is written again with the same expected
version, so only one of the attempts can land.
Left to others: when a leader is asked, and its log (broker/replicas/partition.py: `settle`), the write itself
(broker/replicas/isr_writer.py), what a produce waits for (broker/replicas/purgatory.py).
Why: docs/decisions/0003-pure-rules-thin-shells.md
"""

from collections.abc import Iterable

from ..base.types import BrokerId, Epoch, Incarnation, Offset
from ..base.values import dataclass
from .durability import BEFORE, Copies
from .effects import (
    NOTHING,
    CheckBatch,
    Effects,
    HighWatermarkMoved,
    IsrChanged,
    ReadState,
    Seconds,
    StepDown,
    WriteIsr,
)
from .isr import Declaring, Growing, Isr, Settled, Shrinking
from .machines import ISR
from .profiles import TODAY, Semantics
from .progress import NEVER, REPEATS, Progress

REVALIDATE_SECONDS = 10.0  # how often the state znode is read again while the ISR is incomplete or silent
RETRY_SECONDS = 0.5  # after a write whose outcome is unknown
REFUSED_SECONDS = 1.0  # after a failed broker check, before the same change is proposed again


@dataclass(slots=True)
class LiveBrokers:
    """Which brokers are registered, as far as this broker has been told; shared by all its leaders."""

    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class LeaderOptions:
    """A leader's configuration."""

    lag_seconds_max: Seconds = 30.0
    strict_min_isr: bool = False  # the high watermark waits while the ISR is below min.insync.replicas
    lag_messages_max: int = 4000  # for the one profile that counts them
    semantics: Semantics = TODAY
    silent_seconds_max: Seconds = 1.0  # if all others in the ISR are silent longer, a successor may lead


@dataclass(frozen=True, slots=True)
class Mandate:
    """What the controller says to a new leader."""

    epoch: Epoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    version: int  # of the state znode
    adding: frozenset[BrokerId] = frozenset()  # the replicas that a reassignment adds
    removing: frozenset[BrokerId] = frozenset()  # the replicas that go when the reassignment is done
    recovering: bool = False  # elected without proof of its data; ZooKeeper is told when that is over


class Leader:
    """One leadership: one partition, one leader epoch. A new epoch is a new object."""

    __slots__ = (
        "_beside",
        "_busy",
        "_followers",
        "_interrupted",
        "_must_ack",
        "_retry_at",
        "_revalidate_at",
        "copies",
        "end_offset",
        "epoch",
        "epoch_start",
        "high_watermark",
        "is_moving",
        "is_recovering",
        "isr",
        "me",
        "membership",
        "min_insync_replicas",
        "options",
        "replicas",
        "replication_factor",
        "safe_end",
        "version",
    )

    def __init__(
        self,
        me: BrokerId,
        mandate: Mandate,
        end_offset: Offset,
        high_watermark: Offset,
        now: Seconds,
        membership: LiveBrokers,
        options: LeaderOptions,
        min_insync_replicas: int = 1,
    ) -> None:
        assert high_watermark <= end_offset, "the high watermark exceeds the log end offset"
        self.me = me
        self.epoch = mandate.epoch
        self.replicas = mandate.replicas
        self.is_moving = bool(mandate.adding or mandate.removing)
        self.replication_factor = len(mandate.replicas) - len(mandate.adding)
        self.is_recovering = mandate.recovering
        self.version = mandate.version
        self.membership = membership
        self.options = options
        self.min_insync_replicas = min_insync_replicas
        self.epoch_start = end_offset  # a follower joins only past this (KAFKA-7128)
        self.end_offset = end_offset
        self.safe_end = end_offset  # records before it count for the watermark: flushed, if so configured
        self.high_watermark = high_watermark
        members = frozenset(mandate.isr)
        others = sorted((members | frozenset(mandate.replicas)) - {me})
        self._followers = {b: Progress(now if b in members else NEVER) for b in others}
        self.copies: dict[Copies, None] = {}  # that producers have asked for and are not acknowledged yet
        self._busy = False  # a write or a read of the state is under way
        self._interrupted = False  # the state znode must be read once more, even if the ISR is complete
        self._retry_at: Seconds = NEVER
        self._revalidate_at: Seconds = now + REVALIDATE_SECONDS
        self.isr: Isr = Settled(members)
        self._settle(self.isr)

    @property
    def min_isr(self) -> int:
        """How many must be in sync for acks=all; never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def under_replicated(self) -> bool:
        """Whether too few replicas are in sync. Those that a reassignment adds are not missed yet."""
        return len(self.isr.members) < self.replication_factor

    def is_forsaken(self, now: Seconds) -> bool:
        """Whether all others that must acknowledge were silent for too long. False if there are no others."""
        for progress in self._must_ack:
            progress.beat(self.end_offset)
            if progress.silent(now) <= self.options.silent_seconds_max:
                return False
        return bool(self._must_ack)

    def all_fetched_since(self, then: Seconds) -> bool:
        """Whether all others that must acknowledge have fetched after `then`. True if there are no others."""
        for progress in self._must_ack:
            progress.beat(self.end_offset)
            if progress.last_fetch <= then:
                return False
        return True

    @property
    def is_interrupted(self) -> bool:
        """Whether the session was interrupted, and the state znode has not been read since."""
        return self._interrupted

    @property
    def under_min_isr(self) -> bool:
        """Whether acks=all is refused before anything is appended."""
        return len(self.isr.members) < self.min_isr

    @property
    def committed_by_enough(self) -> bool:
        """Whether records below the high watermark are on as many replicas as acks=all promises."""
        return len(self.isr.must_ack) >= self.min_isr

    @property
    def committed_whole(self) -> bool:
        """Whether the high watermark covers all that earlier leaders may have committed."""
        return self.high_watermark >= self.epoch_start

    def progress_of(self, follower: BrokerId) -> Progress | None:
        """What is known of a follower, None if it is not a replica."""
        progress = self._followers.get(follower)
        if progress is not None:
            progress.beat(self.end_offset)
        return progress

    def watch(self, required: Offset, now: Seconds) -> Copies:
        """See from now on who gets the records before `required`, until it is forgotten."""
        copies = Copies(required, now)
        for broker, progress in self._followers.items():
            copies.fetched(broker, progress.end_offset, BEFORE)
        self.copies[copies] = None
        return copies

    def forget(self, copies: Copies) -> None:
        """Nobody asks any more. May be called twice."""
        self.copies.pop(copies, None)

    def holders(self, copies: Copies) -> list[tuple[BrokerId, Seconds]]:
        """The ISR members that have these records, this broker first, and how long after the append that was
        seen; -1 if they had them before.
        """
        others = ((broker, copies.after(broker)) for broker in sorted(self.isr.members - {self.me}))
        return [(self.me, 0.0), *((broker, after) for broker, after in others if after is not None)]

    def low_watermark(self, log_start: Offset) -> Offset:
        """The offset below which no live replica holds a record. The leader's log begins at `log_start`.

        -1 while a live follower has not said yet where its log begins.
        """
        live = self.membership.live
        others = (each.log_start_offset for broker, each in self._followers.items() if broker in live)
        return min([log_start, *others])

    # Events of the log and of followers.

    def opened(self, now: Seconds) -> Effects:
        """Leadership begins. A leader that is alone in the ISR commits its complete log at once."""
        return self._raise_high_watermark(now)

    def appended(self, end_offset: Offset, safe_end: Offset, now: Seconds) -> Effects:
        """The log ends at `end_offset`; records before `safe_end` count for the high watermark."""
        assert end_offset >= self.end_offset and safe_end <= end_offset, (
            "a leader's log end offset never goes back"
        )
        if end_offset != self.end_offset:
            for progress in self._followers.values():
                progress.beat(self.end_offset)
        self.end_offset = end_offset
        self.safe_end = safe_end
        return self._raise_high_watermark(now)

    def fetched(self, follower: BrokerId, incarnation: Incarnation, offset: Offset, now: Seconds) -> Effects:
        """A follower of this epoch, whose history matches, fetches from `offset`."""
        assert offset <= self.end_offset, "the shell has refused an offset beyond the end"
        progress = self._followers.get(follower)
        if progress is None:
            return NOTHING
        before = progress.end_offset
        progress.beat(self.end_offset)
        if not progress.fetched(offset, incarnation, self.end_offset, now):
            return NOTHING
        for copies in self.copies:
            copies.fetched(follower, offset, now)
        effects: Effects = (CheckBatch(offset),) if progress.repeats == REPEATS else NOTHING
        if follower not in self.isr.members:
            effects = (*effects, *self._maybe_grow(follower, progress, now))
        if offset != before or effects:
            return (*effects, *self._raise_high_watermark(now))
        return effects

    def waits_for(self, follower: BrokerId, now: Seconds) -> bool:
        """Whether the high watermark, and so acks=all, waits for this follower."""
        if follower in self.isr.must_ack:
            return True
        progress = self._followers.get(follower)
        waits = self.options.semantics.waits_for_joining and follower in self.replicas
        return waits and progress is not None and self._is_near(follower, progress, now)

    def held_back(self, follower: BrokerId) -> None:
        """A throttle sends it nothing for now: that it asks from the same offset again says nothing of the
        batch there.
        """
        progress = self._followers.get(follower)
        if progress is not None:
            progress.repeats = 0

    def stood_still(self, seconds: Seconds, now: Seconds) -> None:
        """Nobody could be heard for so long, until `now`: followers are not late for that."""
        for progress in self._followers.values():
            progress.last_caught_up = min(progress.last_caught_up + seconds, now)

    def tick(self, now: Seconds) -> Effects:
        """Time has passed: a follower may be late, or a write with an unknown outcome due again."""
        effects = NOTHING
        if not self._busy:
            if not isinstance(self.isr, Settled):
                if now >= self._retry_at:
                    effects = (self._proposal(),)
            else:
                effects = self._maybe_shrink(now) or self._maybe_declare(now)
                if not effects and now >= self._revalidate_at:
                    effects = self._maybe_revalidate(now)
        return (*effects, *self._raise_high_watermark(now))

    # How a write or a read of the state went.

    def isr_landed(self, version: int, now: Seconds) -> Effects:
        """ZooKeeper holds what was proposed, at `version`."""
        assert not isinstance(self.isr, Settled) and version > self.version, (
            "a successful ISR write must be pending"
        )
        self._busy = False
        return self._adopt(self.isr.proposed, version, now)

    def isr_refused(self, now: Seconds) -> Effects:
        """The version was right but a broker check failed: nothing has landed, and nothing can later."""
        assert not isinstance(self.isr, Settled), "a refused ISR write must be pending"
        self._busy = False
        if isinstance(self.isr, Growing):
            self._followers[self.isr.joining].refused_until = now + REFUSED_SECONDS
        else:
            self._retry_at = now + REFUSED_SECONDS
        self._settle(Settled(self.isr.members))
        return self._raise_high_watermark(now)

    def isr_unknown(self, now: Seconds) -> Effects:
        """No answer: the write may have landed or may still land. So the change stays pending."""
        self._busy = False
        self._retry_at = now + RETRY_SECONDS
        self._revalidate_at = now + RETRY_SECONDS
        return NOTHING

    def state_read(
        self, leader: BrokerId, epoch: Epoch, isr: Iterable[BrokerId], version: int, now: Seconds
    ) -> Effects:
        """The state znode as it was read. A newer version with our epoch is an earlier write of ours."""
        self._busy = self._interrupted = False
        self._revalidate_at = now + REVALIDATE_SECONDS
        if epoch < self.epoch or (epoch == self.epoch and version < self.version):
            self._retry_at = now + RETRY_SECONDS  # a server that lags behind; it proves nothing
            return NOTHING
        members = frozenset(isr)
        if leader != self.me or epoch != self.epoch or self.me not in members:
            return (StepDown(leader, epoch),)
        if version == self.version:
            self._retry_at = now
            return NOTHING
        return self._adopt(members, version, now)

    def revalidate(self) -> None:
        """The session was interrupted: look at the state znode at the next tick."""
        self._interrupted = True
        self._revalidate_at = NEVER

    # Decisions.

    @property
    def _entry_offset(self) -> Offset:
        """How far a follower's log must reach before it is proposed for the ISR."""
        if not self.options.semantics.joins_past_epoch_start:
            return self.high_watermark
        return max(self.high_watermark, self.epoch_start)

    def _settle(self, isr: Isr) -> None:
        assert ISR.allows(type(self.isr).__name__, type(isr).__name__), f"{self.isr} cannot become {isr}"
        assert isr.members <= isr.must_ack, "every ISR member has what is committed"
        self.isr = isr
        followers = self._followers.items()
        self._must_ack = tuple(progress for broker, progress in followers if broker in isr.must_ack)
        self._beside = tuple((b, p) for b, p in followers if b in self.replicas and b not in isr.must_ack)

    def _raise_high_watermark(self, now: Seconds) -> Effects:
        if self.options.strict_min_isr and self.under_min_isr:
            return NOTHING
        reached = self.safe_end
        for progress in self._must_ack:
            if progress.end_offset < reached:
                reached = progress.end_offset
        if reached <= self.high_watermark:
            return NOTHING
        for broker, progress in self._beside if self.options.semantics.waits_for_joining else ():
            if progress.end_offset < reached and self._is_near(broker, progress, now):
                reached = progress.end_offset
        if reached <= self.high_watermark:
            return NOTHING
        assert reached <= self.end_offset, "the high watermark exceeds the leader's log end offset"
        self.high_watermark = reached
        return (HighWatermarkMoved(reached),)

    def _is_near(self, broker: BrokerId, progress: Progress, now: Seconds) -> bool:
        """Whether a replica outside the ISR is about to join it."""
        caught_up = progress.caught_up(self.end_offset, now, self.options.lag_seconds_max)
        return caught_up and broker in self.membership.live

    def _maybe_grow(self, follower: BrokerId, progress: Progress, now: Seconds) -> Effects:
        if (
            self._busy
            or not isinstance(self.isr, Settled)
            or follower not in self.replicas
            or follower not in self.membership.live
            or progress.end_offset < self._entry_offset
            or now < progress.refused_until
        ):
            return NOTHING
        assert progress.end_offset >= self.high_watermark, "who joins has what is committed"
        self._settle(Growing(self.isr.members, follower, progress.incarnation))
        return (self._proposal(),)

    def _maybe_shrink(self, now: Seconds) -> Effects:
        if now < self._retry_at:
            return NOTHING
        late = frozenset(
            broker
            for broker, progress in self._followers.items()
            if broker in self.isr.members and (broker not in self.replicas or self._is_late(progress, now))
        )
        if not late:
            return NOTHING
        assert self.me not in late, "a leader is never late"
        self._settle(Shrinking(self.isr.members, late))
        return (self._proposal(),)

    def _maybe_declare(self, now: Seconds) -> Effects:
        """A leader has recovered when all that it began with is committed. Any ISR write then says so."""
        if not self.is_recovering or not self.committed_whole or now < self._retry_at:
            return NOTHING
        self._settle(Declaring(self.isr.members))
        return (self._proposal(),)

    def _is_late(self, progress: Progress, now: Seconds) -> bool:
        options = self.options
        if not options.semantics.lag_by_messages:
            return not progress.caught_up(self.end_offset, now, options.lag_seconds_max)
        behind = self.end_offset - progress.end_offset
        progress.beat(self.end_offset)
        is_slow = progress.fetched_in_epoch and behind > options.lag_messages_max
        return is_slow or progress.silent(now) > options.lag_seconds_max

    def _maybe_revalidate(self, now: Seconds) -> Effects:
        """Read the state znode again: a leader whom nobody follows any more may have a successor."""
        self._revalidate_at = now + REVALIDATE_SECONDS
        is_whole = self.isr.members.issuperset(self.replicas)
        if is_whole and not self._interrupted and not self.is_forsaken(now):
            return NOTHING
        self._busy = True
        return (ReadState(),)

    def _proposal(self) -> WriteIsr:
        assert not isinstance(self.isr, Settled) and self.me in self.isr.proposed, (
            "a leader must be in its ISR"
        )
        self._busy = True
        joining, incarnation = None, Incarnation(-1)
        if isinstance(self.isr, Growing):
            joining, incarnation = self.isr.joining, self.isr.incarnation
        return WriteIsr(self.version, tuple(sorted(self.isr.proposed)), joining, incarnation)

    def _adopt(self, members: frozenset[BrokerId], version: int, now: Seconds) -> Effects:
        assert version > self.version and self.me in members, "our own write, after the last one"
        before = self.isr.members
        self.version = version
        self.is_recovering = False
        self._revalidate_at = now + REVALIDATE_SECONDS
        self._settle(Settled(members))
        left = tuple(sorted(before - members))
        for broker in left:
            if broker in self._followers:
                self._followers[broker].drop()
        changed = IsrChanged(tuple(sorted(members)), tuple(sorted(members - before)), left)
        return (changed, *self._raise_high_watermark(now))

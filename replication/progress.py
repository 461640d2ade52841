"""What a leader knows of one follower, in one leader epoch.

A new epoch starts with new objects: what a follower said to an earlier leader proves nothing now.
In a fetch session a follower names only the partitions that changed. Its fetch counts for all others of the
session too, each from the offset that it named last. Their leaders look at the session's `Pulse` when they
must know, which is before their logs grow.
"""

from ..base.types import KAFKAS, Incarnation, Offset
from .effects import Seconds

UNKNOWN_END = Offset(-1)  # blocks the high watermark, as it is below every offset
UNKNOWN_START = Offset(-1)  # so does this, where the low watermark is concerned
REPEATS = 3  # after so many fetches without progress the leader checks the batch that it sends
NEVER: Seconds = float("-inf")


def is_earlier(told: Incarnation, known: Incarnation) -> bool:
    """Whether a fetch of this start of a broker comes from an earlier one than the last that was heard.

    When a broker of Apache Kafka gives way to one of ours on the same id, or the reverse, the order is not
    known: the former process is dead then. Kafka's brokers before 3.5 do not tell their start (-1).
    """
    return -1 < told < known and (told < KAFKAS) == (known < KAFKAS)


class Pulse:
    """When a follower last fetched; shared by all partitions of one session."""

    __slots__ = ("at", "is_dropped")

    def __init__(self, at: Seconds) -> None:
        self.at = at
        self.is_dropped = False  # an ISR has dropped the follower since the session last looked


class Progress:
    """How far one follower is, and when it last had all that the leader had."""

    __slots__ = (
        "end_offset",
        "incarnation",
        "last_caught_up",
        "last_fetch",
        "leader_end_then",
        "log_start_offset",
        "pulse",
        "refused_until",
        "repeats",
    )

    def __init__(self, caught_up: Seconds) -> None:
        self.end_offset: Offset = UNKNOWN_END  # from its fetches: it holds everything before
        self.log_start_offset: Offset = UNKNOWN_START  # from its fetches: it holds nothing before
        self.incarnation = Incarnation(-1)  # the highest seen
        self.last_caught_up = caught_up
        self.last_fetch: Seconds = NEVER
        self.leader_end_then = Offset(0)  # the leader's end when it last fetched
        self.refused_until: Seconds = NEVER  # a broker check failed: it is not proposed again before this
        self.pulse: Pulse | None = None  # of the session by which it fetches, if it uses one
        self.repeats = 0  # fetches in a row that got it no further, although there was more

    @property
    def fetched_in_epoch(self) -> bool:
        """Whether it has fetched from this leader in this epoch at all."""
        return self.end_offset != UNKNOWN_END

    def drop(self) -> None:
        """It has left the ISR. Any fetch of its session may let it in again, even one that does not name the
        partition.
        """
        if self.pulse is not None:
            self.pulse.is_dropped = True

    def beat(self, leader_end: Offset) -> None:
        """Count the session's last fetch as one from the same offset; so far the log ends at `leader_end`."""
        pulse = self.pulse
        if pulse is not None and pulse.at > self.last_fetch:
            self.last_fetch = pulse.at
            if self.end_offset >= leader_end:
                self.last_caught_up = pulse.at

    def fetched(self, offset: Offset, incarnation: Incarnation, leader_end: Offset, now: Seconds) -> bool:
        """A fetch from `offset` says: I hold everything before it. False if an older incarnation sent it."""
        assert leader_end >= self.leader_end_then, "a leader's log only grows"
        if is_earlier(incarnation, self.incarnation):
            return False
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.pulse = None  # it belongs to the earlier incarnation
        if offset >= leader_end:
            self.last_caught_up = now
        elif offset >= self.leader_end_then and self.last_fetch > self.last_caught_up:
            self.last_caught_up = self.last_fetch
        self.repeats = self.repeats + 1 if self.end_offset == offset < self.leader_end_then else 0
        self.end_offset = offset
        self.last_fetch = now
        self.leader_end_then = leader_end
        return True

    def caught_up(self, leader_end: Offset, now: Seconds, lag_max: Seconds) -> bool:
        """Whether it has everything, or had everything at most `lag_max` ago."""
        return self.end_offset == leader_end or now - self.last_caught_up <= lag_max

    def silent(self, now: Seconds) -> Seconds:
        """How long ago it was last heard, in this epoch."""
        return now - max(self.last_fetch, self.last_caught_up)

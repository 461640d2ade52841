"""One consumer group: its facts, what follows from them, and its members' deadlines.

Facts change through `put` alone, which notes each change and its reverse. The coordinator appends what was
noted, as one batch, or takes it all back if the log refuses it. So memory never has what the log has not, and
the facts read back from a log are the group.
Left to others: why facts change (heartbeats.py, classic_members.py, migration.py), appending (performing.py).
"""

from collections.abc import Mapping
from typing import TypeVar

from ....protocol.errors import ErrorCode
from ..members import NEVER
from ..state import NO_MEMBER, Effects, GroupType
from .state import (
    NO_PARTITIONS,
    ConsumerLimits,
    ConsumerState,
    Fact,
    Facts,
    MemberState,
    Partitions,
    Progress,
    Subject,
    Subscription,
    TopicFacts,
)
from .writes import GroupWrites

T = TypeVar("T")

CONSUMER_PROTOCOL = "consumer"
RETRY_SECONDS = 1.0  # after the log refused that an expired member is removed

SESSION, REVOCATION, REJOIN, SYNC = "session", "revocation", "rejoin", "sync"  # what a member must do in time


class ConsumerGroup:
    """A group by the new protocol. Members may speak the classic one while a group is upgraded."""

    type = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL
    awaits_members = False  # ids given out are not kept in mind
    has_record = True

    def __init__(self, name: str, limits: ConsumerLimits, since: float) -> None:
        self.name = name
        self.limits = limits
        self.since = since  # when it became empty, or was made
        self.is_dead = False
        self.epoch = 0
        self.target_epoch = 0
        self.topics: Mapping[str, TopicFacts] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.targets: dict[str, Partitions] = {}
        self.progress: dict[str, Progress] = {}
        self.static_ids: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[object, str] = {}  # partition -> the member that holds it
        self.seen: object = None  # the cluster's topics when those of the group were last looked up
        self.writes = GroupWrites()
        self.wake_at = NEVER
        self._deadlines: dict[tuple[str, str], float] = {}  # (member id, what) -> until when
        self._noted: list[Fact] = []
        self._reverse: list[Fact] = []

    # What it is ------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """Follows from the facts."""
        if self.is_dead:
            return ConsumerState.DEAD
        if not self.subscriptions:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        done = all(self.has_arrived(member_id) for member_id in self.subscriptions)
        return ConsumerState.STABLE if done else ConsumerState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """No members, and not about to be deleted."""
        return not self.is_dead and not self.subscriptions

    def has_arrived(self, member_id: str) -> bool:
        """Whether the member has its whole target."""
        now = self.progress_of(member_id)
        return now.state is MemberState.STABLE and now.epoch == self.target_epoch

    def progress_of(self, member_id: str) -> Progress:
        return self.progress.get(member_id, Progress())

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def speaks_classic(self, member_id: str) -> bool:
        return self.subscriptions[member_id].classic is not None

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this caller the member it says it is?"""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.subscriptions else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_error(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now: float,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Why this caller may not commit offsets, or NONE. Who names no epoch may while there is no member,
        or in a transaction: old producers do not say for which member they commit. A commit is no heartbeat.
        """
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.subscriptions:
            return ErrorCode.NONE
        if transactional and epoch < 0 and member_id == NO_MEMBER and instance_id is None:
            return ErrorCode.NONE
        error = self.epoch_error(member_id, epoch)
        if transactional and error is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION  # producers know no other
        return error

    def epoch_error(self, member_id: str, epoch: int) -> ErrorCode:
        """Why a member of this epoch may not commit or fetch offsets, or NONE."""
        if member_id not in self.subscriptions:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == self.progress_of(member_id).epoch:
            return ErrorCode.NONE
        classic = self.speaks_classic(member_id)
        return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics that members read: their offsets do not expire."""
        names = (subscription.topics for subscription in self.subscriptions.values())
        return frozenset().union(*names, self.topics)

    # Its end ---------------------------------------------------------------------------------------------

    def end(self, error: ErrorCode, now: float) -> Effects:
        """The group has moved to another coordinator, or is being deleted. Who waits, waits for the log."""
        self.is_dead, self.wake_at = True, NEVER
        return []

    def revive(self, since: float) -> None:
        """Its deletion could not be written."""
        assert self.is_dead and not self.subscriptions, "only a group without members is deleted"
        self.is_dead, self.since = False, since

    # Facts -----------------------------------------------------------------------------------------------

    def put(self, subject: Subject, value: object, member_id: str = "") -> None:
        """Change a fact, if it does change."""
        before = self._set(Fact(subject, member_id, value))
        if before.value != value:
            self._noted.append(Fact(subject, member_id, value))
            self._reverse.append(before)

    def take_noted(self) -> tuple[list[Fact], list[Fact]]:
        """What has changed since the last call, and how to undo it."""
        noted, reverse = self._noted, self._reverse
        self._noted, self._reverse = [], []
        return noted, reverse[::-1]

    def undo(self, reverse: list[Fact]) -> None:
        """The log refused it."""
        for fact in reverse:
            self._set(fact)
        self.seen = None

    def restore(self, facts: Facts) -> None:
        """Become what a log says. Tombstones of members may have got lost with a copy of it: what has no
        subscription is no member.
        """
        members = {member_id for subject, member_id in facts if subject is Subject.SUBSCRIPTION}
        for (subject, member_id), value in sorted(facts.items(), key=lambda each: each[0]):
            if not member_id or member_id in members:
                self._set(Fact(subject, member_id, value))

    def facts(self) -> list[Fact]:
        """All facts, in the order in which they are written."""
        members = list(self.subscriptions)
        return [
            *(Fact(Subject.SUBSCRIPTION, each, self.subscriptions[each]) for each in members),
            Fact(Subject.TOPICS, "", self.topics),
            Fact(Subject.EPOCH, "", self.epoch),
            *(Fact(Subject.TARGET, each, self.target_of(each)) for each in members),
            Fact(Subject.TARGET_EPOCH, "", self.target_epoch),
            *(Fact(Subject.PROGRESS, each, self.progress_of(each)) for each in members),
        ]

    def tombstones(self) -> list[Fact]:
        """Deletes all facts, those of members first."""
        return [Fact(fact.subject, fact.member_id, None) for fact in reversed(self.facts())]

    def _set(self, fact: Fact) -> Fact:
        """Change a fact; returns what undoes it."""
        subject, member_id, value = fact
        before: object
        match subject:
            case Subject.EPOCH:
                before, self.epoch = self.epoch, value or 0
            case Subject.TARGET_EPOCH:
                before, self.target_epoch = self.target_epoch, value or 0
            case Subject.TOPICS:
                before, self.topics = self.topics, value or {}
            case Subject.TARGET:
                before = self.targets.get(member_id)
                _replace(self.targets, member_id, value)
            case Subject.SUBSCRIPTION:
                before = self._subscribe(member_id, value)
            case Subject.PROGRESS:
                before = self._advance(member_id, value)
        return Fact(subject, member_id, before)

    def _subscribe(self, member_id: str, value: Subscription | None) -> Subscription | None:
        before = self.subscriptions.get(member_id)
        if before is not None and self.static_ids.get(before.instance_id or "") == member_id:
            del self.static_ids[before.instance_id or ""]
        _replace(self.subscriptions, member_id, value)
        if value is not None and value.instance_id is not None:
            self.static_ids[value.instance_id] = member_id
        return before

    def _advance(self, member_id: str, value: Progress | None) -> Progress | None:
        before = self.progress.get(member_id)
        if before is not None:
            for one in before.held:
                if self.owners.get(one) == member_id:
                    del self.owners[one]
        _replace(self.progress, member_id, value)
        if value is not None:
            for one in value.held:
                self.owners[one] = member_id
        return before

    def resume(self, now: float) -> None:
        """Go on with what a log said: every member has its full time from now on."""
        for member_id, said in self.subscriptions.items():
            self.heard(member_id, now)
            if said.classic is None and self.progress_of(member_id).state is MemberState.UNREVOKED:
                self.expect(member_id, REVOCATION, now + said.rebalance_timeout_ms / 1000)

    # Deadlines -------------------------------------------------------------------------------------------

    def heard(self, member_id: str, now: float) -> None:
        """A member is alive."""
        classic = self.subscriptions[member_id].classic
        session_ms = self.limits.session_ms if classic is None else classic.session_timeout_ms
        self.expect(member_id, SESSION, now + session_ms / 1000)

    def expect(self, member_id: str, what: str, until: float) -> None:
        """The member is removed unless it does this in time."""
        self._deadlines[member_id, what] = until
        self.wake_at = min(self.wake_at, until)

    def expects(self, member_id: str, what: str) -> bool:
        return (member_id, what) in self._deadlines

    def has_done(self, member_id: str, what: str) -> None:
        self._deadlines.pop((member_id, what), None)

    def forget(self, member_id: str) -> None:
        """It is no member any more."""
        for what in (SESSION, REVOCATION, REJOIN, SYNC):
            self._deadlines.pop((member_id, what), None)

    def expired(self, now: float) -> dict[str, str]:
        """Members whose time is up, and what they did not do. Sets `wake_at` to the next deadline."""
        found: dict[str, str] = {}
        for (member_id, what), until in list(self._deadlines.items()):
            if member_id not in self.subscriptions:
                del self._deadlines[member_id, what]
            elif until <= now:
                found[member_id] = what
                self._deadlines[member_id, what] = now + RETRY_SECONDS
        self.wake_at = min(self._deadlines.values(), default=NEVER)
        return found


def _replace(values: dict[str, T], member_id: str, value: T | None) -> None:
    if value is None:
        values.pop(member_id, None)
    else:
        values[member_id] = value

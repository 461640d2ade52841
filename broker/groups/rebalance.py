"""A group's rebalance: everybody joins, the leader assigns, the assignment is written and handed out.

First everybody joins (PreparingRebalance). Then the leader, which gets the list of members, sends an
assignment (CompletingRebalance). It is committed to the log before any member gets it (Stable).
Left to others: what members may ask and when (group.py), performing effects (coordinator.py).
"""

from collections.abc import Callable
from dataclasses import replace

from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from .members import NEVER, GroupMembers, Member
from .state import (
    NO_MEMBER,
    TRANSITIONS,
    AnswerJoin,
    AnswerSync,
    Collecting,
    Effects,
    GroupState,
    Joined,
    Lingering,
    Persist,
    Rebalance,
    Saving,
    SavingAssignment,
    SavingEmptiness,
    SavingReplacement,
    Synced,
)

# If writing a group's metadata fails with the left, members that wait for it get the right.
SAVE_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits that hold for every group."""

    members_max: int
    initial_delay_seconds: float


class RebalancingGroup:
    """A group's state, how it comes to a new generation, and how it learns that a write is committed."""

    def __init__(
        self, name: str, limits: GroupLimits, new_member_id: Callable[[str], str], since: float = 0.0
    ) -> None:
        self.name = name
        self.limits = limits
        self.new_member_id = new_member_id
        self.state = GroupState.EMPTY
        self.since = since  # when it entered its state
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = GroupMembers()
        self.rebalance: Rebalance | None = None  # not None exactly while PreparingRebalance
        self.sync_until = NEVER  # members that have not synced by then are dropped
        self.saving: dict[int, Saving] = {}
        self.wake_at = NEVER  # at or before the first deadline; `tick` makes it exact
        self._saves = 0

    def _prepare_rebalance(self, now: float) -> Effects:
        """Begin a rebalance, in which everybody must join again, unless one has begun already."""
        if GroupState.PREPARING_REBALANCE not in TRANSITIONS[self.state]:
            return []
        effects: Effects = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            effects = self._reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.sync_until = NEVER
        patience = self.members.rebalance_timeout
        if self.state is GroupState.EMPTY and self.limits.initial_delay_seconds > 0:
            delay = self.limits.initial_delay_seconds
            self.rebalance = Lingering(now + delay, max(patience - delay, 0.0), grew=False)
        else:
            self.rebalance = Collecting(now + patience)
        self._wake_by(self.rebalance.until)
        self._become(GroupState.PREPARING_REBALANCE, now)
        return effects

    def _complete_if_all_joined(self, now: float) -> Effects:
        if isinstance(self.rebalance, Collecting) and self.members.all_joined:
            return self._complete_join(now)
        return []

    def _rebalance_due(self, rebalance: Rebalance, now: float) -> Effects:
        if isinstance(rebalance, Lingering) and rebalance.grew and rebalance.left > 0:
            delay = min(self.limits.initial_delay_seconds, rebalance.left)
            self.rebalance = Lingering(now + delay, rebalance.left - delay, grew=False)
            return []
        return self._complete_join(now)

    def _complete_join(self, now: float) -> Effects:
        """A generation begins. Dynamic members that did not join are dropped; static ones stay."""
        for member in [each for each in self.members if each.joining is None and each.instance_id is None]:
            self.members.remove(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            self.rebalance = Collecting(now + self.members.rebalance_timeout)
            self._wake_by(self.rebalance.until)
            return []
        self.rebalance = None
        self.generation += 1
        if not len(self.members):
            self.protocol = None
            self._become(GroupState.EMPTY, now)
            return [self._save(SavingEmptiness(self.generation), {})]
        self.protocol = self.members.choose_protocol()
        self._become(GroupState.COMPLETING_REBALANCE, now)
        self.sync_until = now + self.members.rebalance_timeout
        self._wake_by(self.sync_until)
        effects: Effects = []
        for member in self.members:
            member.is_new, member.has_synced = False, False
            if member.joining is not None:
                effects.append(AnswerJoin(member.joining, self._joined(member)))
                member.joining = None
            self._heard(member, now)
        return effects

    def _sync_due(self, now: float) -> Effects:
        """Members that joined but never synced are dropped, and the others join again."""
        self.sync_until = NEVER
        effects: Effects = []
        for member in [each for each in self.members if not each.has_synced]:
            effects += self._drop(member.member_id, now)
        return effects

    def _drop(self, member_id: str, now: float) -> Effects:
        member = self.members.remove(member_id)
        effects = self._answer_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return [*effects, *self._prepare_rebalance(now), *self._complete_if_all_joined(now)]

    # Writing ---------------------------------------------------------------------------------------------

    def persisted(self, token: int, error: ErrorCode, now: float) -> Effects:
        """A write that `Persist` asked for is committed, or has failed."""
        saving = self.saving.pop(token, None)
        if saving is None or saving.generation != self.generation:
            return []
        told = SAVE_ERRORS.get(error, error)
        match saving:
            case SavingAssignment() if self.state is GroupState.COMPLETING_REBALANCE:
                return self._assignment_saved(saving, told, now)
            case SavingReplacement():
                return self._replacement_saved(saving, told, now)
        return []

    def _save(self, saving: Saving, assignments: dict[str, bytes]) -> Persist:
        self._saves += 1
        self.saving[self._saves] = saving
        return Persist(self._saves, assignments)

    @property
    def _is_saving_assignment(self) -> bool:
        return any(
            isinstance(saving, SavingAssignment) and saving.generation == self.generation
            for saving in self.saving.values()
        )

    def _assignment_saved(self, saving: SavingAssignment, error: ErrorCode, now: float) -> Effects:
        if error is not ErrorCode.NONE:
            return [*self._reset_assignments(error, now), *self._prepare_rebalance(now)]
        self._become(GroupState.STABLE, now)
        effects: Effects = []
        for member in self.members:
            member.assignment = saving.assignments[member.member_id]
            if member.syncing is not None:
                effects.append(AnswerSync(member.syncing, self._assignment_of(member)))
                member.syncing = None
                self._heard(member, now)
        return effects

    def _replacement_saved(self, saving: SavingReplacement, error: ErrorCode, now: float) -> Effects:
        """The write of the new id is done. Before JoinGroup v9 a leader that came back must not learn that it
        leads: it would compute an assignment that nobody wants. So it gets the old leader id.
        """
        member = self.members.by_id.get(saving.new_id)
        if member is None or member.joining is None:
            return []
        reply, member.joining = member.joining, None
        if error is not ErrorCode.NONE:
            self.members.rename(saving.instance_id, saving.old_id)
            member.adopt(saving.before, None)
            self._heard(member, now)
            return [AnswerJoin(reply, Joined(error, NO_MEMBER, self.generation))]
        self._heard(member, now)
        leads = self.members.leader == member.member_id
        if leads and saving.may_skip_assignment:
            return [AnswerJoin(reply, replace(self._joined(member), skip_assignment=True))]
        told = replace(self._joined(member), leader=saving.leader_before, members=())
        return [AnswerJoin(reply, told)]

    def _reset_assignments(self, error: ErrorCode, now: float) -> Effects:
        effects: Effects = []
        for member in self.members:
            member.assignment = b""
            if member.syncing is not None:
                effects.append(AnswerSync(member.syncing, Synced(error)))
                member.syncing = None
                self._heard(member, now)
        return effects

    # Helpers ---------------------------------------------------------------------------------------------

    def _joined(self, member: Member) -> Joined:
        """The join answer for this member. Only the leader gets the list of members."""
        leader = self.members.leader or NO_MEMBER
        return Joined(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader,
            members=self.members.listing(self.protocol) if leader == member.member_id else (),
        )

    def _assignment_of(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _answer_parked(self, member: Member, error: ErrorCode) -> Effects:
        effects: Effects = []
        if member.joining is not None:
            told_id = NO_MEMBER if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            effects.append(AnswerJoin(member.joining, Joined(error, told_id)))
        if member.syncing is not None:
            effects.append(AnswerSync(member.syncing, Synced(error)))
        member.joining = member.syncing = None
        return effects

    def _heard(self, member: Member, now: float) -> None:
        member.heard(now)
        self._wake_by(member.deadline)

    def _become(self, state: GroupState, now: float) -> None:
        assert state in TRANSITIONS[self.state], f"a group does not go from {self.state} to {state}"
        self.state = state
        self.since = now

    def _wake_by(self, when: float) -> None:
        self.wake_at = min(self.wake_at, when)

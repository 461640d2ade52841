"""The rules of one consumer group, by Kafka's classic protocol: join, sync, heartbeat, leave, rebalance.

In a rebalance first everybody joins (PreparingRebalance). Then the leader, which gets the list of members,
sends an assignment (CompletingRebalance). It is committed to the log before any member gets it (Stable).

Pure: no clock, no socket. Times come in as `now`. Every event returns its effects (answers, writes) in the
order in which they must happen. `wake_at` says when `tick` has something to do.
Left to others: who is a member (members.py), performing effects and finding the group (coordinator.py),
committed offsets (offsets.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from .members import NEVER, GroupMembers, Member, member_of
from .pending_writes import (
    SAVE_ERRORS,
    PendingWrites,
    SavingAssignment,
    SavingEmptiness,
    SavingReplacement,
)
from .state import (
    NO_MEMBER,
    TRANSITIONS,
    AnswerJoin,
    AnswerSync,
    Collecting,
    Effects,
    GroupState,
    GroupType,
    JoinAsked,
    Joined,
    JoinReply,
    Lingering,
    Rebalance,
    SyncAsked,
    Synced,
    SyncReply,
)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits that hold for every group."""

    members_max: int
    initial_delay_seconds: float


class Group:
    """One consumer group: its state, what each request of a member does to it, how generations begin."""

    type = GroupType.CLASSIC

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
        self._writes = PendingWrites()
        self.wake_at = NEVER  # at or before the first deadline; `tick` makes it exact

    # What it is -------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """No members, and not about to be deleted."""
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        """It has moved away, or is being deleted."""
        return self.state is GroupState.DEAD

    @property
    def awaits_members(self) -> bool:
        """Newcomers were given an id, and will join with it."""
        return bool(self.members.promised)

    @property
    def has_record(self) -> bool:
        """The log may have a record of it."""
        return self.generation > 0

    # What members ask -------------------------------------------------------------------------------------

    def join(self, asked: JoinAsked, reply: JoinReply, now: float) -> Effects:
        """A member joins the next generation, or a newcomer the group."""
        if not self._has_room_for(self._place_of(asked)):
            if asked.member_id in self.members:
                self.members.remove(asked.member_id)
            self.members.promised.pop(asked.member_id, None)
            refusal = [AnswerJoin(reply, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, asked.member_id))]
            return [*refusal, *self._complete_if_all_joined(now)]
        error = self._join_error(asked)
        if error is not ErrorCode.NONE:
            return [AnswerJoin(reply, Joined(error, asked.member_id))]
        if asked.member_id == NO_MEMBER:
            return [*self._join_newcomer(asked, reply, now), *self._complete_if_all_joined(now)]
        if asked.member_id in self.members.promised:
            return [*self._admit(asked, asked.member_id, reply, now), *self._complete_if_all_joined(now)]
        return [*self._join_again(asked, reply, now), *self._complete_if_all_joined(now)]

    def sync(self, asked: SyncAsked, reply: SyncReply, now: float) -> Effects:
        """A member asks for its assignment; the group's leader sends everybody's."""
        error = self._sync_error(asked)
        if error is not ErrorCode.NONE:
            return [AnswerSync(reply, Synced(error))]
        member = self.members.by_id[asked.member_id]
        member.has_synced = True
        if all(each.has_synced for each in self.members):
            self.sync_until = NEVER
        self._heard(member, now)
        if self.state is GroupState.STABLE:
            return [AnswerSync(reply, self._assignment_of(member))]
        effects = _answer_sync(member, Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.joining is None, "who waits for a generation has no assignment to ask for"
        member.syncing = reply
        if self.members.leader == member.member_id and not self._writes.has_assignment(self.generation):
            given = dict(asked.assignments)
            assignments = {each.member_id: given.get(each.member_id, b"") for each in self.members}
            effects.append(self._writes.begin(SavingAssignment(self.generation, assignments), assignments))
        return effects

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """A heartbeat. The answer tells the member whether to rejoin."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._heard(self.members.by_id[member_id], now)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now: float) -> tuple[ErrorCode, Effects]:
        """A member leaves, or an administrator removes a static member by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = self.members.static_ids.get(instance_id, NO_MEMBER)
        if self.members.promised.pop(member_id, None) is not None:
            return ErrorCode.NONE, self._complete_if_all_joined(now)
        error = self.members.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error, []
        return ErrorCode.NONE, self._drop(member_id, now)

    def commit_error(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Why this caller may not commit offsets now, or NONE. A member's commit counts as a heartbeat; a
        producer's, in a transaction, does not. Old producers do not say for which member they commit.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if transactional and generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return ErrorCode.NONE
        error = self.members.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if transactional:
            return ErrorCode.NONE
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard(self.members.by_id[member_id], now)
        return ErrorCode.NONE

    # What the coordinator tells it ------------------------------------------------------------------------

    def tick(self, now: float) -> Effects:
        """Do what is due, then set `wake_at` to the next deadline."""
        effects: Effects = []
        for member_id in [each for each, until in self.members.promised.items() if until <= now]:
            del self.members.promised[member_id]
            effects += self._complete_if_all_joined(now)
        for member in [each for each in self.members if each.deadline <= now]:
            if member.is_excused:
                member.deadline = NEVER  # set again when its parked request is answered
            elif self.members.by_id.get(member.member_id) is member:
                effects += self._drop(member.member_id, now)
        if self.rebalance is not None and self.rebalance.until <= now:
            effects += self._rebalance_due(self.rebalance, now)
        if self.sync_until <= now:
            effects += self._sync_due(now)
        self.wake_at = min(
            self.sync_until,
            self.rebalance.until if self.rebalance is not None else NEVER,
            min((member.deadline for member in self.members), default=NEVER),
            min(self.members.promised.values(), default=NEVER),
        )
        return effects

    def persisted(self, token: int, error: ErrorCode, now: float) -> Effects:
        """A write that `Persist` asked for is committed, or has failed."""
        saving = self._writes.end(token)
        if saving is None or saving.generation != self.generation:
            return []
        told = SAVE_ERRORS.get(error, error)
        match saving:
            case SavingAssignment() if self.state is GroupState.COMPLETING_REBALANCE:
                return self._assignment_saved(saving, told, now)
            case SavingReplacement():
                return self._replacement_saved(saving, told, now)
        return []

    def end(self, error: ErrorCode, now: float) -> Effects:
        """The group has moved to another coordinator, or is deleted: everyone who waits gets `error`."""
        effects: Effects = []
        for member in self.members:
            effects += _answer_parked(member, error)
        self._writes.forget()
        self.rebalance, self.sync_until, self.wake_at = None, NEVER, NEVER
        if self.state is not GroupState.DEAD:
            self._become(GroupState.DEAD, now)
        return effects

    def begin_rebalance(self, now: float) -> Effects:
        """Everybody has to join again."""
        return self._prepare_rebalance(now)

    def revive(self, since: float) -> None:
        """Its deletion could not be written, so it is Empty again, as it has been since `since`."""
        assert self.state is GroupState.DEAD, "a group that is not dead cannot be revived"
        assert not len(self.members), "only a group without members is deleted"
        self.state, self.since = GroupState.EMPTY, since

    def restore(self, members: Iterable[Member], leader: str | None, now: float) -> Effects:
        """Resume from the log. Members are still members, each with a full session timeout from now on."""
        assert self.state is GroupState.EMPTY and not len(self.members), "it is restored before anybody joins"
        for member in members:
            self.members.add(member)
            self._heard(member, now)
        if leader is not None and leader in self.members:
            self.members.leader = leader
        self.state = GroupState.STABLE if len(self.members) else GroupState.EMPTY
        return self._prepare_rebalance(now) if len(self.members) > self.limits.members_max else []

    # Joining and syncing ----------------------------------------------------------------------------------

    def _place_of(self, asked: JoinAsked) -> str:
        """The member that it is, or whose place it takes: a static one comes back without its id."""
        returns = asked.member_id == NO_MEMBER and asked.instance_id is not None
        return self.members.static_ids.get(asked.instance_id or "", NO_MEMBER) if returns else asked.member_id

    def _has_room_for(self, member_id: str) -> bool:
        """In a rebalance only members that have joined count: a lowered group.max.size drops the last."""
        members, known = self.members, member_id in self.members
        if self.state is not GroupState.PREPARING_REBALANCE:
            return known or len(members) + members.promised_beside(member_id) < self.limits.members_max
        if known:
            has_joined = members.by_id[member_id].joining is not None
            return has_joined or members.joined_count < self.limits.members_max
        return members.joined_count + members.promised_beside(member_id) < self.limits.members_max

    def _join_error(self, asked: JoinAsked) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._speaks(asked):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if asked.member_id == NO_MEMBER:
            return ErrorCode.NONE
        if asked.member_id in self.members.promised and asked.instance_id is None:
            return ErrorCode.NONE  # ids are promised to dynamic members only
        return self.members.check(asked.member_id, asked.instance_id)

    def _speaks(self, asked: JoinAsked) -> bool:
        if not len(self.members):
            return bool(asked.protocol_type and asked.protocols)
        common = self.members.common_protocols()
        shares_one = any(name in common for name, _ in asked.protocols)
        return shares_one and asked.protocol_type == self.protocol_type

    def _join_newcomer(self, asked: JoinAsked, reply: JoinReply, now: float) -> Effects:
        member_id = self.new_member_id(asked.instance_id or asked.client_id)
        if asked.instance_id is not None:
            if asked.instance_id in self.members.static_ids:
                return self._replace(asked, asked.instance_id, member_id, reply, now)
        elif asked.must_know_id:
            self.members.promised[member_id] = now + asked.session_timeout_ms / 1000
            self._wake_by(self.members.promised[member_id])
            return [AnswerJoin(reply, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))]
        return self._admit(asked, member_id, reply, now)

    def _admit(self, asked: JoinAsked, member_id: str, reply: JoinReply, now: float) -> Effects:
        if not len(self.members):
            self.protocol_type = asked.protocol_type
        member = member_of(asked, member_id, reply)
        self._heard(member, now)
        self.members.add(member)
        if isinstance(self.rebalance, Lingering):
            self.rebalance = Lingering(self.rebalance.until, self.rebalance.left, grew=True)
        return self._prepare_rebalance(now)

    def _join_again(self, asked: JoinAsked, reply: JoinReply, now: float) -> Effects:
        """A known member joins again. A group that has its generation rebalances only if the member's
        protocols changed or, once stable, if its leader asks.
        """
        member = self.members.by_id[asked.member_id]
        is_leader = self.members.leader == member.member_id
        same = member.protocols == asked.protocols
        completing = self.state is GroupState.COMPLETING_REBALANCE
        if same and (completing or (self.state is GroupState.STABLE and not is_leader)):
            self._heard(member, now)
            return [AnswerJoin(reply, self._joined(member))]
        effects = _answer_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, asked.member_id))
        member.adopt(asked, reply)
        return effects + self._prepare_rebalance(now)

    def _replace(
        self, asked: JoinAsked, instance_id: str, new_id: str, reply: JoinReply, now: float
    ) -> Effects:
        """A static member came back without its member id: it keeps its place, and the old id is fenced."""
        leader_before = self.members.leader or NO_MEMBER
        old_id = self.members.static_ids[instance_id]
        effects = _answer_parked(self.members.by_id[old_id], ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.rename(instance_id, new_id)
        before = member.terms()
        member.adopt(asked, reply)
        self._heard(member, now)
        if self.state is not GroupState.STABLE or self.members.choose_protocol() != self.protocol:
            return effects + self._prepare_rebalance(now)
        saving = SavingReplacement(
            self.generation, instance_id, old_id, new_id, leader_before, asked.may_skip_assignment, before
        )
        assignments = {each.member_id: each.assignment for each in self.members}
        return [*effects, self._writes.begin(saving, assignments)]

    def _sync_error(self, asked: SyncAsked) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(asked.member_id, asked.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if asked.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        theirs, ours = (asked.protocol_type, asked.protocol), (self.protocol_type, self.protocol)
        if any(their not in (None, our) for their, our in zip(theirs, ours, strict=True)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    # A rebalance ------------------------------------------------------------------------------------------

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
            return [self._writes.begin(SavingEmptiness(self.generation), {})]
        self.protocol = self.members.choose_protocol()
        assert all(member.syncing is None for member in self.members), "nobody syncs while others join"
        self._become(GroupState.COMPLETING_REBALANCE, now)
        self.sync_until = now + self.members.rebalance_timeout
        self._wake_by(self.sync_until)
        effects: Effects = []
        for member in self.members:
            member.is_new, member.has_synced = False, False
            effects += _answer_join(member, self._joined(member))
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
        effects = _answer_parked(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return [*effects, *self._prepare_rebalance(now), *self._complete_if_all_joined(now)]

    # Writing ----------------------------------------------------------------------------------------------

    def _assignment_saved(self, saving: SavingAssignment, error: ErrorCode, now: float) -> Effects:
        if error is not ErrorCode.NONE:
            return [*self._reset_assignments(error, now), *self._prepare_rebalance(now)]
        assert saving.assignments.keys() == self.members.by_id.keys(), (
            "who joins or leaves ends the generation"
        )
        self._become(GroupState.STABLE, now)
        effects: Effects = []
        for member in self.members:
            member.assignment = saving.assignments[member.member_id]
            if member.syncing is not None:
                effects += _answer_sync(member, self._assignment_of(member))
                self._heard(member, now)
        return effects

    def _replacement_saved(self, saving: SavingReplacement, error: ErrorCode, now: float) -> Effects:
        """The write of the new id is done. Before JoinGroup v9 a leader that came back must not learn that it
        leads: it would compute an assignment that nobody wants. So it gets the old leader id.
        """
        member = self.members.by_id.get(saving.new_id)
        if member is None or member.joining is None:
            return []
        if error is not ErrorCode.NONE:
            effects = _answer_join(member, Joined(error, NO_MEMBER, self.generation))
            self.members.rename(saving.instance_id, saving.old_id)
            member.adopt(saving.before, None)
            self._heard(member, now)
            return effects
        self._heard(member, now)
        leads = self.members.leader == member.member_id
        if leads and saving.may_skip_assignment:
            return _answer_join(member, replace(self._joined(member), skip_assignment=True))
        return _answer_join(member, replace(self._joined(member), leader=saving.leader_before, members=()))

    def _reset_assignments(self, error: ErrorCode, now: float) -> Effects:
        effects: Effects = []
        for member in self.members:
            member.assignment = b""
            if member.syncing is not None:
                effects += _answer_sync(member, Synced(error))
                self._heard(member, now)
        return effects

    # Helpers ----------------------------------------------------------------------------------------------

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

    def _heard(self, member: Member, now: float) -> None:
        member.heard(now)
        self._wake_by(member.deadline)

    def _become(self, state: GroupState, now: float) -> None:
        assert state in TRANSITIONS[self.state], f"a group cannot change from {self.state} to {state}"
        assert (self.rebalance is not None) == (state is GroupState.PREPARING_REBALANCE), (
            "a rebalance begins and ends with its state"
        )
        assert state is not GroupState.EMPTY or not len(self.members), "an empty group has no members"
        self.state = state
        self.since = now

    def _wake_by(self, when: float) -> None:
        self.wake_at = min(self.wake_at, when)


def _answer_join(member: Member, answer: Joined) -> Effects:
    """Answer the parked join of a member, if there is one."""
    reply, member.joining = member.joining, None
    return [] if reply is None else [AnswerJoin(reply, answer)]


def _answer_sync(member: Member, answer: Synced) -> Effects:
    """Answer the parked sync of a member, if there is one."""
    reply, member.syncing = member.syncing, None
    return [] if reply is None else [AnswerSync(reply, answer)]


def _answer_parked(member: Member, error: ErrorCode) -> Effects:
    told_id = NO_MEMBER if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
    return [*_answer_join(member, Joined(error, told_id)), *_answer_sync(member, Synced(error))]

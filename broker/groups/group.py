"""What members of one consumer group may ask, by Kafka's classic protocol: join, sync, heartbeat, leave.

Pure: no clock, no socket. Times come in as `now`. Every event returns its effects (answers, writes) in the
order in which they must happen. `wake_at` says when `tick` has something to do.
Left to others: the two halves of a rebalance (rebalance.py), performing effects and finding the group
(coordinator.py), committed offsets (offsets.py).
"""

from collections.abc import Iterable

from ...protocol.errors import ErrorCode
from .members import NEVER, Member, member_of
from .rebalance import RebalancingGroup
from .state import (
    NO_MEMBER,
    AnswerJoin,
    AnswerSync,
    Effects,
    GroupState,
    JoinAsked,
    Joined,
    JoinReply,
    Lingering,
    SavingAssignment,
    SavingReplacement,
    SyncAsked,
    Synced,
    SyncReply,
)


class Group(RebalancingGroup):
    """One consumer group: what each request of a member does to it."""

    def join(self, asked: JoinAsked, reply: JoinReply, now: float) -> Effects:
        """A member joins the next generation, or a newcomer the group."""
        if not self._has_room_for(asked.member_id):
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
        effects: Effects = []
        if member.syncing is not None:
            effects.append(AnswerSync(member.syncing, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.syncing = reply
        if self.members.leader == member.member_id and not self._is_saving_assignment:
            given = dict(asked.assignments)
            assignments = {each.member_id: given.get(each.member_id, b"") for each in self.members}
            effects.append(self._save(SavingAssignment(self.generation, assignments), assignments))
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

    def commit_error(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """Why this caller may not commit offsets now, or NONE. A member's commit counts as a heartbeat."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self.members.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard(self.members.by_id[member_id], now)
        return ErrorCode.NONE

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

    def end(self, error: ErrorCode, now: float) -> Effects:
        """The group has moved to another coordinator, or is deleted: everyone who waits gets `error`."""
        effects: Effects = []
        for member in self.members:
            effects += self._answer_parked(member, error)
        self.saving.clear()
        self.rebalance, self.sync_until, self.wake_at = None, NEVER, NEVER
        if self.state is not GroupState.DEAD:
            self._become(GroupState.DEAD, now)
        return effects

    def revive(self, since: float) -> None:
        """Its deletion could not be written, so it is Empty again, as it has been since `since`."""
        assert self.state is GroupState.DEAD, "who lives cannot come back"
        self.state, self.since = GroupState.EMPTY, since

    def restore(self, members: Iterable[Member], leader: str | None, now: float) -> Effects:
        """Resume from the log. Members are still members, each with a full session timeout from now on."""
        for member in members:
            self.members.add(member)
            self._heard(member, now)
        if leader is not None and leader in self.members:
            self.members.leader = leader
        self.state = GroupState.STABLE if len(self.members) else GroupState.EMPTY
        return self._prepare_rebalance(now) if len(self.members) > self.limits.members_max else []

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
        effects: Effects = []
        if member.joining is not None:
            effects.append(
                AnswerJoin(member.joining, Joined(ErrorCode.REBALANCE_IN_PROGRESS, asked.member_id))
            )
        member.adopt(asked, reply)
        return effects + self._prepare_rebalance(now)

    def _replace(
        self, asked: JoinAsked, instance_id: str, new_id: str, reply: JoinReply, now: float
    ) -> Effects:
        """A static member came back without its member id: it keeps its place, and the old id is fenced."""
        leader_before = self.members.leader or NO_MEMBER
        old_id = self.members.static_ids[instance_id]
        effects = self._answer_parked(self.members.by_id[old_id], ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.rename(instance_id, new_id)
        before = member.terms()
        member.adopt(asked, reply)
        self._heard(member, now)
        if self.state is not GroupState.STABLE or self.members.choose_protocol() != self.protocol:
            return effects + self._prepare_rebalance(now)
        saving = SavingReplacement(
            self.generation, instance_id, old_id, new_id, leader_before, asked.may_skip_assignment, before
        )
        return [*effects, self._save(saving, {each.member_id: each.assignment for each in self.members})]

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

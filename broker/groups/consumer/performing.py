"""Performs what the rules of consumer groups decide: appends the facts that changed, then answers.

A decision changes the group at once, and the log in the same moment: if the log refuses the batch, the change
is taken back. The answer is sent when everything that it may rest on is committed, also what earlier requests
wrote. If it is not known whether an earlier write was committed, something is written again to find out.
Left to others: the rules (heartbeats.py, classic_members.py, migration.py), which groups are here
(../shards.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import structlog

from ....base.values import dataclass
from ....protocol.errors import ApiError, CoordinatorNotAvailable, ErrorCode, GroupIdNotFound
from ....protocol.primitives import Malformed
from ..counts import GroupCounts
from ..forgetting import Stored, Written
from ..group import Group
from ..offset_loading import snapshot
from ..offset_records import group_key, group_value
from ..shards import HeldGroup, Shard, ShardStore
from ..state import NO_MEMBER, Effects, JoinAsked, Joined, JoinReply, SyncAsked, Synced, SyncReply
from . import classic_members, heartbeats
from .group import REVOCATION, ConsumerGroup
from .migration import downgrade, may_upgrade, upgraded, would_be_classic
from .records import stored
from .state import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    Beat,
    Beaten,
    BeatReply,
    ConsumerLimits,
    Fact,
    MemberState,
    Subject,
    Topics,
)

logger = structlog.get_logger(__name__)

# If writing facts fails with the left, the member that caused it gets the right.
WRITE_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Done = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What performing needs of the coordinator."""

    shards: ShardStore
    append: Callable[[Shard, Stored, Written], None]
    topics: Callable[[], Topics]
    new_classic_group: Callable[[str], Group]
    check_group_count: Callable[[str], None]
    new_member_id: Callable[[str], str]
    perform: Callable[[HeldGroup, Effects], None]  # what a classic group's rules ask; arms the group's timer
    forget_timer: Callable[[Group | ConsumerGroup], None]
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    counts: GroupCounts


class ConsumerGroups:
    """Requests to the consumer groups of this broker, and their deadlines."""

    def __init__(
        self, limits_for: Callable[[str], ConsumerLimits], classic_members_max: int, around: Surroundings
    ) -> None:
        self._limits_for = limits_for
        self._classic_members_max = classic_members_max
        self._around = around

    # The new protocol ------------------------------------------------------------------------------------

    def heartbeat(self, shard: Shard, name: str, beat: Beat, reply: BeatReply) -> None:
        """A member joins, is alive, or leaves. Raises ApiError."""
        held = shard.groups.get(name)
        if beat.epoch <= LEAVING_EPOCH:
            return self._leave(_existing(held, name), beat, reply)
        if beat.epoch == JOINING_EPOCH and beat.member_id == NO_MEMBER:
            beat = replace(beat, member_id=self._around.new_member_id("member"))
        return self._beat(shard, held, name, beat, reply)

    def _beat(self, shard: Shard, held: HeldGroup | None, name: str, beat: Beat, reply: BeatReply) -> None:
        around = self._around
        group = self._group_for(held, name, beat)
        is_new = held is None or held.group is not group
        try:
            answer = heartbeats.heartbeat(group, beat, around.topics(), around.now())
        except ApiError:
            group.undo(group.take_noted()[1])
            raise

        def install() -> None:
            if held is None:
                around.shards.add(shard, group)
            elif is_new:
                self._replace_classic(held, group)

        def done(code: ErrorCode) -> None:
            reply(answer if code is ErrorCode.NONE else Beaten(code))

        before: Stored = [(group_key(name), None)] if held is not None and is_new else []
        self._write(shard, group, before, install, done)
        if around.shards.held(group) is not None:
            around.perform(shard.groups[name], [])

    def _group_for(self, held: HeldGroup | None, name: str, beat: Beat) -> ConsumerGroup:
        """The group to which this heartbeat goes, perhaps a new one. Raises ApiError."""
        if held is not None and held.group.is_dead:
            raise CoordinatorNotAvailable(f"Group {name} is being deleted.")
        if held is not None and isinstance(held.group, ConsumerGroup):
            return held.group
        if beat.epoch != JOINING_EPOCH:
            raise GroupIdNotFound(f"Group {name} is not a consumer group.")
        if held is None:
            self._around.check_group_count(name)
            return ConsumerGroup(name, self._limits_for(name), self._around.now())
        assert isinstance(held.group, Group), "a group is of the one kind or the other"
        if held.group.is_empty:
            return ConsumerGroup(name, self._limits_for(name), self._around.now())
        if not may_upgrade(held.group, self._limits_for(name)):
            raise GroupIdNotFound(f"Group {name} is not a consumer group, and may not become one.")
        try:
            return upgraded(held.group, self._limits_for(name), self._around.topics(), self._around.now())
        except Malformed as error:
            raise GroupIdNotFound(f"Group {name} cannot be upgraded: {error}") from error

    def _leave(self, held: HeldGroup, beat: Beat, reply: BeatReply) -> None:
        group = held.group
        assert isinstance(group, ConsumerGroup), "the caller has checked it"
        answer = Beaten(member_id=beat.member_id, epoch=beat.epoch)

        def done(code: ErrorCode) -> None:
            reply(answer if code is ErrorCode.NONE else Beaten(code))

        error = group.check(beat.member_id, beat.instance_id)
        if error is not ErrorCode.NONE:
            raise heartbeats.unknown(group, beat.member_id, error)
        if beat.epoch == LEAVING_EPOCH:
            self._remove(held, group, beat.member_id, done)
        else:
            heartbeats.leave_for_a_while(group, beat.member_id)
            self._write(held.shard, group, [], _nothing, done)

    # Members that speak the classic protocol -------------------------------------------------------------

    def join(self, held: HeldGroup, group: ConsumerGroup, asked: JoinAsked, reply: JoinReply) -> None:
        """A classic member joins. In the place of the last that is none, it makes the group classic again."""
        around = self._around
        replaced = group.static_ids.get(asked.instance_id) if asked.instance_id is not None else None
        if replaced is not None and asked.member_id == NO_MEMBER and self._would_be_classic(group, replaced):
            rejoin = partial(self._join_again, held, asked, reply)
            self._make_classic(held, group, replaced, rejoin, _nobody_waits)
            if held.group is group:
                reply(Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, asked.member_id))
            return None
        try:
            answer = classic_members.join(group, asked, around.topics(), around.new_member_id, around.now())
        except ApiError as error:
            group.undo(group.take_noted()[1])
            return reply(Joined(error.code, asked.member_id))

        def done(code: ErrorCode) -> None:
            reply(answer if code is ErrorCode.NONE else Joined(code, asked.member_id))

        self._write(held.shard, group, [], _nothing, done)
        return around.perform(held, [])

    def sync(self, held: HeldGroup, group: ConsumerGroup, asked: SyncAsked, reply: SyncReply) -> None:
        """A classic member asks what it may have."""
        try:
            answer = classic_members.sync(group, asked, self._around.now())
        except ApiError as error:
            answer = Synced(error.code)

        def done(code: ErrorCode) -> None:
            reply(answer if code is ErrorCode.NONE else Synced(code))

        self._write(held.shard, group, [], _nothing, done)
        self._around.perform(held, [])

    def classic_heartbeat(
        self, held: HeldGroup, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """A classic member is alive."""
        answer = classic_members.heartbeat(group, member_id, instance_id, generation, self._around.now())
        self._around.perform(held, [])
        return answer

    def classic_leave(
        self, held: HeldGroup, group: ConsumerGroup, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Classic members leave; one answer for each."""
        answers = classic_members.leave(group, members, self._around.topics(), self._around.now())
        refusals: list[ErrorCode] = []
        self._write(held.shard, group, [], _nothing, refusals.append)
        self._around.perform(held, [])
        if refusals and refusals[0] is not ErrorCode.NONE:
            return [refusals[0] if answer is ErrorCode.NONE else answer for answer in answers]
        return answers

    # Groups ----------------------------------------------------------------------------------------------

    def due(self, held: HeldGroup, group: ConsumerGroup, now: float) -> None:
        """Remove members whose time is up."""
        for member_id, what in group.expired(now).items():
            if held.group is not group:
                return  # it is classic again, and has its own deadlines
            if what == REVOCATION and group.progress_of(member_id).state is not MemberState.UNREVOKED:
                group.has_done(member_id, REVOCATION)
                continue
            logger.info("member_expired", group=group.name, member=member_id, missed=what)
            self._remove(held, group, member_id, _nobody_waits)
        self._around.perform(held, [])

    def _remove(self, held: HeldGroup, group: ConsumerGroup, member_id: str, done: Done) -> None:
        """A member goes. If only classic ones stay, the group is theirs again."""
        if self._would_be_classic(group, member_id):
            return self._make_classic(held, group, member_id, _nothing, done)
        heartbeats.remove(group, [member_id], self._around.topics(), self._around.now())
        return self._write(held.shard, group, [], _nothing, done)

    def _would_be_classic(self, group: ConsumerGroup, leaving: str) -> bool:
        return would_be_classic(group, leaving, self._classic_members_max)

    def _make_classic(
        self,
        held: HeldGroup,
        group: ConsumerGroup,
        leaving: str,
        then: Callable[[], None],
        done: Done,
    ) -> None:
        around = self._around
        classic = around.new_classic_group(group.name)
        downgrade(group, leaving, classic, around.now())
        assignments = {member.member_id: member.assignment for member in classic.members}
        value = group_value(snapshot(classic, assignments, around.wall_ms()))
        records = [stored(group.name, fact) for fact in group.tombstones()]

        def install() -> None:
            group.end(ErrorCode.NOT_COORDINATOR, around.now())  # so that it wakes nobody any more
            around.forget_timer(group)
            around.shards.replace(held, classic)
            around.perform(held, classic.begin_rebalance(around.now()))
            logger.info("group_downgraded", group=group.name, members=len(classic.members))
            then()

        self._write(held.shard, group, [*records, (group_key(group.name), value)], install, done)

    def _join_again(self, held: HeldGroup, asked: JoinAsked, reply: JoinReply) -> None:
        assert isinstance(held.group, Group), "it has just become classic"
        self._around.perform(held, held.group.join(asked, reply, self._around.now()))

    def _replace_classic(self, held: HeldGroup, group: ConsumerGroup) -> None:
        """The group has been upgraded: who waits in the old one joins again."""
        classic, around = held.group, self._around
        assert isinstance(classic, Group), "only classic groups are upgraded"
        effects = classic.end(ErrorCode.REBALANCE_IN_PROGRESS, around.now())
        around.forget_timer(classic)
        around.shards.replace(held, group)
        around.perform(held, effects)
        logger.info("group_upgraded", group=group.name, members=len(group.subscriptions))

    # Writing ---------------------------------------------------------------------------------------------

    def _write(
        self, shard: Shard, group: ConsumerGroup, before: Stored, install: Callable[[], None], done: Done
    ) -> None:
        """Append what has changed, after `before`; `install` once the log has it, `done` once it is
        committed. If nothing has changed, `done` once earlier changes are committed.
        """
        noted, reverse = group.take_noted()
        if not noted and not before:
            if not group.writes.is_unsure:
                return group.writes.join(done)
            noted = [Fact(Subject.EPOCH, "", group.epoch)]
        write = group.writes.begin(done)
        refused: list[ErrorCode] = []

        def written(code: ErrorCode, base_offset: int) -> None:
            code = WRITE_ERRORS.get(code, code)
            if code is not ErrorCode.NONE:
                logger.warning("group_save_failed", group=group.name, error=code.name)
                if base_offset < 0:
                    refused.append(code)
                    return
            group.writes.end(write, code)

        self._around.append(shard, [*before, *(stored(group.name, fact) for fact in noted)], written)
        if refused:
            group.undo(reverse)
            group.writes.cancel(write)
            return done(refused[0])
        if any(fact.subject is Subject.EPOCH for fact in noted):
            self._around.counts.consumer_rebalances += 1
        return install()


def _existing(held: HeldGroup | None, name: str) -> HeldGroup:
    if held is None or not isinstance(held.group, ConsumerGroup) or held.group.is_dead:
        raise GroupIdNotFound(f"Group {name} is not a consumer group.")
    return held


def _nothing() -> None:
    """Nothing is to be installed."""


def _nobody_waits(code: ErrorCode) -> None:
    """A deadline asked for it. What is refused is tried again, since the deadline stays."""

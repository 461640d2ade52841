"""The group coordinator: finds a caller's group, performs what its rules ask, writes what must be durable.

This broker coordinates the groups whose partition of `__consumer_offsets` it leads. State changes on the
event loop without an await. An answer that needs a committed record is sent when that record is acknowledged.
Left to others: the rules (group.py), becoming and ceasing to be leader (shards.py), expiry and deletion
(forgetting.py), records (offset_records.py), requests and responses (handlers/groups/membership.py,
handlers/groups/offsets.py).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import Clock, TopicPartition
from ...protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidGroupId,
    UnknownMemberId,
    error_for,
)
from ...protocol.records import BatchBuilder
from ..config.groups import GroupSettings
from ..config.sections import GroupsConfig
from ..coordinator_partitions import partition_of
from ..internal_topics.topic import InternalTopic
from ..metadata.cache import Picture
from ..replicas.verification_guards import Guard
from ..topic_names import OFFSETS_TOPIC
from .consumer.group import ConsumerGroup
from .consumer.performing import ConsumerGroups, Surroundings
from .consumer.state import Beat, BeatReply, ConsumerLimits
from .consumer.surroundings import limits_of, topics_of
from .counts import GroupCounts, group_metrics
from .forgetting import Forgetting, Stored, Written
from .group import Group, GroupLimits
from .offset_loading import offset_records, snapshot
from .offset_records import group_key, group_value
from .offsets import Flight, GroupOffset
from .shards import AnyGroup, HeldGroup, OffsetsPartition, Shard, ShardStore
from .state import (
    AnswerJoin,
    AnswerSync,
    Effects,
    GroupState,
    JoinAsked,
    Joined,
    JoinReply,
    Persist,
    SyncAsked,
    Synced,
    SyncReply,
)
from .timer import GroupTimer
from .transactional_commits import Ask, Producer, TransactionalCommits

logger = structlog.get_logger(__name__)

NAMED_MAX = 1_000  # characters of a client's id in its member ids, which have to fit in a string
GROUPS_MAX = 100_000  # per broker; a client that wants one more gets COORDINATOR_NOT_AVAILABLE

# If writing offsets fails with the left, the client that committed them gets the right.
COMMIT_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

IN_THE_LOG = frozenset((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
"""What a write ends with that is committed, if perhaps with fewer replicas than it should."""

Append = Callable[[TopicPartition, bytearray, Written, float, Guard | None], None]
WhenCommitted = Callable[[TopicPartition, int, Callable[[ErrorCode], None]], None]


class Bits(Protocol):
    """A source of randomness, for the ids of members."""

    def getrandbits(self, k: int, /) -> int: ...


class GroupCoordinator:
    """All groups that this broker coordinates.

    `append` is `append_local` of the replicas, `when_committed` theirs, too; `ask` asks coordinators of
    transactions.
    `on_leading`, `on_resigned` and `on_transaction_ended` hear of the replicas' events.
    """

    def __init__(
        self,
        config: GroupsConfig,
        append: Append,
        when_committed: WhenCommitted,
        clock: Clock,
        random: Bits,
        topic: InternalTopic,
        ask: Ask,
        picture: Callable[[], Picture],
        settings: GroupSettings,
        on_failure: FailureHook | None = None,
    ) -> None:
        self.config = config
        self.partition_count = topic.partition_count
        self._topic = topic
        self._append = append
        self._when_committed = when_committed
        self._clock = clock
        self._random = random
        self._limits = GroupLimits(config.size_max, config.initial_rebalance_delay_ms / 1000)
        self._tasks = Tasks("groups", on_failure)
        self.counts = GroupCounts()
        self._shards = ShardStore(
            self._new_group,
            self._new_consumer_group,
            self._perform,
            self._served,
            topic.is_gone,
            self._clock,
            self._tasks,
        )
        self.forgetting = Forgetting(
            config, clock, self._shards, self.counts, self._tasks, self._write, self._end
        )
        self._transactional = TransactionalCommits(
            self._shards, self.counts, ask, self._append_batch, self.forgetting.settled
        )
        self._consumer_limits = limits_of(config)
        self._settings = settings
        self._consumers = ConsumerGroups(
            self._limits_for,
            config.size_max,
            Surroundings(
                shards=self._shards,
                append=self._write,
                topics=lambda: topics_of(picture()),
                new_classic_group=self._new_group,
                check_group_count=self._check_group_count,
                new_member_id=self._new_member_id,
                perform=self._perform,
                forget_timer=lambda group: self._timer.forget(group),
                now=self._now,
                wall_ms=clock.wall_ms,
                counts=self.counts,
            ),
        )
        self._timer = GroupTimer(
            self._group_due, self.forgetting.begin_expiry, config.offsets_retention_check_interval_ms / 1000
        )

    # Life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the timer of sessions, rebalances and offset expiry."""
        self._tasks.spawn(self._timer.run(), "timer")

    async def stop(self) -> None:
        """Stop the timer and loading. Parked requests end with their connections."""
        await self._tasks.stop()

    def ensure_topic(self) -> str | None:
        """Start to create `__consumer_offsets`, without waiting. Returns why it cannot be, or None."""
        if reason := self._topic.lacks_brokers:
            return reason
        if not self._topic.is_creating:
            self._topic.is_creating = True
            self._tasks.spawn(self._topic.create(), "create-topic")
        return None

    def tick(self, now: float) -> None:
        """Do what is due at `now`. The timer's task calls this by itself."""
        self._timer.tick(now)

    def on_leading(self, partition: OffsetsPartition) -> None:
        """We lead this partition. If it is of `__consumer_offsets`, load its groups."""
        if partition.log.partition.topic == OFFSETS_TOPIC:
            self._shards.lead(partition)

    def on_resigned(self, tp: TopicPartition) -> None:
        """We lead this partition no more. Members that wait get NOT_COORDINATOR."""
        if tp.topic != OFFSETS_TOPIC:
            return
        for held in self._shards.resign(tp.partition):
            self._end(held, ErrorCode.NOT_COORDINATOR)

    def on_configured(self, group_id: str) -> None:
        """The group's settings have changed. Each of its members hears of it with its next heartbeat."""
        shard = self._shards.get(partition_of(group_id, self.partition_count()))
        held = shard.groups.get(group_id) if shard is not None else None
        if held is not None and isinstance(held.group, ConsumerGroup):
            held.group.limits = self._limits_for(group_id)

    # Members ---------------------------------------------------------------------------------------------

    def join(self, group_id: str, asked: JoinAsked, reply: JoinReply) -> None:
        """A member joins the next generation. The reply comes when that generation begins."""
        try:
            shard = self._shard(group_id)
            low, high = self.config.session_timeout_ms_min, self.config.session_timeout_ms_max
            if not low <= asked.session_timeout_ms <= high:
                return reply(Joined(ErrorCode.INVALID_SESSION_TIMEOUT, asked.member_id))
            held = shard.groups.get(group_id)
            if held is not None and isinstance(held.group, ConsumerGroup):
                if held.group.is_dead:
                    raise CoordinatorNotAvailable(f"group {group_id} is being deleted")
                if not held.group.is_empty:
                    return self._consumers.join(held, held.group, asked, reply)
                self._make_classic(held)
            if held is None and asked.member_id:
                return reply(Joined(ErrorCode.UNKNOWN_MEMBER_ID, asked.member_id))
            held = held or self._create(shard, group_id)
        except ApiError as error:
            return reply(Joined(error.code, asked.member_id))
        assert isinstance(held.group, Group), "a classic member joins a classic group"
        return self._perform(held, held.group.join(asked, reply, self._now()))

    def sync(self, group_id: str, asked: SyncAsked, reply: SyncReply) -> None:
        """Give a member its assignment, once the group's leader has sent it and its record is committed."""
        try:
            held = self._shard(group_id).groups.get(group_id)
        except ApiError as error:
            # This coordinator is right, but a rebalance is not kept in the log: the member must rejoin.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return reply(Synced(ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
        if held is None:
            return reply(Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        if isinstance(held.group, ConsumerGroup):
            if held.group.is_dead:
                return reply(Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return self._consumers.sync(held, held.group, asked, reply)
        return self._perform(held, held.group.sync(asked, reply, self._now()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A heartbeat. While the group is still loading, every member gets NONE."""
        try:
            held = self._shard(group_id).groups.get(group_id)
        except ApiError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else error.code
        if held is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(held.group, ConsumerGroup):
            if held.group.is_dead:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return self._consumers.classic_heartbeat(held, held.group, member_id, instance_id, generation)
        answer = held.group.heartbeat(member_id, instance_id, generation, self._now())
        self._timer.arm(held.group)
        return answer

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Members (id, instance id) leave; one answer for each."""
        held = self._shard(group_id).groups.get(group_id)
        if held is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        if isinstance(held.group, ConsumerGroup):
            if held.group.is_dead:
                return [ErrorCode.COORDINATOR_NOT_AVAILABLE for _ in members]
            return self._consumers.classic_leave(held, held.group, members)
        answers = []
        for member_id, instance_id in members:
            answer, effects = held.group.leave(member_id, instance_id, self._now())
            self._perform(held, effects)
            answers.append(answer)
        return answers

    def consumer_heartbeat(self, group_id: str, beat: Beat, reply: BeatReply) -> None:
        """A member of a group by the new protocol joins, is alive, or leaves. Raises ApiError."""
        self._consumers.heartbeat(self._shard(group_id), group_id, beat, reply)

    # Offsets ---------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        offsets: Mapping[TopicPartition, GroupOffset],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Commit offsets for a member (id, instance id, generation); `done` when they are committed."""
        member_id, instance_id, generation = member
        shard = self._shard(group_id, empty_name_ok=True)
        held = shard.groups.get(group_id)
        if held is None:
            if generation >= 0 or not offsets:
                return done(ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE)
            held = self._create(shard, group_id)
        error = held.group.commit_error(member_id, instance_id, generation, self._now())
        if error is not ErrorCode.NONE or not offsets:
            return done(error)
        self._timer.arm(held.group)
        flight = held.offsets.take_off(offsets, shard.source.log.end_offset)

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT and base_offset >= 0:
                self._land_later(held, held.offsets.put_off(flight))
            else:
                held.offsets.land(flight, committed=base_offset >= 0 and code in IN_THE_LOG)
            if code is ErrorCode.NONE:
                self.counts.offsets_committed += len(offsets)
            done(COMMIT_ERRORS.get(code, code))

        return self._write(shard, offset_records(group_id, offsets), written)

    def _land_later(self, held: HeldGroup, awaited: Flight | None) -> None:
        """The client has its error, but the log has the offsets, as will whoever reads it after us. So they
        count once they are committed, if this broker lives to see it.
        """
        if awaited is None:
            return None

        def outcome(code: ErrorCode) -> None:
            self._land_later(held, held.offsets.land_late(committed=code is ErrorCode.NONE))

        try:
            return self._when_committed(held.shard.partition, awaited.end_offset, outcome)
        except ApiError as error:
            return outcome(error.code)

    def commit_in_transaction(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        producer: Producer,
        offsets: Mapping[TopicPartition, GroupOffset],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """As `commit`, in the producer's open transaction: the offsets count once that is committed."""
        shard = self._shard(group_id)
        if producer.id < 0:  # no marker is ever for nobody, and his offsets would stay pending
            is_named = bool(producer.transactional_id)
            return done(ErrorCode.INVALID_PRODUCER_ID_MAPPING if is_named else ErrorCode.INVALID_REQUEST)

        def verified(code: ErrorCode, guard: Guard | None) -> None:
            if any(map(self._topic.is_gone, offsets)):  # since it was asked; a next topic must not find them
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is ErrorCode.NONE:
                try:
                    held = self._for_transaction(group_id, member)
                    now_ms = self._clock.wall_ms()
                    return self._transactional.write(held, producer, offsets, now_ms, guard, written)
                except ApiError as error:
                    code = error.code
            return written(code)

        def written(code: ErrorCode) -> None:
            done(COMMIT_ERRORS.get(code, code))

        return self._transactional.verify(shard, producer, verified)

    def _for_transaction(self, group_id: str, member: tuple[str, str | None, int]) -> HeldGroup:
        """The group, new if need be. Raises the error if nothing may be committed for this member."""
        member_id, instance_id, generation = member
        shard = self._shard(group_id)
        held = shard.groups.get(group_id)
        if held is None:
            if generation >= 0:
                raise UnknownMemberId()
            held = self._create(shard, group_id)
        error = held.group.commit_error(member_id, instance_id, generation, self._now(), transactional=True)
        if error is not ErrorCode.NONE:
            raise error_for(error)
        return held

    def on_transaction_ended(
        self, tp: TopicPartition, producer_id: int, committed: bool, marker_offset: int
    ) -> None:
        """The marker that ends a producer's transaction in this partition is committed."""
        if tp.topic == OFFSETS_TOPIC:
            self._transactional.ended(tp, producer_id, committed, marker_offset)

    def wall_ms(self) -> int:
        """The timestamp of a commit made now."""
        return self._clock.wall_ms()

    # Looking ---------------------------------------------------------------------------------------------

    def find(self, group_id: str, empty_name_ok: bool = False) -> HeldGroup | None:
        """The group, or None. Raises ApiError if this broker does not coordinate it or is still loading."""
        return self._shard(group_id, empty_name_ok).groups.get(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still loading: a list of all groups would be incomplete."""
        return self._shards.is_loading

    def all_groups(self) -> list[AnyGroup]:
        """Every group here, by name, except those that are being deleted."""
        return [group for group in self._shards.all_groups() if not group.is_dead]

    def held_groups(self) -> Iterator[HeldGroup]:
        """Every group here, with its offsets. They may change between two steps."""
        for shard in self._shards.all():
            yield from list(shard.groups.values())

    @property
    def loading_count(self) -> int:
        """How many partitions are still loading."""
        return sum(shard.loading for shard in self._shards.all())

    def delete(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members, and its offsets; `done` when that is committed."""
        shard = self._shard(group_id, empty_name_ok=True)
        held = shard.groups.get(group_id)
        if held is None:
            return done(ErrorCode.GROUP_ID_NOT_FOUND)
        return self.forgetting.delete_group(shard, held, lambda code: done(COMMIT_ERRORS.get(code, code)))

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode, dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Forget what the group has committed for these partitions. `done` hears the error of the group, or
        NONE and which partitions were refused; before that the tombstones are committed.
        """
        shard = self._shard(group_id)
        held = shard.groups.get(group_id)
        if held is None:
            return done(ErrorCode.GROUP_ID_NOT_FOUND, {})

        def written(code: ErrorCode, refused: dict[TopicPartition, ErrorCode]) -> None:
            done(COMMIT_ERRORS.get(code, code), refused)

        return self.forgetting.delete_offsets(shard, held, partitions, written)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions were deleted. Offsets committed for them are void at once."""
        self.forgetting.partitions_deleted(partitions)

    def metrics(self) -> dict[str, int]:
        """The coordinator in numbers, under Kafka's names."""
        return group_metrics(self._shards.all_groups(), self._shards.offset_count, self.counts)

    # Performing ------------------------------------------------------------------------------------------

    def _perform(self, held: HeldGroup, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case AnswerJoin():
                    effect.reply(effect.answer)
                case AnswerSync():
                    effect.reply(effect.answer)
                case Persist():
                    self._persist(held, effect)
        self._timer.arm(held.group)

    def _persist(self, held: HeldGroup, effect: Persist) -> None:
        group = held.group
        assert isinstance(group, Group), "only classic groups have such effects"
        value = group_value(snapshot(group, effect.assignments, self._clock.wall_ms()))

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is not ErrorCode.NONE:
                logger.warning("group_save_failed", group=group.name, error=code.name)
            before = group.state
            effects = group.persisted(effect.token, code, self._now())
            if (before, group.state) == (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
                self.counts.rebalances_completed += 1
            self._perform(held, effects)

        self._write(held.shard, [(group_key(group.name), value)], written)

    def _write(self, shard: Shard, records: Stored, written: Written) -> None:
        """Append these records as one batch, as `_append_batch` does."""
        builder = BatchBuilder()
        wall_ms = self._clock.wall_ms()
        for key, value in records:
            builder.append(wall_ms, key, value)
        self._append_batch(shard, bytearray(builder.build()), written)

    def _append_batch(
        self, shard: Shard, batch: bytearray, written: Written, guard: Guard | None = None
    ) -> None:
        """`written` hears that the ISR has the batch, or an error, within the commit timeout."""
        deadline = self._now() + self.config.offset_commit_timeout_ms / 1000
        try:
            self._append(shard.partition, batch, written, deadline, guard)
            shard.source.mark()  # a timer's write is in no request, so no request's end would sweep it
        except ApiError as error:
            written(error.code, -1)

    def _group_due(self, group: AnyGroup, now: float) -> None:
        held = self._shards.held(group)
        if held is None:
            return
        if isinstance(group, ConsumerGroup):
            self._consumers.due(held, group, now)
        else:
            self._perform(held, group.tick(now))

    def _served(self, shard: Shard, seconds: float) -> None:
        self.counts.load_ms_max = max(self.counts.load_ms_max, round(seconds * 1000))
        self._transactional.loaded(shard)
        self.forgetting.loaded(shard)

    def _end(self, held: HeldGroup, error: ErrorCode) -> None:
        """Answer everyone who waits in the group with `error`, and drop its deadlines."""
        self._perform(held, held.group.end(error, self._now()))
        self._timer.forget(held.group)

    # Helpers ---------------------------------------------------------------------------------------------

    def _shard(self, group_id: str, empty_name_ok: bool = False) -> Shard:
        if not group_id and not empty_name_ok:
            raise InvalidGroupId("a group needs a name")
        return self._shards.serving_shard(partition_of(group_id, self.partition_count()))

    def _create(self, shard: Shard, group_id: str) -> HeldGroup:
        self._check_group_count(group_id)
        return self._shards.add(shard, self._new_group(group_id))

    def _check_group_count(self, group_id: str) -> None:
        if self._shards.group_count >= GROUPS_MAX:
            logger.warning("group_limit_reached", group=group_id, groups=GROUPS_MAX)
            raise CoordinatorNotAvailable(f"this broker already coordinates {GROUPS_MAX} groups, its limit")

    def _make_classic(self, held: HeldGroup) -> None:
        """A classic member joins a consumer group that has become empty."""
        before = held.group
        self._end(held, ErrorCode.NOT_COORDINATOR)
        self._shards.replace(held, self._new_group(before.name))
        self.forgetting.owe_own(held.shard, before)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._limits, self._new_member_id, self._now())

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._limits_for(group_id), self._now())

    def _limits_for(self, group_id: str) -> ConsumerLimits:
        terms = self._settings.terms(group_id)
        return replace(self._consumer_limits, session_ms=terms.session_ms, interval_ms=terms.interval_ms)

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix[:NAMED_MAX]}-{UUID(int=self._random.getrandbits(128), version=4)}"

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

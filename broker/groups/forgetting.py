"""Removes expired offsets, offsets of deleted topics, and deleted or unused groups, and writes tombstones.

A group must not find an old topic's offsets in a new topic of the same name. So a deleted partition's offsets
are void at once, without an await, and their tombstones follow in slices: the shard owes them. A tombstone
whose write failed stays owed and is soon tried again, because the next coordinator would not know of it. None
is written after a newer commit, which it would delete.
Sources: GroupMetadataManager.cleanupGroupMetadata, GroupMetadata.removeExpiredOffsets, GroupCoordinator.
handleDeleteGroups, handleDeleteOffsets and handleDeletedPartitions of Kafka 3.9.
Left to others: how a batch is written (coordinator.py), which partitions were deleted (metadata/cache.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import structlog

from ...base.tasks import Tasks
from ...base.types import Clock, TopicPartition
from ...client.consumer.group_protocol import topics_of
from ...protocol.errors import ErrorCode
from ...protocol.primitives import Malformed
from ..config.sections import GroupsConfig
from .consumer.group import ConsumerGroup
from .consumer.records import OF_GROUPS, fact_key
from .consumer.state import Subject
from .counts import GroupCounts
from .offset_records import group_key, offset_key
from .shards import AnyGroup, HeldGroup, Shard, ShardStore
from .state import GroupState

logger = structlog.get_logger(__name__)

OFFSETS_AT_ONCE = 2_000  # checked without an await: about a millisecond
TOMBSTONES_AT_ONCE = 500  # in one batch
PAY_AGAIN_S = (1.0, 30.0)  # backoff after tombstones were refused, at first and at most

CONSUMERS = "consumer"  # the protocol type whose subscriptions we can read

Stored = Sequence[tuple[bytes, bytes | None]]  # keys and values of records
Written = Callable[[ErrorCode, int], None]  # how it went, and the base offset
Debt = tuple[str, TopicPartition | Subject | None]  # a group's offset for a partition, or its own record


class Forgetting:
    """Removes offsets and groups, of all shards that this broker has.

    `write` appends one batch to a shard's log; `end` answers everyone who waits in a group that ends.
    """

    def __init__(
        self,
        config: GroupsConfig,
        clock: Clock,
        shards: ShardStore,
        counts: GroupCounts,
        tasks: Tasks,
        write: Callable[[Shard, Stored, Written], None],
        end: Callable[[HeldGroup, ErrorCode], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._shards = shards
        self._counts = counts
        self._tasks = tasks
        self._write = write
        self._end = end
        self._is_expiring = False
        self._is_paying = self._pay_again = self._is_resting = False
        self._rest_s = PAY_AGAIN_S[0]

    # Groups ----------------------------------------------------------------------------------------------

    def delete_group(self, shard: Shard, held: HeldGroup, done: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members and its offsets; `done` when that is committed.

        Meanwhile the group is Dead: commits and joins must retry, so none gets into the log before the
        tombstones. If the append is refused, the group lives on. If the batch is in the log but not
        acknowledged, the group is gone, since the next coordinator may read it: its tombstones are owed.
        """
        group = held.group
        if group.is_dead:
            return done(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return done(ErrorCode.NON_EMPTY_GROUP)
        partitions = dict.fromkeys([*held.offsets, *sorted(held.offsets.unsettled)])
        since, own = group.since, _own_debts(group) or [(group.name, None)]
        self._end(held, ErrorCode.GROUP_ID_NOT_FOUND)

        def written(code: ErrorCode, base_offset: int) -> None:
            if self._shards.held(group) is held:
                if code is not ErrorCode.NONE and base_offset < 0:
                    group.revive(since)
                else:
                    self._counts.offsets_deleted += len(partitions)
                    self._shards.remove(shard, held)
                    if code is not ErrorCode.NONE:
                        self._owe(shard, [*((group.name, tp) for tp in partitions), *own])
            done(code)

        records: Stored = [
            *((offset_key(group.name, tp.topic, tp.partition), None) for tp in partitions),
            *((_key_of(debt), None) for debt in own),
        ]
        return self._write(shard, records, written)

    def delete_offsets(
        self,
        shard: Shard,
        held: HeldGroup,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode, dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Delete the offsets of these partitions, but not of topics that the group's members read."""
        group = held.group
        if group.is_dead:
            return done(ErrorCode.GROUP_ID_NOT_FOUND, {})
        refused: dict[TopicPartition, ErrorCode] = {}
        if not group.is_empty:
            if group.protocol_type != CONSUMERS:
                return done(ErrorCode.NON_EMPTY_GROUP, {})
            topics = read_topics(group)
            refused = {
                tp: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                for tp in partitions
                if topics is None or tp.topic in topics
            }
        has = {*held.offsets, *held.offsets.unsettled}
        void = [tp for tp in partitions if tp in has and tp not in refused]
        if not void:
            return done(ErrorCode.NONE, refused)

        def written(code: ErrorCode, base_offset: int) -> None:
            if base_offset >= 0:  # in the log, so the next coordinator may read it, acknowledged or not
                self._counts.offsets_deleted += len(void)
                held.offsets.drop(void, base_offset)
                self.remove_if_unused(shard, held)
            done(code, refused)

        return self._write(shard, [(offset_key(group.name, *tp), None) for tp in void], written)

    def owe_own(self, shard: Shard, group: AnyGroup) -> None:
        """This group is no more, though another may have taken its name and offsets: its records must go."""
        shard.owed.update(dict.fromkeys(_own_debts(group)))
        self.pay()

    def remove_if_unused(self, shard: Shard, held: HeldGroup) -> bool:
        """Drop a group that has no members, no offsets, and no member id given out."""
        group = held.group
        in_use = held.offsets.are_in_use or group.awaits_members
        if not group.is_empty or in_use or self._shards.held(group) is not held:
            return False
        self._end(held, ErrorCode.GROUP_ID_NOT_FOUND)
        self._shards.remove(shard, held)
        shard.owed.update(dict.fromkeys(_own_debts(group)))
        return True

    # Deleted topics --------------------------------------------------------------------------------------

    def partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions were deleted; offsets committed for them are not found from now on."""
        gone: dict[str, set[int]] = {}
        for tp in partitions:
            gone.setdefault(tp.topic, set()).add(tp.partition)
        for shard in self._shards.all():
            if shard.loading:  # the log may still have offsets for them
                for topic, numbers in gone.items():
                    shard.deleted.setdefault(topic, set()).update(numbers)
            else:
                self._void(shard, gone)
        self.pay()

    def loaded(self, shard: Shard) -> None:
        """The shard is loaded: drop offsets of partitions that were deleted before or meanwhile."""
        self._void(shard, shard.deleted)
        shard.deleted = {}
        self.pay()

    def _void(self, shard: Shard, gone: dict[str, set[int]]) -> None:
        if not gone:
            return
        found = 0
        for held in list(shard.groups.values()):
            if void := held.offsets.forget(gone):
                found += len(void)
                shard.owed.update(((held.group.name, tp), None) for tp in void)
                self.remove_if_unused(shard, held)
        if found:
            self._counts.offsets_deleted += found
            logger.info("offsets_deleted", partition=str(shard.partition), topics=len(gone), offsets=found)

    def settled(self, shard: Shard) -> None:
        """A transaction has ended here: whether a tombstone is due may be certain now."""
        if shard.owed:
            self.pay()

    # Retention -------------------------------------------------------------------------------------------

    def begin_expiry(self, now: float) -> None:
        """Start a pass over all groups for expired offsets, unless one is running."""
        if not self._is_expiring:
            self._is_expiring = True
            self._tasks.spawn(self._expire_in_turn(now), "expire")

    async def _expire_in_turn(self, now: float) -> None:
        try:
            await self.expire(now)
        finally:
            self._is_expiring = False

    async def expire(self, now: float) -> None:
        """One pass over all groups, in slices; then write the tombstones that are owed."""
        looked_at = 0
        for shard, held in self._all_held():
            looked_at += 1 + len(held.offsets)
            self._expire_group(shard, held, now)
            if looked_at >= OFFSETS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        self.pay()

    def _all_held(self) -> Iterator[tuple[Shard, HeldGroup]]:
        """Every group that still exists when its turn comes: groups come and go between the slices."""
        for shard in list(self._shards.serving()):
            for name in list(shard.groups):
                held = shard.groups.get(name)
                if held is not None and self._shards.held(held.group) is held:
                    yield shard, held

    def _expire_group(self, shard: Shard, held: HeldGroup, now: float) -> None:
        group = held.group
        wall_ms = self._clock.wall_ms()
        retention_ms = self._config.offsets_retention_minutes * 60_000
        if group.is_empty:
            empty_since_ms = wall_ms - int((now - group.since) * 1000) if group.has_record else None
            expired = held.offsets.expired(wall_ms, retention_ms, empty_since_ms)
            if not expired:
                self.remove_if_unused(shard, held)
        else:
            topics = subscribed(group)
            if topics is None:
                return
            expired = held.offsets.expired(wall_ms, retention_ms, None, topics)
        if not expired:
            return

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is ErrorCode.NONE:
                logger.info("offsets_expired", group=group.name, partitions=len(expired))
                self._counts.offsets_expired += len(expired)
                held.offsets.drop(expired, base_offset)

        keys = [(offset_key(group.name, tp.topic, tp.partition), None) for tp in expired]
        self._write(shard, keys, written)

    # Tombstones that are owed ----------------------------------------------------------------------------

    def pay(self) -> None:
        """Write the tombstones that shards owe, in slices."""
        self._pay_again = True
        if not self._is_paying and any(shard.owed for shard in self._shards.serving()):
            self._is_paying = True
            self._tasks.spawn(self._pay(), "tombstones")

    async def _pay(self) -> None:
        """Try each tombstone once: one that is refused is owed until the next pass."""
        try:
            while self._pay_again:
                self._pay_again = False
                for shard in list(self._shards.serving()):
                    debts, shard.owed = shard.owed, {}
                    waiting = iter(debts)
                    while part := list(islice(waiting, TOMBSTONES_AT_ONCE)):
                        if not self._shards.has(shard):
                            break  # the coordinator that has it now knows of later commits
                        self._pay_some(shard, part)
                        await asyncio.sleep(0)
        finally:
            self._is_paying = False

    def _pay_some(self, shard: Shard, debts: list[Debt]) -> None:
        uncertain = dict.fromkeys(debt for debt in debts if self._is_uncertain(shard, debt))
        shard.owed.update(uncertain)
        debts = [debt for debt in debts if debt not in uncertain and self._is_due(shard, debt)]
        if not debts:
            return

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is not ErrorCode.NONE:
                self._owe(shard, debts)
            else:
                self._rest_s = PAY_AGAIN_S[0]

        self._write(shard, [(_key_of(debt), None) for debt in debts], written)

    def _owe(self, shard: Shard, debts: Iterable[Debt]) -> None:
        """Their write failed, or its outcome is unknown. Try again after a pause: the cause may persist."""
        shard.owed.update(dict.fromkeys(debts))
        if not self._is_resting:
            self._is_resting = True
            self._tasks.spawn(self._pay_rested(), "tombstones are pending already")

    async def _pay_rested(self) -> None:
        rest_s, self._rest_s = self._rest_s, min(2 * self._rest_s, PAY_AGAIN_S[1])
        try:
            await asyncio.sleep(rest_s)
        finally:
            self._is_resting = False
        self.pay()

    def _is_uncertain(self, shard: Shard, debt: Debt) -> bool:
        """An open transaction has a record with the same key: if it is aborted, the older one counts."""
        name, what = debt
        held = shard.groups.get(name)
        return held is not None and isinstance(what, TopicPartition) and held.offsets.is_pending(what)

    def _is_due(self, shard: Shard, debt: Debt) -> bool:
        """False once there is a newer record with the same key, which the tombstone would delete."""
        name, what = debt
        held = shard.groups.get(name)
        if held is None:
            return True
        if isinstance(what, TopicPartition):
            return held.offsets.get(what) is None and what not in held.offsets.in_flight
        return isinstance(held.group, ConsumerGroup) == (what is None)


def subscribed(group: AnyGroup) -> frozenset[str] | None:
    """The topics that the members of a stable consumer group read. None: unknown, so none of its offsets may
    expire.
    """
    if isinstance(group, ConsumerGroup):
        return group.subscribed
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMERS:
        return None
    return read_topics(group)


def read_topics(group: AnyGroup) -> frozenset[str] | None:
    """The topics that the members of a consumer group have subscribed to. None: it cannot be told."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed
    if group.protocol is None:  # no generation has begun yet
        return None
    try:
        said = (topics_of(member.metadata_for(group.protocol)) for member in group.members)
        return frozenset(topic for topics in said for topic in topics)
    except Malformed as error:
        logger.warning("subscription_unreadable", group=group.name, reason=str(error))
        return None


def _own_debts(group: AnyGroup) -> list[Debt]:
    """The tombstones of a group's own records, of which the log has some."""
    if isinstance(group, ConsumerGroup):
        return [(group.name, subject) for subject in OF_GROUPS]
    return [(group.name, None)] if group.has_record else []


def _key_of(debt: Debt) -> bytes:
    name, what = debt
    match what:
        case None:
            return group_key(name)
        case Subject():
            return fact_key(name, what)
    return offset_key(name, what.topic, what.partition)

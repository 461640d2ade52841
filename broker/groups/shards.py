"""Which groups are here: one shard per partition of `__consumer_offsets` that this broker leads.

A shard reads its log, in slices, before it serves. Until then its groups get COORDINATOR_LOAD_IN_PROGRESS;
groups without a shard here get NOT_COORDINATOR. A partition that we resign and lead again gets a new shard
object, so a late event for the old one does nothing.
Left to others: what the records mean (offset_loading.py), requests to a group (coordinator.py).
Why: docs/decisions/0067-a-coordinator-in-doubt-answers-nobody.md
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Protocol, TypeAlias

import structlog

from ...base.tasks import Tasks
from ...base.types import Clock, TopicPartition
from ...base.values import dataclass
from ...protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from ..internal_topics.loading import LedPartition, read_whole
from ..replicas.verification_guards import Guard
from .consumer.group import ConsumerGroup
from .consumer.state import Subject
from .group import Group
from .offset_loading import LoadedOffsets, restore
from .offsets import CommittedOffsets
from .state import Effects

logger = structlog.get_logger(__name__)

GROUPS_AT_ONCE = 200  # built from what was read, without an await

AnyGroup: TypeAlias = Group | ConsumerGroup


class OffsetsPartition(LedPartition, Protocol):
    """A partition of `__consumer_offsets` that this broker leads."""

    def guard_for(self, producer_id: int, producer_epoch: int) -> Guard | None: ...


@dataclass(slots=True, eq=False)
class Shard:
    """The groups of one partition."""

    source: OffsetsPartition
    loading: bool = True
    groups: dict[str, "HeldGroup"] = field(default_factory=dict)
    deleted: dict[str, set[int]] = field(default_factory=dict)
    """Partitions, by topic, that were deleted while the log was read: it may still have offsets for them."""
    writers: dict[int, dict[str, None]] = field(default_factory=dict)
    """Producers with an open transaction, and the groups for which it may have offsets."""
    ended: list[tuple[int, bool, int]] = field(default_factory=list)
    """Transactions that ended while the log was read: producer id, whether committed, the marker's offset."""
    owed: "dict[tuple[str, TopicPartition | Subject | None], None]" = field(default_factory=dict)
    """Tombstones still to be written: of a group's offset for a partition, of a fact of a consumer group, or
    (None) of a classic group.
    """

    @property
    def partition(self) -> TopicPartition:
        return self.source.log.partition


@dataclass(slots=True, eq=False)
class HeldGroup:
    """One group, its offsets, and its shard. A group may change its protocol, and is another object then."""

    shard: Shard
    group: AnyGroup
    offsets: CommittedOffsets


class ShardStore:
    """All shards of this broker."""

    def __init__(
        self,
        new_group: Callable[[str], Group],
        new_consumer_group: Callable[[str], ConsumerGroup],
        loaded: Callable[[HeldGroup, Effects], None],
        served: Callable[[Shard, float], None],
        is_gone: Callable[[TopicPartition], bool],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._new_group = new_group
        self._new_consumer_group = new_consumer_group
        self._loaded = loaded
        self._served = served
        self._is_gone = is_gone
        self._clock = clock
        self._tasks = tasks
        self._shards: dict[int, Shard] = {}
        self._by_group: dict[AnyGroup, HeldGroup] = {}

    def lead(self, partition: OffsetsPartition) -> None:
        """Begin to load. Does nothing if we lead this partition already (same leader, new epoch)."""
        tp = partition.log.partition
        if tp.partition in self._shards:
            return
        shard = self._shards[tp.partition] = Shard(partition)
        self._tasks.spawn(self._load(shard), f"load-{tp}")

    def resign(self, partition: int) -> list[HeldGroup]:
        """Drop a shard; returns the groups it held."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return []
        gone = list(shard.groups.values())
        for held in gone:
            del self._by_group[held.group]
        logger.info("groups_unloaded", partition=str(shard.partition), groups=len(gone))
        return gone

    def serving_shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinator(f"this broker does not lead partition {partition} of __consumer_offsets")
        if shard.source.may_be_replaced:  # offsets of a moment ago would make consumers read again
            raise NotCoordinator(f"another broker may lead partition {partition} of __consumer_offsets")
        if shard.loading:
            raise CoordinatorLoadInProgress(f"partition {partition} of __consumer_offsets is being loaded")
        return shard

    def get(self, partition: int) -> Shard | None:
        """The shard of this partition, loading or serving."""
        return self._shards.get(partition)

    def has(self, shard: Shard) -> bool:
        """Whether this shard is current: not resigned, nor replaced by a new one since."""
        return self._shards.get(shard.partition.partition) is shard

    def serving(self) -> Iterator[Shard]:
        return (shard for shard in self.all() if not shard.loading)

    def all(self) -> Iterator[Shard]:
        return (shard for _, shard in sorted(self._shards.items()))

    @property
    def is_loading(self) -> bool:
        return any(shard.loading for shard in self._shards.values())

    @property
    def group_count(self) -> int:
        return len(self._by_group)

    def all_groups(self) -> list[AnyGroup]:
        return sorted((held.group for held in self._by_group.values()), key=lambda group: group.name)

    def held(self, group: AnyGroup) -> HeldGroup | None:
        return self._by_group.get(group)

    def add(self, shard: Shard, group: AnyGroup, offsets: CommittedOffsets | None = None) -> HeldGroup:
        assert self.has(shard), "a group lives in a shard of this broker"
        assert group.name not in shard.groups, "a group is here once"
        held = HeldGroup(shard, group, offsets if offsets is not None else CommittedOffsets())
        shard.groups[group.name] = self._by_group[group] = held
        return held

    def remove(self, shard: Shard, held: HeldGroup) -> None:
        assert shard.groups[held.group.name] is held, "the group that is removed is the one that is here"
        del shard.groups[held.group.name]
        del self._by_group[held.group]

    def replace(self, held: HeldGroup, group: AnyGroup) -> None:
        """The group has changed its protocol; its offsets stay."""
        assert held.shard.groups[group.name] is held, "the group that is replaced is the one that is here"
        del self._by_group[held.group]
        held.group = group
        self._by_group[group] = held

    @property
    def offset_count(self) -> int:
        return sum(len(held.offsets) for held in self._by_group.values())

    async def _load(self, shard: Shard) -> None:
        """Read up to the log end offset of when we began to lead. After it, only this shard writes."""
        loaded, began = LoadedOffsets(), asyncio.get_running_loop().time()
        if not await read_whole(shard.source, loaded, lambda: self.has(shard)):
            return
        await self._build(shard, loaded)
        if not self.has(shard):
            return
        assert shard.loading, "a shard is loaded once"
        shard.loading = False
        self._served(shard, asyncio.get_running_loop().time() - began)
        logger.info(
            "groups_loaded",
            partition=str(shard.partition),
            groups=len(shard.groups),
            offsets=sum(len(held.offsets) for held in shard.groups.values()),
            damaged=loaded.damaged,
        )

    async def _build(self, shard: Shard, loaded: LoadedOffsets) -> None:
        """Create the groups that the log has, in slices. Notes offsets of topics that are gone."""
        loop, wall_ms = asyncio.get_running_loop(), self._clock.wall_ms()
        for number, name in enumerate(loaded.names(), 1):
            group, effects = self._rebuilt(name, loaded, loop.time(), wall_ms)
            held = self.add(shard, group, loaded.offsets.get(name))
            for producer_id in held.offsets.producers:
                shard.writers.setdefault(producer_id, {})[name] = None
            for tp in {*held.offsets, *held.offsets.pending}:
                if self._is_gone(tp):
                    shard.deleted.setdefault(tp.topic, set()).add(tp.partition)
            self._loaded(held, effects)
            if number % GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
                if not self.has(shard):
                    return

    def _rebuilt(
        self, name: str, loaded: LoadedOffsets, now: float, wall_ms: int
    ) -> tuple[AnyGroup, Effects]:
        """A group as the log has it. Of a change of protocol the log has the whole batch; but tombstones of a
        group that had become empty may follow later.
        """
        facts, value = loaded.facts.get(name), loaded.groups.get(name)
        if facts is not None:
            consumer = self._new_consumer_group(name)
            consumer.restore(facts)
            if consumer.subscriptions or value is None:
                consumer.resume(now)
                return consumer, []
        group = self._new_group(name)
        return group, restore(group, value, now, wall_ms) if value is not None else []

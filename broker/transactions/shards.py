"""Which transactional ids are here: one shard per partition of `__transaction_state` that this broker leads.

A shard reads its log, then waits until all that it has read is committed: a commit that was decided in a
record which is lost after all must not be told to any partition. Until then its transactional ids get
COORDINATOR_LOAD_IN_PROGRESS; those without a shard here get NOT_COORDINATOR. A partition that we resign and
lead again gets a new shard object, so a late event for the old one does nothing.
Left to others: what the records mean (loading.py), requests (coordinator.py), the rules (transaction.py).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Protocol

import structlog

from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import CoordinatorLoadInProgress, ErrorCode, NotCoordinator
from ..internal_topics.loading import LedPartition, read_whole
from .loading import LoadedTransactions
from .transaction import Transaction

logger = structlog.get_logger(__name__)

BUILT_AT_ONCE = 1_000  # transactional ids made from what was read, without an await


class StatePartition(LedPartition, Protocol):
    """A partition of `__transaction_state`. Its leader epoch is the coordinator's epoch."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def changing(self) -> bool: ...


WhenCommitted = Callable[[TopicPartition, int, Callable[[ErrorCode], None]], None]
"""Tells when everything before an offset of the partition is committed, or that we lead it no more."""


@dataclass(slots=True, eq=False)
class Shard:
    """The transactional ids of one partition."""

    source: StatePartition
    loading: bool = True
    held: "dict[str, Held]" = field(default_factory=dict)

    @property
    def partition(self) -> TopicPartition:
        return self.source.log.partition


@dataclass(slots=True, eq=False)
class Held:
    """One transactional id and its shard."""

    shard: Shard
    transaction: Transaction

    @property
    def is_here(self) -> bool:
        """Whether it has been neither forgotten nor given away."""
        return self.shard.held.get(self.transaction.transactional_id) is self


class ShardStore:
    """All shards of this broker. `served(shard, seconds)` is called when one has been loaded."""

    def __init__(
        self, when_committed: WhenCommitted, served: Callable[[Shard, float], None], tasks: Tasks
    ) -> None:
        self._when_committed = when_committed
        self._served = served
        self._tasks = tasks
        self._shards: dict[int, Shard] = {}

    def lead(self, partition: StatePartition) -> Shard | None:
        """Begin to load; or the shard, if it is here already (same leader, new epoch)."""
        tp = partition.log.partition
        if tp.partition in self._shards:
            return self._shards[tp.partition]
        shard = self._shards[tp.partition] = Shard(partition)
        self._tasks.spawn(self._load(shard), f"load-{tp}")
        return None

    def resign(self, partition: int) -> list[Held]:
        """Drop a shard; returns what it held."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return []
        gone, shard.held = list(shard.held.values()), {}
        logger.info("transactions_unloaded", partition=str(shard.partition), transactional_ids=len(gone))
        return gone

    def serving_shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinator(f"this broker does not lead partition {partition} of __transaction_state")
        source = shard.source
        if source.may_be_replaced or source.changing:  # a transaction that has ended would be said to go on
            raise NotCoordinator(f"another broker may lead partition {partition} of __transaction_state")
        if shard.loading:
            raise CoordinatorLoadInProgress(f"partition {partition} of __transaction_state is being loaded")
        return shard

    def has(self, shard: Shard) -> bool:
        """Whether this shard is current: not resigned, nor replaced by a new one since."""
        return self._shards.get(shard.partition.partition) is shard

    def serving(self) -> Iterator[Shard]:
        return (shard for _, shard in sorted(self._shards.items()) if not shard.loading)

    def all_held(self) -> Iterator[Held]:
        """What every serving shard holds. It may change between two steps."""
        for shard in self.serving():
            yield from list(shard.held.values())

    @property
    def is_loading(self) -> bool:
        return any(shard.loading for shard in self._shards.values())

    @property
    def loading_count(self) -> int:
        return sum(shard.loading for shard in self._shards.values())

    @property
    def count(self) -> int:
        return sum(len(shard.held) for shard in self._shards.values())

    def add(self, shard: Shard, transaction: Transaction) -> Held:
        assert self.has(shard), "a transactional id lives in a shard of this broker"
        assert transaction.transactional_id not in shard.held, "a transactional id is here once"
        held = shard.held[transaction.transactional_id] = Held(shard, transaction)
        return held

    def remove(self, held: Held) -> None:
        assert held.is_here, "what is removed is what is here"
        del held.shard.held[held.transaction.transactional_id]

    async def _load(self, shard: Shard) -> None:
        """Read up to the log end offset of when we began to lead. After it, only this shard writes."""
        loaded, began = LoadedTransactions(), asyncio.get_running_loop().time()
        end = shard.source.log.end_offset
        if not await read_whole(shard.source, loaded, lambda: self.has(shard)):
            return
        for number, (name, standing) in enumerate(sorted(loaded.standings.items()), 1):
            self.add(shard, Transaction(name, standing))
            if number % BUILT_AT_ONCE == 0:
                await asyncio.sleep(0)
                if not self.has(shard):
                    return

        def committed(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE or not self.has(shard):
                return  # we lead it no more
            assert shard.loading, "a shard is loaded once"
            shard.loading = False
            seconds = asyncio.get_running_loop().time() - began
            logger.info(
                "transactions_loaded",
                partition=str(shard.partition),
                transactional_ids=len(shard.held),
                damaged=loaded.damaged,
            )
            self._served(shard, seconds)

        self._when_committed(shard.partition, end, committed)

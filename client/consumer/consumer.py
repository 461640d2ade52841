"""Consumer: records of partitions, alone or as a member of a group.

`async for record in consumer` never ends; `poll` returns what is there; `poll_batch` returns complete fetches
as columns. Auto-commit commits what the caller is done with: a record counts as done when the caller comes
back for the next one, so a crash repeats records but loses none.
Left to others: which partitions (subscription.py), fetching (fetcher.py), decoding (positions.py, protocol/).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType
from typing import Any, Self

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, RequestTimedOut, UnknownTopicOrPartition
from ...protocol.messages.offsets import EARLIEST, LATEST
from ..arguments import as_offsets, as_partition, as_partitions, by_partition, checked_offset, checked_time
from ..config import ConsumerConfig, configure
from ..interceptors import Chain, ConsumerInterceptor
from ..network.cluster import Cluster
from ..results import CommittedOffset, ConsumerRecord, GroupMetadata, OffsetAndTimestamp
from ..serializers import deserializer_for
from .batch import Batch
from .buffer import Handout
from .commits import fetch_committed
from .fetcher import Fetcher
from .missing_topics import MissingTopics
from .offsets import list_offsets
from .positions import PartitionPosition
from .subscription import RebalanceListener, Subscription
from .unpacking import Unpacker

log = get_logger(__name__)

FOREVER_MS = 1 << 40

Partitions = Iterable[TopicPartition]


class Consumer:
    """Reads records. Use as `async with Consumer("host:9092", topics=["t"]) as consumer`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        random: Random | None = None,
        **options: Any,
    ) -> None:
        self.config = config = configure(ConsumerConfig, bootstrap_servers, options)
        self._cluster = Cluster(config, random)
        self._fetcher = Fetcher(self._cluster, config)
        self.handout = Handout(
            lambda: self._fetcher.places,
            Unpacker(
                deserializer_for(config.key_deserializer),
                deserializer_for(config.deserializer),
                config.check_crcs,
            ),
            observed=bool(config.interceptors),
        )
        self._fetcher.on_gone_back = self.handout.drop
        self._subscription = Subscription(
            self._cluster, config, self._fetcher, self.handout.drop, lambda: self.handout.progress
        )
        self._missing = MissingTopics()
        self._interceptors: Chain[ConsumerInterceptor] = Chain(config.interceptors)
        self._subscription.tell_commits_to(self._committed)
        self._surplus: deque[ConsumerRecord] = deque()  # one record became several
        self._wanted = ([topics] if isinstance(topics, str) else list(topics), pattern, listener)
        self._tasks = Tasks("consumer")
        self._settled = asyncio.Event()
        self._closed = False

    async def start(self) -> Self:
        """Connect and begin to read; raises NetworkException when no server answers. If it fails, or whoever
        waits for it gives up, nothing of it goes on."""
        try:
            await self._start()
        except BaseException:
            await self.close(commit=False)
            raise
        return self

    async def _start(self) -> None:
        await self._cluster.start()
        self._fetcher.on_settled = self._settled.set
        self._fetcher.start()
        topics, pattern, listener = self._wanted
        if topics and self.config.group is None:
            self._cluster.track(topics)
            await self._cluster.refreshed(self._cluster.deadline())
        if topics or pattern:
            self._subscription.subscribe(topics, pattern, listener)
        if self.config.group is not None and self.config.enable_auto_commit:
            self._tasks.spawn(self._auto_commit(), "auto_commit")

    async def close(self, *, commit: bool = True) -> None:
        """Commit what was handed out (if auto-commit is on and `commit`), leave the group, disconnect."""
        if self._closed:
            return
        self._closed = True
        if commit:
            self._came_back()
        self.handout.end()
        self._fetcher.arrived.set()  # whoever waits, in another task, waits in vain
        self._settled.set()
        async with AsyncExitStack() as steps:
            for end in (self._cluster.stop, self._fetcher.stop, self._subscription.stop):
                steps.push_async_callback(end)
            await self._tasks.stop()
            if self.config.enable_auto_commit and self.config.group is not None:
                await self._try_commit()  # while it is a member
        self._interceptors.tell(lambda one: one.close())

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=kind is None)

    # -- what is read

    def assign(self, partitions: Partitions) -> None:
        """Read these partitions."""
        self._subscription.assign(partitions)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, and those whose name matches `pattern` from its beginning."""
        self._subscription.subscribe(topics, pattern, listener)

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read now."""
        return set(self._fetcher.places)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; the position is kept."""
        for partition in partitions:
            place = self._place(partition)
            if not place.is_paused:
                place.is_paused = True
                self.handout.send_back({partition})

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        for partition in partitions:
            self._place(partition).is_paused = False
        self._fetcher.arrived.set()  # what was held all the while
        self._fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {partition for partition, place in self._fetcher.places.items() if place.is_paused}

    # -- records

    async def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records (default `max_poll_records`); none if none came within `timeout_ms`.

        Raises UnknownTopicOrPartition, once, when a topic to be read has not existed for some seconds.
        """
        most = self.config.max_poll_records if max_records is None else max_records
        deadline = self._cluster.now() + timeout_ms / 1000
        if self.handout.is_empty:
            await asyncio.sleep(0)  # who polls without end lets the next fetch leave, and others have a turn
        while True:
            self._came_back()
            self._fill(most)
            if handed := self.handout.take(most):
                return self._intercepted(handed) if self._interceptors else handed
            if not await self._something(deadline):
                return []

    async def poll_batch(self, timeout_ms: float = 1_000) -> list[Batch]:
        """Complete fetches, as numpy columns: the fast way to read many records."""
        if self._interceptors:
            raise RuntimeError("interceptors see records, which poll_batch does not make: use poll")
        deadline = self._cluster.now() + timeout_ms / 1000
        while True:
            self._came_back()
            self._raise_what_forbids_reading()
            batches = self.handout.columns()
            self._fetcher.wake()
            if batches or not await self._something(deadline):
                return batches

    def not_received(self, returns: int) -> None:
        """What was handed out after `handout.returns` was so much did not reach its caller, who was
        interrupted amid the call from another thread: it is handed out again."""
        self.handout.take_back(returns)
        self._fetcher.wake()

    async def records(self) -> AsyncIterator[list[ConsumerRecord]]:
        """Lists of records, as they arrive: less work per record than one at a time."""
        while True:
            if handed := await self.poll(FOREVER_MS):
                yield handed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        run = self.handout.run
        at = run.at
        if at < run.end:
            run.at = at + 1
            return run.records[at]
        del run  # else its records are held while the next ones are waited for
        if not self._interceptors:
            return await self._next()
        while not self._surplus:
            self._surplus += self._intercepted([await self._next()])
        return self._surplus.popleft()

    async def _next(self) -> ConsumerRecord:
        handout = self.handout
        if handout.is_empty:
            await asyncio.sleep(0)  # as in poll
        self._came_back()
        while handout.is_empty:
            self._fill(self.config.max_poll_records)
            if handout.is_empty:
                await self._something(float("inf"))
                self._came_back()
        return handout.next()

    # -- positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        place, at = self._place(partition), checked_offset(partition, offset)
        self.handout.drop({partition})
        self._subscription.sought((partition,))
        place.seek(at)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record; without arguments in all partitions."""
        self._seek_to_time(dict.fromkeys(partitions or self._fetcher.places, EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end, with new records only; without arguments in all partitions."""
        self._seek_to_time(dict.fromkeys(partitions or self._fetcher.places, LATEST))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record not older than `timestamp_ms`, at the end if there is none."""
        self._seek_to_time(dict.fromkeys(partitions or self._fetcher.places, timestamp_ms))

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record; waits until it is known."""
        deadline = self._cluster.deadline(timeout_ms)
        try:
            async with asyncio.timeout_at(deadline):
                while (position := self._place(partition).position) is None:
                    self._raise_what_forbids_reading()
                    self._settled.clear()
                    self._fetcher.wake()
                    await self._settled.wait()
        except TimeoutError:
            raise RequestTimedOut(f"{partition} has no position yet: poll() first, or seek()") from None
        return position

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The end of what is committed to the in-sync replicas, as of the last fetch."""
        known = self._place(partition).high_watermark
        return known if known >= 0 else None

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets may still be read, as of the last fetch; None before it.

        With `read_committed` they end where the first open transaction begins. Markers and aborted records
        count, though they are not handed out.
        """
        place = self._place(partition)
        if place.position is None or place.readable_end < 0:
            return None
        return max(place.readable_end - place.position, 0)

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        found = await self._list(dict.fromkeys(partitions, EARLIEST))
        return {partition: one.offset for partition, one in found.items()}

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset after the last record that may be read, for each partition: with `read_committed` the
        last stable offset, where the first open transaction begins."""
        found = await self._list(dict.fromkeys(partitions, LATEST))
        return {partition: one.offset for partition, one in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record not older than the time given for its partition, None where there is none."""
        found = await self._list(times)
        return {partition: one if one.offset >= 0 else None for partition, one in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return await self._cluster.partitions(topic, self._cluster.deadline())

    # -- commits

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit `offsets` (the next ones to read), or the position in every partition; in a listener, which
        is called amid the caller's work, only what the caller is done with.

        Raises CommitFailed if the consumer subscribed and is not a member now, or if the group gave a
        partition to another member since its records were handed out; IllegalGeneration, UnknownMemberId or
        RebalanceInProgress if the coordinator answers so.
        """
        group = self._group()
        in_hand = self.handout.in_hand
        if offsets is None:
            in_hand, offsets = {}, self._subscription.offsets_to_commit()
        whole = as_offsets(offsets)
        if whole:
            member = self._subscription.member_to_commit(whole, in_hand)
            await self._subscription.commit(group, whole, member)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed for these partitions (default: those assigned)."""
        asked = as_partitions(partitions or self._fetcher.places)
        found = await fetch_committed(self._cluster, self._group(), asked, self._cluster.deadline())
        return {partition: found.get(partition) for partition in asked}

    def group_metadata(self, partitions: Partitions = ()) -> GroupMetadata:
        """The group and this member of it, for `Producer.send_offsets`.

        Raises CommitFailed as `commit` does: if the consumer is not a member now, or if one of `partitions`,
        whose offsets are to be sent, was given to another member since its records were handed out.
        """
        group, in_hand = self._group(), self.handout.in_hand
        member = self._subscription.member_to_commit(partitions, in_hand)
        return GroupMetadata(group) if member is None else GroupMetadata(group, *member)

    # -- inside

    def _fill(self, most: int) -> None:
        self._raise_what_forbids_reading()
        if self.handout.fill(most):
            self._fetcher.wake()

    def _intercepted(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return self._interceptors.pass_on(lambda one, what: one.on_consume(what), records)

    def _committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._interceptors.tell(lambda one: one.on_commit(offsets))

    def _came_back(self) -> None:
        """The caller is alive, and done with the records it had."""
        self.handout.came_back()
        if self._subscription.membership is not None:
            self._subscription.membership.polled()
            if unsure := self._subscription.caller_came_back():
                self.handout.drop(unsure)
                self._fetcher.wake()

    async def _something(self, deadline: float) -> bool:
        """Wait for records; False when the time is up. Returns in time to tell the group we are alive."""
        if self._subscription.is_empty:
            raise RuntimeError("the consumer has nothing to read: call subscribe() or assign() first")
        arrived = self._fetcher.arrived
        arrived.clear()
        now = self._cluster.now()
        if missing := self._missing.look(self._subscription.missing, now):
            raise UnknownTopicOrPartition(
                f"{', '.join(missing)} does not exist; if it is created later, it will be read then"
            )
        if refusal := self._missing.refusal(self._subscription.refused):
            raise refusal
        pause = min(deadline - now, self.config.max_poll_interval_ms / 2000, self._missing.wake_at() - now)
        if pause <= 0 and deadline <= now:
            await asyncio.sleep(0)
            return False
        try:
            async with asyncio.timeout(pause):
                await arrived.wait()
        except TimeoutError:
            return self._cluster.now() < deadline
        return True

    def _raise_what_forbids_reading(self) -> None:
        if self._closed:
            raise RuntimeError("the consumer is closed")
        self._raise_trouble()

    def _raise_trouble(self) -> None:
        trouble, self._fetcher.trouble = self._fetcher.trouble, None
        if trouble is not None:
            raise trouble
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        if self._subscription.membership is not None:
            self._subscription.membership.raise_failure()

    def _place(self, partition: TopicPartition) -> PartitionPosition:
        place = self._fetcher.places.get(partition)
        if place is None:
            raise ValueError(f"{as_partition(partition)} is not assigned to this consumer")
        return place

    def _group(self) -> str:
        if self.config.group is None:
            raise ValueError("this consumer has no group: give group=...")
        return self.config.group

    def _seek_to_time(self, times: Mapping[TopicPartition, int]) -> None:
        wanted = [(self._place(one), checked_time(one, time)) for one, time in times.items()]
        self.handout.drop(set(times))  # not before all of it was looked at: nothing is lost by a mistake
        self._subscription.sought(times)
        for place, time in wanted:
            place.look_up(time)
        self._fetcher.wake()

    async def _list(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        deadline = self._cluster.deadline()
        wanted = {one: checked_time(one, time) for one, time in by_partition(times).items()}
        return await list_offsets(self._cluster, wanted, self.config.isolation, deadline)

    async def _auto_commit(self) -> None:
        failures = 0
        while True:
            rest = self.config.auto_commit_interval_ms / 1000
            await asyncio.sleep(min(rest, self._cluster.pause(failures - 1)) if failures else rest)
            failures = 0 if await self._try_commit(once=True) else failures + 1

    async def _try_commit(self, *, once: bool = False) -> bool:
        """False when it failed and another attempt may help; that one commits the positions of its time."""
        try:
            await self._subscription.commit_processed(self.config.request_timeout_ms, once=once)
        except ApiError as trouble:
            log.warning("commit_failed", group=self.config.group, reason=str(trouble))
            return not trouble.retriable or isinstance(trouble, UnknownTopicOrPartition)
        return True

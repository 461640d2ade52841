"""The blocking clients: Producer, Consumer and Admin under the same names, for code without asyncio.

Every object runs a private event loop in its own thread, ended by `close()` (or the end of `with`). A call
hands its work to that loop and waits. An interrupt (Ctrl-C) cancels the work and is raised where the caller
waits.
Left to others: everything that is done (producer/producer.py, consumer/consumer.py, admin/admin.py).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from ..base.types import TopicPartition
from ..protocol.errors import ApiError
from .admin import admin
from .admin.configs import ConfigChange, ConfigEntry, ConfigResource, ResourceType
from .admin.descriptions import (
    ClusterDescription,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    NewTopic,
    TopicDescription,
)
from .admin.groups import MemberToRemove
from .admin.leader_elections import Election
from .admin.log_dirs import LogDirDescription
from .admin.reassignments import PartitionReassignment
from .admin.transactions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from .consumer import consumer
from .consumer.batch import Batch
from .consumer.listener_thread import ListenerThread, Relayed
from .consumer.subscription import RebalanceListener
from .loop_thread import Face
from .producer import producer
from .results import CommittedOffset, ConsumerRecord, GroupMetadata, Headers, OffsetAndTimestamp, Receipt

__all__ = ["Admin", "Consumer", "Producer"]

POLL_FOREVER_MS = 1 << 40

R = TypeVar("R")


class Producer(Face):
    """The blocking producer; connects at once. `send` returns a `concurrent.futures.Future`."""

    _inner: producer.Producer

    def __init__(self, bootstrap_servers: str | Iterable[str] = "localhost:9092", **options: Any) -> None:
        self._begin("strandline-producer", lambda: producer.Producer(bootstrap_servers, **options))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None or issubclass(kind, Exception))

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> "Future[Receipt]":
        """Queue a record, waiting for room if there is none; `.result()` of the future is the receipt."""
        result: Future[Receipt] = Future()
        result.set_running_or_notify_cancel()  # a record that is queued cannot be called back

        def deliver(done: "asyncio.Future[Receipt]") -> None:
            if done.cancelled():
                result.set_exception(CancelledError())  # a future that is running is not cancelled otherwise
            elif (failure := done.exception()) is not None:
                result.set_exception(failure)
            else:
                result.set_result(done.result())

        async def queue() -> None:
            await self._inner.room(topic)
            future = self._inner.send(
                topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
            future.add_done_callback(deliver)

        self._thread.run(queue)
        return result

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> Sequence[Receipt]:
        """Send all and wait for all; by far the fastest way for a blocking caller."""
        return self._thread.run(
            lambda: self._inner.send_many(
                topic, values, keys=keys, partition=partition, headers=headers, timestamps_ms=timestamps_ms
            )
        )

    def send_arrow(self, topic: str, table: Any, **columns: Any) -> Sequence[Receipt]:
        """Send the rows of a pyarrow Table, RecordBatch or RecordBatchReader, and wait for all."""
        return self._thread.run(lambda: self._inner.send_arrow(topic, table, **columns))

    def flush(self) -> None:
        """Wait until all that was queued is acknowledged or given up."""
        self._thread.run(self._inner.flush)

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return self._thread.run(lambda: self._inner.partitions_for(topic))

    def init_transactions(self) -> None:
        """Get ready for transactions, and fence other producers of this transactional id."""
        self._thread.run(self._inner.init_transactions)

    def begin(self) -> None:
        """Begin a transaction."""
        self._thread.call(self._inner.begin)

    def commit(self) -> None:
        """Send all that is queued, then commit the transaction."""
        self._thread.run(self._inner.commit)

    def abort(self) -> None:
        """Abort the transaction."""
        self._thread.run(self._inner.abort)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupMetadata | str
    ) -> None:
        """Let the group have read so far once the transaction is committed."""
        self._thread.run(lambda: self._inner.send_offsets(offsets, group))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with producer.transaction():` commits at the end of the block, and aborts if it raises."""
        whole = self._inner.transaction()
        self._thread.run(whole.__aenter__)
        try:
            yield self
        except BaseException as error:
            trouble = error
            self._thread.run(lambda: whole.__aexit__(type(trouble), trouble, trouble.__traceback__))
            raise
        self._thread.run(lambda: whole.__aexit__(None, None, None))


class Consumer(Face):
    """The blocking consumer; connects at once. `for record in consumer` goes on for ever, in one thread at a
    time: it takes what lies ready without asking the client's own."""

    _inner: consumer.Consumer

    def __init__(self, bootstrap_servers: str | Iterable[str] = "localhost:9092", **options: Any) -> None:
        self._listeners = ListenerThread("strandline-listener")
        options["listener"] = self._relayed(options.get("listener"))
        self._begin("strandline-consumer", lambda: consumer.Consumer(bootstrap_servers, **options))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=kind is None)

    def close(self, **options: Any) -> None:
        """Finish and end the threads. May be called twice, but not by a listener, which close() calls."""
        if self._listeners.is_current:
            raise RuntimeError("a listener cannot close its own consumer: close() waits for listeners")
        try:
            super().close(**options)
        finally:
            self._listeners.close()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions."""
        self._thread.call(lambda: self._inner.assign(partitions))

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics; the listener is called in a thread of its own, and may call the consumer."""
        relayed = self._relayed(listener)
        self._thread.call(lambda: self._inner.subscribe(topics, pattern=pattern, listener=relayed))

    def _relayed(self, listener: RebalanceListener | None) -> RebalanceListener | None:
        return None if listener is None else Relayed(listener, self._listeners)

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read now."""
        return self._thread.call(self._inner.assignment)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`."""
        self._thread.call(lambda: self._inner.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        self._thread.call(lambda: self._inner.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._thread.call(self._inner.paused)

    def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records; empty when none came within `timeout_ms`."""
        return self._received(lambda: self._inner.poll(timeout_ms, max_records))

    def poll_batch(self, timeout_ms: float = 1_000) -> list[Batch]:
        """Complete fetches, as numpy columns."""
        return self._received(lambda: self._inner.poll_batch(timeout_ms))

    def records(self) -> Iterator[list[ConsumerRecord]]:
        """Lists of records, as they come."""
        while True:
            if handed := self.poll(POLL_FOREVER_MS):
                yield handed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        run = self._inner.handout.run  # of its records `at` is all that changes, here and nowhere else
        at = run.at
        if at < run.end:
            run.at = at + 1
            return run.records[at]
        del run  # else its records are held while the next ones are waited for
        return self._received(self._inner.__anext__)

    def _received(self, take: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """What is taken; if the caller is interrupted it is not lost: it may be taken already, on its way."""
        returns = self._inner.handout.returns
        return self._thread.run(take, lambda: self._inner.not_received(returns))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._thread.call(lambda: self._inner.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record there is."""
        self._thread.call(lambda: self._inner.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on with records that are yet to come."""
        self._thread.call(lambda: self._inner.seek_to_end(*partitions))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record not older than `timestamp_ms`."""
        self._thread.call(lambda: self._inner.seek_to_timestamp(timestamp_ms, *partitions))

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record."""
        return self._thread.run(lambda: self._inner.position(partition, timeout_ms))

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The end of what is committed to the in-sync replicas, as of the last fetch."""
        return self._thread.call(lambda: self._inner.high_watermark(partition))

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets may still be read, as of the last fetch."""
        return self._thread.call(lambda: self._inner.lag(partition))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._thread.run(lambda: self._inner.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition."""
        return self._thread.run(lambda: self._inner.end_offsets(partitions))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record not older than the time given for its partition."""
        return self._thread.run(lambda: self._inner.offsets_for_times(times))

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return self._thread.run(lambda: self._inner.partitions_for(topic))

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit `offsets`, or the position in every partition (a listener: what its caller is done with)."""
        self._thread.run(lambda: self._inner.commit(offsets))

    def group_metadata(self, partitions: Iterable[TopicPartition] = ()) -> GroupMetadata:
        """The group and this member of it, for `Producer.send_offsets`."""
        return self._thread.call(lambda: self._inner.group_metadata(partitions))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed."""
        return self._thread.run(lambda: self._inner.committed(*partitions))


class Admin(Face):
    """The blocking administrator; connects at once."""

    _inner: admin.Admin

    def __init__(self, bootstrap_servers: str | Iterable[str] = "localhost:9092", **options: Any) -> None:
        self._begin("strandline-admin", lambda: admin.Admin(bootstrap_servers, **options))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_topics(self, topics: Iterable[NewTopic | str], **options: Any) -> dict[str, CreatedTopic]:
        """Create all of them."""
        return self._thread.run(lambda: self._inner.create_topics(topics, **options))

    def create_topic(
        self, name: str, partitions: int = -1, replication_factor: int = -1, **options: Any
    ) -> CreatedTopic:
        """Create one topic."""
        return self._thread.run(
            lambda: self._inner.create_topic(name, partitions, replication_factor, **options)
        )

    def delete_topics(self, names: Iterable[str], **options: Any) -> None:
        """Delete all of them."""
        self._thread.run(lambda: self._inner.delete_topics(names, **options))

    def create_partitions(self, counts: Mapping[str, int], **options: Any) -> None:
        """Let each topic have so many partitions in all."""
        self._thread.run(lambda: self._inner.create_partitions(counts, **options))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics."""
        return self._thread.run(lambda: self._inner.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, replicas."""
        return self._thread.run(lambda: self._inner.describe_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        return self._thread.run(self._inner.describe_cluster)

    def describe_configs(self, **of: Any) -> list[ConfigEntry]:
        """The settings of a `topic=`, of a `broker=`, of a `group=` or of `all_brokers=True`."""
        return self._thread.run(lambda: self._inner.describe_configs(**of))

    def list_config_resources(self, *types: ResourceType) -> list[ConfigResource]:
        """What has settings, of these types or of all."""
        return self._thread.run(lambda: self._inner.list_config_resources(*types))

    def alter_configs(self, settings: Mapping[str, str], **of: Any) -> None:
        """Let a resource have exactly these settings; those that are not named go."""
        self._thread.run(lambda: self._inner.alter_configs(settings, **of))

    def incremental_alter_configs(self, changes: Sequence[ConfigChange], **of: Any) -> None:
        """Change some settings of a resource; all others stay."""
        self._thread.run(lambda: self._inner.incremental_alter_configs(changes, **of))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], **options: Any
    ) -> None:
        """Let partitions move to these brokers, or come back (None)."""
        self._thread.run(lambda: self._inner.alter_partition_reassignments(targets, **options))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, **options: Any
    ) -> dict[TopicPartition, PartitionReassignment]:
        """What is moving, of these partitions or of all."""
        return self._thread.run(lambda: self._inner.list_partition_reassignments(partitions, **options))

    def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> dict[int, list[LogDirDescription]]:
        """The log directories of these brokers, or of all."""
        return self._thread.run(lambda: self._inner.describe_log_dirs(brokers))

    def describe_known_log_dirs(
        self, brokers: Iterable[int], **options: Any
    ) -> dict[int, list[LogDirDescription]]:
        """The log directories of those brokers that answer now: for what is shown."""
        return self._thread.run(lambda: self._inner.describe_known_log_dirs(brokers, **options))

    def alter_replica_log_dirs(
        self, broker: int, targets: Mapping[TopicPartition, str], **options: Any
    ) -> None:
        """Move replicas of a broker to these log directories of it."""
        self._thread.run(lambda: self._inner.alter_replica_log_dirs(broker, targets, **options))

    def inspect(self, broker: int, about: str, **of: Any) -> dict[str, Any]:
        """What a Strandline broker knows about itself: partition, metrics, removals or removed."""
        return self._thread.run(lambda: self._inner.inspect(broker, about, **of))

    def list_offsets(
        self, times: Mapping[TopicPartition, int], **options: Any
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after a time; -1 the end, -2 the beginning."""
        return self._thread.run(lambda: self._inner.list_offsets(times, **options))

    def list_known_offsets(
        self, times: Mapping[TopicPartition, int], **options: Any
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """As `list_offsets`, without those partitions whose leaders cannot say it now: for what is shown."""
        return self._thread.run(lambda: self._inner.list_known_offsets(times, **options))

    def elect_leaders(
        self,
        election: Election | str = Election.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        **options: Any,
    ) -> dict[TopicPartition, ApiError | None]:
        """Give partitions their "preferred" leaders, or any ("unclean"); what stood against it, or None."""
        return self._thread.run(lambda: self._inner.elect_leaders(election, partitions, **options))

    def delete_records(
        self, before: Mapping[TopicPartition, int], **options: Any
    ) -> dict[TopicPartition, int]:
        """Delete all records before an offset (-1: all that is committed); where partitions begin now."""
        return self._thread.run(lambda: self._inner.delete_records(before, **options))

    def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of all brokers."""
        return self._thread.run(lambda: self._inner.list_groups(states))

    def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        """State and members."""
        return self._thread.run(lambda: self._inner.describe_groups(groups))

    def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members."""
        self._thread.run(lambda: self._inner.delete_groups(groups))

    def remove_group_members(self, group: str, members: Iterable[MemberToRemove] | None = None) -> None:
        """Let these members leave the group, or all (None)."""
        self._thread.run(lambda: self._inner.remove_group_members(group, members))

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for these partitions."""
        self._thread.run(lambda: self._inner.delete_group_offsets(group, partitions))

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group committed."""
        return self._thread.run(lambda: self._inner.list_group_offsets(group, partitions))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit in the name of a group without members."""
        self._thread.run(lambda: self._inner.alter_group_offsets(group, offsets))

    def list_transactions(self, states: Iterable[str] = (), **filters: Any) -> list[TransactionListing]:
        """The transactional ids of all coordinators."""
        return self._thread.run(lambda: self._inner.list_transactions(states, **filters))

    def describe_transactions(self, ids: Iterable[str]) -> list[TransactionDescription]:
        """State, producer and partitions of transactional ids."""
        return self._thread.run(lambda: self._inner.describe_transactions(ids))

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Who writes to these partitions, and whose transaction is open there."""
        return self._thread.run(lambda: self._inner.describe_producers(partitions))

    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, **options: Any
    ) -> list[OpenTransaction]:
        """Open transactions of which no coordinator knows."""
        return self._thread.run(lambda: self._inner.find_hanging_transactions(partitions, **options))

    def abort_transaction(self, partition: TopicPartition, producer: ProducerDescription) -> None:
        """End a producer's open transaction in one partition."""
        self._thread.run(lambda: self._inner.abort_transaction(partition, producer))

    def fence_producers(self, ids: Iterable[str]) -> None:
        """Abort what the producers of these transactional ids have open, and let them write no more."""
        self._thread.run(lambda: self._inner.fence_producers(ids))

"""Admin: topics, partitions, the cluster, offsets, records to be deleted, groups, transactions.

Each call is retried until its deadline if that can help.
Left to others: arguments and results (descriptions.py), what is asked of the controller (topics.py,
configs.py, leader_elections.py, reassignments.py), of leaders (consumer/offsets.py, record_deletion.py), of
coordinators (consumer/commits.py, groups.py, transactions.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

from ...base.clock import SystemClock
from ...base.types import Clock, TopicPartition
from ...protocol.errors import ApiError, ErrorCode, error_for
from ...protocol.messages.inspection import InspectRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ..arguments import as_names, as_offsets, as_partitions, by_partition
from ..config import ClientConfig, configure
from ..consumer.commits import Commit, fetch_committed
from ..consumer.offsets import list_known_offsets, list_offsets
from ..network.cluster import Cluster
from ..results import CommittedOffset, OffsetAndTimestamp
from .configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from .descriptions import (
    BrokerDescription,
    ClusterDescription,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    NewTopic,
    TopicDescription,
    created_topic,
    describe_topic,
)
from .groups import (
    MemberToRemove,
    delete_groups,
    delete_offsets,
    describe_groups,
    group_states,
    list_groups,
    remove_members,
)
from .inspection import inspect
from .leader_elections import Election, elect_leaders
from .log_dirs import (
    LogDirDescription,
    alter_replica_log_dirs,
    describe_known_log_dirs,
    describe_log_dirs,
)
from .reassignments import (
    PartitionReassignment,
    alter_partition_reassignments,
    first_refusal,
    list_partition_reassignments,
)
from .record_deletion import delete_records
from .topics import change, has_grown
from .transactions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producers,
    find_hanging,
    list_transactions,
)

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")  # with Kafka's numbers


class Admin:
    """The admin client. Use as `async with Admin("host:9092") as admin`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Any,
    ) -> None:
        self._clock = clock or SystemClock()
        options = {
            "allow_auto_create_topics": False,
            **options,
        }  # who asks about a topic does not want it made
        self.config = configure(ClientConfig, bootstrap_servers, options)
        self._cluster = Cluster(self.config, random)

    async def start(self) -> Self:
        """Connect; raises NetworkException when no server answers."""
        await self._cluster.start()
        return self

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        await self._cluster.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create these topics, and return what they became. Tries all, then raises the first refusal."""
        wanted = [_creatable(NewTopic(one) if isinstance(one, str) else one) for one in topics]

        def request(left: list[CreatableTopic], patience_ms: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(topics=left, timeout_ms=patience_ms, validate_only=validate_only)

        cluster, deadline = self._cluster, self._cluster.deadline(timeout_ms)
        done_already = ErrorCode.TOPIC_ALREADY_EXISTS
        told = await change(cluster, wanted, request, lambda answer: answer.topics, deadline, done_already)
        return {one.name: created_topic(one) for one in told}

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str | None] | None = None,
        timeout_ms: int | None = None,
    ) -> CreatedTopic:
        """Create one topic."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return (await self.create_topics([topic], timeout_ms=timeout_ms))[name]

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete these topics. Tries all, then raises the first refusal."""
        doomed = as_names(names)

        def request(left: list[str], patience_ms: int) -> DeleteTopicsRequest:
            return DeleteTopicsRequest(topic_names=left, timeout_ms=patience_ms)

        cluster, deadline = self._cluster, self._cluster.deadline(timeout_ms)
        done_already = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await change(cluster, doomed, request, lambda answer: answer.responses, deadline, done_already)

    async def create_partitions(self, counts: Mapping[str, int], *, timeout_ms: int | None = None) -> None:
        """Grow each topic to this number of partitions in all."""
        wanted = [CreatePartitionsTopic(name=name, count=count) for name, count in counts.items()]

        def request(left: list[CreatePartitionsTopic], patience_ms: int) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(topics=left, timeout_ms=patience_ms)

        cluster, deadline = self._cluster, self._cluster.deadline(timeout_ms)
        done_already, look = ErrorCode.INVALID_PARTITIONS, has_grown(cluster, counts, deadline)
        await change(cluster, wanted, request, lambda answer: answer.results, deadline, done_already, look)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics."""
        told = await self._metadata(None)
        return sorted(one.name or "" for one in told.topics if internal or not one.is_internal)

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, replicas; of all topics when `names` is None. Raises for a missing one."""
        told = await self._metadata(None if names is None else as_names(names))
        for one in told.topics:
            if one.error_code:
                raise error_for(one.error_code, one.name)
        return [describe_topic(one) for one in sorted(told.topics, key=lambda each: each.name or "")]

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        told = await self._metadata([])
        brokers = tuple(BrokerDescription(one.node_id, one.host, one.port, one.rack) for one in told.brokers)
        return ClusterDescription(told.cluster_id, told.controller_id, brokers)

    async def describe_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | None = None,
        all_brokers: bool = False,
        group: str | None = None,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """The settings of a topic, of a broker or of a consumer group, or those that were set for all
        brokers. BrokerNotAvailable soon if that broker does not run.
        """
        resource = ConfigResource.of(topic, broker, all_brokers, group)
        return await describe_configs(self._cluster, resource, documentation, self._cluster.deadline())

    async def list_config_resources(self, *types: ResourceType) -> list[ConfigResource]:
        """What has settings, of these types or of all: groups only if they have settings of their own."""
        return await list_config_resources(self._cluster, types, self._cluster.deadline())

    async def alter_configs(
        self,
        settings: Mapping[str, str],
        *,
        topic: str | None = None,
        broker: int | None = None,
        all_brokers: bool = False,
        group: str | None = None,
        validate_only: bool = False,
    ) -> None:
        """Give a resource exactly these settings; others are removed."""
        resource = ConfigResource.of(topic, broker, all_brokers, group)
        await alter_configs(self._cluster, resource, settings, validate_only, self._cluster.deadline())

    async def incremental_alter_configs(
        self,
        changes: Sequence[ConfigChange],
        *,
        topic: str | None = None,
        broker: int | None = None,
        all_brokers: bool = False,
        group: str | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some settings of a resource; all others stay."""
        resource, deadline = ConfigResource.of(topic, broker, all_brokers, group), self._cluster.deadline()
        await incremental_alter_configs(self._cluster, resource, changes, validate_only, deadline)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> None:
        """Move partitions to these brokers, or back (None). Tries all, then raises the first refusal."""
        deadline = self._cluster.deadline(timeout_ms)
        whole = by_partition(targets)
        refused = first_refusal(await alter_partition_reassignments(self._cluster, whole, deadline))
        if refused is not None:
            raise refused

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments under way, of these partitions or of all."""
        deadline = self._cluster.deadline(timeout_ms)
        asked = None if partitions is None else as_partitions(partitions)
        return await list_partition_reassignments(self._cluster, asked, deadline)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log directories of these brokers, or of all: sizes, and which are offline or full.

        BrokerNotAvailable soon if one of these does not run.
        """
        if brokers is None:
            await self._metadata([])
        return await describe_log_dirs(self._cluster, brokers, self._cluster.deadline())

    async def describe_known_log_dirs(
        self, brokers: Iterable[int], *, timeout_ms: int | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """As `describe_log_dirs`, but leaves out brokers that do not answer now: for displays."""
        return await describe_known_log_dirs(self._cluster, brokers, self._cluster.deadline(timeout_ms))

    async def alter_replica_log_dirs(
        self, broker: int, targets: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> None:
        """Move replicas of a broker to these log directories of it, named as in its `log.dirs`.

        Tries all, then raises the first refusal. A move goes on after the answer: `describe_log_dirs` has it
        in both directories meanwhile, `is_future` in the new one. A partition that the broker has no replica
        of raises ReplicaNotAvailable or UnknownTopicOrPartition; where it is made later, it goes there. A
        broker that does not run: BrokerNotAvailable, soon.
        """
        deadline = self._cluster.deadline(timeout_ms)
        refused = await alter_replica_log_dirs(self._cluster, broker, by_partition(targets), deadline)
        if refused:
            raise refused[min(refused)]

    async def inspect(
        self, broker: int, about: str, *, timeout_ms: int | None = None, **of: Any
    ) -> dict[str, Any]:
        """What a Strandline broker knows about itself; `about` as in InspectRequest."""
        request = InspectRequest(about=about, **of)
        return await inspect(self._cluster, broker, request, self._cluster.deadline(timeout_ms))

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after a time; -1 asks for the end, -2 for the beginning."""
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level={isolation_level!r}: expected {' or '.join(ISOLATION_LEVELS)}")
        isolation = ISOLATION_LEVELS.index(isolation_level)
        return await list_offsets(self._cluster, by_partition(times), isolation, self._cluster.deadline())

    async def list_known_offsets(
        self, times: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """As `list_offsets`, but leaves out partitions whose leaders cannot answer now: for displays."""
        deadline = self._cluster.deadline(timeout_ms)
        return await list_known_offsets(self._cluster, by_partition(times), 0, deadline)

    async def elect_leaders(
        self,
        election: Election | str = Election.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Elect "preferred" leaders for these partitions or all, or any where there is none ("unclean").

        The result has for each partition None, or why it does not have that leader. An unclean election may
        lose records.
        """
        kind = Election.of(election) if isinstance(election, str) else election
        asked = None if partitions is None else as_partitions(partitions)
        return await elect_leaders(self._cluster, kind, asked, self._cluster.deadline(timeout_ms))

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records before an offset, for good; -1 means all committed records.

        The answer is the offset at which each partition begins now, on every live replica.
        """
        return await delete_records(self._cluster, by_partition(before), self._cluster.deadline(timeout_ms))

    # -- groups

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, of those that have one of these states."""
        wanted = group_states(as_names(states))
        await self._metadata([])
        return await list_groups(self._cluster, wanted, self._cluster.deadline())

    async def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        """State and members."""
        return await describe_groups(self._cluster, as_names(groups), self._cluster.deadline())

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members, and their offsets."""
        await delete_groups(self._cluster, as_names(groups), self._cluster.deadline())

    async def remove_group_members(self, group: str, members: Iterable[MemberToRemove] | None = None) -> None:
        """Let these members leave the group, or all (None). Tries all, then raises the first refusal.

        A live member joins again; what is removed for good is the seat of one that is gone, above all a
        static member's.
        """
        await remove_members(self._cluster, group, members, self._cluster.deadline())

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for these partitions, of topics that no member subscribes to.

        Tries all, then raises the first refusal.
        """
        deadline = self._cluster.deadline()
        refused = await delete_offsets(self._cluster, group, as_partitions(partitions), deadline)
        if refused:
            raise refused[min(refused)]

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group committed."""
        asked = None if partitions is None else as_partitions(partitions)
        return await fetch_committed(self._cluster, group, asked, self._cluster.deadline())

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit in the name of a group that has no members at the moment."""
        await Commit(self._cluster, group, as_offsets(offsets), None).write(self._cluster.deadline())

    # -- transactions

    async def list_transactions(
        self, states: Iterable[str] = (), *, producer_ids: Iterable[int] = (), duration_ms: int = -1
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators: in these states, of these producers, open for longer
        than `duration_ms`."""
        await self._metadata([])
        deadline = self._cluster.deadline()
        return await list_transactions(self._cluster, deadline, as_names(states), producer_ids, duration_ms)

    async def describe_transactions(self, ids: Iterable[str]) -> list[TransactionDescription]:
        """State, producer and partitions of transactional ids. Raises TransactionalIdNotFound."""
        return await describe_transactions(self._cluster, as_names(ids), self._cluster.deadline())

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Who writes to these partitions, and whose transaction is open there."""
        return await describe_producers(self._cluster, as_partitions(partitions), self._cluster.deadline())

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, idle_ms: int = 900_000
    ) -> list[OpenTransaction]:
        """Open transactions of which no coordinator knows, in these partitions or all (None).

        Only those without a record for `idle_ms`, which should be longer than any transaction's time-out.
        """
        if partitions is None:
            told = await self._metadata(None)
            partitions = [
                TopicPartition(topic.name or "", one.partition_index)
                for topic in told.topics
                for one in topic.partitions
            ]
        now_ms, deadline = self._clock.wall_ms(), self._cluster.deadline()
        return await find_hanging(self._cluster, as_partitions(partitions), idle_ms, now_ms, deadline)

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerDescription) -> None:
        """End a producer's open transaction in one partition without asking its coordinator, if it hangs.

        Raises InvalidTxnState if the producer has none open there.
        """
        await abort_transaction(self._cluster, partition, producer, self._cluster.deadline())

    async def fence_producers(self, ids: Iterable[str]) -> None:
        """Abort what the producers of these transactional ids have open, and let them write no more."""
        await fence_producers(self._cluster, as_names(ids), self._cluster.deadline())

    # -- inside

    async def _metadata(self, names: list[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        deadline = self._cluster.deadline()
        told: MetadataResponse = await self._cluster.persist(
            lambda: self._cluster.ask_any(request, deadline), deadline
        )
        return told


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )

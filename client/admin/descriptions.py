"""Arguments and results of Admin: new topics, and descriptions of topics, brokers and groups. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.messages.consumer_groups import DescribedAssignment, DescribedConsumerGroup
from ...protocol.messages.group_admin import DescribedGroup
from ...protocol.messages.metadata import MetadataResponseTopic
from ...protocol.messages.topics import CreatableTopicResult
from ...protocol.primitives import NO_UUID, Malformed
from ..consumer.group_protocol import decode_assignment
from .configs import ConfigEntry, ConfigSource


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 leaves a number to the brokers. `assignments` names the replicas instead."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """A topic as it was created; None and -1 where a broker does not tell, or if its answer was lost."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...] | None


class PartitionDescription(NamedTuple):
    """A partition's leader (-1: none) and replicas."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int

    @property
    def osr(self) -> tuple[int, ...]:
        """The replicas that are out of sync: all (AR) without the ISR."""
        return tuple(replica for replica in self.replicas if replica not in self.isr)


class TopicDescription(NamedTuple):
    """A topic and its partitions."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class BrokerDescription(NamedTuple):
    """A live broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    """The cluster without its topics."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


class GroupListing(NamedTuple):
    """A group and its state, if the brokers tell it."""

    group: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """A member of a group and what it reads.

    Of a group by the consumer protocol (KIP-848) also what it shall read (`target`), and the epoch that it
    has come to; there it may speak the classic protocol all the same (`is_classic`).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    is_classic: bool = True


class GroupDescription(NamedTuple):
    """A group; one that does not exist is Dead.

    `protocol` is the name of its assignor. A group by the consumer protocol (KIP-848) has an `epoch`, which
    rises when members or subscriptions change, and the one for which its target was made (`target_epoch`).
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def is_classic(self) -> bool:
        """Whether its members choose a leader who assigns; else its coordinator does (KIP-848)."""
        return self.epoch is None


def created_topic(told: CreatableTopicResult) -> CreatedTopic:
    """A topic from the answer to its creation."""
    configs = [
        ConfigEntry(one.name, one.value, one.read_only, ConfigSource(one.config_source), one.is_sensitive)
        for one in told.configs or ()
    ]
    return CreatedTopic(
        told.name,
        None if told.topic_id == NO_UUID else told.topic_id,
        told.num_partitions,
        told.replication_factor,
        tuple(configs) or None,
    )


def describe_topic(told: MetadataResponseTopic) -> TopicDescription:
    """A topic from a metadata answer."""
    partitions = tuple(
        PartitionDescription(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
            one.error_code,
        )
        for one in sorted(told.partitions, key=lambda each: each.partition_index)
    )
    return TopicDescription(told.name or "", told.topic_id, told.is_internal, partitions)


def describe_group(told: DescribedGroup) -> GroupDescription:
    """A group from its coordinator's answer; an assignment in an unknown format is left out."""
    members = []
    for one in told.members:
        try:
            assignment = tuple(decode_assignment(bytes(one.member_assignment)))
        except Malformed:
            assignment = ()
        members.append(
            MemberDescription(
                one.member_id, one.group_instance_id, one.client_id, one.client_host, assignment
            )
        )
    return GroupDescription(
        told.group_id, told.group_state, told.protocol_type, told.protocol_data, tuple(members)
    )


CONSUMER, CLASSIC_MEMBER = "consumer", 0


def describe_consumer_group(told: DescribedConsumerGroup) -> GroupDescription:
    """A group by the consumer protocol from its coordinator's answer."""

    def partitions(of: DescribedAssignment) -> tuple[TopicPartition, ...]:
        return tuple(
            TopicPartition(topic.topic_name, number)
            for topic in of.topic_partitions
            for number in topic.partitions
        )

    members = tuple(
        MemberDescription(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            partitions(one.assignment),
            partitions(one.target_assignment),
            one.member_epoch,
            one.member_type == CLASSIC_MEMBER,
        )
        for one in told.members
    )
    return GroupDescription(
        told.group_id,
        told.group_state,
        CONSUMER,
        told.assignor_name,
        members,
        told.group_epoch,
        told.assignment_epoch,
    )

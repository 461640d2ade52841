"""The records of consumer groups in `__consumer_offsets`: Kafka's formats, one record for each fact.

Keys 3 (group epoch), 4 (topics), 5 (a member's subscription), 6 (epoch of the target), 7 (a member's target),
8 (a member's progress); values v0. Kafka 4.0 also keeps, under key 16, which topics an expression matched; we
match again instead, and skip that record as any of an unknown kind.
Left to others: what facts mean (state.py), the newest record of each key (../offset_loading.py).
"""

from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

from ....base.values import dataclass
from ....protocol.primitives import Buffer, Malformed
from ....protocol.schema import Bytes, Int8, Int32, String, Uuid, message, struct, tagged
from ...internal_topics.stored import NEVER_FLEXIBLE, STORED, pack, unpack, version_of
from .state import ClassicTerms, Fact, MemberState, Partitions, Progress, Subject, Subscription, TopicFacts

VALUE_VERSION = 0


@message(key=STORED, versions=(3, 6), flexible=NEVER_FLEXIBLE)
class GroupKey:
    """Versions 3, 4 and 6: the record is about the group as a whole."""

    group_id: String


@message(key=STORED, versions=(5, 8), flexible=NEVER_FLEXIBLE)
class MemberKey:
    """Versions 5, 7 and 8: the record is about a member."""

    group_id: String
    member_id: String


@message(key=STORED, versions=(0, 0), flexible=0)
class EpochValue:
    """The group epoch."""

    epoch: Int32


@message(key=STORED, versions=(0, 0), flexible=0)
class TargetEpochValue:
    """The epoch for which the target was computed."""

    assignment_epoch: Int32


@struct
class PartitionRacks:
    """Racks of a partition; no assignor uses them, in Kafka either."""

    partition: Int32
    racks: list[String]


@struct
class StoredTopic:
    """A topic that the group reads, as it was when last looked up."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionRacks]


@message(key=STORED, versions=(0, 0), flexible=0)
class TopicsValue:
    """The topics that the group reads."""

    topics: list[StoredTopic]


@struct
class ClassicProtocol:
    """A protocol that a classic member supports."""

    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    """What a classic member said beyond its subscription. Being nullable, it begins with a byte that says
    that it is there.
    """

    is_there: Int8 = 1
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(key=STORED, versions=(0, 0), flexible=0)
class SubscriptionValue:
    """What a member says of itself."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, default=None)


@struct
class StoredPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


@message(key=STORED, versions=(0, 0), flexible=0)
class TargetValue:
    """What a member shall have."""

    topic_partitions: list[StoredPartitions]


@message(key=STORED, versions=(0, 0), flexible=0)
class ProgressValue:
    """What a member has, and what it gives up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[StoredPartitions]
    partitions_pending_revocation: list[StoredPartitions]


Value: TypeAlias = (
    EpochValue | TopicsValue | SubscriptionValue | TargetEpochValue | TargetValue | ProgressValue
)

VALUES: dict[Subject, type[Value]] = {
    Subject.EPOCH: EpochValue,
    Subject.TOPICS: TopicsValue,
    Subject.SUBSCRIPTION: SubscriptionValue,
    Subject.TARGET_EPOCH: TargetEpochValue,
    Subject.TARGET: TargetValue,
    Subject.PROGRESS: ProgressValue,
}

OF_MEMBERS = frozenset({Subject.SUBSCRIPTION, Subject.TARGET, Subject.PROGRESS})
OF_GROUPS = (Subject.TARGET_EPOCH, Subject.TOPICS, Subject.EPOCH)
SUBJECTS = frozenset(Subject)


@dataclass(frozen=True, slots=True)
class FactKey:
    """What a record is about."""

    group: str
    subject: Subject
    member_id: str


def stored(group: str, fact: Fact) -> tuple[bytes, bytes | None]:
    """A fact as a record: key and value, a tombstone if it is deleted."""
    value = None if fact.value is None else pack(_value(fact), VALUE_VERSION)
    return fact_key(group, fact.subject, fact.member_id), value


def fact_key(group: str, subject: Subject, member_id: str = "") -> bytes:
    if subject in OF_MEMBERS:
        return pack(MemberKey(group_id=group, member_id=member_id), subject)
    return pack(GroupKey(group_id=group), subject)


def read_fact_key(key: Buffer) -> FactKey | None:
    """What a record is about; None if it is no fact of a consumer group."""
    version = version_of(key)
    if version not in SUBJECTS:
        return None
    subject = Subject(version)
    if subject in OF_MEMBERS:
        of_member = unpack(MemberKey, key)
        return FactKey(of_member.group_id, subject, of_member.member_id)
    return FactKey(unpack(GroupKey, key).group_id, subject, "")


def read_fact(subject: Subject, value: Buffer) -> object:
    """The value of a fact; raises Malformed."""
    return _fact(unpack(VALUES[subject], value))


def _fact(value: Value) -> object:
    match value:
        case EpochValue():
            return value.epoch
        case TargetEpochValue():
            return value.assignment_epoch
        case TopicsValue():
            return {each.topic_name: TopicFacts(each.topic_id, each.num_partitions) for each in value.topics}
        case SubscriptionValue():
            return _subscription(value)
        case TargetValue():
            return _flat(value.topic_partitions)
        case ProgressValue():
            return _progress(value)


def _value(fact: Fact) -> Value:
    match fact.subject:
        case Subject.EPOCH:
            return EpochValue(epoch=fact.value)
        case Subject.TARGET_EPOCH:
            return TargetEpochValue(assignment_epoch=fact.value)
        case Subject.TOPICS:
            topics = [
                StoredTopic(
                    topic_id=each.id, topic_name=name, num_partitions=each.partitions, partition_metadata=[]
                )
                for name, each in fact.value.items()
            ]
            return TopicsValue(topics=topics)
        case Subject.SUBSCRIPTION:
            return _subscription_value(fact.value)
        case Subject.TARGET:
            return TargetValue(topic_partitions=_by_topic(fact.value))
        case Subject.PROGRESS:
            progress: Progress = fact.value
            return ProgressValue(
                member_epoch=progress.epoch,
                previous_member_epoch=progress.previous_epoch,
                state=progress.state,
                assigned_partitions=_by_topic(progress.assigned),
                partitions_pending_revocation=_by_topic(progress.revoking),
            )


def _subscription_value(said: Subscription) -> SubscriptionValue:
    classic = None
    if said.classic is not None:
        protocols = [ClassicProtocol(name=name, metadata=data) for name, data in said.classic.protocols]
        classic = ClassicMemberMetadata(
            session_timeout_ms=said.classic.session_timeout_ms, supported_protocols=protocols
        )
    return SubscriptionValue(
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        server_assignor=said.assignor,
        classic_member_metadata=classic,
    )


def _subscription(value: SubscriptionValue) -> Subscription:
    classic = None
    if value.classic_member_metadata is not None:
        protocols = value.classic_member_metadata.supported_protocols
        if not protocols:
            raise Malformed("a classic member supports no protocol")
        classic = ClassicTerms(
            value.classic_member_metadata.session_timeout_ms,
            tuple((each.name, each.metadata) for each in protocols),
        )
    return Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or None,
        assignor=value.server_assignor,
        classic=classic,
    )


def _progress(value: ProgressValue) -> Progress:
    try:
        state = MemberState(value.state)
    except ValueError:
        raise Malformed(f"a member has the unknown state {value.state}") from None
    return Progress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_flat(value.assigned_partitions),
        revoking=_flat(value.partitions_pending_revocation),
    )


def _by_topic(partitions: Partitions) -> list[StoredPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [StoredPartitions(topic_id=topic, partitions=numbers) for topic, numbers in topics.items()]


def _flat(topics: Iterable[StoredPartitions]) -> Partitions:
    return frozenset((each.topic_id, number) for each in topics for number in each.partitions)

"""Members that speak the classic protocol in a group by the new one: join, sync, heartbeat, leave. Pure.

So a group is upgraded member by member, without a stop. To a classic member each of its epochs is a
generation. A join takes it one step towards its target, a sync tells it what it may have, and a heartbeat
tells it to join again when there is a step to take. Nobody leads: the broker assigns.
Sources: GroupMetadataManager.classicGroupJoinToConsumerGroup and its siblings of Kafka 4.0.
Left to others: how a group changes its protocol (migration.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ....base.types import TopicPartition
from ....client.consumer.group_protocol import decode_subscription, encode_assignment
from ....protocol.errors import ErrorCode, error_for
from ....protocol.primitives import Malformed
from ..state import NO_MEMBER, JoinAsked, Joined, SyncAsked, Synced
from .group import CONSUMER_PROTOCOL, REJOIN, REVOCATION, SYNC, ConsumerGroup
from .heartbeats import advance, check_room, remove, take_place, unknown
from .state import ClassicTerms, MemberState, Partitions, Progress, Subscription, TopicFacts, Topics

NONE_KNOWN: Mapping[str, TopicFacts] = MappingProxyType({})


def join(
    group: ConsumerGroup,
    asked: JoinAsked,
    topics: Topics,
    new_member_id: Callable[[str], str],
    now: float,
) -> Joined:
    """A member joins, or comes one step closer to its target. Raises ApiError."""
    newcomer = asked.member_id == NO_MEMBER
    check_room(group, asked.member_id, asked.instance_id)
    if not speaks(group, asked):
        raise error_for(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocols of {asked.member_id} are not supported"
        )
    member_id = new_member_id(asked.instance_id or asked.client_id) if newcomer else asked.member_id
    if newcomer and asked.must_know_id and asked.instance_id is None:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    said, claims = read_subscription(asked, member_id)
    owned = None if any_unheard(claims, topics, group.topics) else with_ids(claims, topics, group.topics)
    _admit(group, asked.instance_id, member_id, newcomer)
    advance(group, member_id, said, owned, topics)
    group.has_done(member_id, REJOIN)
    group.has_done(member_id, REVOCATION)  # of the time when it spoke the new protocol
    group.heard(member_id, now)
    group.expect(member_id, SYNC, now + asked.rebalance_timeout_ms / 1000)
    return Joined(
        error=ErrorCode.NONE,
        member_id=member_id,
        generation=group.progress_of(member_id).epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol=asked.protocols[0][0],
    )


def speaks(group: ConsumerGroup, asked: JoinAsked) -> bool:
    """Whether it can talk with all other classic members, should the group be theirs alone again."""
    if asked.protocol_type != CONSUMER_PROTOCOL:
        return False
    others = [
        {name for name, _ in one.classic.protocols}
        for member_id, one in group.subscriptions.items()
        if one.classic is not None and member_id != asked.member_id
    ]
    return any(all(name in other for other in others) for name, _ in asked.protocols)


def read_subscription(asked: JoinAsked, member_id: str) -> tuple[Subscription, Sequence[TopicPartition]]:
    """What a classic member says of itself, and what it owns. Raises ApiError if it cannot be read."""
    try:
        told = decode_subscription(member_id, asked.instance_id, asked.protocols[0][1])
    except Malformed as error:
        raise error_for(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription of {member_id} cannot be read: {error}"
        ) from error
    said = Subscription(
        instance_id=asked.instance_id,
        rack_id=told.rack_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        topics=frozenset(told.topics),
        classic=ClassicTerms(asked.session_timeout_ms, asked.protocols),
    )
    return said, told.owned


def with_ids(
    partitions: Iterable[TopicPartition], topics: Topics, known: Mapping[str, TopicFacts] = NONE_KNOWN
) -> Partitions:
    """Partitions by the ids of their topics. Topics that do not exist are left out; `known` is believed as
    long as this broker may not have heard of them.
    """
    if topics.is_whole:
        known = NONE_KNOWN
    found = ((topics.find(tp.topic) or known.get(tp.topic), tp.partition) for tp in partitions)
    return frozenset((facts.id, number) for facts, number in found if facts is not None)


def any_unheard(
    partitions: Iterable[TopicPartition], topics: Topics, known: Mapping[str, TopicFacts] = NONE_KNOWN
) -> bool:
    """Whether one is of a topic that this broker may just not have heard of yet."""
    if topics.is_whole:
        return False
    return any(topics.find(tp.topic) is None and tp.topic not in known for tp in partitions)


def with_names(group: ConsumerGroup, partitions: Partitions) -> list[TopicPartition]:
    """Partitions by the names of their topics. Topics that do not exist are left out."""
    names = {facts.id: name for name, facts in group.topics.items()}
    return [TopicPartition(names[topic], number) for topic, number in partitions if topic in names]


def sync(group: ConsumerGroup, asked: SyncAsked, now: float) -> Synced:
    """A member asks what it may have. Raises ApiError."""
    _check(group, asked.member_id, asked.instance_id)
    member_id = asked.member_id
    progress = group.progress_of(member_id)
    if asked.generation != progress.epoch:
        raise error_for(ErrorCode.ILLEGAL_GENERATION, f"{member_id} has generation {progress.epoch}")
    protocol = _protocol(group, member_id)
    if asked.protocol_type not in (None, CONSUMER_PROTOCOL) or asked.protocol not in (None, protocol):
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocol of {member_id} is {protocol}")
    if group.epoch > progress.epoch and progress.state is not MemberState.UNREVOKED:
        _must_rejoin(group, member_id, now)
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"{member_id} has to join again")
    group.has_done(member_id, SYNC)
    group.heard(member_id, now)
    assignment = encode_assignment(with_names(group, progress.assigned))
    return Synced(ErrorCode.NONE, asked.protocol_type, asked.protocol, assignment)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float
) -> ErrorCode:
    """A member is alive; the answer tells it whether there is a step to take."""
    error = _error(group, member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    progress = group.progress_of(member_id)
    if generation != progress.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    group.heard(member_id, now)
    if not has_step(group, member_id, progress):
        return ErrorCode.NONE
    _must_rejoin(group, member_id, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def has_step(group: ConsumerGroup, member_id: str, progress: Progress) -> bool:
    """Whether the member would get on by joining again."""
    if progress.epoch < group.epoch or progress.state is MemberState.UNREVOKED:
        return True
    if progress.state is MemberState.STABLE:
        return False
    missing = group.target_of(member_id) - progress.assigned
    return not any(one in group.owners for one in missing)


def leave(
    group: ConsumerGroup, members: Sequence[tuple[str, str | None]], topics: Topics, now: float
) -> list[ErrorCode]:
    """Members leave, or an administrator removes static ones by their instance ids alone."""
    answers: list[ErrorCode] = []
    gone: list[str] = []
    for member_id, instance_id in members:
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = group.static_ids.get(instance_id, NO_MEMBER)
        error = _error(group, member_id, instance_id)
        if member_id in gone:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        answers.append(error)
        if error is ErrorCode.NONE:
            gone.append(member_id)
    if gone:
        remove(group, gone, topics, now)
    return answers


def _admit(group: ConsumerGroup, instance_id: str | None, member_id: str, newcomer: bool) -> None:
    """A static newcomer replaces whoever had its instance id; others need the id that they were given."""
    if instance_id is not None:
        current = group.static_ids.get(instance_id)
        if newcomer and current is not None:
            return take_place(group, current, member_id)
        if not newcomer and (error := group.check(member_id, instance_id)) is not ErrorCode.NONE:
            raise unknown(group, member_id, error)
    if member_id not in group.subscriptions:
        group.forget(member_id)
    return None


def _check(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    error = _error(group, member_id, instance_id)
    if error is not ErrorCode.NONE:
        raise unknown(group, member_id, error)


def _error(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Why this is no classic member of the group, or NONE."""
    error = group.check(member_id, instance_id)
    if error is ErrorCode.NONE and not group.speaks_classic(member_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return error


def _must_rejoin(group: ConsumerGroup, member_id: str, now: float) -> None:
    """It is told to join again, and has its rebalance timeout to do so."""
    if not group.expects(member_id, REJOIN):
        patience_ms = group.subscriptions[member_id].rebalance_timeout_ms
        group.expect(member_id, REJOIN, now + patience_ms / 1000)


def _protocol(group: ConsumerGroup, member_id: str) -> str:
    terms = group.subscriptions[member_id].classic
    assert terms is not None, "only classic members have protocols"
    return terms.protocols[0][0]

"""What a heartbeat does to a consumer group: a member joins, changes its mind, comes closer, or leaves. Pure.

Sources of the rules: GroupMetadataManager.consumerGroupHeartbeat of Kafka 4.0. Unlike
there a member may join again with epoch 0 while it is one still: it says that it owns nothing, so nothing can
be lost by that, and the answer to its first join may have got lost.
Left to others: members that speak the classic protocol (classic_members.py), groups that do (migration.py).
"""

from dataclasses import replace

from ....protocol.errors import ApiError, ErrorCode, error_for
from .group import REJOIN, REVOCATION, SYNC, ConsumerGroup
from .reconciliation import next_step
from .state import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_PARTITIONS,
    NOT_GIVEN,
    Beat,
    Beaten,
    MemberState,
    Partitions,
    Progress,
    Subject,
    Subscription,
    Topics,
)
from .target import expression, refresh, retarget

MEMBERS_NAME_THEMSELVES_SINCE = 1


def check(beat: Beat, version: int, assignors: tuple[str, ...]) -> None:
    """Raises ApiError if the request makes no sense in itself."""
    wrong = _wrong(beat, version)
    if wrong is not None:
        raise error_for(ErrorCode.INVALID_REQUEST, wrong)
    if beat.assignor is not None and beat.assignor not in assignors:
        raise error_for(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    if beat.regex:
        expression(beat.regex)


def _wrong(beat: Beat, version: int) -> str | None:
    names = {"MemberId": beat.member_id, "InstanceId": beat.instance_id, "RackId": beat.rack_id}
    if beat.epoch == JOINING_EPOCH and version < MEMBERS_NAME_THEMSELVES_SINCE:
        del names["MemberId"]
    for name, value in names.items():
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if beat.epoch == JOINING_EPOCH:
        if beat.rebalance_timeout_ms == NOT_GIVEN:
            return "RebalanceTimeoutMs must be provided in first request."
        if beat.owned is None or beat.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if beat.topics is None and beat.regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif beat.epoch == LEAVING_FOR_A_WHILE_EPOCH and beat.instance_id is None:
        return "InstanceId can't be null."
    elif beat.epoch < LEAVING_FOR_A_WHILE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def heartbeat(group: ConsumerGroup, beat: Beat, topics: Topics, now: float) -> Beaten:
    """A member joins, or is alive; the answer tells it what it may have. Raises ApiError."""
    _admit(group, beat)
    member_id = beat.member_id
    before = group.progress_of(member_id)
    advance(group, member_id, _said(group, beat), beat.owned, topics)
    after = group.progress_of(member_id)
    group.heard(member_id, now)
    for what in (REJOIN, SYNC):  # of the time when it spoke the classic protocol
        group.has_done(member_id, what)
    if after.state is not MemberState.UNREVOKED:
        group.has_done(member_id, REVOCATION)
    elif before.state is not MemberState.UNREVOKED or before.epoch != after.epoch:
        patience_ms = group.subscriptions[member_id].rebalance_timeout_ms
        group.expect(member_id, REVOCATION, now + patience_ms / 1000)
    tells = beat.is_whole or before.assigned != after.assigned
    return Beaten(
        member_id=member_id,
        epoch=after.epoch,
        interval_ms=group.limits.interval_ms,
        assignment=after.assigned if tells else None,
    )


def advance(
    group: ConsumerGroup, member_id: str, said: Subscription, owned: Partitions | None, topics: Topics
) -> None:
    """Take in what a member says, compute a new target if anything has changed, and move one step on."""
    before = group.subscriptions.get(member_id)
    group.put(Subject.SUBSCRIPTION, said, member_id)
    changed = before is None or (before.topics, before.regex) != (said.topics, said.regex)
    if changed or group.seen is not topics:
        changed = refresh(group, topics) or changed
    if changed:
        group.put(Subject.EPOCH, group.epoch + 1)
    retarget(group, topics)
    step = next_step(
        group.progress_of(member_id), group.target_of(member_id), group.target_epoch, group.owners, owned
    )
    group.put(Subject.PROGRESS, step, member_id)


def leave_for_a_while(group: ConsumerGroup, member_id: str) -> None:
    """A static member will come back: it keeps its place until its session ends, but revokes nothing more."""
    progress = group.progress_of(member_id)
    away = replace(progress, epoch=LEAVING_FOR_A_WHILE_EPOCH, revoking=NO_PARTITIONS)
    group.put(Subject.PROGRESS, away, member_id)


def remove(group: ConsumerGroup, member_ids: list[str], topics: Topics, now: float) -> None:
    """These are members no more; what they had is free."""
    for member_id in member_ids:
        drop(group, member_id)
    refresh(group, topics)
    group.put(Subject.EPOCH, group.epoch + 1)
    if not group.subscriptions:
        group.since = now


def drop(group: ConsumerGroup, member_id: str) -> None:
    """Remove all facts of a member."""
    for subject in (Subject.PROGRESS, Subject.TARGET, Subject.SUBSCRIPTION):
        group.put(subject, None, member_id)


def take_place(group: ConsumerGroup, old_id: str, new_id: str) -> None:
    """A static member is back under a new id: it takes over the old one's place, and begins at epoch 0."""
    said, target, progress = group.subscriptions[old_id], group.target_of(old_id), group.progress_of(old_id)
    drop(group, old_id)
    group.forget(new_id)
    group.put(Subject.SUBSCRIPTION, said, new_id)
    group.put(Subject.TARGET, target, new_id)
    state = MemberState.STABLE if not progress.revoking else progress.state
    began = replace(progress, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH, state=state)
    group.put(Subject.PROGRESS, began, new_id)


def unknown(group: ConsumerGroup, member_id: str, error: ErrorCode) -> ApiError:
    """Why this caller is not the member it says it is."""
    if error is ErrorCode.FENCED_INSTANCE_ID:
        return error_for(error, f"member {member_id} was replaced by another with its instance id")
    return error_for(error, f"Member {member_id} is not a member of group {group.name}.")


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raises ApiError if a newcomer finds the group full."""
    most = group.limits.members_max
    is_known = member_id in group.subscriptions or instance_id in group.static_ids
    if not is_known and len(group.subscriptions) >= most:
        raise error_for(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def _admit(group: ConsumerGroup, beat: Beat) -> None:
    """Raises ApiError if this is no member that may go on, nor one that may join."""
    check_room(group, beat.member_id, beat.instance_id)
    if beat.epoch != JOINING_EPOCH:
        error = group.check(beat.member_id, beat.instance_id)
        if error is not ErrorCode.NONE:
            raise unknown(group, beat.member_id, error)
        _check_epoch(group.progress_of(beat.member_id), beat)
        return
    if beat.member_id not in group.subscriptions:
        group.forget(beat.member_id)
    current = group.static_ids.get(beat.instance_id) if beat.instance_id is not None else None
    if current is None or current == beat.member_id:
        return
    is_away = group.progress_of(current).epoch == LEAVING_FOR_A_WHILE_EPOCH
    if not is_away and not group.speaks_classic(current):
        raise error_for(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group "
            f"because the instance id is owned by {current} member.",
        )
    take_place(group, current, beat.member_id)


def _check_epoch(progress: Progress, beat: Beat) -> None:
    """A member one answer behind may go on, if it owns no more than it should: that answer got lost."""
    if beat.epoch == progress.epoch:
        return
    behind = beat.epoch == progress.previous_epoch and beat.epoch < progress.epoch
    if behind and beat.owned is not None and beat.owned <= progress.assigned:
        return
    raise error_for(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member has epoch {beat.epoch}, but the group coordinator expects {progress.epoch}. "
        "The member must abandon all its partitions and rejoin.",
    )


def _said(group: ConsumerGroup, beat: Beat) -> Subscription:
    """What the member says of itself now. Who joins says everything anew."""
    joins = beat.epoch == JOINING_EPOCH
    before = group.subscriptions.get(beat.member_id, Subscription())
    timeout_ms = beat.rebalance_timeout_ms
    return Subscription(
        instance_id=beat.instance_id or before.instance_id,
        rack_id=beat.rack_id or before.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=timeout_ms if timeout_ms != NOT_GIVEN else before.rebalance_timeout_ms,
        topics=beat.topics if beat.topics is not None else frozenset() if joins else before.topics,
        regex=(beat.regex or None) if beat.regex is not None or joins else before.regex,
        assignor=beat.assignor or (None if joins else before.assignor),
    )

"""OffsetCommit 2-9 and OffsetFetch 1-9: the offsets from which a group goes on reading.

OffsetCommit: v2-4 a retention of its own · v6 leader epoch · v7 static members · v8 flexible
OffsetFetch: v2 null means all, an error for the whole · v5 leader epoch · v6 flexible · v7 require_stable:
UNSTABLE_OFFSET_COMMIT while a transaction has an offset pending · v8 several groups · v9 member id and epoch
of KIP-848
A commit is answered when its record is committed; each partition that cannot be committed has its own error.
Left to others: who may commit (groups/group.py), how it is written (groups/coordinator.py).
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ....base.types import NO_OFFSET, TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode, NotCoordinator, UnsupportedVersion, error_for
from ....protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    TxnOffsetCommitRequestTopic,
)
from ...context import BrokerContext
from ...coordinator_partitions import partition_of
from ...groups.consumer.group import ConsumerGroup
from ...groups.offsets import NO_EXPIRY, GroupOffset
from ...internal_topics.leads_still import leads_still
from ...network.exchange import Exchange, HandlerEntry
from ...topic_names import OFFSETS_TOPIC

SEVERAL_GROUPS_SINCE = 8
EPOCHS_SINCE = 9  # of OffsetCommit
NO_RETENTION = -1
INT64_MAX = (1 << 63) - 1  # all that a record can hold
NOTHING = GroupOffset(offset=NO_OFFSET, leader_epoch=-1, metadata="", commit_ms=-1)
UNSTABLE = GroupOffset(offset=NO_OFFSET, leader_epoch=-1, metadata="", commit_ms=-1)
"""Stands for an offset that was to be stable: it may soon be another, without any further commit."""

CommittedTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
Wanted = Iterable[tuple[str, Sequence[int]]]  # topics with their partitions
Found = list[tuple[str, list[tuple[int, GroupOffset]]]]


def commit(broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> None:
    """Parked until the offsets are committed; a refused partition does not affect the others."""
    offsets, errors = offsets_in(broker, request.topics, request.retention_time_ms)

    def done(error: ErrorCode) -> None:
        exchange.answer(_commit_response(request, errors, error))

    if exchange.version < EPOCHS_SINCE:
        _check_knows_generations(broker, request)
    member = (request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    broker.groups.commit(request.group_id, member, offsets, done)


def _check_knows_generations(broker: BrokerContext, request: OffsetCommitRequest) -> None:
    """Before v9 a request cannot come from a member that has epochs. Raises ApiError if it does."""
    held = broker.groups.find(request.group_id, empty_name_ok=True)
    group = held.group if held is not None else None
    if not isinstance(group, ConsumerGroup) or request.member_id not in group.subscriptions:
        return
    if not group.speaks_classic(request.member_id):
        raise UnsupportedVersion("OffsetCommit version 9 or above must be used by members with epochs")


def offsets_in(
    broker: BrokerContext, topics: Sequence[CommittedTopic], retention_ms: int = NO_RETENTION
) -> tuple[dict[TopicPartition, GroupOffset], dict[TopicPartition, ErrorCode]]:
    """The offsets of a request that may be committed, and why the others may not."""
    errors: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, GroupOffset] = {}
    now_ms = broker.groups.wall_ms()
    for topic in topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            note = partition.committed_metadata or ""
            if len(note) > broker.config.groups.offset_metadata_bytes_max:
                errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif broker.metadata.partition(*tp) is None:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                expire_ms = (
                    NO_EXPIRY if retention_ms == NO_RETENTION else min(now_ms + retention_ms, INT64_MAX)
                )
                offsets[tp] = GroupOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=note,
                    commit_ms=now_ms,
                    expire_ms=expire_ms,
                )
    return offsets, errors


def _commit_response(
    request: OffsetCommitRequest, errors: dict[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get(TopicPartition(topic.name, each.partition_index), otherwise),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse_commit(request: OffsetCommitRequest, error: ApiError) -> OffsetCommitResponse:
    return _commit_response(request, {}, error.code)


async def fetch(
    broker: BrokerContext, exchange: Exchange, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Committed offsets; -1 where there is none, also for a group that does not exist."""
    several = exchange.version >= SEVERAL_GROUPS_SINCE
    names = [each.group_id for each in request.groups] if several else [request.group_id]
    await _settle_doubts(broker, names)
    if several:
        stable = request.require_stable
        groups = [_of_group(broker, each, stable) for each in request.groups]
        return OffsetFetchResponse(groups=groups)
    found = _committed(broker, request.group_id, _asked(request.topics), request.require_stable)
    return OffsetFetchResponse(topics=[_topic(name, partitions) for name, partitions in found])


async def _settle_doubts(broker: BrokerContext, groups: Sequence[str]) -> None:
    """Where another broker may coordinate a group, and take newer offsets, wait until it surely does not.
    Raises NotCoordinator if that is not known in time.
    """
    count = broker.groups.partition_count()
    places = {TopicPartition(OFFSETS_TOPIC, partition_of(group, count)) for group in groups}
    held = [each for place in places if (each := broker.replicas.find(place)) is not None]
    doubtful = [each for each in held if each.is_in_doubt or each.changing]
    if doubtful and not all(await asyncio.gather(*map(leads_still, doubtful))):
        raise NotCoordinator("another broker may coordinate the group by now")


def _asked(
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
) -> Wanted | None:
    return None if topics is None else [(each.name, each.partition_indexes) for each in topics]


def _committed(broker: BrokerContext, group_id: str, wanted: Wanted | None, stable: bool) -> Found:
    held = broker.groups.find(group_id, empty_name_ok=True)
    if held is None or held.group.is_dead:  # its tombstones are on their way to the log
        return [(name, [(index, NOTHING) for index in indexes]) for name, indexes in wanted or ()]
    unstable = held.offsets.unsettled if stable else ()
    if wanted is None:
        wanted = [(name, [index for index, _ in each]) for name, each in held.offsets.by_topic().items()]
    found: Found = []
    for name, indexes in wanted:
        places = [TopicPartition(name, index) for index in indexes]
        offsets = [UNSTABLE if tp in unstable else held.offsets.get(tp) or NOTHING for tp in places]
        found.append((name, list(zip(indexes, offsets, strict=True))))
    return found


def _check_member(broker: BrokerContext, asked: OffsetFetchRequestGroup) -> None:
    """A member of a consumer group must have its newest epoch: else it may ask for what is no longer its own.
    Raises ApiError.
    """
    held = broker.groups.find(asked.group_id, empty_name_ok=True)
    if held is None or not isinstance(held.group, ConsumerGroup):
        return
    if asked.member_id is None and asked.member_epoch < 0:
        return
    error = held.group.epoch_error(asked.member_id or "", asked.member_epoch)
    if error is not ErrorCode.NONE:
        raise error_for(error)


def _of_group(
    broker: BrokerContext, asked: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    """From v8 on each group has its own error."""
    group_id = asked.group_id
    try:
        _check_member(broker, asked)
        found = _committed(broker, group_id, _asked(asked.topics), stable)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error.code)
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else ErrorCode.NONE,
                )
                for index, committed in partitions
            ],
        )
        for name, partitions in found
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _topic(
    name: str, partitions: list[tuple[int, GroupOffset]], error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else error,
            )
            for index, committed in partitions
        ],
    )


def refuse_fetch(request: OffsetFetchRequest, error: ApiError) -> OffsetFetchResponse:
    """v1 has no error for the whole response, so every partition repeats it; from v8 each group has it."""
    topics = [
        _topic(topic.name, [(index, NOTHING) for index in topic.partition_indexes], error.code)
        for topic in request.topics or []
    ]
    groups = [
        OffsetFetchResponseGroup(group_id=each.group_id, topics=[], error_code=error.code)
        for each in request.groups
    ]
    return OffsetFetchResponse(topics=topics, error_code=error.code, groups=groups)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.OFFSET_COMMIT: HandlerEntry(commit, refuse_commit),
    Api.OFFSET_FETCH: HandlerEntry(fetch, refuse_fetch),
}

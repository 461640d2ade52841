"""Writes offsets to a consumer group, so that others see how far a read is. Nothing here reads them.

Spark's own progress lives in its checkpoint. A commit that fails is logged and does not end a query.
"""

from collections.abc import Mapping
from typing import TypeAlias

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, UnknownTopicOrPartition, error_for
from ...protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ...protocol.messages.groups import FindCoordinatorRequest
from .client import SparkCluster

log = get_logger(__name__)

Reasons: TypeAlias = Mapping[TopicPartition, str]


def commit(
    cluster: SparkCluster, group: str, offsets: Mapping[TopicPartition, int], told: Reasons | None = None
) -> Reasons:
    """Commit the next offsets; returns why those of some partitions were not.

    Only these are sent again. A reason is logged unless it was `told`.
    """
    left = dict(offsets)
    reasons: dict[TopicPartition, str] = {}
    for attempt in range(cluster.options.retries + 1):
        if attempt:
            cluster.sleep(cluster.options.retry_seconds)
        errors: Mapping[TopicPartition, Exception]
        try:
            errors = _commit(cluster, group, left)
        except (OSError, ApiError) as trouble:
            errors = dict.fromkeys(left, trouble)
        final = {tp: reason for tp, reason in reasons.items() if tp not in left}
        reasons = final | {tp: str(error) for tp, error in errors.items()}
        left = {tp: left[tp] for tp, error in errors.items() if _may_pass(error)}
        if not left:
            break
    _tell(group, {tp: reason for tp, reason in reasons.items() if (told or {}).get(tp) != reason})
    return reasons


def _may_pass(error: Exception) -> bool:
    """Whether it is worth a wait. A topic that was read and is not known has been deleted."""
    if isinstance(error, ApiError):
        return error.retriable and not isinstance(error, UnknownTopicOrPartition)
    return True


def _tell(group: str, reasons: Reasons) -> None:
    for reason in sorted(set(reasons.values())):
        named = ", ".join(str(tp) for tp in sorted(reasons) if reasons[tp] == reason)
        log.warning("offsets_not_committed", group=group, partitions=named, reason=reason)


def _commit(
    cluster: SparkCluster, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ApiError]:
    """One attempt; the errors by partition."""
    if not cluster.view.brokers:
        cluster.refresh(())
    found = cluster.ask_any(FindCoordinatorRequest(key=group))
    if found.error_code:
        raise error_for(found.error_code)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        topics.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    response = cluster.ask((found.host, found.port), request)
    return {
        TopicPartition(topic.name, part.partition_index): error_for(part.error_code)
        for topic in response.topics
        for part in topic.partitions
        if part.error_code
    }

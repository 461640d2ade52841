"""Writes offsets to a consumer group, so that others see how far a read is. Nothing here reads them.

Spark's own progress lives in its checkpoint. A commit that fails is logged and does not end a query.
"""

from collections.abc import Mapping

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, error_for
from ...protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ...protocol.messages.groups import FindCoordinatorRequest
from .client import SparkCluster, passing

log = get_logger(__name__)


def commit(cluster: SparkCluster, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit the next offsets; whether that was done."""
    trouble: Exception | None = None
    for attempt in range(cluster.options.retries + 1):
        if attempt:
            cluster.sleep(cluster.options.retry_seconds)
        try:
            _commit(cluster, group, offsets)
            return True
        except OSError as error:
            trouble = error
        except ApiError as error:
            trouble = error
            if not error.retriable:
                break
    log.warning("offsets_not_committed", group=group, reason=str(trouble))
    return False


def _commit(cluster: SparkCluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    if not cluster.view.brokers:
        cluster.refresh(())
    found = cluster.ask_any(FindCoordinatorRequest(key=group))
    if found.error_code:
        raise passing(error_for(found.error_code))
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
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                raise passing(error_for(part.error_code))

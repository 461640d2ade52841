"""What a group has read: offsets committed to its coordinator, and fetched from there.

Left to others: membership (group.py), when to commit (consumer.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from ..protocol.errors import ApiError, ErrorCode, IllegalGeneration, error_for
from ..protocol.kinds import TopicPartition
from ..protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from .cluster import Cluster
from .shapes import CommittedOffset

COORDINATOR_ERRORS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class CommitFailed(IllegalGeneration):
    """The consumer has subscribed and is no member of its group now: others may have its partitions, and a
    commit could take the group back behind theirs. It is a member again after it has polled and joined."""


class Seat(NamedTuple):
    """A member's place in a generation of its group; the default is no membership at all."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    def may_commit(self, group: str) -> Self:
        """Itself, if it is a seat in a generation; raises CommitFailed."""
        if self.generation < 0:
            raise CommitFailed(
                f"this consumer is no member of {group} now, so its offsets are not committed; "
                "poll() lets it join again (were the pauses between polls over max_poll_interval_ms?)"
            )
        return self


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    deadline: float,
    seat: Seat | None = None,
) -> None:
    """Commit; raises the first refusal (ILLEGAL_GENERATION and the like when `seat` is no longer valid)."""
    generation, member_id, instance_id = seat or Seat()
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, one in offsets.items():
        part = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=one.offset,
            committed_leader_epoch=one.leader_epoch,
            committed_metadata=one.metadata,
        )
        topics.setdefault(partition.topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    async def attempt() -> None:
        answer: OffsetCommitResponse = await ask_coordinator(cluster, group, request, deadline)
        for topic in answer.topics:
            for one in topic.partitions:
                check(cluster, group, one.error_code, f"{topic.name}-{one.partition_index}")

    await cluster.persist(attempt, deadline)


async def fetch_committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, deadline: float
) -> dict[TopicPartition, CommittedOffset]:
    """Committed offsets; None asks for all of the group. Partitions without one are left out."""
    topics: dict[str, list[int]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(partition.partition)
    asked = [
        OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
    ]
    request = OffsetFetchRequest(
        group_id=group, topics=None if partitions is None else asked, require_stable=True
    )

    async def attempt() -> dict[TopicPartition, CommittedOffset]:
        answer: OffsetFetchResponse = await ask_coordinator(cluster, group, request, deadline)
        check(cluster, group, answer.error_code, group)
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                check(cluster, group, one.error_code, str(partition))
                if one.committed_offset >= 0:
                    found[partition] = CommittedOffset(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
        return found

    return await cluster.persist(attempt, deadline)


async def ask_coordinator(
    cluster: Cluster, group: str, request: object, deadline: float, channel: str = "main"
) -> Any:
    """Ask the group's coordinator once; one that cannot be reached is looked up again next time."""
    node = await cluster.coordinator(group, deadline)
    try:
        return await cluster.request(node, request, deadline, channel)
    except (OSError, ApiError):
        cluster.forget_coordinator(group)
        raise


def check(cluster: Cluster, group: str, code: int, subject: str) -> None:
    """Raise what `code` says; a coordinator that is none is forgotten first."""
    if code in COORDINATOR_ERRORS:
        cluster.forget_coordinator(group)
    if code:
        raise error_for(code, subject)

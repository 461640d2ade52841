"""Committed offsets of a group: written to its coordinator, and fetched from there.

An offset that is written late moves the group back. So commits of one consumer go one at a time (`Commits`),
and only what was refused is sent again.
Left to others: membership (group.py), when to commit (consumer.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode, IllegalGeneration, RequestTimedOut, error_for
from ...protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ..network.cluster import Cluster
from ..results import CommittedOffset

COORDINATOR_ERRORS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


Accepted = Callable[[Mapping[TopicPartition, CommittedOffset]], None]


class CommitFailed(IllegalGeneration):
    """The consumer has subscribed but is not a member of its group now. Others may have its partitions, and
    its commit could move the group back. It is a member again after it has polled and joined."""


class GroupMember(NamedTuple):
    """What a member shows of itself to its coordinator; the default is no membership at all."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    def may_commit(self, group: str) -> Self:
        """Itself, if it belongs to a generation; else raises CommitFailed."""
        if self.generation < 0:
            raise CommitFailed(
                f"this consumer has left group {group}, so its offsets were not committed; poll() "
                "rejoins the group. Was a pause between polls longer than max_poll_interval_ms?"
            )
        return self


class Commit:
    """Offsets on their way to the coordinator: `accepted`, `missing`, or `unknown` if the partition is gone.

    A coordinator may not know a new topic yet, so that is retried. But if metadata does not know the topic
    any more either, its offsets are refused at once, as in Kafka's clients, and hold up no other commit.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: GroupMember | None,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._member = member or GroupMember()
        self.offsets = offsets
        self.missing = dict(offsets)
        self.accepted: dict[TopicPartition, int] = {}
        self.unknown: list[TopicPartition] = []

    async def write(self, deadline: float, *, once: bool = False) -> None:
        """Commit, with generation and member id if there is a membership. Raises what prevents it."""

        async def attempt() -> None:
            self._absorb(await ask_coordinator(self._cluster, self._group, self._request(), deadline))

        await self._cluster.persist(attempt, self._cluster.now() if once else deadline)
        if self.unknown:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(map(str, self.unknown)))

    def _request(self) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, one in self.missing.items():
            part = OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
            topics.setdefault(partition.topic, []).append(part)
        return OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._member.instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

    def _absorb(self, answer: OffsetCommitResponse) -> None:
        refused: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                if partition not in self.missing:
                    continue
                if one.error_code == ErrorCode.NONE:
                    self.accepted[partition] = self.missing.pop(partition).offset
                elif one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._is_there(partition):
                    del self.missing[partition]
                    self.unknown.append(partition)
                else:
                    refused[partition] = one.error_code
        for partition, code in refused.items():
            check(self._cluster, self._group, code, str(partition))

    def _is_there(self, partition: TopicPartition) -> bool:
        topic = self._cluster.view.topics.get(partition.topic)
        return topic is not None and not topic.is_gone and partition.partition in topic.partitions


class Commits:
    """All commits of one consumer, one at a time. `latest` has the offsets that they committed last."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.latest: dict[TopicPartition, int] = {}
        self.on_accepted: Accepted = lambda offsets: None

    @asynccontextmanager
    async def turn(self, deadline: float) -> AsyncIterator[None]:
        """Wait until no other commit is under way. Only then look up what the caller is done with."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise RequestTimedOut("an earlier commit is still in progress") from None
        try:
            yield
        finally:
            self._turn.release()

    async def write(self, commit: Commit, deadline: float, *, once: bool = False) -> None:
        """Commit, inside `turn`."""
        assert self._turn.locked(), "a commit holds the lock"
        try:
            await commit.write(deadline, once=once)
        finally:
            self.latest |= commit.accepted
            if commit.accepted:
                self.on_accepted({partition: commit.offsets[partition] for partition in commit.accepted})


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
    """Ask the group's coordinator once. If it cannot be reached, it is looked up again next time."""
    node = await cluster.coordinator(group, deadline)
    try:
        return await cluster.request(node, request, deadline, channel)
    except (OSError, ApiError):
        cluster.forget_coordinator(group)
        raise


def check(cluster: Cluster, group: str, code: int, subject: str) -> None:
    """Raise the error of `code`, if any. If the broker is not the coordinator, forget it first."""
    if code in COORDINATOR_ERRORS:
        cluster.forget_coordinator(group)
    if code:
        raise error_for(code, subject)

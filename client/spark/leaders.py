"""Questions that only a partition's leader can answer: one request per leader for many partitions.

A leader may be moving or dying. Partitions without an answer are asked for again, after a look for their
leaders, for a while.
Left to others: connections and metadata (client.py), what follows from the answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, NotLeaderOrFollower, error_for
from ...protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ...protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from .client import (
    BACKOFF_FIRST,
    BACKOFF_MAX,
    SETTLE_SECONDS_MAX,
    Address,
    SparkCluster,
    error_about,
    passing,
)

LARGEST_TIMESTAMP = -3
CONSUMER = -1

T = TypeVar("T")
ByTopic = dict[str, list[tuple[int, int]]]  # partitions with their leader epochs


class ListedOffset(NamedTuple):
    """An answer of ListOffsets. Offset -1: no record is that new."""

    offset: int
    epoch: int
    timestamp: int = -1


class EpochEnd(NamedTuple):
    """The end of the largest leader epoch that is not above the one asked for; -1, -1 if unknown."""

    epoch: int
    offset: int


class Question(ABC, Generic[T]):
    """One request for many partitions of a leader, and how its answer is read."""

    @abstractmethod
    def request(self, asked: ByTopic) -> object:
        """The request for those partitions."""

    @abstractmethod
    def answers(self, response: Any) -> Iterator[tuple[TopicPartition, int, T]]:
        """Partition, error code and answer, for each."""


def list_offsets(
    cluster: SparkCluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ListedOffset]:
    """Offsets by time in ms, or EARLIEST, LATEST, LARGEST_TIMESTAMP."""
    return ask(cluster, wanted, OffsetsAt(wanted, cluster.options.isolation))


def epoch_ends(cluster: SparkCluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """Where leader epochs end in the logs of today's leaders."""
    return ask(cluster, epochs, _EpochEnds(epochs))


def log_sizes(cluster: SparkCluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of the leaders' logs; 0 where the leader does not tell."""
    wanted = set(partitions)
    return {**dict.fromkeys(wanted, 0), **ask(cluster, wanted, LogSizes())}


def known(
    cluster: SparkCluster, wanted: Iterable[TopicPartition], question: Question[T]
) -> dict[TopicPartition, T]:
    """The answers of those leaders that are there; the others are asked again a few times, and left out."""
    wanted = set(wanted)
    found: dict[TopicPartition, T] = {}
    for attempt in range(cluster.options.retries + 1):
        if attempt:
            cluster.sleep(cluster.options.retry_seconds)
            with suppress(OSError):
                cluster.refresh({tp.topic for tp in wanted})
        if _ask_once(cluster, sorted(wanted - found.keys()), question, found) is None:
            break
    return found


def ask(
    cluster: SparkCluster, wanted: Iterable[TopicPartition], question: Question[T]
) -> dict[TopicPartition, T]:
    """Ask all leaders, until each has answered; waits for leaders to be found."""
    wanted = set(wanted)
    found: dict[TopicPartition, T] = {}
    deadline = cluster.now() + SETTLE_SECONDS_MAX
    backoff = BACKOFF_FIRST
    while True:
        trouble = _ask_once(cluster, sorted(wanted - found.keys()), question, found)
        if trouble is None:
            return found
        if cluster.now() > deadline:
            raise _waited_for(trouble)
        cluster.sleep(backoff)
        backoff = min(2 * backoff, BACKOFF_MAX)
        with suppress(OSError):
            cluster.refresh({tp.topic for tp in wanted})


def _waited_for(trouble: Exception) -> Exception:
    """What a query ends with that has waited long enough: so it says, and nobody need try that again."""
    if not isinstance(trouble, ApiError):
        return trouble
    return error_for(trouble.code, f"{trouble.message} (asked for {SETTLE_SECONDS_MAX:g} s)")


def _ask_once(
    cluster: SparkCluster,
    wanted: Iterable[TopicPartition],
    question: Question[T],
    found: dict[TopicPartition, T],
) -> Exception | None:
    """Fill `found` as far as leaders answer; returns why the rest is still missing."""
    trouble: Exception | None = None
    by_leader: dict[Address, ByTopic] = {}
    for tp in wanted:
        try:
            leader = cluster.leader(tp)
        except NotLeaderOrFollower as error:
            trouble = error
            continue
        by_leader.setdefault(leader.address, {}).setdefault(tp.topic, []).append((tp.partition, leader.epoch))
    for address, asked in by_leader.items():
        try:
            response = cluster.ask(address, question.request(asked))
        except OSError as error:
            trouble = error
            continue
        for tp, code, answer in question.answers(response):
            if code:
                trouble = passing(error_about(code, tp))
            else:
                found[tp] = answer
    return trouble


class OffsetsAt(Question[ListedOffset]):
    """Offsets by time in ms, or EARLIEST, LATEST, LARGEST_TIMESTAMP."""

    def __init__(self, wanted: Mapping[TopicPartition, int], isolation: int) -> None:
        self._wanted = wanted
        self._isolation = isolation

    def request(self, asked: ByTopic) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            isolation_level=self._isolation,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            current_leader_epoch=epoch,
                            timestamp=self._wanted[TopicPartition(topic, number)],
                        )
                        for number, epoch in numbers
                    ],
                )
                for topic, numbers in asked.items()
            ],
        )

    def answers(self, response: Any) -> Iterator[tuple[TopicPartition, int, ListedOffset]]:
        for topic in response.topics:
            for part in topic.partitions:
                listed = ListedOffset(part.offset, part.leader_epoch, part.timestamp)
                yield TopicPartition(topic.name, part.partition_index), part.error_code, listed


class _EpochEnds(Question[EpochEnd]):
    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def request(self, asked: ByTopic) -> OffsetForLeaderEpochRequest:
        return OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=number,
                            current_leader_epoch=epoch,
                            leader_epoch=self._epochs[TopicPartition(topic, number)],
                        )
                        for number, epoch in numbers
                    ],
                )
                for topic, numbers in asked.items()
            ],
        )

    def answers(self, response: Any) -> Iterator[tuple[TopicPartition, int, EpochEnd]]:
        for topic in response.topics:
            for part in topic.partitions:
                end = EpochEnd(part.leader_epoch, part.end_offset)
                yield TopicPartition(topic.topic, part.partition), part.error_code, end


class LogSizes(Question[int]):
    """The bytes of the leaders' logs."""

    def request(self, asked: ByTopic) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=topic, partitions=[number for number, _ in numbers])
                for topic, numbers in asked.items()
            ]
        )

    def answers(self, response: Any) -> Iterator[tuple[TopicPartition, int, int]]:
        for directory in response.results:
            for topic in directory.topics:
                for part in topic.partitions:
                    if not part.is_future_key:
                        yield TopicPartition(topic.name, part.partition_index), 0, part.partition_size

"""One round of a follower's questions to one leader: the requests, and what is done with the answers.

What was asked is kept beside the followership that asked it; an answer for one that has ended since, or
for a log that has changed since, is dropped.
Left to others: connections, delays and rounds (fetchers.py), the rules (replication/follower.py).
"""

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

import structlog

from ..protocol.kinds import NO_EPOCH, Epoch, Offset, TopicPartition
from ..protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ..protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..protocol.primitives import Slices
from ..replication.follower import AskEpochEnd, AskRecords, Follower, Reaction
from ..storage.disk import DiskError
from ..storage.log import CorruptBatch, OffsetGap
from .config_sections import ReplicationConfig
from .host import Host
from .partition import Partition

log = structlog.get_logger(__name__)

FETCH_VERSION = 17
EPOCH_VERSION = 4
NO_SESSION_EPOCH = -1  # each fetch names all its partitions

Failed = dict[Partition, str]


class EpochRound:
    """OffsetForLeaderEpoch for all followers that must find out what to cut."""

    def __init__(self, host: Host, partitions: Iterable[Partition]) -> None:
        self._host = host
        self._asked: dict[TopicPartition, tuple[Partition, Follower, AskEpochEnd]] = {}
        for partition in partitions:
            follower = partition.following
            question = follower.question() if follower is not None else None
            if follower is not None and isinstance(question, AskEpochEnd):
                self._asked[partition.tp] = (partition, follower, question)

    def __bool__(self) -> bool:
        return bool(self._asked)

    def request(self) -> OffsetForLeaderEpochRequest:
        """One request for all of them."""
        topics: defaultdict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for tp, (_, _, question) in self._asked.items():
            topics[tp.topic].append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=question.leader_epoch,
                    leader_epoch=question.epoch,
                )
            )
        return OffsetForLeaderEpochRequest(
            replica_id=self._host.me,
            topics=[OffsetForLeaderTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )

    def take(self, response: OffsetForLeaderEpochResponse) -> Failed:
        """Cut as the answers say; names the partitions to be asked for again later."""
        failed: Failed = {}
        for topic in response.topics:
            for answer in topic.partitions:
                asked = self._asked.get(TopicPartition(topic.topic, answer.partition))
                if asked is not None and asked[0].following is asked[1]:
                    _take_epoch_end(*asked, answer, failed)
        return failed


def _take_epoch_end(
    partition: Partition, follower: Follower, question: AskEpochEnd, answer: EpochEndOffset, failed: Failed
) -> None:
    if answer.error_code:
        if follower.refused(question, answer.error_code) is not Reaction.WAIT:
            failed[partition] = f"error {answer.error_code}"
        return
    try:
        effects = follower.epoch_ends(question, Epoch(answer.leader_epoch), Offset(answer.end_offset))
        partition.obey(effects, partition.host.cuts)
    except DiskError as error:
        partition.disk_failed(error)


class FetchRound:
    """Fetch for all followers whose history is known to be the leader's."""

    def __init__(self, host: Host, config: ReplicationConfig, partitions: Iterable[Partition]) -> None:
        self._host = host
        self._config = config
        self._asked: dict[tuple[UUID, int], tuple[Partition, Follower, AskRecords]] = {}
        for partition in partitions:
            follower = partition.following
            question = follower.question() if follower is not None else None
            topic_id = partition.log.topic_id
            if follower is not None and topic_id is not None and isinstance(question, AskRecords):
                self._asked[topic_id, partition.tp.partition] = (partition, follower, question)

    def __bool__(self) -> bool:
        return bool(self._asked)

    def request(self) -> FetchRequest:
        """One request for all of them."""
        config = self._config
        topics: defaultdict[UUID, list[FetchPartition]] = defaultdict(list)
        for (topic_id, index), (partition, _, question) in self._asked.items():
            topics[topic_id].append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=question.leader_epoch,
                    fetch_offset=question.offset,
                    last_fetched_epoch=question.last_epoch,
                    log_start_offset=partition.log.start_offset,
                    partition_max_bytes=config.fetch_max_bytes,
                )
            )
        return FetchRequest(
            replica_state=_identity(self._host),
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_response_max_bytes,
            session_id=0,
            session_epoch=NO_SESSION_EPOCH,
            topics=[FetchTopic(topic_id=topic_id, partitions=asked) for topic_id, asked in topics.items()],
        )

    def take(self, response: FetchResponse) -> Failed:
        """Write what came; names the partitions to be asked for again later."""
        if response.error_code:
            return {partition: f"error {response.error_code}" for partition, _, _ in self._asked.values()}
        failed: Failed = {}
        for topic in response.responses:
            for data in topic.partitions:
                asked = self._asked.get((topic.topic_id, data.partition_index))
                if asked is None or asked[0].following is not asked[1]:
                    continue
                partition = asked[0]
                try:
                    self._take(*asked, data, failed)
                except (CorruptBatch, OffsetGap) as error:
                    failed[partition] = str(error)
                except DiskError as error:
                    partition.disk_failed(error)
                    failed[partition] = str(error)
        return failed

    def _take(
        self,
        partition: Partition,
        follower: Follower,
        question: AskRecords,
        data: PartitionData,
        failed: Failed,
    ) -> None:
        if data.error_code:
            self._refused(partition, follower, question, data, failed)
            return
        parting = data.diverging_epoch
        if parting is not None and (parting.epoch, parting.end_offset) != (NO_EPOCH, -1):
            effects = follower.diverged(question, Epoch(parting.epoch), Offset(parting.end_offset))
            partition.obey(effects, self._host.cuts)
            return
        if not follower.accepts(question):
            return
        records = data.records
        if records:
            assert not isinstance(records, Slices), "what was received is one view of a frame"
            partition.log.append_replicated(records, follower.epoch, self._host.clock.wall_ms())
        partition.obey(follower.replicated(Offset(data.high_watermark)))
        partition.missing = max(data.high_watermark - partition.log.end_offset, 0)
        start = min(data.log_start_offset, follower.high_watermark)
        if start > partition.log.start_offset:
            partition.log.move_start(start)

    def _refused(
        self,
        partition: Partition,
        follower: Follower,
        question: AskRecords,
        data: PartitionData,
        failed: Failed,
    ) -> None:
        reaction = follower.refused(question, data.error_code)
        if reaction is Reaction.OUT_OF_RANGE:
            partition.obey(follower.out_of_range(question, Offset(data.log_start_offset)))
        if reaction is not Reaction.WAIT:
            failed[partition] = f"error {data.error_code}"


def nudge(host: Host) -> FetchRequest:
    """A fetch of nothing: the leader answers the one that it holds back, and then this one."""
    return FetchRequest(
        replica_state=_identity(host),
        max_wait_ms=0,
        min_bytes=0,
        session_id=0,
        session_epoch=NO_SESSION_EPOCH,
        topics=[],
    )


def _identity(host: Host) -> ReplicaState:
    return ReplicaState(replica_id=host.me, replica_epoch=host.incarnation)

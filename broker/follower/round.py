"""One round of requests to one leader (OffsetForLeaderEpoch, Fetch), and what is done with the responses.

Each question is kept with the `Follower` (one leader epoch of one replica) that asked it. An answer is
dropped if that role has ended, or the log has changed, since.
Left to others: connections, delays and rounds (fetcher.py), the rules (replication/follower.py).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import structlog

from ...base.types import Epoch, Offset, TopicPartition
from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ...protocol.messages.offsets import (
    EARLIEST,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...replication.follower import AskEpochEnd, AskRecords, Follower, Reaction
from ...storage.disk import DiskError
from ...storage.log.log import CorruptBatch, NotNext
from ..config.sections import ReplicationConfig
from ..replicas.partition import Partition
from ..replicas.shared import ReplicaShared
from ..replicas.truncation import PendingTruncation

logger = structlog.get_logger(__name__)

FETCH_VERSION = 17
EPOCH_VERSION = 4
START_VERSION = 9
NO_SESSION, NO_SESSION_EPOCH, FIRST_EPOCH = 0, -1, 0
EPOCH_MAX = (1 << 31) - 1
NAMED_MAX = 1000  # partitions in one request, so that neither side's event loop is busy for long
PART = 50  # partitions of a response handled in one loop turn: each may write two files
LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)

Failed = dict[Partition, str]
Strayed = tuple[Partition, Follower, AskRecords]  # who asked for what the leader does not have


class Outcome:
    """What came of a response, or of a part of one."""

    __slots__ = ("copied", "cuts", "failed", "partitions", "strayed")

    def __init__(self) -> None:
        self.partitions: list[Partition] = []  # of which it spoke
        self.failed: Failed = {}  # to ask for again later, with the reasons
        self.cuts: list[PendingTruncation] = []  # to be carried out
        self.copied: dict[Partition, tuple[int, bool]] = {}  # bytes, and whether it still lags
        self.strayed: list[Strayed] = []  # and the leader has not said where its log begins


class SessionLost(Exception):
    """The leader has another session or none: everything must be sent again."""


class EpochRound:
    """OffsetForLeaderEpoch for followers that must find out where to truncate; of thousands, for some."""

    def __init__(self, shared: ReplicaShared, partitions: Iterable[Partition]) -> None:
        self._shared = shared
        self._asked: dict[TopicPartition, tuple[Partition, Follower, AskEpochEnd]] = {}
        for partition in partitions:
            follower = partition.following
            if follower is not None and follower.must_truncate and len(self._asked) < NAMED_MAX:
                question = follower.question()
                assert isinstance(question, AskEpochEnd), "who must truncate asks where"
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
            replica_id=self._shared.me,
            topics=[OffsetForLeaderTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )

    def take(self, response: OffsetForLeaderEpochResponse) -> Outcome:
        """The truncations that the answers ask for."""
        outcome = Outcome()
        for topic in response.topics:
            for answer in topic.partitions:
                asked = self._asked.get(TopicPartition(topic.topic, answer.partition))
                if asked is not None:
                    outcome.partitions.append(asked[0])
                    if asked[0].following is asked[1]:
                        _take_epoch_end(*asked, answer, outcome)
        return outcome


def _take_epoch_end(
    partition: Partition,
    follower: Follower,
    question: AskEpochEnd,
    answer: EpochEndOffset,
    outcome: Outcome,
) -> None:
    if answer.error_code:
        reaction = follower.refused(question, answer.error_code)
        _wait_or_retry(partition, reaction, answer.error_code, outcome.failed)
        return
    try:
        effects = follower.epoch_ends(question, Epoch(answer.leader_epoch), Offset(answer.end_offset))
        outcome.cuts += partition.apply(effects)
    except DiskError as error:
        partition.disk_failed(error)
        outcome.failed[partition] = str(error)


Key = tuple[UUID, int]


class AskedPartition(NamedTuple):
    """What the session asks of one partition, as the leader knows it."""

    partition: Partition
    follower: Follower
    question: AskRecords
    log_start: int


class FollowerSession:
    """Our side of the fetch session with one leader (KIP-227): a fetch names only what has changed.

    A leader that keeps no session (of an earlier version) is sent everything each time.
    """

    def __init__(self) -> None:
        self.known: dict[Key, AskedPartition] = {}
        self.forgotten: dict[Key, str] = {}  # the next request removes them from the session; of which topic
        self.is_refused = False
        self.id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._keys: dict[Partition, Key] = {}

    @property
    def is_open(self) -> bool:
        """Whether the leader knows what we named before."""
        return self.id != NO_SESSION

    def ask(self, partition: Partition) -> tuple[Key, AskedPartition] | None:
        """Update what the leader knows. Returns what the next fetch must ask of it, if anything."""
        asked = _asked(partition)
        if asked is None or partition.log.topic_id is None:
            self.forget(partition)
            return None
        key = (partition.log.topic_id, partition.tp.partition)
        if self.known.get(key) == asked:
            return None
        self.known[key], self._keys[partition] = asked, key
        if self.forgotten:
            self.forgotten.pop(key, None)
        return key, asked

    def forget(self, partition: Partition) -> None:
        """Fetch nothing of this partition for now."""
        key = self._keys.pop(partition, None)
        if key is not None and self.known[key].partition is partition:
            del self.known[key]
            self.forgotten[key] = partition.tp.topic

    def ids(self) -> dict[str, UUID]:
        """The topics by name, as a leader of before KIP-516 (Fetch 12) calls them."""
        return {asked.partition.tp.topic: topic_id for (topic_id, _), asked in self.known.items()}

    def identity(self) -> tuple[int, int]:
        """Session id and epoch of the next request."""
        if self.is_refused:
            return NO_SESSION, NO_SESSION_EPOCH
        return self.id, self._epoch

    def answered(self, session_id: int) -> None:
        """The leader has accepted the last request."""
        self.is_refused = session_id == NO_SESSION
        self.id = session_id
        self._epoch = FIRST_EPOCH if self.is_refused else self._epoch % EPOCH_MAX + 1


class FetchRound:
    """Fetch for all followers whose logs are known to match the leader's.

    `partitions` are those that may have changed since the last round of this session, `silent` those that
    must wait or are gone. What is too much for one request is in `left`.
    """

    def __init__(
        self,
        shared: ReplicaShared,
        config: ReplicationConfig,
        partitions: Iterable[Partition],
        session: FollowerSession | None = None,
        silent: Iterable[Partition] = (),
        wait_s_max: float = math.inf,
    ) -> None:
        self._shared = shared
        self._config = config
        self._wait_ms = int(min(config.fetch_wait_max_ms, wait_s_max * 1000))
        self._session = session or FollowerSession()
        for partition in silent:
            self._session.forget(partition)
        self._named: list[tuple[Key, AskedPartition]] = []
        self.left: list[Partition] = []
        for partition in partitions:
            if len(self._named) >= NAMED_MAX and not self._session.is_refused:
                self.left.append(partition)
            elif (named := self._session.ask(partition)) is not None:
                self._named.append(named)

    def __bool__(self) -> bool:
        return bool(self._session.known)

    def request(self) -> FetchRequest:
        """The request: what has changed, or everything if the leader has no session."""
        config, session = self._config, self._session
        topics: defaultdict[tuple[UUID, str], list[FetchPartition]] = defaultdict(list)
        gone: defaultdict[tuple[UUID, str], list[int]] = defaultdict(list)
        for (topic_id, index), asked in self._named if session.is_open else session.known.items():
            topics[topic_id, asked.partition.tp.topic].append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=asked.question.leader_epoch,
                    fetch_offset=asked.question.offset,
                    last_fetched_epoch=asked.question.last_epoch,
                    log_start_offset=asked.log_start,
                    partition_max_bytes=config.fetch_max_bytes,
                )
            )
        for (topic_id, index), name in session.forgotten.items() if session.is_open else ():
            gone[topic_id, name].append(index)
        session.forgotten.clear()
        session_id, epoch = session.identity()
        return FetchRequest(
            replica_id=self._shared.me,
            replica_state=_identity(self._shared),
            max_wait_ms=0 if self.left else self._wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=asked)
                for (topic_id, name), asked in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=each)
                for (topic_id, name), each in gone.items()
            ],
        )

    def take(self, response: FetchResponse) -> Iterator[Outcome]:
        """Write the records, `PART` partitions per step. The event loop may run between two steps.

        Raises `SessionLost` if the leader does not know our session.
        """
        if response.error_code in LOST:
            raise SessionLost(f"the leader answered error {response.error_code}")
        outcome = Outcome()
        if response.error_code:
            outcome.partitions += [asked.partition for asked in self._session.known.values()]
            outcome.failed = dict.fromkeys(
                outcome.partitions, f"the leader answered error {response.error_code}"
            )
            yield outcome
            return
        self._session.answered(response.session_id)
        ids: dict[str, UUID] = {}
        for topic in response.responses:
            topic_id = topic.topic_id
            if topic.topic:
                ids = ids or self._session.ids()
                topic_id = ids.get(topic.topic, topic_id)
            for data in topic.partitions:
                if len(outcome.partitions) >= PART:
                    yield outcome
                    outcome = Outcome()
                asked = self._session.known.get((topic_id, data.partition_index))
                if asked is None:
                    continue
                outcome.partitions.append(asked.partition)
                if asked.partition.following is asked.follower:
                    _take_records(asked.partition, asked.follower, asked.question, data, outcome)
        yield outcome


def _take_records(
    partition: Partition, follower: Follower, question: AskRecords, data: PartitionData, outcome: Outcome
) -> None:
    try:
        if data.error_code:
            reaction = follower.refused(question, data.error_code)
            if reaction is Reaction.OUT_OF_RANGE and data.log_start_offset < 0:
                outcome.strayed.append((partition, follower, question))
            elif reaction is Reaction.OUT_OF_RANGE:
                effects = follower.out_of_range(question, Offset(data.log_start_offset))
                outcome.cuts += partition.apply(effects)
            _wait_or_retry(partition, reaction, data.error_code, outcome.failed)
        else:
            outcome.cuts += partition.replicate(question, data)
            if data.records:
                lags = partition.log.end_offset < data.high_watermark
                outcome.copied[partition] = len(data.records), lags
    except (CorruptBatch, NotNext) as error:
        outcome.failed[partition] = str(error)
    except DiskError as error:
        partition.disk_failed(error)
        outcome.failed[partition] = str(error)


class StartRound:
    """ListOffsets for followers outside of their leader's log. Ours say beside the error where it begins,
    Apache Kafka's do not.
    """

    def __init__(self, shared: ReplicaShared, strayed: Iterable[Strayed]) -> None:
        self._shared = shared
        self._asked = {each[0].tp: each for each in strayed}

    def request(self) -> ListOffsetsRequest:
        """One request for all of them."""
        topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for tp, (_, _, question) in self._asked.items():
            topics[tp.topic].append(
                ListOffsetsPartition(
                    partition_index=tp.partition,
                    current_leader_epoch=question.leader_epoch,
                    timestamp=EARLIEST,
                )
            )
        return ListOffsetsRequest(
            replica_id=self._shared.me,
            topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        )

    def take(self, response: ListOffsetsResponse) -> Outcome:
        """What the answers ask for: to begin anew where the leader's log begins, or to compare the ends. Who
        failed waits already: it has been refused a fetch.
        """
        outcome = Outcome()
        for topic in response.topics:
            for answer in topic.partitions:
                asked = self._asked.get(TopicPartition(topic.name, answer.partition_index))
                if asked is None or asked[0].following is not asked[1]:
                    continue
                partition, follower, question = asked
                if answer.error_code:
                    reaction = follower.refused(question, answer.error_code)
                    _wait_or_retry(partition, reaction, answer.error_code, outcome.failed)
                else:
                    effects = follower.out_of_range(question, Offset(answer.offset))
                    outcome.cuts += partition.apply(effects)
        return outcome


def _wait_or_retry(partition: Partition, reaction: Reaction, code: int, failed: Failed) -> None:
    if reaction is Reaction.WAIT:
        partition.shared.untold()
    else:
        failed[partition] = f"the leader answered error {code}"


def _asked(partition: Partition) -> AskedPartition | None:
    follower = partition.following
    question = follower.question() if follower is not None else None
    if follower is None or not isinstance(question, AskRecords):
        return None
    return AskedPartition(partition, follower, question, partition.log.start_offset)


def nudge(shared: ReplicaShared, session_id: int = NO_SESSION) -> FetchRequest:
    """An empty fetch: the leader answers our parked fetch first, then this one.

    With the id of a session it ends that session.
    """
    return FetchRequest(
        replica_id=shared.me,
        replica_state=_identity(shared),
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=NO_SESSION_EPOCH,
        topics=[],
    )


def _identity(shared: ReplicaShared) -> ReplicaState:
    return _state_of(shared.me, shared.incarnation)


@lru_cache(8)
def _state_of(me: int, incarnation: int) -> ReplicaState:
    return ReplicaState(replica_id=me, replica_epoch=incarnation, counts_starts=True)

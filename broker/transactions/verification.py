"""Asks coordinators whether partitions are in a producer's ongoing transaction (KIP-890 part 1).

Whoever is about to begin a transaction in a partition asks first. Without this, a batch that arrives after
its transaction was aborted would open it again, and nobody would ever end it. The coordinator leads the
transactional id's partition of `__transaction_state`. If that is another broker, it is asked over one kept
connection, one request at a time with all questions that have come meanwhile.
A question always has an answer: within two rounds of ASK_SECONDS_MAX, or an error code at once.
Left to others: what makes an answer void again (replicas/verification_guards.py), what the coordinator says
(coordinator.py), which error a client gets (handlers/transactions/).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import structlog

from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...client.network.connection import Connection
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, error_for
from ...protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ..config.live import LiveConfig
from ..coordinator_partitions import partition_of
from ..metadata.cache import MetadataCache
from ..topic_names import TRANSACTION_STATE_TOPIC

logger = structlog.get_logger(__name__)

ASK_SECONDS_MAX = 5.0  # to connect and to get an answer
QUESTIONS_MAX = 10_000  # that wait for one coordinator
VERSION = 5
BATCHED_SINCE = 4  # what brokers ask each other (KIP-890)
NO_LEADER = -1
OF_CLIENTS = {  # what a client expects in place of what a coordinator says
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}

Verdicts: TypeAlias = dict[TopicPartition, ErrorCode]
Connect: TypeAlias = Callable[[float], Awaitable[Connection]]


class Coordinator(Protocol):
    """The transaction coordinator of this broker."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]: ...


class Question(NamedTuple):
    """Are these partitions in the ongoing transaction?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    answer: "asyncio.Future[Verdicts]"

    def told(self, verdicts: Mapping[TopicPartition, int], otherwise: ErrorCode) -> None:
        """Answer it. A partition that is not in `verdicts` gets `otherwise`."""
        if not self.answer.done():
            codes = ((tp, error_for(verdicts.get(tp, otherwise)).code) for tp in self.partitions)
            self.answer.set_result({tp: OF_CLIENTS.get(code, code) for tp, code in codes})

    def is_older_than(self, other: "Question") -> bool:
        """Whether the same producer asks with an older epoch. Of different producer ids only the coordinator
        knows which one is the newer.
        """
        return self.producer_id == other.producer_id and self.producer_epoch < other.producer_epoch

    def refused(self, code: ErrorCode) -> None:
        """Answer all its partitions with this error."""
        self.told({}, code)


class Verification:
    """Asks this broker's coordinator or that of another broker."""

    def __init__(self, live: LiveConfig, cache: MetadataCache, here: Coordinator, tasks: Tasks) -> None:
        self._live = live
        self._cache = cache
        self._here = here
        self._tasks = tasks
        self._lines: dict[int, Line] = {}

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> "asyncio.Future[Verdicts]":
        """For each partition NONE if it is in the ongoing transaction, or why it is not known to be. The
        future is done at once if this broker is the coordinator; it never fails.
        """
        answer: asyncio.Future[Verdicts] = asyncio.get_running_loop().create_future()
        question = Question(transactional_id, producer_id, producer_epoch, tuple(partitions), answer)
        coordinator = self._coordinator(transactional_id)
        if coordinator is None:
            question.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif coordinator == self._live.current.id:
            self._ask_here(question)
        else:
            line = self._lines.get(coordinator)
            if line is None:
                line = self._lines[coordinator] = Line(partial(self._connect, coordinator), self._tasks)
            line.add(question)
        return answer

    def _coordinator(self, transactional_id: str) -> int | None:
        picture = self._cache.picture
        topic = picture.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        place = partition_of(transactional_id, len(topic.partitions))
        state = picture.partition(TRANSACTION_STATE_TOPIC, place)
        return None if state is None or state.leader == NO_LEADER else state.leader

    def _ask_here(self, question: Question) -> None:
        try:
            verdicts = self._here.verify(*question[:4])
        except ApiError as error:
            question.refused(error.code)
        else:
            question.told(verdicts, ErrorCode.INVALID_TXN_STATE)

    async def _connect(self, broker: int, deadline: float) -> Connection:
        config = self._live.current
        address = self._cache.picture.address(broker, config.inter_broker_listener)
        if address is None:
            raise OSError(f"broker {broker} is not registered")
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=f"broker-{config.broker_id}",
            deadline=deadline,
            highest={Api.ADD_PARTITIONS_TO_TXN: VERSION},
        )
        connection.versions = served(connection.versions)
        return connection

    async def stop(self) -> None:
        """Answer what still waits, end the connections."""
        await self._tasks.stop()
        for line in self._lines.values():
            await line.stop()


class Line:
    """The connection to one coordinator, and the questions that wait for it."""

    def __init__(self, connect: Connect, tasks: Tasks) -> None:
        self._connect = connect
        self._tasks = tasks
        self._connection: Connection | None = None
        self._waiting: dict[str, list[Question]] = {}  # by transactional id, all of the same producer
        self._asked: list[Question] = []  # in the request under way
        self._is_asking = False
        self._count = 0  # of questions that have come since the last request

    def add(self, question: Question) -> None:
        """Ask with the next request."""
        if self._count >= QUESTIONS_MAX or self._tasks.is_stopping:
            return question.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        waiting = self._waiting.setdefault(question.transactional_id, [])
        if waiting and _producer(waiting[0]) != _producer(question):
            if question.is_older_than(waiting[0]):
                return question.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
            _give_way(waiting, question)
        waiting.append(question)
        self._count += 1
        if not self._is_asking:
            self._is_asking = True
            self._tasks.spawn(self._ask_all(), "ask")
        return None

    async def _ask_all(self) -> None:
        while self._count:
            self._asked = [question for waiting in self._waiting.values() for question in waiting]
            self._waiting, self._count = {}, 0
            await self._ask(self._asked)
        self._is_asking = False

    async def _ask(self, questions: list[Question]) -> None:
        deadline = asyncio.get_running_loop().time() + ASK_SECONDS_MAX
        try:
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._connect(deadline)
                if not _can_be_asked(self._connection.versions):  # once, not with each transaction
                    logger.info("transactions_not_verified", reason="the coordinator cannot verify")
            if not _can_be_asked(self._connection.versions):
                _trust(questions)
                return
            response: AddPartitionsToTxnResponse = await self._connection.request(
                request_of(questions), deadline=deadline
            )
        except (OSError, ApiError) as error:  # a lost connection, a passed deadline; a broker that is too old
            logger.info("transactions_not_verified", questions=len(questions), reason=str(error))
            for question in questions:
                question.refused(ErrorCode.NETWORK_EXCEPTION)
            return
        verdicts = {one.transactional_id: _verdicts(one) for one in response.results_by_transaction}
        code = error_for(response.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE).code
        for question in questions:
            question.told(verdicts.get(question.transactional_id, {}), code)

    async def stop(self) -> None:
        """Answer what still waits, end the connection."""
        for question in (*self._asked, *(one for waiting in self._waiting.values() for one in waiting)):
            question.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._connection is not None:
            await self._connection.close()


def served(offered: Mapping[int, int]) -> Mapping[int, int]:
    """What a coordinator can be asked. Our brokers of some time ago answered version 5 and offered 3. They
    know groups by the consumer protocol, and no Kafka does that cannot be asked.
    """
    if _can_be_asked(offered) or Api.CONSUMER_GROUP_HEARTBEAT not in offered:
        return offered
    return {**offered, Api.ADD_PARTITIONS_TO_TXN: VERSION}


def _can_be_asked(versions: Mapping[int, int]) -> bool:
    return versions.get(Api.ADD_PARTITIONS_TO_TXN, 0) >= BATCHED_SINCE


def _trust(questions: list[Question]) -> None:
    """The coordinator is of Kafka before 3.6 and cannot be asked: as for Kafka's leaders, all is well."""
    for question in questions:
        question.told(dict.fromkeys(question.partitions, ErrorCode.NONE), ErrorCode.NONE)


def request_of(questions: list[Question]) -> AddPartitionsToTxnRequest:
    """One request for all questions. It names each transactional id once."""
    partitions: dict[str, dict[TopicPartition, None]] = {}
    producers: dict[str, tuple[int, int]] = {}
    for question in questions:
        producers[question.transactional_id] = _producer(question)
        partitions.setdefault(question.transactional_id, {}).update(dict.fromkeys(question.partitions))
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=id,
                producer_id=producers[id][0],
                producer_epoch=producers[id][1],
                verify_only=True,
                topics=_by_topic(partitions[id]),
            )
            for id in producers
        ]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()]


def _verdicts(result: AddPartitionsToTxnResult) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, one.partition_index): one.partition_error_code
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def _producer(question: Question) -> tuple[int, int]:
    return question.producer_id, question.producer_epoch


def _give_way(waiting: list[Question], newer: Question) -> None:
    """A newer producer of the same transactional id asks: the older ones need not be asked about."""
    for question in waiting:
        fenced = question.is_older_than(newer)
        question.refused(ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION)
    waiting.clear()

"""Transactions of a producer: asks the coordinators, one request at a time, and waits for what it was told.

Partitions are announced before their first batch, all that are new at once. A commit first waits for every
batch, an abort for those that are on their way: a marker must not overtake a batch of its own transaction.
A call gives up waiting after `max_block_ms`, but what it began goes on: its outcome may be decided already.
The same call again waits for the same outcome. Offsets are no outcome: they fail their transaction after
`delivery_timeout_ms`, as records do, and an abort ends them at any time.
Left to others: states and errors (transaction_rules.py), batches (sender.py), the API (producer.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, RequestTimedOut, UnsupportedVersion, error_for
from ...protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ..arguments import as_group, as_offsets
from ..config import ProducerConfig
from ..network.cluster import Cluster, CoordinatorKind
from ..network.connection import ConnectionLost
from ..results import CommittedOffset, GroupMetadata
from .partition_queues import Identity
from .transaction_rules import (
    UNDECIDED,
    WITHIN,
    Answer,
    State,
    Step,
    TransactionRules,
    Verdict,
    weightiest,
)

log = get_logger(__name__)

BUMP_VERSION = 3  # of InitProducerId: the producer may name the id and epoch it has
MEMBER_VERSION = 3  # of TxnOffsetCommit: the coordinator checks the consumer's membership
FIRST_PARTITION_PAUSE_S = 0.02  # the transaction before is being completed, which takes no longer than that
SEND_OFFSETS, ABORT = "send_offsets", "abort"
LAST_WORD_S = 0.5  # records in line are refused after max_block_ms, too: that is told, not that time is up
CLOSE_SECONDS_MAX = 5.0  # for an abort when the producer closes; else the coordinator's time-out aborts


class TransactionAborted(Exception):
    """The record was not sent, because its transaction was aborted or has failed."""

    retriable = False


class Refused(Exception):
    """A coordinator's answer that ends an operation."""

    def __init__(self, verdict: Verdict, error: Exception) -> None:
        super().__init__(str(error))
        self.verdict, self.error = verdict, error


class GivenUp(Exception):
    """A request is not repeated any more: its transaction has failed, or is being aborted."""


class Until(NamedTuple):
    """When a request is not repeated any more, and what failed then."""

    at: float
    what: Callable[[], str]


class Batches(Protocol):
    """What a transaction asks of the sender."""

    def give_up_unsent(self, reason: str) -> None:
        """Let what has no number yet fail."""

    def give_up_all(self, reason: str) -> None:
        """Let everything fail."""

    def number_anew(self) -> None:
        """A new identity: numbers begin at 0."""

    def wake(self) -> None:
        """Something may be sent now."""


class Operation(NamedTuple):
    """A call whose outcome is not known yet, or not told yet."""

    name: str
    outcome: "asyncio.Task[Exception | None]"


class Transactions:
    """The transactions of one producer. `drained` waits until no batch waits or is on its way; it is told
    whether they are to be committed."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, drained: Callable[[bool], Awaitable[None]]
    ) -> None:
        assert config.transactional_id is not None, "a transactional producer has an id"
        self.rules = TransactionRules()
        self._id = config.transactional_id
        self._cluster = cluster
        self._config = config
        self._drained = drained
        self._tasks = Tasks("transactions")
        self._turn = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._operation: Operation | None = None
        self._asked = -1  # the coordinator that was asked last
        self._refusal = ""  # the last answer for which an operation asks again
        self.batches: Batches | None = None

    def start(self, batches: Batches) -> None:
        """Begin to announce partitions."""
        self.batches = batches
        self._tasks.sustain(self._announce, "partitions", self._broken)

    async def stop(self) -> None:
        """Abort what is open, if that works at once, and ask no more."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                if self._operation is not None and self._operation.name != SEND_OFFSETS:
                    await asyncio.wait([self._operation.outcome])
                    self._operation = None
                await self.abort_after_failure()
        except TimeoutError:
            reason = self._refusal or "the coordinator did not answer"
            log.warning("abort_failed", transactional_id=self._id, reason=reason)
        finally:
            await self._tasks.stop()

    # -- what the caller does

    async def init(self) -> None:
        """Get an id and an epoch. The transaction that another producer of this transactional id has open is
        aborted, and that producer is fenced."""
        await self._operate("init_transactions", self._begin_init)

    def begin(self) -> None:
        """Records sent from now on belong to a transaction."""
        self._check_free("begin")
        self.rules.begin()

    async def commit(self) -> None:
        """Make all of it visible at once."""
        await self._operate("commit", lambda: self._begin_end(committed=True))

    async def abort(self) -> None:
        """Let none of it be visible. Offsets that are being sent are given up."""
        await self._operate(ABORT, lambda: self._begin_end(committed=False))

    @property
    def is_undecided(self) -> bool:
        """Whether the outcome of a commit is not known yet."""
        return self._operation is not None and self._operation.name != SEND_OFFSETS

    async def abort_after_failure(self) -> None:
        """Abort, if there is anything to abort; the caller has an error already, which counts more."""
        if self.is_undecided or self.rules.state not in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            return
        try:
            await self.abort()
        except Exception as trouble:  # also what a partitioner has raised, or an operation that broke
            log.warning("abort_failed", transactional_id=self._id, reason=str(trouble))

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupMetadata | str
    ) -> None:
        """The group will have read so far if the transaction is committed."""
        read, whole = as_offsets(offsets), as_group(group)
        if not read:
            return

        def begin() -> Coroutine[Any, Any, None]:
            self.rules.require("send offsets", State.IN_TRANSACTION)
            return self._send_offsets(dict(read), whole)

        while self._operation is not None:  # of an earlier call, or of another task: for other offsets
            await self._operate(SEND_OFFSETS, begin)
        await self._operate(SEND_OFFSETS, begin)

    # -- what the sender asks and tells

    def check_open(self) -> None:
        """Raise what stands against sending a record now."""
        if self.rules.state is not State.IN_TRANSACTION:
            self.rules.require("send", State.IN_TRANSACTION)

    def want(self, partition: TopicPartition) -> None:
        """A record goes to this partition; it may have waited in line for room, or for its topic."""
        if self.rules.state not in (State.IN_TRANSACTION, State.COMMITTING):
            raise TransactionAborted("its transaction was aborted, or has failed, before it was sent")
        if self.rules.want(partition):
            self._wanted.set()

    def record_failed(self, error: Exception, transaction: int | None = None) -> None:
        """A record did not even come into a batch, since its topic is unknown, say: the open transaction, if
        it is this one, is not committed without it."""
        if transaction not in (None, self.rules.begun):
            return
        if self.rules.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._failed(Refused(Verdict.ABORT, error))

    def batch_failed(self, error: Exception) -> None:
        """A batch was given up."""
        before = self.rules.state
        self.rules.batch_failed(error)
        self._state_changed(before)
        if self.rules.state in (State.ABORTABLE_ERROR, State.ABORTING):  # others behind it cannot be sent now
            assert self.batches is not None, "started"
            self.batches.give_up_unsent(f"its transaction has failed: {error}")

    # -- operations

    def _check_free(self, name: str) -> None:
        if name == ABORT and not self.is_undecided:
            return
        if self._operation is not None and self._operation.name != name:
            raise RuntimeError(
                f"cannot {name}: the outcome of {self._operation.name}() is not known yet, so call it again"
            )

    async def _operate(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._check_free(name)
        operation = self._operation
        if operation is None or (name == ABORT and not self.is_undecided):
            self._refusal = ""
            operation = Operation(name, self._tasks.spawn(self._outcome(begin()), name))
            self._operation = operation
        outcome = operation.outcome
        await asyncio.wait([outcome], timeout=self._config.max_block_ms / 1000 + LAST_WORD_S)
        if not outcome.done():
            why = f", the last answer is {self._refusal}" if self._refusal else ""
            raise RequestTimedOut(
                f"{name}() has no outcome after max_block_ms = {self._config.max_block_ms}{why}: "
                "call it again to wait for it" + (", or abort()" if name == SEND_OFFSETS else "")
            )
        if self._operation is operation:
            self._operation = None
        if outcome.cancelled():
            raise RuntimeError("the producer was closed")
        if (trouble := outcome.result()) is not None:
            raise trouble

    async def _outcome(self, work: Coroutine[Any, Any, None]) -> Exception | None:
        try:
            await work
        except Refused as refusal:
            self._failed(refusal)
            return self.rules.error or refusal.error
        except GivenUp:
            return self.rules.error or TransactionAborted("its transaction was aborted before they were sent")
        return self.rules.error

    def _begin_init(self) -> Coroutine[Any, Any, None]:
        self.rules.require("initialize", State.UNINITIALIZED)
        self.rules.go(State.INITIALIZING)
        return self._init_first()

    async def _init_first(self) -> None:
        async with self._turn:
            await self._init(None)
            self.rules.go(State.READY)

    async def _init(self, identity: Identity | None) -> None:
        producer_id, epoch = identity or Identity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer: InitProducerIdResponse = await self._ask(Step.INIT, lambda: request)
        version = self._cluster.agreed_version(self._asked, Api.INIT_PRODUCER_ID) or 0
        self.rules.initialized(Identity(answer.producer_id, answer.producer_epoch), version >= BUMP_VERSION)
        assert self.batches is not None, "started"
        self.batches.number_anew()

    def _begin_end(self, *, committed: bool) -> Coroutine[Any, Any, None]:
        self.rules.ending(committed)
        if not committed:
            assert self.batches is not None, "started"
            self.batches.give_up_unsent("its transaction was aborted")
        return self._end(committed)

    async def _end(self, committed: bool) -> None:
        rules = self.rules
        await self._drained(committed)
        async with self._turn:
            if rules.state not in (State.COMMITTING, State.ABORTING):
                return  # a batch has failed
            assert rules.identity is not None, "initialized"
            if rules.needs_end_request:
                request = EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=rules.identity.producer_id,
                    producer_epoch=rules.identity.epoch,
                    committed=committed,
                )
                try:
                    await self._ask(Step.END, lambda: request)
                except Refused as refusal:
                    if committed or refusal.verdict is not Verdict.ABORT_AND_BUMP or not rules.can_bump:
                        raise
                    rules.bump_required = True  # the coordinator has nothing to abort
            if rules.bump_required:
                await self._init(rules.identity)
            rules.ended()

    async def _send_offsets(
        self, offsets: dict[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        rules = self.rules
        last = self._cluster.now() + self._config.delivery_timeout_ms / 1000
        until = Until(last, lambda: f"the offsets of {', '.join(map(str, sorted(offsets)))} were not taken")
        async with self._turn:
            if rules.state is not State.IN_TRANSACTION:
                raise GivenUp
            assert rules.identity is not None, "initialized"
            announced = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=rules.identity.producer_id,
                producer_epoch=rules.identity.epoch,
                group_id=group.group,
            )
            await self._ask(Step.ADD_OFFSETS, lambda: announced, until=until)
            rules.is_known = True
            identity = rules.identity

            def read(answer: TxnOffsetCommitResponse) -> list[Answer]:
                told = [
                    (TopicPartition(topic.name, one.partition_index), _code(one.error_code))
                    for topic in answer.topics
                    for one in topic.partitions
                ]
                for partition, code in told:
                    if code == ErrorCode.NONE:
                        offsets.pop(partition, None)
                return [Answer(code, f"{group.group}: {partition}") for partition, code in told]

            await self._ask(
                Step.COMMIT_OFFSETS,
                lambda: _offsets_request(self._id, identity, group, offsets),
                read,
                group,
                until,
            )

    # -- partitions

    async def _announce(self) -> None:
        """Tell the coordinator of partitions before anything is sent to them."""
        while True:
            self._wanted.clear()
            if not self.rules.wanted:
                await self._wanted.wait()
                continue
            async with self._turn:
                try:
                    await self._add_partitions(list(self.rules.wanted))
                except Refused as refusal:
                    self._failed(refusal)
                except GivenUp:
                    pass

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        identity = self.rules.identity
        if not partitions or identity is None:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[one.partition for one in found])
                for name, found in _by_topic(partitions).items()
            ],
        )

        def read(answer: AddPartitionsToTxnResponse) -> list[Answer]:
            return [
                Answer(_code(one.partition_error_code), f"{topic.name}-{one.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]

        await self._ask(Step.ADD_PARTITIONS, lambda: request, read)
        self.rules.were_added(partitions)
        assert self.batches is not None, "started"
        self.batches.wake()

    # -- asking

    async def _ask(
        self,
        step: Step,
        request: Callable[[], Any],
        read: Callable[[Any], list[Answer]] | None = None,
        group: GroupMetadata | None = None,
        until: Until | None = None,
    ) -> Any:
        """Ask until the answer is final; raises Refused if it is none that was hoped for.

        Raises GivenUp if the request belongs to a transaction that is not open any more. Who gives up
        something that may take effect later has to have a new epoch.
        """
        attempt, is_pending = 0, False
        while True:
            if step in WITHIN and not self.rules.is_open:
                if is_pending:
                    self._left_pending()
                raise GivenUp
            answer, answers = await self._attempt(request, read or self._read, group)
            verdict, decisive = weightiest(step, answers)
            if verdict is Verdict.DONE:
                return answer
            if self.rules.state is State.FATAL_ERROR:
                assert self.rules.error is not None, "a state of error has one"
                raise Refused(Verdict.FATAL, self.rules.error)
            if step in WITHIN:
                is_pending |= any(one.is_pending for one in answers)
                if verdict is not Verdict.FATAL and not self.rules.is_open:
                    is_pending |= verdict is Verdict.ABORT_AND_BUMP
                    continue
            told = error_for(decisive.code, decisive.about)
            if verdict in (Verdict.RETRY, Verdict.LOOK_UP) and until is not None:
                verdict, told = self._at_the_end(until, verdict, told)
            if verdict not in (Verdict.RETRY, Verdict.LOOK_UP):
                bumps = verdict is Verdict.ABORT and is_pending
                raise Refused(Verdict.ABORT_AND_BUMP if bumps else verdict, told)
            self._refusal = str(told)
            log.debug("transaction_request_retried", step=step.value, code=decisive.code.name)
            if verdict is Verdict.LOOK_UP:
                self._forget(group)
            await asyncio.sleep(self._pause(step, decisive.code, attempt))
            attempt += 1

    def _at_the_end(self, until: Until, verdict: Verdict, last: ApiError) -> tuple[Verdict, ApiError]:
        """What becomes of a verdict to ask again: once time is up the transaction has failed."""
        if self._cluster.now() < until.at:
            return verdict, last
        within = f"{until.what()} within delivery_timeout_ms = {self._config.delivery_timeout_ms}"
        return Verdict.ABORT, error_for(last.code, f"{last.message}: {within}")

    async def _attempt(
        self, request: Callable[[], Any], read: Callable[[Any], list[Answer]], group: GroupMetadata | None
    ) -> tuple[Any, list[Answer]]:
        """One attempt, and what came of it."""
        key, kind = self._coordinated(group)
        deadline = self._cluster.now() + self._config.request_timeout_ms / 1000
        is_sent = False
        try:
            node = await self._cluster.coordinator(key, deadline, kind)
            version = self._cluster.agreed_version(node, Api.TXN_OFFSET_COMMIT)
            if group is not None and group.is_member and version is not None and version < MEMBER_VERSION:
                raise UnsupportedVersion(
                    f"the coordinator of group {key} does not check who is a member (TxnOffsetCommit "
                    f"{version}, needed {MEMBER_VERSION}): send offsets with the group's name alone"
                )
            self._asked, is_sent = node, True
            answer = await self._cluster.request(node, request(), deadline)
        except OSError as lost:
            is_pending = is_sent and isinstance(lost, ConnectionLost)
            return None, [Answer(ErrorCode.NETWORK_EXCEPTION, str(lost), is_pending)]
        except ApiError as error:
            return None, [Answer(error.code, error.message)]
        told = read(answer) or [Answer(ErrorCode.NONE, "")]
        return answer, [one._replace(is_pending=one.code in UNDECIDED) for one in told]

    def _read(self, answer: Any) -> list[Answer]:
        return [Answer(_code(answer.error_code), self._id)]

    def _coordinated(self, group: GroupMetadata | None) -> tuple[str, CoordinatorKind]:
        if group is None:
            return self._id, CoordinatorKind.TRANSACTION
        return group.group, CoordinatorKind.GROUP

    def _forget(self, group: GroupMetadata | None) -> None:
        self._cluster.forget_coordinator(*self._coordinated(group))

    def _pause(self, step: Step, code: ErrorCode, attempt: int) -> float:
        is_first = step is Step.ADD_PARTITIONS and not self.rules.added
        if is_first and code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return FIRST_PARTITION_PAUSE_S
        return self._cluster.pause(attempt)

    # -- errors

    def _failed(self, refusal: Refused) -> None:
        before = self.rules.state
        self.rules.failed(refusal.verdict, refusal.error)
        self._state_changed(before)

    def _left_pending(self) -> None:
        before = self.rules.state
        self.rules.left_pending()
        self._state_changed(before)

    def _broken(self, failure: BaseException) -> None:
        """Announcing failed unexpectedly: no transaction of this producer can be trusted any more."""
        trouble = RuntimeError("the producer failed unexpectedly: close it and start another")
        trouble.__cause__ = failure
        self._failed(Refused(Verdict.FATAL, trouble))

    def _state_changed(self, before: State) -> None:
        state = self.rules.state
        if state is before or state not in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            return
        log.warning(
            "transaction_failed",
            transactional_id=self._id,
            fatal=state is State.FATAL_ERROR,
            reason=str(self.rules.error),
        )
        assert self.batches is not None, "started"
        reason = f"its transaction has failed: {self.rules.error}"
        if state is State.FATAL_ERROR:
            self.batches.give_up_all(reason)
        else:
            self.batches.give_up_unsent(reason)


def _offsets_request(
    transactional_id: str,
    identity: Identity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> TxnOffsetCommitRequest:
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=offsets[one].offset,
                    committed_leader_epoch=offsets[one].leader_epoch,
                    committed_metadata=offsets[one].metadata,
                )
                for one in found
            ],
        )
        for name, found in _by_topic(offsets).items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=topics,
    )


def _code(number: int) -> ErrorCode:
    return error_for(number).code


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for one in sorted(partitions):
        topics.setdefault(one.topic, []).append(one)
    return topics

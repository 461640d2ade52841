"""Exactly once: each task writes in a transaction of its own, and the driver commits all of them together.

A task leaves its transaction open, and says so in its message. If the query dies between two commits,
Spark runs the batch again with all its tasks. So each transaction also commits the number of its batch, as an
offset of a group that has the transaction's name: a task that is run again looks there first, and writes
nothing if its rows count already. How many rows these were stands beside it, so that a task that has got
other ones, or none, says so, and neither loses nor repeats any silently. Whoever begins under the same name
ends what an earlier attempt has left open, and fences that attempt for good.
Left to others: records and their leaders (produce.py), which tasks and batches there are (task.py, write.py).
"""

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from pyspark import TaskContext

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ....protocol.errors import ApiError, ErrorCode, error_for
from ....protocol.messages.group_offsets import (
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ....protocol.messages.groups import FindCoordinatorRequest
from ....protocol.messages.producers import InitProducerIdRequest
from ....protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ...producer.partition_queues import Identity
from ..client import BACKOFF_MAX, Address, SparkCluster
from .options import SinkOptions
from .trouble import NotWritten

log = get_logger(__name__)

NOTE = re.compile(r"batch \d+: (\d+) rows, (\d+) bytes")
QUERY_ID = "sql.streaming.queryId"  # local properties that Spark gives to the jobs of a query
BATCH_ID = "streaming.sql.batchId"
NAME = "strandline-{query}-{task}"
GROUP_KEY, TRANSACTION_KEY = 0, 1
BACKOFF_SECONDS = 0.02  # a transaction before this one is ended within some milliseconds
GIVE_UP_SECONDS = 5.0

# The coordinator has moved, or is about to be there.
ELSEWHERE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# It will pass: an earlier transaction is being ended, or a topic is not known everywhere yet.
PASSING = ELSEWHERE | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # of a partition beside one that is not known yet
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
}
UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
TAKEN_OVER = (
    "its transaction is not its own any more: another attempt of the task has begun, or it was open for "
    "longer than kafka.transaction.timeout.ms={timeout_ms}, which must cover a batch from its first row to "
    "its commit"
)


class Work(NamedTuple):
    """Which rows a transaction is for: those of one task of one batch."""

    name: str
    batch: int | None  # None: a write that is no stream, and is never run again

    @classmethod
    def of_task(cls, write_id: str | None) -> "Work":
        """The work of the task that runs here. `write_id` names a write that is no stream."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        if write_id is not None:
            return cls(NAME.format(query=write_id, task=task), None)
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if query is None or batch is None:
            raise NotWritten(
                "exactlyOnce: Spark does not tell which query and batch this task belongs to, so it could "
                "not be recognised when it is run again; write without exactlyOnce"
            )
        return cls(NAME.format(query=query, task=task), int(batch))


class Amount(NamedTuple):
    """How much a task has written, whatever the order and the batches that its rows come in."""

    rows: int
    nbytes: int  # of keys and values

    def noted(self, batch: int) -> str:
        """As it stands beside the batch's number."""
        return f"batch {batch}: {self.rows} rows, {self.nbytes} bytes"

    @classmethod
    def of_note(cls, note: str | None) -> "Amount | None":
        """What `noted` made; None for a note of an earlier version."""
        found = NOTE.fullmatch(note or "")
        return None if found is None else cls(int(found[1]), int(found[2]))


class OpenTransaction(NamedTuple):
    """What the driver needs to end a task's transaction."""

    name: str
    producer_id: int
    epoch: int
    coordinator: Address  # as the task knew it


class Coordinator:
    """The broker that coordinates one group or transaction, looked for again when it has moved."""

    def __init__(
        self,
        cluster: SparkCluster,
        key: str,
        key_type: int,
        block_seconds: float,
        address: Address | None = None,
    ) -> None:
        self.address = address
        self._cluster = cluster
        self._key = key
        self._key_type = key_type
        self._block_seconds = block_seconds

    def ask(self, what: str, request: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
        """The answer, once none of its codes is an error, within kafka.max.block.ms.

        Raises an ApiError that will not pass, or NotWritten when the time is up.
        """
        deadline = self._cluster.now() + self._block_seconds
        backoff = BACKOFF_SECONDS
        while True:
            trouble: Exception
            try:
                answer = self._cluster.ask(self._found(), request)
                wrong = [code for code in codes(answer) if code]
                if not wrong:
                    return answer
                trouble = error_for(next((code for code in wrong if code not in PASSING), wrong[0]))
            except OSError as error:
                self.address, trouble = None, error
            except ApiError as error:
                trouble = error
            if isinstance(trouble, ApiError):
                if trouble.code not in PASSING:
                    raise trouble
                if trouble.code in ELSEWHERE:
                    self.address = None
            if self._cluster.now() > deadline:
                limit_ms = int(self._block_seconds * 1000)
                raise NotWritten(f"{what}: not done within kafka.max.block.ms={limit_ms}: {trouble}")
            self._cluster.sleep(backoff)
            backoff = min(2 * backoff, BACKOFF_MAX)

    def _found(self) -> Address:
        if self.address is None:
            found = self._cluster.ask_any(FindCoordinatorRequest(key=self._key, key_type=self._key_type))
            if found.error_code:
                raise error_for(found.error_code, found.error_message)
            self.address = found.host, found.port
        return self.address


class TaskTransaction:
    """One task's transaction, from its begin until it is left to the driver."""

    def __init__(self, cluster: SparkCluster, options: SinkOptions, work: Work) -> None:
        self.identity = Identity(-1, -1)
        self.counted: Amount | None = None  # of the rows that count already, if that was noted
        self._work = work
        self._options = options
        self._partitions: set[TopicPartition] = set()
        self._of_transaction = Coordinator(cluster, work.name, TRANSACTION_KEY, options.block_seconds)
        self._of_group = Coordinator(cluster, work.name, GROUP_KEY, options.block_seconds)

    @property
    def name(self) -> str:
        """The transactional id."""
        return self._work.name

    def begin(self) -> bool:
        """Fence every earlier attempt. False if one of them has written these rows, and they count."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self._options.transaction_ms
        )
        answer = self._asked(self._of_transaction, request, lambda found: [found.error_code])
        self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return self._work.batch is None or self._committed() <= self._work.batch

    def is_counted(self) -> bool:
        """Of a task without rows: whether some of an earlier attempt count. Nobody is fenced, for that would
        cost each task without rows a transactional id; unless brokers tell that it is still undecided. (They
        tell it of partitions that have an offset, so a commit that is just under way may not be seen.)"""
        assert self._work.batch is not None, "only a batch of a stream is run again"
        answer = self._asked(
            self._of_group, self._noted_offsets(), lambda found: _fetch_codes(found, UNSTABLE)
        )
        if any(code in UNSTABLE for code in _fetch_codes(answer)):
            return not self.begin()
        return self._after(answer) > self._work.batch

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are about to be written. Those that are known already cost nothing."""
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for partition in new:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=places) for name, places in topics.items()
            ],
        )
        self._asked(
            self._of_transaction,
            request,
            lambda found: [
                each.partition_error_code
                for topic in found.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ],
        )
        self._partitions.update(new)

    def leave_open(self, amount: Amount) -> OpenTransaction:
        """All rows are written: note the batch in the transaction, which the driver will end."""
        if self._work.batch is not None:
            self._note(self._work.batch, amount)
        address = self._of_transaction.address
        assert address is not None, "the coordinator has answered"
        return OpenTransaction(self.name, *self.identity, address)

    def give_up(self) -> None:
        """The task has failed: its rows shall hold up no reader. The next attempt would end it, too."""
        if self._partitions:
            one = OpenTransaction(self.name, *self.identity, self._of_transaction.address or ("", 0))
            with suppress(ApiError, NotWritten, OSError):
                end(self._of_transaction, one, committed=False)

    def _committed(self) -> int:
        """The first batch of this query whose rows, of this task, do not count yet."""
        return self._after(self._asked(self._of_group, self._noted_offsets(), _fetch_codes))

    def _noted_offsets(self) -> OffsetFetchRequest:
        return OffsetFetchRequest(group_id=self.name, topics=None, require_stable=True)

    def _after(self, answer: Any) -> int:
        noted = [
            (part.committed_offset, part.metadata) for topic in answer.topics for part in topic.partitions
        ]
        after, note = max(noted, default=(0, None), key=lambda each: each[0])
        if self._work.batch is not None and after == self._work.batch + 1:
            self.counted = Amount.of_note(note)
        return after

    def _note(self, batch: int, amount: Amount) -> None:
        """The next batch, as an offset of a partition that was written. Topics may differ each time."""
        place = min(self._partitions)
        self._asked(
            self._of_transaction,
            AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch, group_id=self.name,
            ),
            lambda found: [found.error_code],
        )  # fmt: skip
        offset = TxnOffsetCommitRequestPartition(
            partition_index=place.partition,
            committed_offset=batch + 1,
            committed_metadata=amount.noted(batch),
        )
        self._asked(
            self._of_group,
            TxnOffsetCommitRequest(
                transactional_id=self.name, group_id=self.name, producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[offset])],
            ),
            lambda found: [part.error_code for topic in found.topics for part in topic.partitions],
        )  # fmt: skip

    def _asked(self, whom: Coordinator, request: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
        try:
            return whom.ask(f"transaction {self.name}", request, codes)
        except ApiError as error:
            if error.code in FENCED:
                reason = TAKEN_OVER.format(timeout_ms=self._options.transaction_ms)
                raise NotWritten(f"transaction {self.name}: {reason} ({error})") from error
            if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise NotWritten(
                    f"kafka.transaction.timeout.ms={self._options.transaction_ms} is above what the brokers "
                    "allow, transaction.max.timeout.ms: lower the one or raise the other"
                ) from error
            raise


def _fetch_codes(answer: Any, apart: Collection[int] = ()) -> list[int]:
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    return [code for code in (answer.error_code, *codes) if code not in apart]


def commit_all(cluster: SparkCluster, options: SinkOptions, opened: Iterable[OpenTransaction]) -> None:
    """Commit the transactions of all tasks. Raises NotWritten: some may be committed, and will be known."""
    for one in opened:
        coordinator = Coordinator(cluster, one.name, TRANSACTION_KEY, options.block_seconds, one.coordinator)
        try:
            end(coordinator, one, committed=True)
        except ApiError as error:
            reason = TAKEN_OVER.format(timeout_ms=options.transaction_ms)
            raise NotWritten(f"transaction {one.name}: {reason} ({error})") from error


def abort_all(cluster: SparkCluster, opened: Iterable[OpenTransaction]) -> None:
    """Abort them, so that readers need not wait for their time to be up. As far as brokers can be reached."""
    for one in opened:
        coordinator = Coordinator(cluster, one.name, TRANSACTION_KEY, GIVE_UP_SECONDS, one.coordinator)
        try:
            end(coordinator, one, committed=False)
        except (ApiError, NotWritten, OSError) as trouble:
            log.warning("transaction_left_open", transaction=one.name, reason=str(trouble))


def end(coordinator: Coordinator, one: OpenTransaction, *, committed: bool) -> None:
    """Commit or abort one transaction. Raises what `Coordinator.ask` raises."""
    request = EndTxnRequest(
        transactional_id=one.name,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        committed=committed,
    )
    coordinator.ask(f"transaction {one.name}", request, lambda found: [found.error_code])

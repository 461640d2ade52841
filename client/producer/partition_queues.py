"""PartitionQueue: a partition's batches on their way to its leader, in order, each appended at most once.

Batches leave in order, up to `max_in_flight` at a time, with sequence numbers. When one fails, nothing more
leaves until all others in flight have been answered. Then those that failed are sent again, oldest first,
with their old numbers, so that the broker can tell a duplicate from a gap.
The problem: a batch that is given up leaves a gap in the numbers, and the broker refuses all that follow. So
the queue takes a new producer id and starts its numbers again. Only batches that were certainly not appended
may be renumbered. One whose outcome is unknown keeps its number: under another one it could be appended
twice.
A leader that does not know a producer accepts any number as its first. If several batches were on their way
to a new leader that hears of its role in between, it would refuse the first and accept a later one, and the
first could never be appended. So the first batch under an identity is sent alone; once it is acknowledged,
later leaders know it.
In a transaction no batch is renumbered: the transaction fails, and its abort brings another identity.
Pure: time comes in as an argument.
Left to others: sockets, ids, leaders (sender.py), linger (accumulator.py).
"""

from collections import deque
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.records import BatchBuilder

T = TypeVar("T")

SEQUENCE_LIMIT = 1 << 31
REMEMBERED_BATCHES = 5  # of one producer, by the broker: it cannot recognise an older one as a duplicate
ANSWER_SLACK_SECONDS = 1.0  # the broker has the same time limit, and should answer first
TRANSACTION_TIMEOUT_MS = 60_000  # required on the wire, without meaning for an idempotent producer

SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
# Errors after which the leader is to be looked for.
LEADER_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
# Errors after which the batch may have been appended (docs/replication.md). All others mean it was not.
UNCERTAIN_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Identity(NamedTuple):
    """A producer id and its epoch, given by the cluster."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Run:
    """One token for neighbouring records of a batch: those of a list that came whole."""

    sink: Any
    first: int  # the sink's own count of them
    count: int
    timestamp: int  # of all of them; -1: the sink knows them

    def cut(self, at: int) -> "tuple[Run, Run]":
        """The first `at` of them, and the others."""
        behind = Run(self.sink, self.first + at, self.count - at, self.timestamp)
        return Run(self.sink, self.first, at, self.timestamp), behind


@dataclass(slots=True, eq=False)
class ProducerBatch(Generic[T]):
    """Records for one partition that travel together, and their tokens: each for a record, or for a run."""

    partition: TopicPartition
    order: int
    builder: BatchBuilder
    opened_at: float
    deadline: float
    tokens: MutableSequence[T] = field(default_factory=list)
    reserved: int = 0  # bytes of buffer memory
    identity: Identity | None = None
    sequence: int = -1
    attempts: int = 0
    is_uncertain: bool = False  # some attempt may have been appended
    is_expired: bool = False  # its callers were told of the failure while it was in flight
    last_error: Exception | None = None
    part: int = 0  # of a batch that was split: how many of its records come before
    place: int = -1  # its place among the batches numbered under its identity

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of its lane."""
        return self.order, self.part

    def number(self, identity: Identity, sequence: int) -> None:
        """Give the batch its producer id and sequence number, which the broker checks."""
        self.identity, self.sequence = identity, sequence
        self.builder.producer_id, self.builder.producer_epoch = identity
        self.builder.base_sequence = sequence

    def halves(self) -> "list[ProducerBatch[T]]":
        """The same records and callers in two batches, under the same numbers.

        If the whole was appended by an attempt without an answer, brokers know neither half: both are out of
        order, and fail as what is uncertain does.
        """
        count, made = self.builder.count, []
        for start, stop in ((0, count // 2), (count // 2, count)):
            builder = self.builder.part(start, stop)
            half: ProducerBatch[T] = ProducerBatch(
                self.partition, self.order, builder, self.opened_at, self.deadline
            )
            half.tokens, half.part = tokens_between(self.tokens, start, stop), self.part + start
            half.is_uncertain = self.is_uncertain
            half.reserved = self.reserved * stop // count - self.reserved * start // count
            if self.identity is not None:
                half.number(self.identity, (self.sequence + start) % SEQUENCE_LIMIT)
                half.place = self.place
            made.append(half)
        return made


def tokens_between(tokens: MutableSequence[T], start: int, stop: int) -> MutableSequence[T]:
    """The tokens of records `start` up to `stop`; a run that is cut gives one to either side."""
    if not any(isinstance(token, Run) for token in tokens):
        return tokens[start:stop]
    found: list[Any] = []
    at = 0
    for token in tokens:
        if not isinstance(token, Run):
            found += [token] if start <= at < stop else []
            at += 1
            continue
        low, high = max(start - at, 0), min(stop - at, token.count)
        if low < high:
            found.append(token.cut(high)[0].cut(low)[1])
        at += token.count
    return found


def is_uncertain(error: Exception) -> bool:
    """Whether a batch that failed with `error` may have been appended all the same."""
    return not isinstance(error, ApiError) or error.code in UNCERTAIN_ERRORS


def is_retriable(error: Exception) -> bool:
    """Whether trying again may help."""
    return error.retriable if isinstance(error, ApiError) else isinstance(error, OSError)


class PartitionQueue(Generic[T]):
    """All batches of one partition: `growing`, `closed`, `in_flight`, and those to be sent `again`."""

    def __init__(
        self,
        partition: TopicPartition,
        in_flight_max: int,
        idempotent: bool,
        retries: int,
        transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.growing: ProducerBatch[T] | None = None
        self.closed: deque[ProducerBatch[T]] = deque()
        self.again: list[ProducerBatch[T]] = []
        self.in_flight: list[ProducerBatch[T]] = []
        self.identity: Identity | None = None
        self.retired: Identity | None = None  # the last one given up; never adopted again
        self._heard_of: Identity | None = None  # the one under which a batch was acknowledged
        self.not_before = 0.0
        self._next_sequence = 0
        self._next_place = 0
        self._draining = False
        self._in_flight_max = in_flight_max
        self._idempotent = idempotent
        self._retries = retries
        self._transactional = transactional

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing at all."""
        return not (self.growing or self.closed or self.again or self.in_flight)

    @property
    def head(self) -> ProducerBatch[T] | None:
        """The batch that must leave next."""
        if self.again:
            return self.again[0]
        return self.closed[0] if self.closed else self.growing

    @property
    def may_send(self) -> bool:
        """Whether order and the bound on batches in flight let a batch leave."""
        if self.in_flight and (self._draining or not self._is_known):
            return False
        return len(self.in_flight) < self._in_flight_max and self._is_remembered

    @property
    def _is_known(self) -> bool:
        """Whether every leader would refuse a batch whose predecessor it does not have."""
        return not self._idempotent or (self.identity is not None and self.identity == self._heard_of)

    @property
    def _is_remembered(self) -> bool:
        """Whether the broker would still remember the oldest open batch if one more came after it.

        Batches after a retry may be acknowledged while the retry fails again. If more of them passed than the
        broker remembers, it would see a gap in the retry although it had appended it long ago.
        """
        if not self._idempotent or self.again:
            return True
        oldest = min((one.place for one in self.in_flight), default=self._next_place)
        return self._next_place - oldest < REMEMBERED_BATCHES

    @property
    def needs_identity(self) -> bool:
        """Whether the next batch cannot leave before the queue has a producer id."""
        head = self.head
        if not self._idempotent or self.identity is not None or head is None:
            return False
        return head.identity is None or not head.is_uncertain

    def adopt(self, identity: Identity) -> None:
        """Number batches from 0 again, under `identity`."""
        self.identity = identity
        self._next_sequence = self._next_place = 0

    def close_growing(self) -> None:
        """Close the growing batch: the next record goes into another one."""
        if self.growing is not None:
            self.closed.append(self.growing)
            self.growing = None

    def take(self) -> ProducerBatch[T]:
        """Take the head to send it: number it, and count it as in flight."""
        assert self.may_send and not self.needs_identity, "a batch is taken only where one may be sent"
        self._draining = False
        if not self.again and not self.closed:
            self.close_growing()
        batch = self.again.pop(0) if self.again else self.closed.popleft()
        fits = batch.identity is not None and (batch.identity == self.identity or batch.is_uncertain)
        if self._idempotent and not fits:
            assert self.identity is not None, "sequences need a producer id"
            batch.number(self.identity, self._next_sequence)
            self._next_sequence = (self._next_sequence + batch.builder.count) % SEQUENCE_LIMIT
            batch.place = self._next_place
            self._next_place += 1
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def succeeded(self, batch: ProducerBatch[T]) -> None:
        """The broker has acknowledged the batch."""
        self.in_flight.remove(batch)
        self._heard_of = batch.identity
        self.not_before = 0.0

    def failed(self, batch: ProducerBatch[T], error: Exception, not_before: float) -> bool:
        """An attempt failed: True when the batch will go again, False when its callers must be told."""
        self.in_flight.remove(batch)
        batch.last_error = error
        if not self._may_retry(batch, error):
            batch.is_uncertain |= is_uncertain(error)
            self._retire(batch)
            return False
        batch.is_uncertain |= is_uncertain(error)
        self.not_before = max(self.not_before, not_before)
        self._go_again(batch)
        return True

    def split(self, batch: ProducerBatch[T]) -> bool:
        """The batch was refused for its size: send its halves in its place. False if it cannot be split."""
        if batch.builder.count < 2 or batch.is_expired:
            return False
        self.in_flight.remove(batch)
        self._next_place += 1  # two now stand where one stood
        self._go_again(*batch.halves())
        return True

    def unsent(self, batch: ProducerBatch[T]) -> None:
        """The batch was taken but nothing of it was sent: it goes first again."""
        self.in_flight.remove(batch)
        batch.attempts -= 1
        self._go_again(batch)

    def discard(self, batch: ProducerBatch[T]) -> None:
        """The batch was taken but can never be sent: its numbers stay a gap."""
        self.in_flight.remove(batch)
        self._retire(batch)

    def _go_again(self, *batches: ProducerBatch[T]) -> None:
        self._draining = True
        self.again += batches
        self.again.sort(key=lambda one: one.rank)

    def expire(self, now: float) -> list[ProducerBatch[T]]:
        """Batches past their deadline. Those in flight are marked, and stay until they are answered."""
        late = [batch for batch in self.in_flight if batch.deadline <= now and not batch.is_expired]
        for batch in late:
            batch.is_expired = True
        waiting = [batch for batch in (*self.again, *self.closed) if batch.deadline <= now]
        if waiting:
            self.again = [batch for batch in self.again if batch.deadline > now]
            self.closed = deque(batch for batch in self.closed if batch.deadline > now)
        if self.growing is not None and self.growing.deadline <= now:
            waiting.append(self.growing)
            self.growing = None
        for batch in waiting:
            self._retire(batch)
        return late + waiting

    def held(self) -> list[ProducerBatch[T]]:
        """Every batch whose callers still wait."""
        growing = (self.growing,) if self.growing is not None else ()
        return [one for one in (*self.in_flight, *self.again, *self.closed, *growing) if not one.is_expired]

    def abandon(self) -> list[ProducerBatch[T]]:
        """All batches of the queue. Those in flight are marked, and stay until they are answered."""
        held = self.held()
        for batch in self.in_flight:
            batch.is_expired = True
        for batch in self.again:
            self._retire(batch)
        self.again, self.closed, self.growing = [], deque(), None
        return held

    def abandon_unsent(self) -> list[ProducerBatch[T]]:
        """Give up what has no number yet; if the queue has lost its identity, also what waits to go again."""
        given_up = [*self.closed, *((self.growing,) if self.growing is not None else ())]
        self.closed, self.growing = deque(), None
        if self.identity is None:
            given_up += self.again
            self.again = []
        return given_up

    def _may_retry(self, batch: ProducerBatch[T], error: Exception) -> bool:
        if batch.is_expired:
            return False
        if self._transactional and batch.identity != self.identity:
            return False  # one before it has failed, and with it the transaction
        if isinstance(error, ApiError) and error.code in SEQUENCE_ERRORS and self._idempotent:
            return self._resolve_sequence(batch)
        return is_retriable(error) and batch.attempts <= self._retries

    def _resolve_sequence(self, batch: ProducerBatch[T]) -> bool:
        """Whether to retry after a sequence error: yes while an earlier batch is under way, as the gap is
        expected; else only a batch that was certainly not appended, under a new identity.
        """
        if self.follows_another(batch):
            return True
        if batch.is_uncertain or self._transactional:  # other numbers come with the next transaction
            return False
        self._retire(batch)
        return True

    def follows_another(self, batch: ProducerBatch[T]) -> bool:
        """Whether a batch that was numbered before this one is still under way, so a gap may be seen."""
        earlier = (*self.again, *self.in_flight)
        return any(one.rank < batch.rank and one.identity == batch.identity for one in earlier)

    def _retire(self, batch: ProducerBatch[T]) -> None:
        """The broker accepts no numbers after this batch's any more: start again with another identity."""
        if batch.identity is not None and batch.identity == self.identity:
            self.retired, self.identity = self.identity, None

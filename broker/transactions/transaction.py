"""The rules of one transactional id: who may write with it, and how its transactions end.

A pure state machine. A transition counts once its record is committed; until then `writing` holds it and
whoever wants another one is told CONCURRENT_TRANSACTIONS. Three things can become of a write:
- `committed`: the transition is made;
- `refused`: nothing is in the log, all is as before;
- neither for long: whoever waits is answered (`late`), and the transition stays pending. The record is in our
  log and will be committed if we keep leading, so memory and log never part ways. If we do not, whoever leads
  next reads what became of it.
An outcome is decided by the record PrepareCommit or PrepareAbort alone. Markers are sent after it, again by
every later coordinator, until each partition has one.
Sources: TransactionCoordinator and TransactionMetadata of Kafka 3.9. What differs: docs/transactions.md.
Left to others: finding the transactional id (coordinator.py), records (records.py), sending (markers.py).
"""

from collections.abc import Collection
from dataclasses import replace

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from .machine import TRANSACTION
from .state import (
    AT_REST,
    COMPLETES,
    EPOCH_MAX,
    NO_START,
    PREPARED,
    Answer,
    Effects,
    Forget,
    InitAsked,
    Marking,
    Persist,
    ProducerIdentity,
    Reply,
    Respond,
    SendMarkers,
    Standing,
    TransactionState,
    TryAgain,
)

# If a write is refused with the left, whoever asked for it gets the right.
WRITE_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(slots=True, eq=False)
class Writing:
    """A transition that is being written, and what to tell whoever asked for it once it is committed."""

    token: int
    standing: Standing | None  # None: the transactional id expires
    reply: Reply | None
    answer: Answer


class Transaction:
    """One transactional id and its present transaction."""

    def __init__(self, transactional_id: str, standing: Standing | None = None) -> None:
        self.transactional_id = transactional_id
        self.standing = standing  # None until its first record is committed
        self.writing: Writing | None = None
        self.marking: Marking | None = None
        self._token = 0

    @property
    def unmarked(self) -> Collection[TopicPartition]:
        """The partitions of the transaction; of a decided one, those that have not been told."""
        if self.marking is not None:
            return self.marking.waiting
        return self.standing.partitions if self.standing is not None else ()

    # What producers ask ----------------------------------------------------------------------------------

    def wants_producer_id(self, asked: InitAsked) -> bool:
        """Whether `init` needs a new producer id: for a new transactional id, or when epochs are used up."""
        now = self.standing
        if self.writing is not None or now is None:
            return self.writing is None
        return now.state in AT_REST and now.producer.is_exhausted and asked.claimed in (None, now.producer)

    def init(self, asked: InitAsked, reply: Reply, now_ms: int, fresh_id: int | None) -> Effects:
        """A producer begins. Whoever had this transactional id before is fenced, its transaction aborted.

        One that claims an identity (KIP-360) must have the present one. If it has the one before, it repeats
        a question whose answer was lost. Any other is a zombie, and does no harm: unlike in Kafka, not even
        to an ongoing transaction.
        """
        now = self.standing
        if self.writing is not None or (now is not None and now.state in PREPARED):
            return _tell(reply, ErrorCode.CONCURRENT_TRANSACTIONS)
        fresh = ProducerIdentity(fresh_id, 0) if fresh_id is not None else None
        if now is None:
            return self._begin(asked, fresh, None, reply, now_ms)
        repeats = asked.claimed is not None and asked.claimed == now.replaced
        if asked.claimed not in (None, now.producer) and not (repeats and now.state in AT_REST):
            return _tell(reply, ErrorCode.PRODUCER_FENCED)
        if now.state is TransactionState.ONGOING:
            return self._fence(reply, now_ms)
        if repeats:
            return self._begin(asked, now.producer, now.replaced, reply, now_ms)
        if now.producer.is_exhausted:
            return self._begin(asked, fresh, asked.claimed, reply, now_ms)
        bumped = ProducerIdentity(now.producer.id, now.producer.epoch + 1)
        return self._begin(asked, bumped, asked.claimed, reply, now_ms)

    def _begin(
        self,
        asked: InitAsked,
        producer: ProducerIdentity | None,
        replaced: ProducerIdentity | None,
        reply: Reply,
        now_ms: int,
    ) -> Effects:
        if producer is None:  # a new id was not wanted when `wants_producer_id` was asked
            return _tell(reply, ErrorCode.CONCURRENT_TRANSACTIONS)
        standing = Standing(
            producer=producer,
            timeout_ms=asked.timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NO_START,
            updated_ms=now_ms,
            replaced=replaced,
        )
        return self._write(standing, reply, Answer(ErrorCode.NONE, producer))

    def add(
        self, producer: ProducerIdentity, partitions: frozenset[TopicPartition], reply: Reply, now_ms: int
    ) -> Effects:
        """The producer is about to write to these partitions. The first ones begin a transaction."""
        now = self.standing
        error = self._asked_by(producer)
        if now is None or error is not ErrorCode.NONE:
            return _tell(reply, error)
        if self.writing is not None or now.state in PREPARED:
            return _tell(reply, ErrorCode.CONCURRENT_TRANSACTIONS)
        ongoing = now.state is TransactionState.ONGOING
        if ongoing and partitions <= now.partitions:
            return _tell(reply, ErrorCode.NONE)
        standing = replace(
            now,
            state=TransactionState.ONGOING,
            partitions=now.partitions | partitions if ongoing else partitions,
            started_ms=now.started_ms if ongoing else now_ms,
            updated_ms=now_ms,
        )
        return self._write(standing, reply, Answer(ErrorCode.NONE))

    def end(self, producer: ProducerIdentity, committed: bool, reply: Reply, now_ms: int) -> Effects:
        """The producer commits or aborts. A repeated question after the end gets the same answer."""
        now = self.standing
        error = self._asked_by(producer)
        if now is None or error is not ErrorCode.NONE:
            return _tell(reply, error)
        if self.writing is not None or now.state in PREPARED:
            return _tell(reply, ErrorCode.CONCURRENT_TRANSACTIONS)
        prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        if now.state is TransactionState.ONGOING:
            return self._write(replace(now, state=prepared, updated_ms=now_ms), reply, Answer(ErrorCode.NONE))
        ended_so = now.state is COMPLETES[prepared]
        return _tell(reply, ErrorCode.NONE if ended_so else ErrorCode.INVALID_TXN_STATE)

    def verify(
        self, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether these partitions are in the producer's ongoing transaction, so that it may write there."""
        now = self.standing
        error = self._asked_by(producer)
        if now is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        if now.state in PREPARED or self._is_ending:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        open_in = now.partitions if now.state is TransactionState.ONGOING else frozenset()
        return {tp: ErrorCode.NONE if tp in open_in else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    def _asked_by(self, producer: ProducerIdentity) -> ErrorCode:
        now = self.standing
        if now is None or now.producer.id != producer.id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if now.producer.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED

    @property
    def _is_ending(self) -> bool:
        """Whether the end of the transaction is being written."""
        target = self.writing.standing if self.writing is not None else None
        return target is not None and target.state in PREPARED

    # What time asks --------------------------------------------------------------------------------------

    def time_out(self, now_ms: int) -> Effects:
        """Abort a transaction that has been open for longer than its producer said it would be."""
        now = self.standing
        if now is None or now.state is not TransactionState.ONGOING or self.writing is not None:
            return []
        if now.started_ms + now.timeout_ms >= now_ms:
            return []
        return [
            replace(effect, is_time_out=True) if isinstance(effect, Persist) else effect
            for effect in self._fence(None, now_ms)
        ]

    def expire(self, now_ms: int, expiration_ms: int) -> Effects:
        """Forget a transactional id that has been at rest for so long."""
        now = self.standing
        if now is None or now.state not in AT_REST or self.writing is not None:
            return []
        if now.updated_ms > now_ms - expiration_ms:
            return []
        return self._write(None, None, Answer(ErrorCode.NONE))

    def _fence(self, reply: Reply | None, now_ms: int) -> Effects:
        """Abort with the next epoch, which nobody has: the producer can write no more, wherever it is.
        Whoever wants to begin asks again, and gets a further epoch.
        """
        now = self.standing
        assert now is not None and now.state is TransactionState.ONGOING, "only what is open is fenced"
        epoch = min(now.producer.epoch + 1, EPOCH_MAX)
        standing = replace(
            now,
            producer=ProducerIdentity(now.producer.id, epoch),
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
            replaced=None,
        )
        return self._write(standing, reply, Answer(ErrorCode.CONCURRENT_TRANSACTIONS))

    # What becomes of writes ------------------------------------------------------------------------------

    def _write(self, standing: Standing | None, reply: Reply | None, answer: Answer) -> Effects:
        assert self.writing is None, "one transition at a time"
        now = self.standing
        if standing is not None and now is not None:
            assert TRANSACTION.allows(now.state, standing.state), (
                f"{now.state} does not become {standing.state}"
            )
            assert standing.producer.id != now.producer.id or standing.producer.epoch >= now.producer.epoch, (
                "epochs never go back"
            )
        self._token += 1
        self.writing = Writing(self._token, standing, reply, answer)
        return [Persist(self._token, standing)]

    def committed(self, token: int, now_ms: int) -> Effects:
        """The record is committed: the transition is made."""
        done = self._ended(token)
        if done is None:
            return []
        effects = _tell_later(done, done.answer)
        self.standing = done.standing
        if done.standing is None:
            return [*effects, Forget()]
        if done.standing.state not in PREPARED:
            self.marking = None
            return effects
        return [*effects, *self._mark(done.standing.partitions, now_ms)]

    def refused(self, token: int, error: ErrorCode) -> Effects:
        """Nothing was written: all is as before."""
        failed = self._ended(token)
        if failed is None:
            return []
        effects = _tell_later(failed, Answer(WRITE_ERRORS.get(error, error)))
        if self.standing is None:
            return [*effects, Forget()]
        return [*effects, TryAgain()] if self.standing.state in PREPARED else effects

    def late(self, token: int) -> Effects:
        """The record is not committed yet, and whoever waits for it should not wait any longer."""
        writing = self.writing
        if writing is None or writing.token != token:
            return []
        effects = _tell_later(writing, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        writing.reply = None
        return effects

    def leave(self) -> Effects:
        """This broker coordinates no more: nothing that happens later counts."""
        self.stop_marking()
        writing, self.writing = self.writing, None
        return _tell_later(writing, Answer(ErrorCode.NOT_COORDINATOR)) if writing is not None else []

    def _ended(self, token: int) -> Writing | None:
        writing = self.writing
        if writing is None or writing.token != token:
            return None
        self.writing = None
        return writing

    # Markers ---------------------------------------------------------------------------------------------

    def resume(self, now_ms: int) -> Effects:
        """A coordinator begins, or begins anew in another epoch: what is decided is told (again)."""
        now = self.standing
        if now is None or now.state not in PREPARED or self.writing is not None:
            return []
        return self._mark(self.unmarked, now_ms)

    def marked(self, marking: Marking, partition: TopicPartition, now_ms: int) -> Effects:
        """The partition has its marker, or exists no more."""
        if marking is not self.marking:
            return []
        marking.waiting.discard(partition)
        return [] if marking.waiting else self._complete(now_ms)

    def retry(self, now_ms: int) -> Effects:
        """Write again what was refused."""
        marking = self.marking
        return self._complete(now_ms) if marking is not None and not marking.waiting else []

    def stop_marking(self) -> None:
        """Send no further markers: somebody else coordinates, or will have to."""
        if self.marking is not None:
            self.marking.is_over = True

    def _mark(self, partitions: Collection[TopicPartition], now_ms: int) -> Effects:
        now = self.standing
        assert now is not None and now.state in PREPARED, "only what is decided is told"
        self.stop_marking()
        committed = now.state is TransactionState.PREPARE_COMMIT
        self.marking = Marking(now.producer, committed, set(partitions))
        return [SendMarkers(self.marking)] if partitions else self._complete(now_ms)

    def _complete(self, now_ms: int) -> Effects:
        now, marking = self.standing, self.marking
        if self.writing is not None:
            return []
        assert now is not None and marking is not None and not marking.waiting, "all are told first"
        standing = replace(now, state=COMPLETES[now.state], partitions=frozenset(), updated_ms=now_ms)
        return self._write(standing, None, Answer(ErrorCode.NONE))


def _tell(reply: Reply, error: ErrorCode) -> Effects:
    return [Respond(reply, Answer(error))]


def _tell_later(writing: Writing, answer: Answer) -> Effects:
    return [] if writing.reply is None else [Respond(writing.reply, answer)]

"""ProducerStates: the last batches of each producer, so that a batch sent twice is stored once, and its
open transaction.

A leader checks a batch against the last five of its producer. Followers, and a log that is opened again,
rebuild the same state from batch headers and markers. Snapshots have Kafka's format, which keeps one batch
per producer. The four before it are stored after the part that Kafka reads: a producer may have five batches
in flight when its leader stops, and it will send all of them again.
The first transactional batch of a producer opens its transaction, a marker ends it. A marker may come for a
producer without one: it fences all the same.
Left to others: where snapshots lie and when they are taken (producer_snapshots.py), how far readers of
committed records come (unstable.py).
Why: docs/decisions/0048-an-unknown-producer-begins-anywhere.md,
docs/decisions/0055-an-ended-transaction-repeats-nothing.md
"""

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ...protocol.batches import CONTROL, SEQUENCES, TRANSACTIONAL, BatchHeader
from ...protocol.errors import ErrorCode, error_for
from ...protocol.markers import NO_COORDINATOR_EPOCH, EndMarker
from .unstable import NEVER, Unstable

BATCHES_KEPT = 5  # as many as a producer may have in flight
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_TRANSACTION = -1  # as a first offset
OF_TRANSACTIONS = TRANSACTIONAL | CONTROL

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = Struct(">hIi")  # version, CRC-32C of what follows it, number of producers
SNAPSHOT_CRC_END = 6
# producer id and epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of an open transaction
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
# the size of an index, with this as producer id: number of entries, 0, base offset of the segment, -1, -1
OF_INDEX = -1
# a batch before a producer's last one: producer id, first and last sequence, first and last offset, timestamp
EARLIER_ENTRY = Struct(">qiiqqq")


class Duplicate(NamedTuple):
    """Where the first copy of a repeated batch is."""

    base_offset: int
    last_offset: int
    timestamp: int


class Stored(NamedTuple):
    """One batch of a producer, as it is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int

    def holds(self, sequence: int) -> bool:
        """Whether this sequence is of one of its records."""
        return (sequence - self.base_sequence) % SEQUENCES <= (
            self.last_sequence - self.base_sequence
        ) % SEQUENCES


class Ended(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    last_stable_offset: int  # behind the marker, if all of the log were committed
    committed: bool


class ProducerState:
    """What a partition knows of one producer id."""

    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "last_timestamp", "silent_from", "transaction_first_offset",
    )  # fmt: skip

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Stored] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp = -1
        self.silent_from: int | None = None  # the first `expire` pass since its last batch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH  # of its last marker
        self.transaction_first_offset = NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class InvalidSnapshot(ValueError):
    """A snapshot file that cannot be trusted; the state is rebuilt without it."""


class ProducerStates:
    """All producers of one partition, the least recently active first."""

    __slots__ = ("_producers", "indexed", "producers_max", "unstable")

    def __init__(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self.unstable = Unstable()
        self.indexed: dict[int, int] = {}  # aborts of segments, by base offset, as the restored snapshot says
        self._producers: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        """(producer id, state), the least recently active first."""
        return iter(self._producers.items())

    def open_transactions(self) -> Iterator[tuple[int, int]]:
        """(producer id, first offset), the earliest first."""
        return self.unstable.open()

    def check(self, header: BatchHeader) -> Duplicate | None:
        """The leader's check before an append: is the batch new (None), already stored, or out of order?

        Raises INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap,
        INVALID_TXN_STATE for a batch beside the producer's open transaction, UNKNOWN_PRODUCER_ID for one
        with sequences of a transaction that has ended.
        """
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch == known.epoch:
            if header.is_transactional:
                _insist_on_new_sequences(header, known)
            sequences = header.base_sequence, header.last_sequence
            for batch in known.batches:
                if (batch.base_sequence, batch.last_sequence) == sequences:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
            expected = (known.last_sequence + 1) % SEQUENCES
            if header.base_sequence != expected:
                raise out_of_order(header, expected)
        elif header.producer_epoch < known.epoch:
            raise fenced(header.producer_id, header.producer_epoch, known.epoch)
        elif header.base_sequence != 0:
            raise out_of_order(header, 0)
        _insist_on_transaction(header, known)
        return None

    def check_epoch(self, header: BatchHeader) -> None:
        """The check of a batch that a broker writes for a producer: it has an epoch and no sequence.

        Raises INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        known = self._producers.get(header.producer_id)
        if known is not None:
            if header.producer_epoch < known.epoch:
                raise fenced(header.producer_id, header.producer_epoch, known.epoch)
            _insist_on_transaction(header, known)

    def check_marker(self, producer_id: int, producer_epoch: int, marker: EndMarker) -> None:
        """The check of a marker before an append.

        Raises INVALID_PRODUCER_EPOCH, or TRANSACTION_COORDINATOR_FENCED if a later coordinator has spoken.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        if producer_epoch < known.epoch:
            raise fenced(producer_id, producer_epoch, known.epoch)
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise error_for(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                (
                    f"producer {producer_id}: its last marker has coordinator epoch "
                    f"{known.coordinator_epoch}, this one has {marker.coordinator_epoch}"
                ),
            )

    def update(
        self,
        header: BatchHeader,
        base_offset: int,
        timestamp: int | None = None,
        marker: EndMarker | None = None,
    ) -> Ended | None:
        """Take in a batch that is in the log at `base_offset`; of a control batch also its marker.

        Returns the transaction that it ends, if there was one.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        assert base_offset >= 0, "the batch has its place in the log"
        known = self._producers.pop(producer_id, None)
        if known is None:
            known = ProducerState(header.producer_epoch)
        elif known.epoch != header.producer_epoch:
            known.epoch = header.producer_epoch
            known.batches.clear()
        self._producers[producer_id] = known  # at the end: the most recently active
        known.last_timestamp = header.max_timestamp if timestamp is None else timestamp
        known.silent_from = None
        if header.base_sequence >= 0:
            last_offset = base_offset + header.last_offset_delta
            known.batches.append(
                Stored(
                    header.base_sequence, header.last_sequence, base_offset, last_offset, known.last_timestamp
                )
            )
        ended = None
        if header.attributes & OF_TRANSACTIONS:
            ended = self._transact(known, header, base_offset, marker)
        if len(self._producers) > self.producers_max:
            self._forget_one()
        return ended

    def _transact(
        self, known: ProducerState, header: BatchHeader, base_offset: int, marker: EndMarker | None
    ) -> Ended | None:
        """Open or end the producer's transaction. A control batch without a marker does neither: compaction
        has emptied it, and the transaction before.
        """
        producer_id = header.producer_id
        if marker is None:
            if not header.is_control and known.transaction_first_offset == NO_TRANSACTION:
                known.transaction_first_offset = base_offset
                self.unstable.begin(producer_id, base_offset)
            return None
        known.coordinator_epoch = marker.coordinator_epoch
        if known.transaction_first_offset == NO_TRANSACTION:
            return None
        known.transaction_first_offset = NO_TRANSACTION
        first, first_open = self.unstable.end(producer_id, base_offset), self.unstable.first_open
        stable = base_offset + 1 if first_open == NEVER else first_open
        return Ended(producer_id, first, base_offset, stable, marker.committed)

    def _forget_one(self) -> None:
        """Forget the least recently active producer without an open transaction, if there is one.

        Those with one are put behind the others as they are met, or each append would walk past them again.
        """
        producers = self._producers
        if self.unstable.open_count >= len(producers):
            return
        while producers[producer_id := next(iter(producers))].transaction_first_offset != NO_TRANSACTION:
            producers[producer_id] = producers.pop(producer_id)
        del producers[producer_id]

    def remember_before(self, end: int, producer_ids: Iterable[int]) -> bool:
        """Whether of each of these producers a batch before `end` is known, then of its present epoch.

        At most the last five batches of a producer are under way at once: of those, the ones that stay are
        known then.
        """
        found = (self._producers.get(producer_id) for producer_id in producer_ids)
        return all(
            known is not None and known.batches and known.batches[0].base_offset < end for known in found
        )

    def take_back(self, end: int, producer_ids: Iterable[int]) -> None:
        """Forget the batches of these producers from `end` on. One that has expired meanwhile has none."""
        for producer_id in producer_ids:
            known = self._producers.get(producer_id)
            if known is not None:
                while known.batches and known.batches[-1].base_offset >= end:
                    known.batches.pop()
                known.last_timestamp = known.batches[-1].timestamp if known.batches else -1

    def last_batches(self) -> list[tuple[int, int, int]]:
        """Per producer: id, last offset of its last batch (-1 if it has none), epoch."""
        return [
            (producer_id, known.batches[-1].last_offset if known.batches else -1, known.epoch)
            for producer_id, known in self._producers.items()
        ]

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers silent for longer than `after_ms`, without an open transaction; returns how many.

        Silence is measured between these passes, not by timestamps, which producers choose: a producer that
        writes last year's records must still have its retries recognised.
        """
        silent = []
        for producer_id, known in self._producers.items():
            if known.silent_from is None:
                known.silent_from = now_ms
            elif now_ms - known.silent_from > after_ms and known.transaction_first_offset == NO_TRANSACTION:
                silent.append(producer_id)
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def doubt_open(self) -> None:
        """Batches are missing after the restored snapshot, so the markers may be among them. A transaction
        that is still open begins anew with its next batch: those before it are gone, too.
        """
        for producer_id, _ in self.unstable.open():
            self._producers[producer_id].transaction_first_offset = NO_TRANSACTION
        self.unstable.clear()

    def clear(self) -> None:
        self._producers.clear()
        self.unstable.clear()
        self.indexed.clear()

    def snapshot(self, indexed: Iterable[tuple[int, int]] = ()) -> bytes:
        """The bytes of a .snapshot file. `indexed`: base offset and number of aborts of segments."""
        entries, earlier = bytearray(), bytearray()
        for producer_id, known in self._producers.items():
            last = known.batches[-1] if known.batches else Stored(-1, -1, -1, -1, -1)
            entries += SNAPSHOT_ENTRY.pack(
                producer_id,
                known.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                known.last_timestamp,
                known.coordinator_epoch,
                known.transaction_first_offset,
            )
            for batch in list(known.batches)[:-1]:
                earlier += EARLIER_ENTRY.pack(producer_id, *batch)
        for base_offset, count in indexed:
            earlier += EARLIER_ENTRY.pack(OF_INDEX, count, 0, base_offset, -1, -1)
        body = len(self._producers).to_bytes(4, "big") + entries + earlier
        return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    def restore(self, data: bytes, end: int = NEVER) -> None:
        """Replace everything by the content of a snapshot as of offset `end`.

        After InvalidSnapshot the state is empty.
        """
        self.clear()
        if len(data) < SNAPSHOT_HEAD.size:
            raise InvalidSnapshot("the file is shorter than its header")
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise InvalidSnapshot(f"version {version}: expected {SNAPSHOT_VERSION}")
        if crc32c(memoryview(data)[SNAPSHOT_CRC_END:]) != crc:
            raise InvalidSnapshot("the checksum does not match")
        behind = SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
        if count < 0 or behind > len(data) or (len(data) - behind) % EARLIER_ENTRY.size:
            raise InvalidSnapshot(f"{count} producers do not fit in {len(data)} bytes")
        earlier: dict[int, list[Stored]] = {}
        for producer_id, *batch in EARLIER_ENTRY.iter_unpack(memoryview(data)[behind:]):
            if producer_id == OF_INDEX:
                self.indexed[batch[2]] = batch[0]
            else:
                earlier.setdefault(producer_id, []).append(Stored(*batch))
        for entry in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size : behind]):
            self._restore_entry(earlier.get(entry[0], []), *entry)
        self._restore_open(end)

    def _restore_open(self, end: int) -> None:
        """Note the open transactions of what was restored."""
        begun = {
            known.transaction_first_offset: producer_id
            for producer_id, known in self._producers.items()
            if known.transaction_first_offset != NO_TRANSACTION
        }
        count = sum(known.transaction_first_offset != NO_TRANSACTION for known in self._producers.values())
        if count != len(begun) or any(not 0 <= offset < end for offset in begun):
            self.clear()
            raise InvalidSnapshot("its open transactions begin where none can")
        for offset in sorted(begun):
            self.unstable.begin(begun[offset], offset)

    def _restore_entry(
        self,
        earlier: list[Stored],
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        delta: int,
        timestamp: int,
        coordinator_epoch: int,
        transaction_first_offset: int,
    ) -> None:
        known = self._producers[producer_id] = ProducerState(epoch)
        known.last_timestamp = timestamp
        known.coordinator_epoch = coordinator_epoch
        known.transaction_first_offset = transaction_first_offset
        if last_sequence >= 0:
            known.batches.extend(earlier)
            first = (last_sequence - delta) % SEQUENCES
            known.batches.append(Stored(first, last_sequence, last_offset - delta, last_offset, timestamp))


def _insist_on_transaction(header: BatchHeader, known: ProducerState) -> None:
    if known.transaction_first_offset != NO_TRANSACTION and not header.is_transactional:
        raise error_for(
            ErrorCode.INVALID_TXN_STATE,
            (
                f"producer {header.producer_id}: its transaction is open since offset "
                f"{known.transaction_first_offset}, the batch is outside of any"
            ),
        )


def _insist_on_new_sequences(header: BatchHeader, known: ProducerState) -> None:
    """A producer that ends a transaction waits for no batch of it any more, so this is none sent twice: the
    producer has given its sequences to new records, which must not be acknowledged for the old ones.
    """
    first = known.transaction_first_offset
    for batch in known.batches:
        has_ended = first == NO_TRANSACTION or batch.last_offset < first
        if has_ended and batch.holds(header.base_sequence):
            raise error_for(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                (
                    f"producer {header.producer_id}: sequence {header.base_sequence} is of a transaction "
                    f"that has ended, at offset {batch.base_offset}"
                ),
            )


def fenced(producer_id: int, epoch: int, newest: int) -> Exception:
    """The error for an epoch that is no longer the producer's."""
    return error_for(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {newest}, the batch has {epoch}",
    )


def out_of_order(header: BatchHeader, expected: int) -> Exception:
    """The error for a sequence that does not follow."""
    return error_for(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        (
            f"producer {header.producer_id}: expected sequence {expected}, the batch has "
            f"{header.base_sequence}"
        ),
    )

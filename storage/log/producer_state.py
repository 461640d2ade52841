"""ProducerStates: the last batches of each producer, so that a batch sent twice is stored once.

A leader checks a batch against the last five of its producer. Followers, and a log that is opened again,
rebuild the same state from batch headers. Snapshots have Kafka's format, which keeps one batch per producer.
The four before it are stored after the part that Kafka reads: a producer may have five batches in flight
when its leader stops, and it will send all of them again.
Left to others: where snapshots lie and when they are taken (producer_snapshots.py).
Why: docs/decisions/0048-an-unknown-producer-begins-anywhere.md
"""

from collections import deque
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ...protocol.batches import SEQUENCES, BatchHeader
from ...protocol.errors import ErrorCode, error_for

BATCHES_KEPT = 5  # as many as a producer may have in flight
NO_EPOCH = -1
NO_SEQUENCE = -1

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = Struct(">hIi")  # version, CRC-32C of what follows it, number of producers
SNAPSHOT_CRC_END = 6
# producer id and epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of an open transaction
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
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
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class InvalidSnapshot(ValueError):
    """A snapshot file that cannot be trusted; the state is rebuilt without it."""


class ProducerStates:
    """All producers of one partition, the least recently active first."""

    __slots__ = ("_producers", "producers_max")

    def __init__(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self._producers: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> Duplicate | None:
        """The leader's check before an append: is the batch new (None), already stored, or out of order?

        Raises INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap.
        """
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch == known.epoch:
            sequences = header.base_sequence, header.last_sequence
            for batch in known.batches:
                if (batch.base_sequence, batch.last_sequence) == sequences:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
            expected = (known.last_sequence + 1) % SEQUENCES
            if known.batches and header.base_sequence != expected:
                raise out_of_order(header, expected)
        elif header.producer_epoch < known.epoch:
            raise error_for(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                (
                    f"producer {header.producer_id} has epoch {known.epoch}, the batch has "
                    f"{header.producer_epoch}"
                ),
            )
        elif header.base_sequence != 0:
            raise out_of_order(header, 0)
        return None

    def update(self, header: BatchHeader, base_offset: int, timestamp: int | None = None) -> None:
        """Take in a batch that is in the log at `base_offset`."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        assert base_offset >= 0, "the batch has its place in the log"
        known = self._producers.pop(producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            known = ProducerState(header.producer_epoch)
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
        if len(self._producers) > self.producers_max:
            del self._producers[next(iter(self._producers))]

    def last_batches(self) -> list[tuple[int, int, int]]:
        """Per producer: id, last offset of its last batch (-1 if it has none), epoch."""
        return [
            (producer_id, known.batches[-1].last_offset if known.batches else -1, known.epoch)
            for producer_id, known in self._producers.items()
        ]

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers silent for longer than `after_ms`; returns how many.

        Silence is measured between these passes, not by timestamps, which producers choose: a producer that
        writes last year's records must still have its retries recognised.
        """
        silent = []
        for producer_id, known in self._producers.items():
            if known.silent_from is None:
                known.silent_from = now_ms
            elif now_ms - known.silent_from > after_ms:
                silent.append(producer_id)
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def clear(self) -> None:
        self._producers.clear()

    def snapshot(self) -> bytes:
        """The bytes of a .snapshot file."""
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
        body = len(self._producers).to_bytes(4, "big") + entries + earlier
        return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot's content. After InvalidSnapshot the state is empty."""
        self._producers.clear()
        if len(data) < SNAPSHOT_HEAD.size:
            raise InvalidSnapshot("the file is shorter than its header")
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise InvalidSnapshot(f"version {version}: expected {SNAPSHOT_VERSION}")
        if crc32c(memoryview(data)[SNAPSHOT_CRC_END:]) != crc:
            raise InvalidSnapshot("the checksum does not match")
        end = SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
        if count < 0 or end > len(data) or (len(data) - end) % EARLIER_ENTRY.size:
            raise InvalidSnapshot(f"{count} producers do not fit in {len(data)} bytes")
        earlier: dict[int, list[Stored]] = {}
        for producer_id, *batch in EARLIER_ENTRY.iter_unpack(memoryview(data)[end:]):
            earlier.setdefault(producer_id, []).append(Stored(*batch))
        for entry in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size : end]):
            self._restore_entry(earlier.get(entry[0], []), *entry)

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


def out_of_order(header: BatchHeader, expected: int) -> Exception:
    """The error for a sequence that does not follow."""
    return error_for(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        (
            f"producer {header.producer_id}: expected sequence {expected}, the batch has "
            f"{header.base_sequence}"
        ),
    )

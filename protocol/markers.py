"""Transaction markers: the control batch by which a coordinator ends a transaction in one partition.

A marker has one record. Its key says commit or abort, its value which epoch the coordinator had. The batch
has the producer's id and epoch and no sequence (KIP-98; Kafka's EndTransactionMarker).
Left to others: what a marker does to a partition (storage/log/producer_state.py).
"""

from struct import Struct
from typing import NamedTuple

from .batches import BatchHeader
from .errors import ApiError
from .primitives import Buffer, Malformed
from .records import BatchBuilder, iterate

ABORT, COMMIT = 0, 1
CONTROL_KEY = Struct(">hh")  # version and type
MARKER_VALUE = Struct(">hi")  # version and coordinator epoch
VERSION = 0
NO_COORDINATOR_EPOCH = -1


class EndMarker(NamedTuple):
    """How a transaction ended, and the leader epoch in which its coordinator decided so."""

    committed: bool
    coordinator_epoch: int


def marker_batch(producer_id: int, producer_epoch: int, marker: EndMarker, timestamp_ms: int) -> bytearray:
    """The batch that ends the producer's transaction."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    key = CONTROL_KEY.pack(VERSION, COMMIT if marker.committed else ABORT)
    builder.append(timestamp_ms, key, MARKER_VALUE.pack(VERSION, marker.coordinator_epoch))
    return bytearray(builder.build())


def read_marker(data: Buffer, at: int, header: BatchHeader) -> EndMarker | None:
    """The marker in the control batch at `at`; None for another control record, or if compaction emptied it.

    Raises Malformed for a control batch that cannot be read.
    """
    if not header.record_count:
        return None
    try:
        for record in iterate(memoryview(data)[at : at + header.size]):
            return _marker(record.key or b"", record.value or b"")
    except ApiError as error:
        raise Malformed(f"control batch at offset {header.base_offset}: {error}") from error
    return None


def _marker(key: bytes, value: bytes) -> EndMarker | None:
    if len(key) < CONTROL_KEY.size:
        raise Malformed(f"a control record's key has {len(key)} bytes: expected at least {CONTROL_KEY.size}")
    kind = CONTROL_KEY.unpack_from(key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    if len(value) < MARKER_VALUE.size:
        raise Malformed(f"a marker's value has {len(value)} bytes: expected at least {MARKER_VALUE.size}")
    return EndMarker(kind == COMMIT, MARKER_VALUE.unpack_from(value)[1])

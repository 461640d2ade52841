"""The small files as rows: producer snapshots, aborted transactions, checkpoints, metadata files."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from crc32c import crc32c

from ...protocol.batches import SEQUENCES
from ...storage.disk import RealDisk
from ...storage.log.checkpoints import Unreadable, read_lines, read_properties
from ...storage.log.producer_state import SNAPSHOT_CRC_END, SNAPSHOT_ENTRY, SNAPSHOT_HEAD, SNAPSHOT_VERSION
from ...storage.segment.file_names import SNAPSHOT, TRANSACTION_INDEX
from ...storage.segment.index import ABORTED_ENTRY
from ...storage.segment_files import Damaged
from .rows import Findings, Row, Wanted


def snapshot_rows(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
    """The state of idempotent producers at an offset."""
    data = path.read_bytes()
    if len(data) < SNAPSHOT_HEAD.size:
        raise Damaged(path, 0, f"expected a snapshot header of {SNAPSHOT_HEAD.size} bytes, found {len(data)}")
    version, stored, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise Damaged(path, 0, f"Snapshot contained an unknown file version {version}")
    computed = crc32c(data[SNAPSHOT_CRC_END:])
    if computed != stored:
        said = f"Stored crc: {stored}. Computed crc: {computed}"
        raise Damaged(path, 2, f"Snapshot {path} is corrupt (CRC is no longer valid). {said}")
    end = SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
    if count < 0 or end > len(data):
        raise Damaged(
            path, SNAPSHOT_CRC_END, f"expected {count} producers, but {len(data)} bytes cannot hold them"
        )
    for entry in SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD.size : end]):
        yield _producer(*entry)


def _producer(
    producer: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp: int,
    coordinator: int,
    transaction: int,
) -> Row:
    batch = {
        "firstSequence": (last_sequence - delta) % SEQUENCES if last_sequence >= 0 else -1,
        "lastSequence": last_sequence,
        "lastOffset": last_offset,
        "offsetDelta": delta,
        "timestamp": timestamp,
    }
    return {
        "kind": "producer",
        "producerId": producer,
        "producerEpoch": epoch,
        "coordinatorEpoch": coordinator,
        "currentTxnFirstOffset": None if transaction < 0 else transaction,
        "lastTimestamp": timestamp,
        "batch": batch if last_offset >= 0 else None,
    }


def aborted_rows(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
    """The aborted transactions that end in a segment; only Kafka writes such files."""
    data = path.read_bytes()
    for at in range(0, len(data), ABORTED_ENTRY.size):
        if len(data) - at < ABORTED_ENTRY.size:
            raise Damaged(
                path, at, f"expected an entry of {ABORTED_ENTRY.size} bytes, found {len(data) - at}"
            )
        version, producer, first, last, stable = ABORTED_ENTRY.unpack_from(data, at)
        yield {
            "kind": "aborted",
            "version": version,
            "producerId": producer,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }


def _checkpoint(*columns: str) -> "Rows":
    """A reader of checkpoints: a version, a count, and that many lines of words."""

    def rows(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
        try:
            for number, line in enumerate(read_lines(RealDisk(), str(path)), 3):
                words = line.split(" ")
                if len(words) != len(columns):
                    raise Damaged(path, 0, f"expected {' '.join(columns)} in line {number}, found {line!r}")
                values = (int(word) if word.lstrip("-").isdecimal() else word for word in words)
                yield {"kind": "checkpoint", **dict(zip(columns, values, strict=True))}
        except Unreadable as error:
            raise Damaged(path, 0, str(error).removeprefix(f"{path}: ")) from error

    return rows


def _properties(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
    try:
        found = read_properties(RealDisk(), str(path)) or {}
    except Unreadable as error:
        raise Damaged(path, 0, str(error).removeprefix(f"{path}: ")) from error
    yield {"kind": "values", "values": found}


def _metadata(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
    """partition.metadata: `name: value` lines."""
    pairs = [line.partition(": ") for line in path.read_text(errors="replace").splitlines() if line]
    if not pairs or not all(middle for _, middle, _ in pairs):
        raise Damaged(path, 0, "expected lines of the form name: value")
    yield {"kind": "values", "values": {name: value for name, _, value in pairs}}


def _document(path: Path, _wanted: Wanted, _findings: Findings) -> Iterator[Row]:
    try:
        yield {"kind": "document", "document": json.loads(path.read_bytes())}
    except ValueError as error:
        raise Damaged(path, getattr(error, "pos", 0), f"expected a JSON document: {error}") from error


Rows = Callable[[Path, Wanted, Findings], Iterator[Row]]
OFFSETS = _checkpoint("topic", "partition", "offset")
SMALL: dict[str, Rows] = {
    # suffix or name -> what reads it
    SNAPSHOT: snapshot_rows,
    TRANSACTION_INDEX: aborted_rows,
    "leader-epoch-checkpoint": _checkpoint("epoch", "startOffset"),
    "replication-offset-checkpoint": OFFSETS,
    "recovery-point-offset-checkpoint": OFFSETS,
    "log-start-offset-checkpoint": OFFSETS,
    "cleaner-offset-checkpoint": OFFSETS,
    "partition.metadata": _metadata,
    "meta.properties": _properties,
    "directory.properties": _properties,
    ".kafka_cleanshutdown": _document,
    "incarnation.json": _document,
    "topic-config.json": _document,
}

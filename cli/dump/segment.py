"""Batches and records of a segment, as rows."""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from ...protocol.batches import SEQUENCES, BatchHeader
from ...protocol.compression import Codec
from ...protocol.primitives import Malformed
from ...protocol.records import Record, iterate
from ...storage.segment_files import BatchInFile, Damaged, SegmentFile, base_offsets
from .rows import Findings, Row, Wanted, base_of

HAS_DELETE_HORIZON = 0x40
CONTROL_KEY, END_MARKER = Struct(">hh"), Struct(">hi")  # version and type; version and coordinator epoch
CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


def segment_rows(path: Path, wanted: Wanted, findings: Findings) -> Iterator[Row]:
    """The batches of a .log file, with their records if these are wanted."""
    yield {"kind": "start", "offset": base_of(path)}
    last_offset, end = -1, 0
    with SegmentFile(path, wanted.bytes_max) as segment:
        for batch in segment.batches():
            yield batch_row(batch)
            end = batch.position + batch.header.size
            for record in _records(path, batch) if wanted.records else ():
                if last_offset not in (-1, record.offset - 1):
                    findings.note("non_consecutive", path, last_offset, record.offset)
                last_offset = record.offset
                yield record_row(record, batch, wanted)
        left = 0 if wanted.cut else segment.size - end
    if left:
        yield {"kind": "torn", "file": path.name, "position": end, "bytes": left}
        if any(base > base_of(path) for base in base_offsets(path.absolute().parent)):
            raise Damaged(
                path, end, f"the last {left} bytes are not a whole batch, yet another segment follows"
            )


def _records(path: Path, batch: BatchInFile) -> Iterator[Record]:
    """All records that can be read, even in a batch with a wrong checksum, which its row reports."""
    try:
        yield from iterate(batch.data, verify=False)
    except Malformed as error:
        problem = f"cannot decode the batch at offset {batch.header.base_offset}: {error}"
        raise Damaged(path, batch.position, problem) from error


def batch_row(batch: BatchInFile) -> Row:
    """A batch's header."""
    header = batch.header
    has_horizon = header.attributes & HAS_DELETE_HORIZON
    return {
        "kind": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if has_horizon else None,
        "position": batch.position,
        "timestampType": _timestamp_type(header),
        "maxTimestamp": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _codec(header),
        "crc": header.crc,
        "isvalid": batch.valid,
    }


def record_row(record: Record, batch: BatchInFile, wanted: Wanted) -> Row:
    """A record, with the fields of its batch that the older line format shows."""
    header = batch.header
    row: Row = {"kind": "record"}
    if wanted.metadata:
        row |= {
            "offset": record.offset,
            "position": batch.position,
            "timestampType": _timestamp_type(header),
            "timestamp": record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "magic": header.magic,
            "compresscodec": _codec(header),
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "sequence": _sequence(record, header),
            "isTransactional": header.is_transactional,
            "headerKeys": [name for name, _ in record.headers],
            "isvalid": batch.valid,
        }
        if header.is_control:
            row |= _marker(record)
    if wanted.contents and not header.is_control:
        row["key"], row["payload"] = wanted.decode(record)
    return row


def _marker(record: Record) -> Row:
    """The content of a control record."""
    key, value = record.key or b"", record.value or b""
    kind = CONTROL_KEY.unpack_from(key)[1] if len(key) >= CONTROL_KEY.size else -1
    if kind in (0, 1) and len(value) >= END_MARKER.size:
        return {"endTxnMarker": CONTROL_TYPES[kind], "coordinatorEpoch": END_MARKER.unpack_from(value)[1]}
    return {"controlType": f"{CONTROL_TYPES.get(kind, 'UNKNOWN')}({kind})"}


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) % SEQUENCES


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).name.lower() if header.codec in list(Codec) else f"unknown({header.codec})"

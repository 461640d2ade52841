"""`strandline dump`: what stands in segments, indexes and checkpoints, in Kafka's dump format or as JSON.

It reads files of a stopped or running broker and changes none. Kafka's one-dash spelling (`-files`)
is understood. Left to others: reading a whole log as records (`storage/`).
"""

import argparse
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crc32c import crc32c

from ..protocol.batches import BatchHeader, crc_ok, headers
from ..protocol.compression import Codec
from ..protocol.errors import ApiError
from ..protocol.primitives import Malformed
from ..protocol.records import Record, iterate
from ..storage.producers import SNAPSHOT_CRC_END, SNAPSHOT_ENTRY, SNAPSHOT_HEAD
from .console import clear_errors

HELP = "Print segments, indexes, epochs and checkpoints: --files F,G [--print-data-log] [--json]."
OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
OFFSETS = ("topic", "partition", "offset")
COLUMNS = {
    "leader-epoch-checkpoint": ("epoch", "startOffset"),
    "replication-offset-checkpoint": OFFSETS,
    "recovery-point-offset-checkpoint": OFFSETS,
    "log-start-offset-checkpoint": OFFSETS,
}
OF_A_SEGMENT = (".log", ".index", ".timeindex", ".snapshot")
BAD = {"isvalid": False}


def main(arguments: Sequence[str]) -> int:
    """Dump the files named; 0, or 1 when one could not be read or is damaged."""
    with clear_errors():
        return _dump(arguments)


def _dump(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("strandline dump", description=HELP)
    parser.add_argument("-files", "--files", required=True, help="files to print, separated by commas")
    parser.add_argument(
        "-print-data-log", "--print-data-log", action="store_true", help="print the records of .log files too"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(list(arguments))
    damaged = False
    for name in options.files.split(","):
        path = Path(name)
        if not path.is_file():
            sys.stderr.write(f"strandline: {path} is not a file: name segments, indexes or checkpoints\n")
            damaged = True
            continue
        if path.suffix in OF_A_SEGMENT and not path.stem.isdecimal():
            sys.stderr.write(f"strandline: {path}: the name of a segment's file is its first offset\n")
            damaged = True
            continue
        if not options.json:
            sys.stdout.write(f"Dumping {path}\n")
        for row in rows(path, options.print_data_log):
            damaged |= row.get("isvalid") is False
            sys.stdout.write((json.dumps(row, default=_text) if options.json else line(row)) + "\n")
    return 1 if damaged else 0


def rows(path: Path, with_records: bool) -> Iterator[dict[str, Any]]:
    """What stands in one file, row by row; `kind` says what a row is."""
    if path.suffix == ".log":
        yield from _segment(path, with_records)
    elif path.suffix in (".index", ".timeindex"):
        found = _offset_index(path) if path.suffix == ".index" else _time_index(path)
        if not found:
            yield {"kind": "empty", "file": str(path)}
        yield from found
    elif path.suffix == ".snapshot":
        yield from _snapshot(path)
    elif path.name in COLUMNS:
        yield from _checkpoint(path, *COLUMNS[path.name])
    else:
        yield {"kind": "damage", "problem": f"{path} is no segment, index, snapshot or checkpoint", **BAD}


def line(row: dict[str, Any]) -> str:
    """A row as Kafka's tool prints it."""
    kind = row["kind"]
    fields = {name: value for name, value in row.items() if name != "kind"}
    text = " ".join(f"{name}: {_text(value)}" for name, value in fields.items())
    special = {
        "start": f"Log starting offset: {row.get('offset')}",
        "record": f"| {text}",
        "empty": f"{row.get('file')} is empty.",
    }
    return special.get(kind, text)


def _segment(path: Path, with_records: bool) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    yield {"kind": "start", "offset": int(path.stem)}
    end = 0
    try:
        for position, header in headers(data):
            end = position + header.size
            yield _batch(data, position, header)
            if with_records:
                yield from _records(memoryview(data)[position:end], position, header)
    except Malformed as error:
        yield {"kind": "damage", "position": end, "problem": str(error), **BAD}
        return
    if end < len(data):
        yield {"kind": "damage", "position": end, "torn_bytes": len(data) - end, **BAD}


def _records(batch: memoryview, position: int, header: BatchHeader) -> Iterator[dict[str, Any]]:
    try:
        for record in iterate(batch):
            yield _record(record, header)
    except (Malformed, ApiError) as error:
        yield {"kind": "damage", "position": position, "problem": str(error), **BAD}


def _batch(data: bytes, position: int, header: BatchHeader) -> dict[str, Any]:
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
        "deleteHorizonMs": "OptionalLong.empty",
        "position": position,
        "LogAppendTime" if header.is_log_append_time else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": Codec(header.codec).name.lower(),
        "crc": header.crc,
        "isvalid": crc_ok(data, position, header),
    }


def _record(record: Record, header: BatchHeader) -> dict[str, Any]:
    sequence = header.base_sequence
    return {
        "kind": "record",
        "offset": record.offset,
        "CreateTime": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": -1 if sequence < 0 else sequence + record.offset - header.base_offset,
        "headerKeys": [name for name, _ in record.headers],
        **({} if record.key is None else {"key": record.key}),
        "payload": record.value,
    }


def _offset_index(path: Path) -> list[dict[str, Any]]:
    base, entries = int(path.stem), OFFSET_ENTRY.iter_unpack(_whole(path, OFFSET_ENTRY.size))
    return [{"kind": "index", "offset": base + offset, "position": at} for offset, at in entries]


def _time_index(path: Path) -> list[dict[str, Any]]:
    base, entries = int(path.stem), TIME_ENTRY.iter_unpack(_whole(path, TIME_ENTRY.size))
    return [{"kind": "timeindex", "timestamp": at, "offset": base + offset} for at, offset in entries]


def _checkpoint(path: Path, *columns: str) -> Iterator[dict[str, Any]]:
    """A version, a count, and so many lines of words."""
    lines = path.read_text(errors="replace").splitlines()
    for text in lines[2:]:
        words = text.split(" ")
        if len(words) != len(columns):
            yield {"kind": "damage", "problem": f"not an entry: {text}", **BAD}
            continue
        values = (int(word) if word.lstrip("-").isdecimal() else word for word in words)
        yield {"kind": "checkpoint", **dict(zip(columns, values, strict=True))}
    if lines[1:2] != [str(len(lines) - 2)]:
        yield {"kind": "damage", "problem": f"{len(lines) - 2} entries, announced {lines[1:2]}", **BAD}


def _snapshot(path: Path) -> Iterator[dict[str, Any]]:
    """What was known of idempotent producers at an offset."""
    data = path.read_bytes()
    count = SNAPSHOT_HEAD.unpack_from(data)[2] if len(data) >= SNAPSHOT_HEAD.size else -1
    end = SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
    whole = count >= 0 and end <= len(data)
    if not whole or crc32c(data[SNAPSHOT_CRC_END:]) != SNAPSHOT_HEAD.unpack_from(data)[1]:
        yield {"kind": "damage", "problem": "the snapshot is torn or its checksum is wrong", **BAD}
        return
    for entry in SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD.size : end]):
        producer, epoch, sequence, offset, delta, timestamp, coordinator, transaction = entry
        yield {
            "kind": "producer",
            "producerId": producer,
            "producerEpoch": epoch,
            "coordinatorEpoch": coordinator,
            "currentTxnFirstOffset": "OptionalLong.empty" if transaction < 0 else transaction,
            "lastTimestamp": timestamp,
            "firstSequence": sequence - delta,
            "lastSequence": sequence,
            "lastOffset": offset,
            "offsetDelta": delta,
            "timestamp": timestamp,
        }


def _whole(path: Path, size: int) -> bytes:
    """The whole entries of an index; a preallocated tail of zeros is left out, as is a torn one."""
    data = path.read_bytes()
    data = data[: len(data) - len(data) % size]
    while len(data) > size and data.endswith(bytes(size)):
        data = data[:-size]
    return data


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, list):
        return "[" + ",".join(_text(item) for item in value) + "]"
    return str(value)

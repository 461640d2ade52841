"""Rows as lines: in the format of Kafka 3.9, the older one of 0.11 with a record per line, or JSON.

Errors go to stderr, as in Kafka's tool. Left to others: what is in a row (segment.py, index.py,
small_files.py, explain.py).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .rows import Row

Line = Callable[[Row], str]
Printer = Callable[[Row], tuple[str | None, str]]

ERRORS = frozenset({
    "damage", "gone", "index_mismatches", "misnamed", "missing", "non_consecutive", "not_found",
    "passed_over", "time_disorder", "time_mismatches", "unknown",
})  # fmt: skip

BATCH_39 = (
    "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch",
    "partitionLeaderEpoch", "isTransactional", "isControl", "deleteHorizonMs", "position", "TIME", "size",
    "magic", "compresscodec", "crc", "isvalid",
)  # fmt: skip
BATCH_011 = (
    "baseOffset", "lastOffset", "baseSequence", "lastSequence", "producerId", "producerEpoch",
    "partitionLeaderEpoch", "isTransactional", "position", "TIME", "isvalid", "size", "magic", "CODEC", "crc",
)  # fmt: skip
MARKER = ("endTxnMarker", "coordinatorEpoch", "controlType")
RECORD_39 = ("offset", "TIME", "keySize", "valueSize", "sequence", "headerKeys", *MARKER)
RECORD_011 = (
    "offset", "position", "TIME", "isvalid", "keysize", "valuesize", "magic", "CODEC", "producerId",
    "producerEpoch", "sequence", "isTransactional", "headerKeys", *MARKER,
)  # fmt: skip
PRODUCER_39 = ("producerId", "producerEpoch", "coordinatorEpoch", "currentTxnFirstOffset", "lastTimestamp")
PRODUCER_011 = (
    "producerId", "producerEpoch", "lastSequence", "lastOffset", "offsetDelta", "lastTimestamp",
    "coordinatorEpoch", "currentTxnFirstOffset",
)  # fmt: skip
ABORTED = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")


def printer(form: str, as_json: bool, records: bool) -> Printer:
    """A function from a row to its text (None: not in this format) and the name of its stream."""
    if as_json:
        return lambda row: (json.dumps(row, ensure_ascii=False), "stdout")
    lines = {**LINES, **(LINES_011 if form == "0.11" else {})}
    left_out = {"batch"} if form == "0.11" and records else set()

    def show(row: Row) -> tuple[str | None, str]:
        kind = row["kind"]
        return None if kind in left_out else lines[kind](row), "stderr" if kind in ERRORS else "stdout"

    return show


def words(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`name: value` for each of the names that the row has; two names in capitals are special (`_pair`)."""
    pairs = (_pair(row, name) for name in names)
    return " ".join(f"{name}: {said(value)}" for name, value in pairs if name in row or value is not None)


def _pair(row: Mapping[str, Any], name: str) -> tuple[str, Any]:
    if name == "TIME":
        return row["timestampType"], row.get("maxTimestamp", row.get("timestamp"))
    if name == "CODEC":
        return "compresscodec", row["compresscodec"].upper()
    if name in ("keysize", "valuesize"):
        return name, row[name.replace("size", "Size")]
    if name in ("deleteHorizonMs", "currentTxnFirstOffset"):
        return name, "OptionalLong.empty" if row[name] is None else f"OptionalLong[{row[name]}]"
    return name, row.get(name)


def said(value: Any) -> str:
    """A value as Java prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def _record(row: Row) -> str:
    metadata = "offset" in row
    return (f"| {words(row, RECORD_39)}" if metadata else "") + _contents(row, " " if metadata else "| ")


def _old_record(row: Row) -> str:
    return (words(row, RECORD_011) if "offset" in row else "") + _contents(row, " ")


def _contents(row: Row, before_key: str) -> str:
    key, payload = row.get("key"), row.get("payload")
    return (f"{before_key}key: {key}" if key is not None else "") + (
        f" payload: {payload}" if payload is not None else ""
    )


def _producer(row: Row) -> str:
    batch = row["batch"]
    last = words(batch, tuple(batch)) if batch else ""
    return f"{words(row, PRODUCER_39)} {last}"


def _old_producer(row: Row) -> str:
    batch = row["batch"] or {"lastSequence": -1, "lastOffset": -1, "offsetDelta": 0}
    first = row["currentTxnFirstOffset"]
    option = "None" if first is None else f"Some({first})"
    return words({**row, **batch}, PRODUCER_011[:-1]) + f" currentTxnFirstOffset: {option}"


def _pairs(head: str, line: str, *, newest_first: bool = False) -> Line:
    """The inconsistencies in one file; Kafka's tool prints some of them in reverse order."""

    def text(row: Row) -> str:
        pairs = row["pairs"][::-1] if newest_first else row["pairs"]
        return "\n".join([head.format(**row), *(line.format(*pair) for pair in pairs)])

    return text


def _rest(row: Row) -> str:
    return words(row, [name for name in row if name != "kind"])


def _explanation(row: Row) -> str:
    """A headline, and a line for each step of the lookup."""
    return "\n".join(
        [f"{row['asked']} in {row['directory']}", *(f"  {n:10}{text}" for n, text in _lines(row))]
    )


def _lines(row: Row) -> Iterator[tuple[str, str]]:
    watermark = row["highWatermark"]
    known = "unknown" if watermark is None else f"{watermark}"
    yield "log", f"starts at {row['logStart']}, high watermark {known}"
    search = row["search"]
    compared = ", ".join(map(str, search["compared"])) or "nothing"
    yield "segments", f"{search['segments']}; compared with {compared}"
    for skipped in search.get("skipped", ()):
        yield "", f"{skipped['segment']} skipped: its latest time is {skipped['latest']}"
    for step in row["steps"]:
        yield "segment", f"{step['segment']}, {step['bytes']:,} bytes"
        if "timeIndex" in step:
            yield "timeindex", _entry(step["timeIndex"], "the last entry before that time", "time")
        yield "index", _entry(step["index"], "the last entry at or below it", "position")
        scan = step["scan"]
        yield "scan", f"from position {scan['from']}: batches {scan['batches']}, bytes {scan['bytes']:,}"
    if row["batch"] is not None:
        batch = row["batch"]
        size = f"{batch['count']} records, {batch['size']} bytes at position {batch['position']}"
        codec = f"{batch['compresscodec']}, checksum {'good' if batch['isvalid'] else 'WRONG'}"
        yield "batch", f"offsets {batch['baseOffset']} to {batch['lastOffset']}, {size}, {codec}"
    if row["record"] is not None:
        record = row["record"]
        kind = f"{record['timestampType']} {record['timestamp']}"
        sizes = f"key {record['keySize']} bytes, value {record['valueSize']} bytes (-1 is null)"
        yield "record", f"offset {record['offset']}, {kind}, {sizes}"
    yield "answer", row["answer"]


def _entry(index: Row, which: str, value: str) -> str:
    floor = index["floor"]
    found = f"offset {floor['offset']}, {value} {floor[value]}: {which}" if floor else "no usable entry"
    note = f" ({index['note']})" if index["note"] else ""
    return f"{index['entries']} entries; {found}{note}"


LINES: dict[str, Line] = {
    "file": "Dumping {file}".format_map,
    "start": "Log starting offset: {offset}".format_map,
    "batch": lambda row: words(row, BATCH_39),
    "record": _record,
    "torn": "Found {bytes} invalid bytes at the end of {file}".format_map,
    "empty": "{file} is empty.".format_map,
    "passed": "{file} passed sanity check.".format_map,
    "index": _rest,
    "timeindex": _rest,
    "producer": _producer,
    "aborted": lambda row: words(row, ABORTED),
    "checkpoint": _rest,
    "values": lambda row: "\n".join(f"{name}: {value}" for name, value in row["values"].items()),
    "document": lambda row: json.dumps(row["document"]),
    "explanation": _explanation,
    "damage": "strandline: {file}, position {position}: {problem}".format_map,
    "gone": "{file} is gone: its broker deleted it meanwhile".format_map,
    "passed_over": "Ignoring unknown file {file}".format_map,
    "unknown": "Ignoring unknown file {file}".format_map,
    "misnamed": (
        "strandline: {file}: expected a file name that is the segment's first offset, e.g. "
        "00000000000000000000.log"
    ).format_map,
    "missing": "strandline: {file} is neither a file nor a directory".format_map,
    "index_mismatches": _pairs(
        "Mismatches in :{file}", "  Index offset: {}, log offset: {}", newest_first=True
    ),
    "time_mismatches": _pairs(
        "Found timestamp mismatch in :{file}", "  Index timestamp: {}, log timestamp: {}"
    ),
    "time_disorder": _pairs(
        "Found out of order timestamp in :{file}",
        "  Index timestamp: {}, Previously indexed timestamp: {}",
    ),
    "not_found": _pairs(
        "The following indexed offsets are not found in the log.",
        "Indexed offset: {}, found log offset: {}",
    ),
    "non_consecutive": _pairs(
        "Non-consecutive offsets in {file}", "  {} is followed by {}", newest_first=True
    ),
}
LINES_011: dict[str, Line] = {
    "start": "Starting offset: {offset}".format_map,
    "batch": lambda row: words(row, BATCH_011),
    "record": _old_record,
    "producer": _old_producer,
    "non_consecutive": _pairs(
        "Non-consecutive offsets in :{file}", "  {} is followed by {}", newest_first=True
    ),
}

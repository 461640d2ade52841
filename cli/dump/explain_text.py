"""The explanation of a lookup, for people."""

from collections.abc import Iterator

from .rows import Row


def explanation(row: Row) -> str:
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

"""`strandline lost`: records that replicas had to remove from a log, and where they are kept.

A replica that truncates its log, because its leader has other records or because recovery found a bad one,
keeps the removed records beside its log directory. This asks all brokers that answer, or reads the
directories given by --dir.
Left to others: keeping it (storage/quarantine.py, broker/replicas/truncation.py), reading batches
(protocol/records.py).
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ...base.types import TopicPartition
from ...client.sync import Admin
from ...local.roster import log_dirs_in
from ...protocol.batches import headers
from ...protocol.primitives import Malformed
from ...protocol.records import Record, iterate
from ...storage.disk import RealDisk
from ...storage.log.checkpoints import META_PROPERTIES
from ...storage.quarantine import ASIDE, removal_rows, removed_bytes
from ..completion import partition_names
from ..console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    clear_errors,
    counted,
    err,
    out,
    print_json,
)
from ..reach import connect
from .command import Dirs, ask_all, parse_partition

PIECE = 1 << 20

Row = dict[str, Any]
ReadAt = Callable[[Row, str, int], bytes]


def lost(
    partition: Annotated[
        str | None,
        typer.Argument(metavar="[T-P]", help="e.g. orders-0 (default: all)", autocompletion=partition_names),
    ] = None,
    records: Annotated[bool, typer.Option("--records", help="print the removed records")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Dirs = None,
    as_json: AsJson = False,
) -> None:
    """List records removed from replicas' logs: offsets, epochs, the reason, whether acknowledged."""
    with clear_errors():
        wanted = None if partition is None else parse_partition(partition)
        if dirs:
            _tell(_found_in(dirs, wanted), _read_here, records, as_json)
            return
        with connect(bootstrap) as admin:
            rows = _asked_of(admin, wanted)

            def read(row: Row, name: str, position: int) -> bytes:
                path = f"{row['path']}/{name}"
                told = admin.inspect(row["broker"], "removed", name=path, position=position, limit=PIECE)
                data: bytes = told["data"]
                return data

            _tell(rows, read, records, as_json)


def _asked_of(admin: Admin, wanted: TopicPartition | None) -> list[Row]:
    of = {} if wanted is None else {"topic": wanted.topic, "partition": wanted.partition}
    brokers = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
    documents, silent = ask_all(admin, brokers, "removals", **of)
    for broker, why in silent.items():
        err.print(f"strandline: broker {broker} does not answer: {why}", markup=False, soft_wrap=True)
    if not documents:
        raise Failure("no broker answers, so removed records are unknown")
    rows = [{"broker": broker, **row} for broker, told in documents.items() for row in told["removals"]]
    return sorted(rows, key=lambda row: (row["at_ms"], row["path"]))


def _found_in(dirs: list[Path], wanted: TopicPartition | None) -> list[Row]:
    places = [place for directory in dirs for place in log_dirs_in(directory)]
    for place in places:
        if not (place / META_PROPERTIES).exists() and not place.with_name(place.name + ASIDE).is_dir():
            raise Failure(
                f"{place} is not the log directory of a broker, and nothing is kept beside it: expected one, "
                "or the directory of `strandline up`"
            )
    rows = [
        {"broker": None, "log_dir": str(directory.absolute()), **row}
        for directory in places
        for row in removal_rows(RealDisk(), str(directory.absolute()), wanted)
    ]
    return sorted(rows, key=lambda row: (row["at_ms"], row["path"]))


def _read_here(row: Row, name: str, position: int) -> bytes:
    return removed_bytes(RealDisk(), row["log_dir"], f"{row['path']}/{name}", position, PIECE) or b""


def _tell(rows: list[Row], read: ReadAt, with_records: bool, as_json: bool) -> None:
    described = [_described(row) for row in rows]
    if as_json:
        for row, told in zip(rows, described, strict=True):
            if with_records:
                told["records"] = [_as_values(record) for record in _records(row, read)]
        print_json(described)
        return
    if not rows:
        out.print("no removed records are kept", markup=False)
    for row, told in zip(rows, described, strict=True):
        for line in _sentences(told):
            out.print(line, markup=False, soft_wrap=True)
        for record in _records(row, read) if with_records else ():
            key = "" if record.key is None else f"{bytes(record.key)!r} "
            value = None if record.value is None else bytes(record.value)
            out.print(f"  {record.offset}: {key}{value!r}", markup=False, soft_wrap=True)


def _described(row: Row) -> Row:
    """A removal as values for programs, with those that follow from it."""
    removal = row["removal"] or {}
    first, end, mark = (removal.get(name) for name in ("from_offset", "end_offset", "high_watermark"))
    return {
        "broker": row["broker"],
        "path": row["path"],
        "bytes": row["bytes"],
        "files": row["files"],
        "readable": row["removal"] is not None,
        **removal,
        "at_ms": row["at_ms"],
        "below_watermark": None if first is None or mark is None else _below(first, end, mark),
    }


def _below(first: int, end: int | None, mark: int) -> int:
    """How many of these offsets were below this replica's high watermark, so certainly committed."""
    return max(min(mark, mark if end is None else end) - first, 0)


def _sentences(told: Row) -> Iterator[str]:
    who = "" if told["broker"] is None else f"broker {told['broker']}, "
    when = datetime.fromtimestamp(told["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if not told["readable"]:
        yield f"{who}{when}: {told['path']} ({counted(told['bytes'], 'byte')}); its description is unreadable"
        return
    last = "?" if told["end_offset"] is None else told["end_offset"] - 1
    epochs = ", ".join(f"{epoch} from {start}" for epoch, start in told["epochs"]) or "unknown"
    yield (
        f"{who}{when}: {told['partition']} offsets {told['from_offset']} to {last}, "
        f"{counted(told['bytes'], 'byte')}, by {told['cause']}"
    )
    yield f"  why: {told['reason']}"
    yield f"  epochs: {epochs}; {acknowledged(told)}"
    yield f"  kept in {told['path']}"


def acknowledged(told: Row) -> str:
    """Whether producers may have got acknowledgements for these records."""
    below, mark = told["below_watermark"], told["high_watermark"]
    if below is None:
        return "unknown whether they were acknowledged"
    if below:
        return (
            f"{counted(below, 'offset')} below the high watermark {mark}: committed and acknowledged "
            "to acks=all"
        )
    if told["cause"] == "truncation" and not told["unclean"]:
        return (
            f"none below this replica's high watermark {mark}: at most acknowledged to acks=1, unless "
            "a leader was elected uncleanly"
        )
    return f"none below this replica's high watermark {mark}; later ones may have been committed"


def _records(row: Row, read: ReadAt) -> Iterator[Record]:
    """The records in all files of a removal, as far as they can be decoded."""
    first = 0 if row["removal"] is None else row["removal"]["from_offset"]
    for name in sorted(row["files"], key=lambda name: name.partition(".")[0]):
        if ".log" not in name:
            continue
        data, at, base = b"", 0, 0
        while True:
            piece = read(row, name, at)
            at += len(piece)
            data = data[base:] + piece
            base = 0
            try:
                for position, header in headers(data):
                    batch = data[position : position + header.size]
                    base = position + header.size
                    if not header.is_control and header.next_offset > first:
                        yield from iterate(batch)
            except Malformed as error:
                err.print(f"strandline: {row['path']}/{name}: {error}", markup=False, soft_wrap=True)
                break
            if not piece:
                break


def _as_values(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
    }


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")

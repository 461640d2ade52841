"""`strandline produce`: lines, files or lines of JSON as records of a topic.

Left to others: reading (input.py), what bytes mean (text.py).
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...client.producer.producer import Producer
from ...client.results import Receipt
from ..completion import topic_names
from ..console import (
    DEFAULT_BOOTSTRAP,
    PATIENCE,
    AsJson,
    Bootstrap,
    WrongUsage,
    clear_errors,
    counted,
    err,
    print_json,
)
from ..reach import reached
from ..times import TIMES, instant_ms
from .input import Header, Outgoing, Shape, records
from .receipts import Printer, Receipts, printer, silent
from .text import Format, unescaped

IN_FLIGHT_MAX = 10_000
ACKS_ALL = ("all", "-1")
RECORD_BYTES_MAX = 64 << 20
"""Of a whole file; what a topic takes of that (`max.message.bytes`) its leader says."""


class Compression(StrEnum):
    """How batches are compressed."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


Files = Annotated[list[Path] | None, typer.Argument(help="files to read (default: standard input)")]
Delimiter = Annotated[
    str | None,
    typer.Option(help=r"what ends a record (default: the end of a line); \0, \t, \xNN … are escapes"),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="one record per file, or of all standard input, byte for byte")
]
Rows = Annotated[
    bool,
    typer.Option(
        "--records", help="read lines of JSON as `consume --json` prints them: keys, headers, timestamps"
    ),
]


def produce(
    topic: Annotated[str, typer.Argument(autocompletion=topic_names)],
    files: Files = None,
    key: Annotated[str | None, typer.Option(help="key of every record")] = None,
    key_separator: Annotated[str | None, typer.Option(help="separator of key and value in a line")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="name=value for every record; may be repeated")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="send everything to this partition (default: as keys say)")
    ] = None,
    timestamp: Annotated[str | None, typer.Option(help=f"of every record: {TIMES}")] = None,
    null: Annotated[
        str | None, typer.Option(help="a value or key that is this text is sent as none: a tombstone")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="read nothing; send one tombstone for --key")
    ] = False,
    delimiter: Delimiter = None,
    whole: Whole = False,
    rows: Rows = False,
    same_partitions: Annotated[
        bool, typer.Option("--same-partitions", help="with --records: into the partitions that they name")
    ] = False,
    format: Annotated[
        Format,
        typer.Option(help="json and msgpack expect JSON; bytes differs from text in that it keeps CR LF"),
    ] = Format.text,
    compression: Annotated[Compression, typer.Option(help="how to compress batches")] = Compression.none,
    acks: Annotated[str, typer.Option(help="acknowledgements to wait for: all, 1 or 0")] = "all",
    timeout: Annotated[float, typer.Option(min=0.1, help="give up on a record after this many seconds")] = 30,
    receipts: Receipts = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send each line as a record and print how many were acknowledged."""
    with clear_errors():
        _check(files, acks, key, whole, delimiter, rows, same_partitions, tombstone)
        shape = Shape(
            format,
            None if whole else unescaped(delimiter or r"\n", "--delimiter"),
            None if key is None else key.encode(),
            unescaped(key_separator, "--key-separator") if key_separator else None,
            None if null is None else null.encode(),
            rows,
            same_partitions,
            tuple(_header(text) for text in header or []),
            None if timestamp is None else _instant(timestamp),
            partition,
        )
        given = _one_tombstone(shape) if tombstone else records(files, shape)
        options: dict[str, Any] = {"acks": acks, "compression_type": compression.value}
        if whole:
            options |= {"max_request_size": RECORD_BYTES_MAX, "buffer_memory": 2 * RECORD_BYTES_MAX}
        show = printer(as_json) if receipts else silent
        sent = Sent("sent" if acks == "0" else "acknowledged")
        with sent.told():
            asyncio.run(_send(reached(bootstrap), topic, options, timeout, given, show, sent))
        _tell(sent, topic, as_json)


def _tell(sent: "Sent", topic: str, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "acknowledged": sent.count})
    else:
        err.print(str(sent))


def _check(
    files: list[Path] | None,
    acks: str,
    key: str | None,
    whole: bool,
    delimiter: str | None,
    rows: bool,
    same_partitions: bool,
    tombstone: bool,
) -> None:
    """Raise WrongUsage for options that contradict each other."""
    if acks not in ("all", "-1", "0", "1"):
        raise WrongUsage(f"--acks {acks}: expected all, 1 or 0")
    for path in files or []:
        if not path.is_file():
            raise WrongUsage(f"cannot read {path}")
    if whole and (delimiter is not None or rows):
        raise WrongUsage("--whole has no --delimiter and no --records: each file is one record")
    if rows and delimiter is not None:
        raise WrongUsage("--records has no --delimiter: each line is a record")
    if delimiter == "":
        raise WrongUsage("--delimiter is empty: use --whole for one record per file")
    if same_partitions and not rows:
        raise WrongUsage("--same-partitions needs --records, which name partitions")
    if tombstone and (key is None or files or whole or rows):
        raise WrongUsage("--tombstone needs --key and reads no input: a tombstone deletes what has that key")


def _header(text: str) -> Header:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise WrongUsage(f"--header {text}: expected name=value, e.g. source=shop")
    return name, value.encode()


def _instant(text: str) -> int:
    at = instant_ms(text)
    if at is None:
        raise WrongUsage(f"--timestamp {text}: expected {TIMES}")
    return at


async def _one_tombstone(shape: Shape) -> AsyncIterator[Outgoing]:
    yield Outgoing(shape.key, None, shape.headers, shape.timestamp_ms, shape.partition)


class Sent:
    """How many records were given to the producer, and how many of them were acknowledged, in their order."""

    def __init__(self, done: str) -> None:
        """`done`: what they are, then."""
        self._done = done
        self.given = 0
        self.acknowledged = 0
        self.waiting: deque[asyncio.Future[Receipt]] = deque()

    @property
    def count(self) -> int:
        """Those too that were acknowledged behind one that was not."""
        done = (each for each in self.waiting if each.done() and not each.cancelled())
        return self.acknowledged + sum(each.exception() is None for each in done)

    def __str__(self) -> str:
        return f"{counted(self.count, 'record')} {self._done}"

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell it also if it ends before all are: who sends the rest must know."""
        try:
            yield
        except BaseException:
            if self.given:
                err.print(str(self))
            raise


async def _send(
    bootstrap: str,
    topic: str,
    given: dict[str, Any],
    timeout: float,
    records: AsyncIterator[Outgoing],
    show: Printer,
    sent: Sent,
) -> None:
    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,}"), TimeElapsedColumn())
    options: dict[str, Any] = {**given, "linger_ms": 5, "key_serializer": "bytes", **PATIENCE}
    options["delivery_timeout_ms"] = int(timeout * 1000)
    options["ask_durability"] = show is not silent and given["acks"] in ACKS_ALL
    quiet = sys.stdin.isatty() or not err.is_terminal
    async with Producer(bootstrap, **options) as producer:
        with Progress(*columns, console=err, transient=True, disable=quiet) as progress:
            task = progress.add_task(f"producing to {topic}", total=None)
            waiting = sent.waiting
            async for one in records:
                await producer.room()
                sent.given += 1
                waiting.append(
                    producer.send(
                        topic,
                        one.value,
                        key=one.key,
                        partition=one.partition,
                        headers=one.headers,
                        timestamp_ms=one.timestamp_ms,
                    )
                )
                while waiting and (waiting[0].done() or len(waiting) >= IN_FLIGHT_MAX):
                    await _acknowledged(sent, show)
                    progress.update(task, completed=sent.acknowledged)
            if waiting:
                await asyncio.wait(waiting)
            while waiting:
                await _acknowledged(sent, show)


async def _acknowledged(sent: Sent, show: Printer) -> None:
    """The next record is. Raises what happened if it is not."""
    show(await sent.waiting.popleft())
    sent.acknowledged += 1

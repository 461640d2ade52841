"""`strandline produce` and `consume`: records from and to the terminal or files."""

import asyncio
import base64
import json
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgpack
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..base.types import TopicPartition
from ..client.admin.admin import Admin
from ..client.consumer.consumer import Consumer
from ..client.producer.producer import Producer
from ..client.results import ConsumerRecord, Receipt
from .console import (
    DEFAULT_BOOTSTRAP,
    PATIENCE,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    counted,
    err,
    print_json,
)
from .reach import reached

IN_FLIGHT_MAX = 10_000
CHUNK_BYTES = 1 << 16
END_WAIT_MS = 500


class Format(StrEnum):
    """How a line of text represents a value."""

    text = "text"
    json = "json"
    msgpack = "msgpack"


def produce(
    topic: str,
    files: Annotated[
        list[Path] | None, typer.Argument(help="files to read (default: standard input)")
    ] = None,
    key: Annotated[str | None, typer.Option(help="key of every record")] = None,
    key_separator: Annotated[str | None, typer.Option(help="separator of key and value in a line")] = None,
    format: Annotated[
        Format, typer.Option(help="text sends the line as is; json and msgpack expect a line of JSON")
    ] = Format.text,
    acks: Annotated[str, typer.Option(help="acknowledgements to wait for: all, 1 or 0")] = "all",
    timeout: Annotated[float, typer.Option(min=0.1, help="give up on a record after this many seconds")] = 30,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send each line as a record and print how many were acknowledged."""
    with clear_errors():
        if acks not in ("all", "-1", "0", "1"):
            raise WrongUsage(f"--acks {acks}: expected all, 1 or 0")
        for path in files or []:
            if not path.is_file():
                raise WrongUsage(f"cannot read {path}")
        sent = asyncio.run(
            _send(reached(bootstrap), topic, acks, timeout, _records(files, key, key_separator, format))
        )
        if as_json:
            print_json({"topic": topic, "acknowledged": sent})
        else:
            err.print(f"{counted(sent, 'record')} {'sent' if acks == '0' else 'acknowledged'}")


async def _records(
    files: list[Path] | None, key: str | None, separator: str | None, format: Format
) -> AsyncIterator[tuple[bytes | None, bytes]]:
    number = 0
    async for line in _lines(files):
        number += 1
        name, value = _key_and_value(line, key, separator)
        yield name, _encoded(value, format, number)


async def _send(
    bootstrap: str, topic: str, acks: str, timeout: float, records: AsyncIterator[tuple[bytes | None, bytes]]
) -> int:
    acknowledged = 0
    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,}"), TimeElapsedColumn())
    options: dict[str, Any] = {"acks": acks, "linger_ms": 5, "key_serializer": "bytes", **PATIENCE}
    options["delivery_timeout_ms"] = int(timeout * 1000)
    quiet = sys.stdin.isatty() or not err.is_terminal
    async with Producer(bootstrap, **options) as producer:
        with Progress(*columns, console=err, transient=True, disable=quiet) as progress:
            task = progress.add_task(f"producing to {topic}", total=None)
            waiting: deque[asyncio.Future[Receipt]] = deque()
            async for name, value in records:
                await producer.room()
                waiting.append(producer.send(topic, value, key=name))
                while waiting and (waiting[0].done() or len(waiting) >= IN_FLIGHT_MAX):
                    await waiting.popleft()
                    acknowledged += 1
                    progress.update(task, completed=acknowledged)
            acknowledged += len(await asyncio.gather(*waiting))
    return acknowledged


def consume(
    topic: str,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="start at the first record")
    ] = False,
    offset: Annotated[int | None, typer.Option(min=0, help="start at this offset (with --partition)")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="read only this partition")] = None,
    group: Annotated[str | None, typer.Option(help="join this consumer group")] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, help="stop after this many records")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="keep waiting for new records (default: stop at the current end)"
        ),
    ] = False,
    format: Annotated[Format, typer.Option(help="format of the values")] = Format.text,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object per record, with offset, key and time")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records committed now, or also new ones (--follow)."""
    with clear_errors():
        if offset is not None and partition is None:
            raise WrongUsage("--offset needs --partition: an offset is a place in one partition")
        if group is not None and partition is not None:
            raise WrongUsage("--group and --partition exclude each other: the group assigns partitions")
        reading = _Reading(topic, partition, offset, from_beginning, group, max_messages, follow)
        shown = asyncio.run(reading.run(reached(bootstrap), lambda record: _print(record, format, as_json)))
        err.print(counted(shown, "record"))


class _Reading:
    """One run of `consume`."""

    def __init__(
        self,
        topic: str,
        partition: int | None,
        offset: int | None,
        from_beginning: bool,
        group: str | None,
        most: int | None,
        follow: bool,
    ) -> None:
        self.topic, self.partition, self.offset, self.group = topic, partition, offset, group
        self.most, self.follow = most if most is not None else sys.maxsize, follow
        self.reset = "earliest" if from_beginning or not follow else "latest"
        if offset is not None:
            self.reset = "none"  # an offset out of range is an error: do not start elsewhere

    async def run(self, bootstrap: str, show: Any) -> int:
        """Read and show records. Returns how many."""
        options: dict[str, Any] = {"auto_offset_reset": self.reset, "allow_auto_create_topics": False}
        options |= PATIENCE
        if self.group:
            options |= {"group": self.group, "topics": [self.topic]}
        async with Admin(bootstrap, **PATIENCE) as admin:
            await admin.describe_topics([self.topic])  # raises at once when there is none
        shown = 0
        async with Consumer(bootstrap, **options) as consumer:
            ends = await self._ends(consumer)
            if self.group is None:
                consumer.assign(list(ends))
                if self.offset is not None:
                    consumer.seek(next(iter(ends)), self.offset)
            while shown < self.most:
                records = await consumer.poll(END_WAIT_MS, max_records=min(500, self.most - shown))
                for record in records:
                    show(record)
                sys.stdout.flush()
                shown += len(records)
                if not records and not self.follow and await self._at_end(consumer, ends):
                    break
        return shown

    async def _ends(self, consumer: Consumer) -> dict[TopicPartition, int]:
        numbers = await consumer.partitions_for(self.topic)
        if self.partition is not None and self.partition not in numbers:
            raise Failure(f"{self.topic} has no partition {self.partition}: expected {_span(numbers)}")
        wanted = numbers if self.partition is None else [self.partition]
        return await consumer.end_offsets([TopicPartition(self.topic, number) for number in wanted])

    async def _at_end(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        mine = consumer.assignment()
        if not mine:
            return False  # the group is still rebalancing
        for partition in mine:
            if await consumer.position(partition) < ends.get(partition, 0):
                return False
        return True


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers else "none"


async def _lines(files: list[Path] | None) -> AsyncIterator[bytes]:
    """The lines of the files, or of standard input as they come: each line is sent once it is typed."""
    if not files:
        async for line in _lines_of(sys.stdin.fileno()):
            yield line
        return
    for path in files:
        with path.open("rb") as file:
            async for line in _lines_of(file.fileno()):
                yield line


async def _lines_of(file: int) -> AsyncIterator[bytes]:
    rest = b""
    while chunk := await _read(file):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def _read(file: int) -> bytes:
    """Read what is there, in a daemon thread: an executor's thread would delay Ctrl-C."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def tell(chunk: bytes) -> None:
        if not answer.done():
            answer.set_result(chunk)

    def work() -> None:
        chunk = os.read(file, CHUNK_BYTES)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, chunk)

    threading.Thread(target=work, daemon=True, name="reads the input").start()
    return await answer


def _key_and_value(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator:
        name, found, value = line.partition(separator.encode())
        if found:
            return name, value
    return None if key is None else key.encode(), line


def _encoded(line: bytes, format: Format, number: int) -> bytes:
    if format is Format.text:
        return line
    try:
        value = json.loads(line)
    except ValueError as error:
        raise WrongUsage(f"input line {number} is not JSON: {error}") from None
    if format is Format.json:
        return json.dumps(value, separators=(",", ":")).encode()
    packed: bytes = msgpack.packb(value)
    return packed


def _decoded(record: ConsumerRecord, format: Format) -> Any:
    if format is Format.text or record.value is None:
        return _text(record.value)
    read = json.loads if format is Format.json else msgpack.unpackb
    try:
        return read(bytes(record.value))
    except (ValueError, msgpack.UnpackException) as error:
        place = f"{record.topic}-{record.partition}, offset {record.offset}"
        reason = str(error) or type(error).__name__
        raise Failure(f"the record at {place} is not {format.value}: {reason}") from None


def _print(record: ConsumerRecord, format: Format, as_json: bool) -> None:
    shown = _decoded(record, format)
    if not as_json:
        plain = shown if format is Format.text and shown is not None else json.dumps(shown, default=_text)
        sys.stdout.write(f"{plain}\n")
        return
    row = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": shown,
        "headers": [[name, _text(content)] for name, content in record.headers],
    }
    sys.stdout.write(json.dumps(row, default=_text) + "\n")


def _text(data: Any) -> str | None:
    """Bytes as text, or as base64 if they are not UTF-8."""
    if data is None or isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(bytes(data)).decode()

"""`strandline consume`: records of a topic to the terminal, a file or a pipe.

It begins at the first record, with or without --follow; a group begins where it has committed.
Left to others: where --offset lies (positions.py), how a record is printed (output.py).
"""

import asyncio
import sys
import time
from typing import Annotated, Any

import typer

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.consumer.commits import CommitFailed
from ...client.consumer.consumer import Consumer
from ..completion import group_names, topic_names
from ..console import (
    DEFAULT_BOOTSTRAP,
    PATIENCE,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    counted,
    err,
)
from ..reach import reached
from .output import TOKENS, Part, Render, Style, lines, rows, template
from .positions import Kind, Start, offsets, start
from .text import Format, unescaped

END_WAIT_MS = 500
IDLE_POLLS = 4  # in a row, as a member without partitions: a group that is changing gives some soon
BEGINNING = Start(Kind.EARLIEST)

Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        help="where to begin: an offset (with --partition), -10 for the last ten of each partition, -1h for "
        "the last hour, @2026-01-31T12:00:00Z, earliest, latest",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-t",
        help="print each record like this, e.g. '%k %s\\n': "
        + ", ".join(f"%{token} {meaning}" for token, meaning in TOKENS.items()),
    ),
]

Group = Annotated[
    str | None,
    typer.Option(help="join this consumer group; it begins where it committed", autocompletion=group_names),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="keep waiting for new records (default: stop at the current end)"),
]


def consume(
    topic: Annotated[str, typer.Argument(autocompletion=topic_names)],
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="start at the first record (the default; a group: where it has no offset)",
        ),
    ] = False,
    offset: Offset = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="only this one; may be repeated")
    ] = None,
    group: Group = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, help="stop after this many records")
    ] = None,
    follow: Follow = False,
    committed: Annotated[
        bool, typer.Option("--read-committed", help="leave out records of transactions open or aborted")
    ] = False,
    format: Annotated[
        Format, typer.Option(help="of the values; bytes: as they are, text: base64 if they are not UTF-8")
    ] = Format.text,
    show: Annotated[
        list[Part] | None, typer.Option("--show", help="print this before the value; may be repeated")
    ] = None,
    template: Template = None,
    key_separator: Annotated[str, typer.Option(help="between what --show shows and the value")] = r"\t",
    delimiter: Annotated[str, typer.Option(help="what ends a record; may be empty")] = r"\n",
    null: Annotated[
        str | None, typer.Option(help="what a tombstone is printed as (default: null; nothing for bytes)")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object per record, with offset, key and time")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records committed now, or also new ones (--follow)."""
    with clear_errors():
        parts = frozenset(show or ())
        if as_json + (template is not None) + bool(parts) > 1:
            raise WrongUsage("--json, --template and --show exclude each other")
        separator, end = (
            unescaped(text, name)
            for text, name in ((key_separator, "--key-separator"), (delimiter, "--delimiter"))
        )
        if null is None:
            null = "" if format is Format.bytes or template is not None else "null"
        style = Style(format, parts, separator, end, null.encode())
        begin = _start(offset, partition, group, from_beginning)
        reading = Reading(topic, partition, begin, group, max_messages, follow, committed)
        shown = asyncio.run(reading.run(reached(bootstrap), _render(style, template, as_json)))
        err.print(counted(shown, "record"))


def _render(style: Style, text: str | None, as_json: bool) -> Render:
    if text is not None:
        return template(text, style.null)
    return rows(style.format) if as_json else lines(style)


def _start(
    offset: str | None, partitions: list[int] | None, group: str | None, from_beginning: bool
) -> Start:
    """Where to begin. Raises WrongUsage for options that contradict each other."""
    if group is not None and partitions:
        raise WrongUsage("--group and --partition exclude each other: the group assigns partitions")
    if offset is None:
        return BEGINNING
    if from_beginning:
        raise WrongUsage("--from-beginning and --offset exclude each other")
    begin = start(offset, int(time.time() * 1000))
    if begin.kind is Kind.OFFSET and not partitions:
        raise WrongUsage("--offset needs --partition: an offset is a place in one partition")
    if group is not None and begin.kind not in (Kind.EARLIEST, Kind.LATEST):
        raise WrongUsage(
            f"--offset {offset} is not for a group, which begins where it has committed: move that with "
            "`strandline groups reset-offsets`; earliest or latest say where it begins otherwise"
        )
    return begin


class Reading:
    """One run of `consume`."""

    def __init__(
        self,
        topic: str,
        partitions: list[int] | None,
        begin: Start,
        group: str | None,
        most: int | None,
        follow: bool,
        committed: bool,
    ) -> None:
        self.topic, self.partitions, self.begin, self.group = topic, partitions, begin, group
        self.most, self.follow = most if most is not None else sys.maxsize, follow
        self.options: dict[str, Any] = {"allow_auto_create_topics": False, **PATIENCE}
        self.options["isolation_level"] = "read_committed" if committed else "read_uncommitted"
        resets = {Kind.LATEST: "latest", Kind.OFFSET: "none"}  # out of range is an error: not elsewhere
        self.options["auto_offset_reset"] = resets.get(begin.kind, "earliest")
        if group is not None:
            self.options |= {"group": group, "topics": [topic]}

    async def run(self, bootstrap: str, render: Render) -> int:
        """Read and print records. Returns how many."""
        async with Admin(bootstrap, **PATIENCE) as admin:
            await admin.describe_topics([self.topic])  # raises at once when there is none
        shown, idle, out = 0, 0, sys.stdout.buffer
        async with Consumer(bootstrap, **self.options) as consumer:
            ends = await self._ends(consumer)
            if self.group is None:
                await self._assign(consumer, ends)
            while shown < self.most:
                records = await consumer.poll(END_WAIT_MS, max_records=min(500, self.most - shown))
                for record in records:
                    out.write(render(record))
                out.flush()
                shown += len(records)
                idle = idle + 1 if self._is_idle(consumer) else 0
                if idle == IDLE_POLLS:
                    err.print(
                        f"group {self.group}: its other members have all partitions of {self.topic}; "
                        "waiting for one of them to leave",
                        markup=False,
                        soft_wrap=True,
                    )
                if not records and not self.follow and await self._at_end(consumer, ends):
                    break
        return shown

    async def _assign(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
        if self.begin.kind is Kind.EARLIEST:
            consumer.assign(list(ends))
            return  # as auto_offset_reset says, and without a look at where that is
        begins = await consumer.beginning_offsets(ends)
        at_time: dict[TopicPartition, int | None] = {}
        if self.begin.kind is Kind.TIME:
            found = await consumer.offsets_for_times(dict.fromkeys(ends, self.begin.number))
            at_time = {place: None if one is None else one.offset for place, one in found.items()}
        consumer.assign(list(ends))  # with the positions at once: without, it would go by auto_offset_reset
        for place, at in offsets(self.begin, begins, ends, at_time).items():
            consumer.seek(place, at)

    async def _ends(self, consumer: Consumer) -> dict[TopicPartition, int]:
        numbers = await consumer.partitions_for(self.topic)
        for wanted in self.partitions or ():
            if wanted not in numbers:
                raise Failure(f"{self.topic} has no partition {wanted}: expected {_span(numbers)}")
        chosen = sorted(set(self.partitions)) if self.partitions else numbers
        return await consumer.end_offsets([TopicPartition(self.topic, number) for number in chosen])

    def _is_idle(self, consumer: Consumer) -> bool:
        """Whether it is a member of its group that was given nothing to read."""
        if self.group is None or consumer.assignment():
            return False
        try:
            return consumer.group_metadata().is_member
        except CommitFailed:
            return False

    async def _at_end(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        mine = consumer.assignment()
        if not mine:
            return False  # the group is still rebalancing
        try:
            for partition in mine:
                if await consumer.position(partition) < ends.get(partition, 0):
                    return False
        except ValueError:  # it went to another member while a position was waited for
            return False
        return True


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers else "none"

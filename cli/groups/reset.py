"""`strandline groups reset-offsets`: shows where a group would go on, and with --execute lets it.

Left to others: which offsets follow from what was asked (reset_plan.py).
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ...base.types import TopicPartition
from ...client.sync import Admin
from ...protocol.messages.offsets import EARLIEST, LATEST
from ..completion import group_names, topic_names
from ..console import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Failure, WrongUsage, clear_errors, err, show
from ..reach import connect
from ..times import DURATIONS, TIMES, duration_ms, instant_ms
from .reset_plan import Chosen, Facts, Goal, Kind, Row, chosen, from_csv, plan, to_csv

INACTIVE = ("Empty", "Dead", "")
"""States of groups that nobody is a member of; of one that the brokers do not tell, the commit decides."""

NAMED = {"earliest": Kind.EARLIEST, "latest": Kind.LATEST, "current": Kind.CURRENT}

Topics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC…]", help="topics to reset", autocompletion=topic_names)
]
MoreTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="topic, or topic:0,1 for some partitions; may be repeated",
        autocompletion=topic_names,
    ),
]


def reset_offsets(
    group: Annotated[str, typer.Argument(autocompletion=group_names)],
    topics: Topics = None,
    topic: MoreTopics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="all topics for which the group has committed offsets")
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="only this partition")] = None,
    to: Annotated[
        str | None, typer.Option(help="earliest, latest, current, an offset, @TIME, or -1h for an hour ago")
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="to the first record")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the end")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="to what is committed, or else to the end")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="to this offset")] = None,
    to_datetime: Annotated[str | None, typer.Option(help=f"to the first record since {TIMES}")] = None,
    by_duration: Annotated[str | None, typer.Option(help=f"back by {DURATIONS}")] = None,
    shift_by: Annotated[int | None, typer.Option(help="by so many offsets, forth or (negative) back")] = None,
    from_file: Annotated[
        Path | None, typer.Option(help="to the offsets in this file of topic,partition,offset lines")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="do it (default: show what would be)")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be: the default")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="print topic,partition,offset lines, for --from-file")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show where a group without members would go on, and with --execute commit that."""
    with clear_errors():
        flags = {Kind.EARLIEST: to_earliest, Kind.LATEST: to_latest, Kind.CURRENT: to_current}
        goals = [Goal(kind) for kind, given in flags.items() if given]
        goals += _goals(to, to_offset, to_datetime, by_duration, shift_by, from_file)
        if len(goals) != 1:
            raise WrongUsage(
                "expected exactly one of --to, --to-earliest, --to-latest, --to-current, --to-offset, "
                "--to-datetime, --by-duration, --shift-by and --from-file"
            )
        if execute and dry_run:
            raise WrongUsage("--execute and --dry-run exclude each other")
        (goal,) = goals
        wanted = [chosen(text) for text in (*(topics or ()), *(topic or ()))]
        with connect(bootstrap) as admin:
            _check_inactive(admin, group, execute)
            rows = plan(
                goal,
                _facts(admin, group, goal, _partitions(admin, group, goal, wanted, all_topics, partition)),
            )
            if execute:
                admin.alter_group_offsets(group, {row.partition: row.new for row in rows})
        _print(group, rows, execute, export, as_json)


def _goals(
    to: str | None,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> list[Goal]:
    goals = [] if to is None else [_short(to)]
    if to_offset is not None:
        goals.append(Goal(Kind.OFFSET, to_offset))
    if to_datetime is not None:
        goals.append(Goal(Kind.TIME, _instant("--to-datetime", to_datetime)))
    if by_duration is not None:
        goals.append(Goal(Kind.TIME, _ago("--by-duration", by_duration)))
    if shift_by is not None:
        goals.append(Goal(Kind.SHIFT, shift_by))
    if from_file is not None:
        with from_file.open(newline="") as file:
            goals.append(Goal(Kind.FILE, offsets=from_csv(file, str(from_file))))
    return goals


def _short(text: str) -> Goal:
    """What --to says."""
    if text in NAMED:
        return Goal(NAMED[text])
    if text.isascii() and text.isdecimal():
        return Goal(Kind.OFFSET, int(text))
    if text.startswith("@"):
        return Goal(Kind.TIME, _instant("--to", text[1:]))
    if text.startswith("-") and duration_ms(text[1:]) is not None:
        return Goal(Kind.TIME, _ago("--to", text[1:]))
    raise WrongUsage(
        f"--to {text}: expected earliest, latest, current, an offset, -1h for an hour ago, or @ and {TIMES}"
    )


def _instant(option: str, text: str) -> int:
    at = instant_ms(text)
    if at is None:
        raise WrongUsage(f"{option} {text}: expected {TIMES}")
    return at


def _ago(option: str, text: str) -> int:
    ago = duration_ms(text)
    if ago is None:
        raise WrongUsage(f"{option} {text}: expected {DURATIONS}")
    return max(int(time.time() * 1000) - ago, 0)


def _check_inactive(admin: Admin, group: str, execute: bool) -> None:
    """A group with members goes on where they are, whatever is committed: refuse, or warn in a dry run."""
    state = next((one.state for one in admin.list_groups() if one.group == group), "Dead")
    if state in INACTIVE:
        return
    (described,) = admin.describe_groups([group])
    members = ", ".join(sorted(f"{one.client_id} at {one.host}" for one in described.members))
    told = (
        f"group {group} is active ({state}), and its members commit their own offsets: stop them first"
        f"{f' ({members})' if members else ''}; `strandline groups members {group}` shows them"
    )
    if execute:
        raise Failure(told)
    err.print(f"warning: {told}", markup=False, soft_wrap=True)


def _partitions(
    admin: Admin, group: str, goal: Goal, wanted: list[Chosen], all_topics: bool, only: int | None
) -> list[TopicPartition]:
    """The partitions that are meant. Raises Failure for those that there are not."""
    if goal.kind is Kind.FILE:
        if wanted or all_topics or only is not None:
            raise WrongUsage("--from-file names its partitions: give no topics beside it")
        wanted = [
            Chosen(name, frozenset(p.partition for p in goal.offsets if p.topic == name))
            for name in sorted({p.topic for p in goal.offsets})
        ]
    elif all_topics:
        if wanted or only is not None:
            raise WrongUsage("--all-topics takes no topics or partitions beside it")
        committed = admin.list_group_offsets(group)
        if not committed:
            raise Failure(f"group {group} has committed nothing: name the topics")
        return sorted(committed)
    if not wanted:
        raise WrongUsage("which topics? name them, or give --all-topics")
    if only is not None:
        wanted = [Chosen(one.topic, frozenset({only})) for one in wanted]
    return sorted({partition for one in wanted for partition in _of_topic(admin, one)})


def _of_topic(admin: Admin, one: Chosen) -> list[TopicPartition]:
    (described,) = admin.describe_topics([one.topic])
    numbers = [each.partition for each in described.partitions]
    for number in sorted(one.partitions or ()):
        if number not in numbers:
            raise Failure(f"{one.topic} has no partition {number}: expected {numbers[0]} to {numbers[-1]}")
    return [TopicPartition(one.topic, n) for n in numbers if one.partitions is None or n in one.partitions]


def _facts(admin: Admin, group: str, goal: Goal, partitions: list[TopicPartition]) -> Facts:
    first, last = (admin.list_offsets(dict.fromkeys(partitions, at)) for at in (EARLIEST, LATEST))
    at_time: dict[TopicPartition, int | None] = {}
    if goal.kind is Kind.TIME:
        found = admin.list_offsets(dict.fromkeys(partitions, goal.number))
        at_time = {one: at.offset if at.offset >= 0 else None for one, at in found.items()}
    return Facts(
        {one: at.offset for one, at in first.items()},
        {one: at.offset for one, at in last.items()},
        {one: at.offset for one, at in admin.list_group_offsets(group).items() if at.offset >= 0},
        at_time,
    )


def _print(group: str, rows: list[Row], executed: bool, export: bool, as_json: bool) -> None:
    if export:
        sys.stdout.write(to_csv(rows))
    else:
        table: list[dict[str, object]] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "committed": row.committed,
                "offset": row.new,
                "note": row.note,
                **({"executed": executed} if as_json else {}),
            }
            for row in rows
        ]
        show(table, as_json, group)
    if not executed:
        err.print("Nothing was changed: add --execute to commit these offsets.")

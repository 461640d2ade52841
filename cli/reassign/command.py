"""`strandline reassign`: move partitions to other brokers, with plans in the format of Kafka's tool.

One of --generate, --execute, --verify, --cancel, --list. A move goes on in the brokers after the command has
ended, even if the controller changes.
Left to others: what a good plan is (plan.py), moving (the controller).
"""

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from ...base.types import TopicPartition
from ...client.admin.reassignments import PartitionReassignment
from ...client.sync import Admin
from ...protocol.errors import ApiError, NoReassignmentInProgress
from ..console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    counted,
    err,
    print_json,
    show,
    tell,
)
from ..reach import connect
from .copies import bytes_per_second, copied, progress, release, slow_down
from .plan import Targets, proposed, read, written

LOOK_EVERY_S = 0.5


def reassign(
    generate: Annotated[
        bool, typer.Option("--generate", help="print a plan that spreads --topics over --brokers")
    ] = False,
    topics: Annotated[
        str | None,
        typer.Option(help="topic names, separated by commas (default: all, internal ones included)"),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="broker ids, separated by commas (default: all that run)")
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="instead of --brokers: all that run, but for these ids")
    ] = None,
    execute: Annotated[
        str | None, typer.Option(metavar="PLAN", help="start the moves of this plan file (-: standard input)")
    ] = None,
    verify: Annotated[str | None, typer.Option(metavar="PLAN", help="show the progress of this plan")] = None,
    cancel: Annotated[
        str | None, typer.Option(metavar="PLAN", help="move its partitions back; `all` cancels every move")
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="with --execute: bytes per second that each broker sends and copies at most, e.g. 50M",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="list moves in progress")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="with --execute: wait until all moves are complete")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move partitions to other brokers while clients read and write."""
    with clear_errors():
        asked = [generate, execute is not None, verify is not None, cancel is not None, list_]
        if sum(asked) != 1:
            raise WrongUsage(
                "expected exactly one of --generate, --execute PLAN, --verify PLAN, --cancel PLAN, --list"
            )
        if throttle is not None and execute is None:
            raise WrongUsage("--throttle goes with --execute")
        rate = None if throttle is None else bytes_per_second(throttle)
        with connect(bootstrap) as admin:
            if generate:
                _generate(admin, topics, brokers, without, as_json)
            elif execute is not None:
                _execute(admin, _plan(execute), rate, wait, as_json)
            elif verify is not None:
                _verify(admin, _plan(verify), as_json)
            elif cancel is not None:
                _cancel(admin, None if cancel == "all" else _plan(cancel), as_json)
            else:
                show(
                    [_row(q, one) for q, one in sorted(admin.list_partition_reassignments().items())], as_json
                )


def _plan(name: str) -> Targets:
    return read(sys.stdin.read() if name == "-" else Path(name).read_text(), name)


def _ids(text: str, option: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise WrongUsage(f"{option} {text}: expected broker ids, e.g. 1,2,3") from None


def _chosen(running: Collection[int], brokers: str | None, without: str | None) -> list[int]:
    """The brokers of the plan, which must be running."""
    if brokers is not None and without is not None:
        raise WrongUsage("--generate takes --brokers 1,2,…, or --without 3 for all brokers but 3, not both")
    if without is not None:
        left = sorted(set(running) - set(_ids(without, "--without")))
        if not left:
            raise WrongUsage(f"--without {without}: no other broker is running")
        return left
    if brokers is None:
        return sorted(running)
    chosen = _ids(brokers, "--brokers")
    if away := sorted(set(chosen) - set(running)):
        raise Failure(f"--brokers names brokers that are not running: {', '.join(map(str, away))}")
    return chosen


def _generate(
    admin: Admin, topics: str | None, brokers: str | None, without: str | None, as_json: bool
) -> None:
    """Print the plan to standard output, so that it can be saved; the current state to standard error."""
    racks = {broker.node_id: broker.rack for broker in admin.describe_cluster().brokers}
    chosen = _chosen(racks.keys(), brokers, without)
    names = admin.list_topics(internal=True) if topics is None else [n.strip() for n in topics.split(",")]
    described = admin.describe_topics(sorted(names)) if names else []
    current = {
        TopicPartition(topic.name, one.partition): one.replicas
        for topic in described
        for one in topic.partitions
    }
    plan = proposed(current, chosen, racks)
    moves = sum(len(set(plan[q]) - set(current[q])) for q in plan)
    if not as_json:
        err.print(
            f"{counted(len(plan), 'partition')}, {counted(moves, 'replica')} to copy. Save the "
            f"current assignment for a rollback:\n{written(current)}\nThe plan:",
            markup=False,
            soft_wrap=True,
        )
    sys.stdout.write(written(plan) + "\n")


def _execute(admin: Admin, plan: Targets, rate: int | None, wait: bool, as_json: bool) -> None:
    before = _held(admin, plan)
    additions = {q: sorted(set(plan[q]) - set(before[q])) for q in plan if q in before}
    if rate is not None:
        slow_down(admin, before, additions, rate)
    try:
        admin.alter_partition_reassignments(plan)
    except ApiError:  # of one; the others of the plan may be on their way, and no faster than was said
        started = admin.list_partition_reassignments(plan)
        if rate is not None:
            release(admin, [q for q in additions if q not in started])
        if started:
            err.print(
                f"{counted(len(started), 'partition')} of the plan started all the same; follow with "
                "--verify or --list, stop with --cancel.",
                highlight=False,
                markup=False,
            )
        raise
    value = {
        "asked": [str(q) for q in sorted(plan)],
        "before": written({q: before[q] for q in plan if q in before}),
    }
    if not wait:
        tell(
            (
                f"Started moving {counted(len(plan), 'partition')}; follow with --verify or --list, stop "
                "with --cancel."
            ),
            value,
            as_json,
        )
        return
    _watch(admin, plan, as_json)
    _verify(admin, plan, as_json)


def _watch(admin: Admin, plan: Targets, as_json: bool) -> None:
    """Return when nothing of the plan moves any more; meanwhile a line tells whenever there is news."""
    since, last = (0, time.monotonic()), ""
    while moving := admin.list_partition_reassignments(plan):
        parts = list(copied(admin, moving).values())
        line = progress(len(plan) - len(moving), len(plan), parts, since, time.monotonic())
        if not as_json and line != last:
            err.print(line, highlight=False, markup=False)
        since, last = (sum(part.there for part in parts), time.monotonic()), line
        time.sleep(LOOK_EVERY_S)


def _verify(admin: Admin, plan: Targets, as_json: bool) -> None:
    """Show how far each partition is. When all have moved the throttle goes; until then the status is 1."""
    held, moving = _held(admin, plan), admin.list_partition_reassignments(plan)
    parts = copied(admin, moving)
    rows = [
        {
            **_place(q),
            "wanted": list(plan[q]),
            "is": _standing(q, plan[q], held, moving),
            "copied": f"{parts[q].share:.0%}" if q in parts else None,
        }
        for q in sorted(plan)
    ]
    missing = sum(row["is"] != "moved" for row in rows)
    if not missing:
        release(admin, plan)
    if as_json:
        print_json(rows)
    else:
        show(rows, False)
    if missing:
        raise Failure(f"{missing} of {counted(len(plan), 'partition')} not moved yet")


def _standing(
    q: TopicPartition,
    wanted: tuple[int, ...],
    held: Targets,
    moving: dict[TopicPartition, PartitionReassignment],
) -> str:
    if q not in held:
        return "no such partition"
    if q in moving:
        return "moving" if moving[q].target == wanted else f"moving to {_listed(moving[q].target)}"
    return "moved" if held[q] == wanted else f"held by {_listed(held[q])}"


def _cancel(admin: Admin, plan: Targets | None, as_json: bool) -> None:
    moving = admin.list_partition_reassignments(plan)
    for q in sorted(moving):
        try:
            admin.alter_partition_reassignments({q: None})
        except NoReassignmentInProgress:  # it has just ended
            continue
    release(admin, moving)
    left = admin.list_partition_reassignments(moving)
    value = {"cancelled": [str(q) for q in sorted(moving)], "not_back_yet": [str(q) for q in sorted(left)]}
    waiting = f"; {len(left)} still waiting for the old replicas to be in sync" if left else ""
    tell(f"{counted(len(moving), 'move')} cancelled{waiting}.", value, as_json)


def _held(admin: Admin, plan: Targets) -> Targets:
    names = {q.topic for q in plan}
    there = names.intersection(admin.list_topics(internal=True))
    described = admin.describe_topics(sorted(there)) if there else []
    return {TopicPartition(t.name, one.partition): one.replicas for t in described for one in t.partitions}


def _row(q: TopicPartition, one: PartitionReassignment) -> dict[str, Any]:
    return {
        **_place(q),
        "replicas": list(one.replicas),
        "adding": list(one.adding),
        "removing": list(one.removing),
    }


def _place(q: TopicPartition) -> dict[str, Any]:
    return {"topic": q.topic, "partition": q.partition}


def _listed(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))

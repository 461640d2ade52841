"""`strandline topics move-replicas`: replicas of a topic move to another log directory of their broker.

They lead and follow on meanwhile. A move goes on in the broker after the command has ended.
Left to others: moving (broker/upkeep/log_dir_moves.py), moves to other brokers (reassign/command.py).
"""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from ..base.types import TopicPartition
from ..client.admin.log_dirs import LogDirDescription
from ..client.sync import Admin
from .completion import log_dir_names, topic_names
from .console import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Failure, clear_errors, counted, err, show
from .reach import connect

LOOK_EVERY_S = 0.5
AGAIN_S = 10.0  # until a move that a restart of the broker interrupted has begun again


def move_replicas(
    topic: Annotated[str, typer.Argument(autocompletion=topic_names)],
    broker: Annotated[int, typer.Option("--broker", min=0, help="id of the broker that has the replicas")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIRECTORY",
            help="the log directory, named as in the broker's `log.dirs`",
            autocompletion=log_dir_names,
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, help="only this partition; may be repeated (default: all that the broker has)"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait until all of them are there")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move replicas of a topic to another log directory of their broker, while clients read and write."""
    with clear_errors(), connect(bootstrap) as admin:
        admin.describe_topics([topic])
        dirs = _directories(admin, broker)
        _check(dirs, broker, to)
        held = _held(dirs.values(), topic)
        chosen = _chosen(held, topic, broker, partition)
        admin.alter_replica_log_dirs(broker, dict.fromkeys(chosen, to))
        if wait:
            _watch(admin, broker, to, chosen)
        now = _held(_directories(admin, broker).values(), topic)
        rows = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "from": held[one],
                "to": to,
                "is": "there" if now.get(one) == to else "moving",
            }
            for one in chosen
        ]
        show(rows, as_json)


def _directories(admin: Admin, broker: int) -> dict[str, LogDirDescription]:
    return {one.path: one for one in admin.describe_log_dirs([broker])[broker]}


def _check(dirs: Mapping[str, LogDirDescription], broker: int, to: str) -> None:
    """Raise Failure if replicas cannot go there."""
    if to not in dirs:
        raise Failure(f"broker {broker} has no log directory {to}: it has {', '.join(dirs)}")
    if dirs[to].is_offline:
        raise Failure(f"log directory {to} of broker {broker} is offline")


def _held(dirs: Iterable[LogDirDescription], topic: str) -> dict[TopicPartition, str]:
    """Where each replica of the topic is now, whether it is on its way elsewhere or not."""
    return {
        one.partition: each.path
        for each in dirs
        for one in each.replicas
        if one.partition.topic == topic and not one.is_future
    }


def _chosen(
    held: Mapping[TopicPartition, str], topic: str, broker: int, numbers: list[int] | None
) -> list[TopicPartition]:
    """The replicas to move. Raises Failure if the broker lacks one, which would be made there later."""
    there = ", ".join(str(one.partition) for one in sorted(held))
    if not there:
        raise Failure(f"broker {broker} has no replica of {topic}")
    wanted = sorted(held) if not numbers else [TopicPartition(topic, one) for one in sorted(set(numbers))]
    if lacking := [str(one.partition) for one in wanted if one not in held]:
        raise Failure(f"broker {broker} has no replica of {topic} {', '.join(lacking)}: it has {there}")
    return wanted


def _watch(admin: Admin, broker: int, to: str, chosen: list[TopicPartition]) -> None:
    """Return when all are there; meanwhile a line tells whenever there is news. Raises Failure if a replica
    is not on its way any more: its move was given up, which the broker's log explains."""
    last, coming_s = "", time.monotonic()
    while True:
        dirs = _directories(admin, broker)
        held = _held(dirs.values(), chosen[0].topic)
        left = [one for one in chosen if held.get(one) != to]
        if not left:
            return
        coming = {one.partition for one in dirs[to].replicas if one.is_future}
        stays = [str(one) for one in left if one not in coming]
        if not stays:
            coming_s = time.monotonic()
        elif time.monotonic() - coming_s > AGAIN_S:
            raise Failure(f"not moved: {', '.join(stays)}; the log of broker {broker} says why")
        line = f"{len(chosen) - len(left)} of {counted(len(chosen), 'replica')} moved"
        if line != last:
            err.print(line, highlight=False, markup=False)
        last = line
        time.sleep(LOOK_EVERY_S)

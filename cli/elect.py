"""`strandline elect-leaders`: preferred leader elections, or unclean ones where there is no leader.

Left to others: which replica may lead (the controller), what an unclean election costs (docs/operations.md).
"""

from typing import Annotated

import typer

from ..base.types import TopicPartition
from ..client.admin.leader_elections import Election
from ..client.sync import Admin
from ..protocol.errors import ApiError, ElectionNotNeeded
from .completion import topic_names
from .console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    counted,
    print_json,
    show,
)
from .reach import connect

PATIENCE_MS = 30_000


def elect_leaders(
    preferred: Annotated[
        bool,
        typer.Option(
            "--preferred", help="elect the preferred replica (first in the assignment), if it is in sync"
        ),
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help=(
                "for partitions without a leader: elect the replica with the longest log; may lose "
                "acknowledged records"
            ),
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="topic whose leaders to elect", autocompletion=topic_names),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="only this partition of --topic; may be repeated"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all partitions of all topics")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Elect leaders: the preferred replicas, or any replica where there is no leader."""
    with clear_errors():
        if preferred == unclean:
            raise WrongUsage("expected exactly one of --preferred, --unclean")
        if (topic is None) == (not every) or (partition and topic is None):
            raise WrongUsage("expected --topic T, --topic T --partition N, or --all")
        kind = Election.UNCLEAN if unclean else Election.PREFERRED
        with connect(bootstrap, default_api_timeout_ms=PATIENCE_MS, request_timeout_ms=PATIENCE_MS) as admin:
            wanted = None if topic is None else _partitions(admin, topic, partition)
            outcomes = admin.elect_leaders(kind, wanted)
            leaders = _leaders(admin, outcomes)
        rows = [_row(one, error, leaders.get(one)) for one, error in sorted(outcomes.items())]
        refused = [row for row in rows if row["outcome"] == "refused"]
        if as_json:
            print_json(rows)
        else:
            show(rows, False, f"{counted(sum(r['outcome'] == 'elected' for r in rows), 'leader')} elected")
        if refused:
            raise Failure(f"{counted(len(refused), 'election')} failed; see the table")


def _partitions(admin: Admin, topic: str, numbers: list[int] | None) -> list[TopicPartition]:
    if numbers:
        return [TopicPartition(topic, number) for number in numbers]
    (described,) = admin.describe_topics([topic])
    return [TopicPartition(topic, one.partition) for one in described.partitions]


def _leaders(admin: Admin, of: dict[TopicPartition, ApiError | None]) -> dict[TopicPartition, int]:
    """The current leaders. Topics that do not exist are left out."""
    there = set(admin.list_topics(internal=True)) & {partition.topic for partition in of}
    return {
        TopicPartition(topic.name, one.partition): one.leader
        for topic in (admin.describe_topics(sorted(there)) if there else [])
        for one in topic.partitions
    }


def _row(partition: TopicPartition, error: ApiError | None, leader: int | None) -> dict[str, object]:
    needless = isinstance(error, ElectionNotNeeded)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "outcome": "elected" if error is None else "not needed" if needless else "refused",
        "leader": leader,
        "reason": None if error is None else error.message,
    }

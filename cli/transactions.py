"""`strandline transactions`: what coordinators and partitions know of them, and an end for hanging ones.

Left to others: what a hanging transaction is (client/admin/transactions.py), what it does to readers
(docs/operations.md).
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ..base.types import TopicPartition
from ..client.admin.transactions import ProducerDescription
from ..client.sync import Admin
from .completion import topic_names
from .console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    show,
    tell,
)
from .reach import connect

HOWEVER_LATE_MS = -(1 << 62)  # whatever time its producer has given its last record

app = typer.Typer(no_args_is_help=True, help="List, describe and abort transactions, and find hanging ones.")

Topic = Annotated[
    str | None, typer.Option("--topic", help="only partitions of this topic", autocompletion=topic_names)
]
Number = Annotated[int | None, typer.Option("--partition", min=0, help="only this partition of --topic")]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="only in this state, e.g. Ongoing; may be repeated")
    ] = None,
    longer_than: Annotated[
        int, typer.Option("--duration-filter", min=-1, metavar="MS", help="only those open for longer")
    ] = -1,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids, their producers and states."""
    with clear_errors(), connect(bootstrap) as admin:
        listed = admin.list_transactions(state or (), duration_ms=longer_than)
        show([one._asdict() for one in listed], as_json)


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="TRANSACTIONAL_ID")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the state of a transactional id, and the partitions of its transaction."""
    with clear_errors(), connect(bootstrap) as admin:
        (one,) = admin.describe_transactions([transactional_id])
        row = one._asdict() | {"partitions": [str(partition) for partition in one.partitions]}
        show([row if as_json else row | {"started_ms": _time(one.started_ms)}], as_json)


@app.command()
def producers(
    topic: str,
    partition: Annotated[int, typer.Argument(min=0)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show who writes to a partition, and whose transaction is open there."""
    with clear_errors(), connect(bootstrap) as admin:
        where = TopicPartition(topic, partition)
        rows = [_producer(one, as_json) for one in admin.describe_producers([where])[where]]
        show(rows, as_json, None if as_json else str(where))


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    partition: Number = None,
    timeout_minutes: Annotated[
        float,
        typer.Option(
            "--max-transaction-timeout",
            min=0,
            metavar="MINUTES",
            help="only those without a record for so long: longer than any transaction may take",
        ),
    ] = 15.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    with clear_errors():
        if partition is not None and topic is None:
            raise WrongUsage("--partition needs --topic")
        with connect(bootstrap) as admin:
            wanted = None if topic is None else _partitions(admin, topic, partition)
            found = admin.find_hanging_transactions(wanted, idle_ms=int(timeout_minutes * 60_000))
        rows = [
            {"topic": one.partition.topic, "partition": one.partition.partition}
            | _producer(one.producer, as_json)
            for one in found
        ]
        show(rows, as_json)


@app.command()
def abort(
    topic: str,
    partition: Annotated[int, typer.Argument(min=0)],
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="the first offset of the transaction, as find-hanging shows it")
    ] = None,
    producer_id: Annotated[int | None, typer.Option(min=0, help="or the id of its producer")] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="also if a coordinator knows it, and may commit what its other partitions have"
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition: one that no coordinator knows."""
    with clear_errors():
        if (start_offset is None) == (producer_id is None):
            raise WrongUsage("expected exactly one of --start-offset, --producer-id")
        where = TopicPartition(topic, partition)
        with connect(bootstrap) as admin:
            opened = [
                one for one in admin.describe_producers([where])[where] if one.transaction_start is not None
            ]
            chosen = [
                one
                for one in opened
                if start_offset == one.transaction_start or producer_id == one.producer_id
            ]
            if not chosen:
                raise Failure(f"{where} has no such open transaction{_opened(opened)}")
            if not force:
                _check_hanging(admin, where, chosen[0])
            admin.abort_transaction(where, chosen[0])
        one = chosen[0]
        value = {
            "topic": topic,
            "partition": partition,
            "producer_id": one.producer_id,
            "transaction_start": one.transaction_start,
            "aborted": True,
        }
        sentence = f"Aborted the transaction of producer {one.producer_id} in {where}."
        tell(sentence, value, as_json)


def _check_hanging(admin: Admin, where: TopicPartition, producer: ProducerDescription) -> None:
    hanging = admin.find_hanging_transactions([where], idle_ms=HOWEVER_LATE_MS)
    if any(one.producer.producer_id == producer.producer_id for one in hanging):
        return
    names = [one.transactional_id for one in admin.list_transactions(producer_ids=[producer.producer_id])]
    raise Failure(
        f"the transaction of producer {producer.producer_id} in {where} does not hang: its coordinator knows "
        f"it (transactional id {', '.join(names) or 'unknown'}) and ends it at its time-out. Aborted here "
        "alone it is half a transaction if its producer commits; --force aborts it all the same"
    )


def _opened(producers: list[ProducerDescription]) -> str:
    starts = ", ".join(f"producer {one.producer_id} at {one.transaction_start}" for one in producers)
    return f"; it has {starts}" if starts else ": none at all"


def _partitions(admin: Admin, topic: str, partition: int | None) -> list[TopicPartition]:
    if partition is not None:
        return [TopicPartition(topic, partition)]
    (described,) = admin.describe_topics([topic])
    return [TopicPartition(topic, one.partition) for one in described.partitions]


def _producer(one: ProducerDescription, as_json: bool) -> dict[str, Any]:
    row = one._asdict()
    return row if as_json else row | {"last_timestamp": _time(one.last_timestamp)}


def _time(ms: int | None) -> str | None:
    """For people; programs get the milliseconds."""
    if ms is None or ms < 0:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")

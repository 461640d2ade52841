"""`strandline why`: why a record is not visible, a replica left the ISR, this broker leads, or none does.

Asks all brokers for their state and recent decisions; with --dir, reads the files of dead brokers.
Left to others: what follows from it (broker/why_answers.py).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from ...base.types import TopicPartition
from ...broker.why_answers import Answer, Evidence, leader, left_isr, not_visible, offline
from ...client.sync import Admin
from ...local.roster import log_dirs_in
from ...protocol.errors import ApiError
from ...storage.decision_log import BROKER, CONTROLLER, DecisionLog, controllers_ring, read_rings
from ...storage.directories.log_manager import parse_directory
from ...storage.disk import RealDisk
from ...storage.log.checkpoints import HIGH_WATERMARKS, read_offsets
from ..completion import partition_names
from ..console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    out,
    print_json,
)
from ..reach import connect

app = typer.Typer(
    no_args_is_help=True,
    help="Explain why a record is not visible, a replica is not in sync, or a broker leads.",
)

PATIENCE: dict[str, Any] = {"default_api_timeout_ms": 10_000, "request_timeout_ms": 3_000}
"""Short timeouts: a broker that has stopped must not hold up the answers of others."""

Partition = Annotated[
    list[str],
    typer.Argument(
        metavar="T-P",
        help="topic-partition, e.g. orders-0, or two words: orders 0",
        autocompletion=partition_names,
    ),
]
PARTITION_WORDS = 2
DIGITS_MAX = 19  # of an offset
Dirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--dir",
        help="read this log directory of a stopped broker, or directory of `up`, instead; may be repeated",
    ),
]


@app.command("not-visible")
def not_visible_(
    record: Annotated[str, typer.Argument(metavar="T-P@OFFSET", help="e.g. orders-0@17")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Dirs = None,
    as_json: AsJson = False,
) -> None:
    """Explain why consumers do not see a record."""
    with clear_errors():
        name, at, offset = record.rpartition("@")
        if not at or not offset.isdecimal() or len(offset) > DIGITS_MAX:
            raise WrongUsage(f"{record}: expected topic-partition@offset, e.g. orders-0@17")
        number = int(offset)

        def answer(evidence: Evidence) -> Answer:
            return by_checkpoint(evidence, number) if dirs else not_visible(evidence, number)

        _answer("not-visible", name, answer, bootstrap, dirs, as_json)


@app.command("left-isr")
def left_isr_(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="T-P [BROKER]",
            help="topic-partition, or topic and partition; then the broker whose replica is to be explained "
            "(default: all that are not in the ISR)",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Dirs = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a replica is not in the ISR."""
    with clear_errors():
        text, broker = partition_and_broker(words)
        _answer("left-isr", text, lambda seen: left_isr(seen, broker), bootstrap, dirs, as_json)


@app.command("leader")
def leader_(
    partition: Partition,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Dirs = None,
    as_json: AsJson = False,
) -> None:
    """Explain why this broker leads."""
    with clear_errors():
        _answer("leader", one_partition(partition), leader, bootstrap, dirs, as_json)


@app.command("offline")
def offline_(
    partition: Partition,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Dirs = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a partition has no leader."""
    with clear_errors():
        _answer("offline", one_partition(partition), offline, bootstrap, dirs, as_json)


def one_partition(words: list[str]) -> str:
    """`orders-0` from that word, or from the words `orders 0`. Raises WrongUsage."""
    if len(words) > PARTITION_WORDS:
        raise WrongUsage(f"{' '.join(words)}: expected one partition, e.g. orders-0 or orders 0")
    if len(words) == PARTITION_WORDS and words[1].isdigit():
        return "-".join(words)
    if len(words) == PARTITION_WORDS:
        raise WrongUsage(
            f"{' '.join(words)}: expected the partition's number as the second word, e.g. orders 0"
        )
    return words[0]


def partition_and_broker(words: list[str]) -> tuple[str, int | None]:
    """`orders-0`, `orders-0 3`, `orders 0` or `orders 0 3`: partition and broker. Raises WrongUsage."""
    taken = 1 if parse_directory(words[0]) is not None else PARTITION_WORDS
    partition, rest = one_partition(words[:taken]), words[taken:]
    if len(rest) > 1 or not all(word.isdigit() for word in rest):
        raise WrongUsage(
            f"{' '.join(words)}: expected topic-partition and at most one broker, e.g. orders-0 3"
        )
    return partition, int(rest[0]) if rest else None


def parse_partition(text: str) -> TopicPartition:
    """Parse a partition such as `orders-0`. Raises WrongUsage."""
    partition = parse_directory(text)
    if partition is None:
        raise WrongUsage(f"{text}: expected topic-partition, e.g. orders-0")
    return partition


def _answer(
    question: str,
    text: str,
    answer: Callable[[Evidence], Answer],
    bootstrap: str,
    dirs: list[Path] | None,
    as_json: bool,
) -> None:
    partition = parse_partition(text)
    evidence = found_in(dirs, partition) if dirs else asked_of(bootstrap, partition)
    found = answer(evidence)
    if as_json:
        print_json(found.as_dict(question, text))
        return
    out.print(found.sentence, markup=False, soft_wrap=True)
    for line in found.because:
        out.print(f"  {line}", markup=False, soft_wrap=True)


def asked_of(bootstrap: str, partition: TopicPartition) -> Evidence:
    """What the brokers of a running cluster say."""
    with connect(bootstrap, **PATIENCE) as admin:
        ids = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
        documents, silent = ask_all(
            admin, ids, "partition", topic=partition.topic, partition=partition.partition
        )
    if not documents:
        raise Failure("; ".join(silent.values()) or "the cluster has no brokers")
    return Evidence(str(partition), documents, silent)


def ask_all(
    admin: Admin, brokers: list[int], about: str, **of: Any
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """The documents of brokers that answer, and why the others do not."""

    def ask(broker: int) -> dict[str, Any] | str:
        try:
            return admin.inspect(broker, about, **of)
        except (ApiError, OSError) as error:
            return str(error)

    with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
        told = dict(zip(brokers, pool.map(ask, brokers), strict=True))
    good = {broker: answer for broker, answer in told.items() if isinstance(answer, dict)}
    return good, {broker: answer for broker, answer in told.items() if isinstance(answer, str)}


def found_in(dirs: list[Path], partition: TopicPartition) -> Evidence:
    """What dead brokers left in their log directories."""
    places = [place for directory in dirs for place in log_dirs_in(directory)]
    documents = dict(_left_behind(places, partition))
    if not documents:
        raise Failure(
            f"no flight recorder files in {', '.join(map(str, places))}: expected a broker's log directory, "
            "or the directory of `strandline up`"
        )
    return Evidence(str(partition), documents)


def _left_behind(dirs: list[Path], partition: TopicPartition) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, directory in enumerate(dirs):
        rings = read_rings(RealDisk(), str(directory))
        if rings is None:
            continue
        starts = [each.values["broker"] for each in rings.of(BROKER) if each.what == "started"]
        marks = read_offsets(RealDisk(), str(directory / HIGH_WATERMARKS))
        yield (
            starts[-1] if starts else -1 - place,
            {
                "now_ms": int(time() * 1000),
                "replica": None,
                "controllers_view": None,
                "registry_connected": False,
                "watermark": (marks or {}).get(partition),
                "decisions": _told(rings, str(partition)),
                "controllers_decisions": _told(rings, controllers_ring(str(partition))),
                "controller_events": _told(rings, CONTROLLER),
                "broker_events": _told(rings, BROKER),
            },
        )


def _told(rings: DecisionLog, ring: str) -> list[dict[str, Any]]:
    return [decision.as_dict() for decision in rings.of(ring)]


def by_checkpoint(evidence: Evidence, offset: int) -> Answer:
    """The answer for dead brokers: only their checkpointed high watermarks are known."""
    marks = {b: d["watermark"] for b, d in evidence.documents.items() if d["watermark"] is not None}
    if not marks:
        return Answer(f"these directories have nothing about {evidence.partition}")
    highest = max(marks.values())
    told = tuple(
        f"broker {broker} checkpointed the high watermark {mark}" for broker, mark in sorted(marks.items())
    )
    stands = "was visible" if offset < highest else "was not visible at the last checkpoint"
    return Answer(f"offset {offset} {stands}: the high watermark was {highest}", told, {"watermarks": marks})

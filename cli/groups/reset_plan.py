"""Where a group is to go on: what `reset-offsets` was asked for, and the offset of each partition. Pure.

As in Kafka's tool an offset beyond a log's ends becomes that end, which the row says. Left to others: asking
the cluster, and committing (reset.py).
"""

import csv
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ...base.types import TopicPartition
from ..console import WrongUsage

DIGITS_MAX = 18
CSV_FIELDS = 3


class Kind(Enum):
    """What the new offsets follow from."""

    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    TIME = auto()
    SHIFT = auto()
    FILE = auto()


class Goal(NamedTuple):
    """What was asked for; `number` is an offset, a distance, or milliseconds since 1970."""

    kind: Kind
    number: int = 0
    offsets: Mapping[TopicPartition, int] = {}


class Facts(NamedTuple):
    """What the cluster says of the partitions. `at_time` has None where nothing is as new."""

    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int | None] = {}


class Row(NamedTuple):
    """One partition: what is committed, and what is to be."""

    partition: TopicPartition
    committed: int | None
    new: int
    note: str


def plan(goal: Goal, facts: Facts) -> list[Row]:
    """The new offset of each partition. Raises WrongUsage where there is nothing to count from."""
    rows = []
    for partition in sorted(facts.ends):
        wanted = _wanted(goal, partition, facts)
        begin, end = facts.begins[partition], facts.ends[partition]
        new = min(max(wanted, begin), end)
        note = "" if new == wanted else f"adjusted: {wanted} is outside of {begin} to {end}"
        rows.append(Row(partition, facts.committed.get(partition), new, note))
    return rows


def _wanted(goal: Goal, partition: TopicPartition, facts: Facts) -> int:
    committed, end = facts.committed.get(partition), facts.ends[partition]
    match goal.kind:
        case Kind.EARLIEST:
            return facts.begins[partition]
        case Kind.LATEST:
            return end
        case Kind.CURRENT:
            return end if committed is None else committed
        case Kind.OFFSET:
            return goal.number
        case Kind.TIME:
            found = facts.at_time.get(partition)
            return end if found is None else found
        case Kind.SHIFT:
            if committed is None:
                raise WrongUsage(f"--shift-by: the group has committed nothing for {partition} to count from")
            return committed + goal.number
        case Kind.FILE:
            return goal.offsets[partition]


class Chosen(NamedTuple):
    """A topic, and those of its partitions that are meant; None: all."""

    topic: str
    partitions: frozenset[int] | None = None


def chosen(text: str) -> Chosen:
    """`topic`, or `topic:0,1,2`. Raises WrongUsage."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return Chosen(topic)
    parts = numbers.split(",")
    if not topic or not all(part.isascii() and part.isdecimal() for part in parts):
        raise WrongUsage(f"--topic {text}: expected a topic, or topic:0,1 for some of its partitions")
    return Chosen(topic, frozenset(map(int, parts)))


def from_csv(lines: Iterable[str], name: str) -> dict[TopicPartition, int]:
    """The offsets in a file of `topic,partition,offset` lines, as `to_csv` writes it. Raises WrongUsage."""
    found: dict[TopicPartition, int] = {}
    for number, fields in enumerate(csv.reader(lines), 1):
        if not fields:
            continue
        whole = len(fields) == CSV_FIELDS and all(
            one.isascii() and one.isdecimal() and len(one) <= DIGITS_MAX for one in fields[1:]
        )
        if not whole:
            raise WrongUsage(f"{name} line {number} is {','.join(fields)!r}: expected topic,partition,offset")
        partition = TopicPartition(fields[0], int(fields[1]))
        if partition in found:
            raise WrongUsage(f"{name} line {number}: {partition} is there twice")
        found[partition] = int(fields[2])
    if not found:
        raise WrongUsage(f"{name} is empty: expected lines of topic,partition,offset")
    return found


def to_csv(rows: Iterable[Row]) -> str:
    """The new offsets as `topic,partition,offset` lines, for --from-file."""
    return "".join(f"{row.partition.topic},{row.partition.partition},{row.new}\n" for row in rows)

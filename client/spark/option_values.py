"""What the text of an option means: one parser per kind of value, and the kinds that are not plain numbers.

A parser raises ValueError with the rest of a sentence that begins with the option's name and value.
Left to others: which option has which kind (option_table.py), what bounds mean for real partitions (plan.py).
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...base.types import TopicPartition
from ...protocol.messages.offsets import EARLIEST, LATEST

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1  # of Java, and on the wire
WORDS = {"earliest": EARLIEST, "latest": LATEST}
TIME_UNITS_MS = {"us": 0.001, "ms": 1, "": 1, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6, "d": 8.64e7}


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same bound for all partitions: EARLIEST or LATEST."""

    position: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """A bound for each partition by name: an offset, EARLIEST or LATEST."""

    by_partition: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Times:
    """The first record at or after a time in ms: one for all partitions, or one for each by name."""

    everywhere: int | None
    by_partition: dict[TopicPartition, int]


Bound: TypeAlias = Everywhere | Offsets | Times


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read: topics by name, by pattern, or partitions one by one. Exactly one of them is set."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()


def text(value: str) -> str:
    """Any text that is not blank."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def flag(value: str) -> bool:
    """`true` or `false`, in any case."""
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def number(least: int) -> Callable[[str], int]:
    """A whole number from `least` on."""

    def parse(value: str) -> int:
        try:
            found = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if found < least:
            raise ValueError(f"must be at least {least}")
        if found > LONG_MAX:
            raise ValueError(f"must be at most {LONG_MAX}")
        return found

    return parse


def between(least: int, most: int) -> Callable[[str], int]:
    """A whole number in that range."""

    def parse(value: str) -> int:
        found = number(least)(value)
        if found > most:
            raise ValueError(f"must be at most {most}")
        return found

    return parse


def duration_ms(value: str) -> int:
    """A time as Spark writes it: `90s`, `15m`; a plain number is ms."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if found is None or found[2] not in TIME_UNITS_MS:
        raise ValueError("must be a time like 500ms, 90s, 15m or 1h")
    return int(int(found[1]) * TIME_UNITS_MS[found[2]])


def one_of(*choices: str) -> Callable[[str], str]:
    """One of a few words, in any case."""

    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def plaintext(value: str) -> str:
    """A security protocol; the bundled client knows one."""
    if value.lower() != "plaintext":
        raise ValueError("is not supported: expected PLAINTEXT, the only one that brokers and clients speak")
    return value.lower()


def some_of(choices: Iterable[str], everything: bool = False) -> Callable[[str], tuple[str, ...]]:
    """Words separated by commas, each of them once, spelled as in `choices`; `true` for all, if allowed."""
    spelled = {name.lower(): name for name in choices}

    def parse(value: str) -> tuple[str, ...]:
        if everything and value.strip().lower() in ("true", "false"):
            return tuple(spelled.values()) if flag(value.strip()) else ()
        wanted = [part.strip() for part in value.split(",") if part.strip()]
        unknown = [part for part in wanted if part.lower() not in spelled]
        if unknown or not wanted:
            odd = f"names {', '.join(unknown)}" if unknown else "names nothing"
            raise ValueError(f"{odd}; there are {', '.join(spelled.values())}")
        if len({part.lower() for part in wanted}) < len(wanted):
            raise ValueError("names something twice")
        return tuple(spelled[part.lower()] for part in wanted)

    return parse


def servers(value: str) -> tuple[tuple[str, int], ...]:
    """`host:port`, separated by commas; Kafka's clients allow a protocol before it."""
    found: list[tuple[str, int]] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        host, _, port = re.sub(r"^[\w.%-]*://", "", part).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("must name at least one broker")
    return tuple(found)


def names(value: str) -> tuple[str, ...]:
    """Topics, separated by commas."""
    found = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
    if not found:
        raise ValueError("must name at least one topic")
    return found


def pattern(value: str) -> re.Pattern[str]:
    """A regular expression, as Python understands it."""
    try:
        return re.compile(text(value))
    except re.error as trouble:
        raise ValueError(f"is not a regular expression: {trouble}") from trouble


def directories(value: str) -> tuple[str, ...]:
    """Absolute paths, separated by commas: they mean the same in every process."""
    found = tuple(filter(None, (part.strip() for part in value.split(","))))
    if not found:
        raise ValueError("must name at least one log directory")
    odd = next((path for path in found if not path.startswith("/")), None)
    if odd is not None:
        raise ValueError(f"must be absolute paths: {odd} may be another place for each worker")
    return found


def _json(value: str, shape: str) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except json.JSONDecodeError:
        raise ValueError(f"must be JSON like {shape}") from None
    if not isinstance(document, dict) or not document:
        raise ValueError(f"must be JSON like {shape}")
    return document


def partitions(value: str) -> tuple[TopicPartition, ...]:
    """Partitions by topic."""
    shape = '{"topic": [0, 1]}'
    found: list[TopicPartition] = []
    for topic, numbers in _json(value, shape).items():
        if not isinstance(numbers, list) or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError(f"must be JSON like {shape}")
        found += (TopicPartition(topic, each) for each in numbers)
    if not found:
        raise ValueError("must name at least one partition")
    return tuple(sorted(set(found)))


def by_partition(least: int) -> Callable[[str], dict[TopicPartition, int]]:
    """A number from `least` on for each partition, by topic."""

    def parse(value: str) -> dict[TopicPartition, int]:
        shape = '{"topic": {"0": 23, "1": 42}}'
        found: dict[TopicPartition, int] = {}
        for topic, numbers in _json(value, shape).items():
            if not isinstance(numbers, dict):
                raise ValueError(f"must be JSON like {shape}")
            for partition, each in numbers.items():
                if not partition.isdecimal() or type(each) is not int or not least <= each <= LONG_MAX:
                    raise ValueError(f"must be JSON like {shape}, with numbers from {least} up to {LONG_MAX}")
                found[TopicPartition(topic, int(partition))] = each
        return found

    return parse


def position(value: str) -> Bound:
    """`earliest`, `latest`, or offsets by partition."""
    word = WORDS.get(value.strip().lower())
    return Offsets(by_partition(EARLIEST)(value)) if word is None else Everywhere(word)


def time(value: str) -> Bound:
    """The first record at or after a time in ms, in every partition."""
    return Times(number(0)(value), {})


def times(value: str) -> Bound:
    """The first record at or after a time in ms, for each partition one."""
    return Times(None, by_partition(0)(value))


def mentions(bound: Bound | None, place: int) -> bool:
    """Whether the bound is EARLIEST or LATEST anywhere, by its word or its number."""
    match bound:
        case Everywhere(position):
            return position == place
        case Offsets(by_partition):
            return place in by_partition.values()
    return False

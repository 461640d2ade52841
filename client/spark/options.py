"""The options of `spark.read.format("strandline")`: Spark's own Kafka options, parsed once and checked.

An unknown name is an error that gives the nearest known one. All problems are reported in one error. Options
of the JVM source that mean nothing here are refused with the reason. Names are case-insensitive, because
Spark lower-cases them.
Left to others: what bounds mean for real partitions (plan.py).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from ...base.types import TopicPartition
from ...protocol.messages.offsets import EARLIEST, LATEST

WORDS = {"earliest": EARLIEST, "latest": LATEST}
CHOICE = ("subscribe", "assign", "subscribePattern")
SERVERS = "kafka.bootstrap.servers"


class OptionError(ValueError):
    """The options are invalid; the message lists all problems."""


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


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How brokers are reached. Readers with equal options share their connections."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str
    request_seconds: float
    isolation: int  # on the wire: 1 is read_committed
    fetch_bytes: int
    fetch_min_bytes: int
    fetch_wait_ms: int
    retries: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a batch read, with their defaults."""

    cluster: ClusterOptions
    topics: Topics
    start: Bound
    end: Bound
    unmatched_start_is_latest: bool
    partitions_min: int | None
    partition_records_max: int | None
    include_headers: bool
    fail_on_data_loss: bool
    stall_seconds: float


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _number(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if number < least:
            raise ValueError(f"must be at least {least}")
        return number

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def _servers(value: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("must name at least one broker")
    return tuple(found)


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
    if not names:
        raise ValueError("must name at least one topic")
    return names


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(_text(value))
    except re.error as trouble:
        raise ValueError(f"is not a regular expression: {trouble}") from trouble


def _json(value: str, shape: str) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except json.JSONDecodeError:
        raise ValueError(f"must be JSON like {shape}") from None
    if not isinstance(document, dict) or not document:
        raise ValueError(f"must be JSON like {shape}")
    return document


def _partitions(value: str) -> tuple[TopicPartition, ...]:
    shape = '{"topic": [0, 1]}'
    found: list[TopicPartition] = []
    for topic, numbers in _json(value, shape).items():
        if not isinstance(numbers, list) or not all(
            type(number) is int and number >= 0 for number in numbers
        ):
            raise ValueError(f"must be JSON like {shape}")
        found += (TopicPartition(topic, number) for number in numbers)
    if not found:
        raise ValueError("must name at least one partition")
    return tuple(sorted(set(found)))


def _by_partition(least: int) -> Callable[[str], dict[TopicPartition, int]]:
    def parse(value: str) -> dict[TopicPartition, int]:
        shape = '{"topic": {"0": 23, "1": 42}}'
        found: dict[TopicPartition, int] = {}
        for topic, numbers in _json(value, shape).items():
            if not isinstance(numbers, dict):
                raise ValueError(f"must be JSON like {shape}")
            for partition, number in numbers.items():
                if not partition.isdecimal() or type(number) is not int or number < least:
                    raise ValueError(f"must be JSON like {shape}, with numbers from {least} up")
                found[TopicPartition(topic, int(partition))] = number
        return found

    return parse


def _position(refused: int) -> Callable[[str], Bound]:
    """Parse "earliest", "latest", or offsets by partition. `refused` is the end not allowed at this side."""

    def parse(value: str) -> Bound:
        word = WORDS.get(value.strip().lower())
        by_partition = {} if word is not None else _by_partition(EARLIEST)(value)
        if refused in (word, *by_partition.values()):
            name = next(name for name, position in WORDS.items() if position == refused)
            raise ValueError(f"must not be {name} ({refused}) in a batch read")
        return Offsets(by_partition) if word is None else Everywhere(word)

    return parse


PARSERS: dict[str, Callable[[str], Any]] = {
    SERVERS: _servers,
    "subscribe": _names,
    "subscribePattern": _pattern,
    "assign": _partitions,
    "startingOffsets": _position(refused=LATEST),
    "endingOffsets": _position(refused=EARLIEST),
    "startingTimestamp": lambda value: Times(_number(0)(value), {}),
    "endingTimestamp": lambda value: Times(_number(0)(value), {}),
    "startingOffsetsByTimestamp": lambda value: Times(None, _by_partition(0)(value)),
    "endingOffsetsByTimestamp": lambda value: Times(None, _by_partition(0)(value)),
    "startingOffsetsByTimestampStrategy": _one_of("error", "latest"),
    "minPartitions": _number(1),
    "maxRecordsPerPartition": _number(1),
    "includeHeaders": _flag,
    "failOnDataLoss": _flag,
    "kafkaConsumer.pollTimeoutMs": _number(1),
    "fetchOffset.numRetries": _number(0),
    "fetchOffset.retryIntervalMs": _number(0),
    "kafka.client.id": _text,
    "kafka.request.timeout.ms": _number(1),
    "kafka.isolation.level": _one_of("read_uncommitted", "read_committed"),
    "kafka.fetch.min.bytes": _number(1),
    "kafka.fetch.max.wait.ms": _number(0),
    "kafka.fetch.max.bytes": _number(1),
    "kafka.max.partition.fetch.bytes": _number(1),
    "kafka.security.protocol": _one_of("plaintext"),
}
"""Every option, as users spell it, and how its text is read."""

SPELLINGS = {"bootstrap.servers": SERVERS}

REFUSED: dict[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are always binary; cast them in the query",
    "kafka.value.deserializer": "values are always binary; cast them in the query",
    "kafka.enable.auto.commit": "Spark tracks offsets, nothing is committed",
    "kafka.interceptor.classes": "there is no Java consumer to intercept",
    "kafka.group.id": "no consumer group is used",
    "groupIdPrefix": "no consumer group is used",
    "kafka.client.rack": "records are read from their leader only",
    "maxOffsetsPerTrigger": "it limits a streaming trigger, and this is a batch read",
    "minOffsetsPerTrigger": "it limits a streaming trigger, and this is a batch read",
    "maxTriggerDelay": "it limits a streaming trigger, and this is a batch read",
    "path": "load() takes no path; name topics with subscribe, assign or subscribePattern",
}
_KNOWN = {name.lower(): name for name in PARSERS} | SPELLINGS
_REFUSED = {name.lower(): (name, reason) for name, reason in REFUSED.items()}


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Check all options together; raises OptionError."""
    found, complaints = _read(options)
    given = {_KNOWN.get(name.lower()) for name in options}
    if SERVERS not in given:
        complaints.append(f"{SERVERS} is missing")
    if len(given.intersection(CHOICE)) != 1:
        complaints.append(f"expected exactly one of {', '.join(CHOICE)}")
    if complaints:
        raise OptionError("; ".join(dict.fromkeys(complaints)))
    fetch_bytes = min(
        found.get("kafka.fetch.max.bytes", 50 << 20), found.get("kafka.max.partition.fetch.bytes", 4 << 20)
    )
    return SourceOptions(
        cluster=ClusterOptions(
            bootstrap=found[SERVERS],
            client_id=found.get("kafka.client.id", "strandline-spark"),
            request_seconds=found.get("kafka.request.timeout.ms", 30_000) / 1000,
            isolation=int(found.get("kafka.isolation.level") == "read_committed"),
            fetch_bytes=fetch_bytes,
            fetch_min_bytes=found.get("kafka.fetch.min.bytes", 1),
            fetch_wait_ms=found.get("kafka.fetch.max.wait.ms", 500),
            retries=found.get("fetchOffset.numRetries", 3),
            retry_seconds=found.get("fetchOffset.retryIntervalMs", 1000) / 1000,
        ),
        topics=Topics(found.get("subscribe", ()), found.get("subscribePattern"), found.get("assign", ())),
        start=_bound(found, "starting", Everywhere(EARLIEST)),
        end=_bound(found, "ending", Everywhere(LATEST)),
        unmatched_start_is_latest=found.get("startingOffsetsByTimestampStrategy") == "latest",
        partitions_min=found.get("minPartitions"),
        partition_records_max=found.get("maxRecordsPerPartition"),
        include_headers=found.get("includeHeaders", False),
        fail_on_data_loss=found.get("failOnDataLoss", True),
        stall_seconds=found.get("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
    )


def _bound(found: Mapping[str, Any], side: str, default: Bound) -> Bound:
    """The bound of one side: the most specific option wins, as in Spark."""
    for name in (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"):
        if name in found:
            bound: Bound = found[name]
            return bound
    return default


def _read(options: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    found: dict[str, Any] = {}
    complaints: list[str] = []
    for given, value in options.items():
        name = _KNOWN.get(given.lower())
        if name is None:
            complaints.append(_unknown(given))
        elif name in found:
            complaints.append(f"{name} is given twice")
        else:
            try:
                found[name] = PARSERS[name](str(value))
            except ValueError as trouble:
                complaints.append(f"{name}={value!r} {trouble}")
    return found, complaints


def _unknown(given: str) -> str:
    if given.lower() in _REFUSED:
        name, reason = _REFUSED[given.lower()]
        return f"{name} is not supported: {reason}"
    near = get_close_matches(given.lower(), _KNOWN, n=1, cutoff=0.5)
    hint = f"; did you mean {_KNOWN[near[0]]}?" if near else f"; expected one of {', '.join(PARSERS)}"
    return f"unknown option {given}{hint}"

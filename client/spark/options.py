"""The options of `format("strandline")`: Spark's own Kafka options, parsed once and checked.

All problems are reported in one error; an unknown name is answered with the nearest known one. Names are
case-insensitive, because Spark lower-cases them.
Left to others: the list of options (option_table.py), their values (option_values.py), what bounds mean for
real partitions (plan.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ...protocol.messages.offsets import EARLIEST, LATEST
from .option_table import (
    ASKING,
    CHOICE,
    COLUMNS,
    FILE,
    LOG_DIRS,
    METADATA_COLUMNS,
    OF_LOG_DIRS,
    READING,
    SERVERS,
    Harmless,
    OptionTable,
    Refused,
    Served,
    Side,
)
from .option_values import INT_MAX, Bound, Everywhere, Offsets, Times, Topics, mentions

FETCH_BYTES_MAX = 64 << 20  # so that a frame stays well below what the client takes, whatever is asked for
OVERRULED = (*CHOICE, "starting", "ending")  # by a snapshot as JSON


class OptionError(ValueError):
    """The options are invalid; the message lists all problems."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How brokers are reached. Readers with equal options share their connections."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str
    rack: str
    request_seconds: float
    isolation: int  # on the wire: 1 is read_committed
    fetch_bytes: int
    fetch_min_bytes: int
    fetch_wait_ms: int
    retries: int
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How much one trigger of a stream reads; None where there is no limit."""

    offsets_max: int | None
    offsets_min: int | None
    delay_seconds: float  # `offsets_min` is waited for no longer


@dataclass(frozen=True, slots=True)
class ClosedLogs:
    """Log directories to be read with no broker running."""

    directories: tuple[str, ...]
    replica: int | None  # the broker whose log is read; None: any that has the records
    to_log_end: bool  # also what is not proven committed


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a read, with their defaults."""

    cluster: ClusterOptions
    topics: Topics
    start: Bound
    end: Bound  # of a batch
    unmatched_start_is_latest: bool
    partitions_min: int | None
    partition_records_max: int | None
    split_bytes: int | None
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    stall_seconds: float
    snapshot: str  # "plan", "load", or JSON of an earlier snapshot (snapshot.py)
    group: str | None  # offsets are committed to it, for others to see
    limits: StreamLimits
    closed: ClosedLogs | None  # instead of a cluster
    notes: tuple[str, ...] = field(default=(), compare=False)  # what has no effect, and why


def parse(options: Mapping[str, str], side: Side = Side.BATCH) -> SourceOptions:
    """Check all options together; raises OptionError."""
    found, notes, complaints = read_values(READING, options, side)
    given = {READING.known.get(name.lower()) for name in options}
    if SERVERS not in given and LOG_DIRS not in given:
        complaints.append(f"{SERVERS} is missing")
    if len(given.intersection(CHOICE)) != 1 and not _is_pinned(found):
        complaints.append(f"expected exactly one of {', '.join(CHOICE)}")
    complaints += _contradictions(found, side)
    complaints += _of_closed_logs(found)
    if complaints:
        raise OptionError("; ".join(dict.fromkeys(complaints)))
    if LOG_DIRS in found:
        asking = sorted(name for name in given if name and name.startswith(ASKING))
        notes += (f"{name} has no effect: with {LOG_DIRS} no broker is asked" for name in asking)
    elif "kafka.group.id" in given and "commitOffsetsToGroup" not in given:
        notes.append("kafka.group.id has no effect: offsets live in Spark; see commitOffsetsToGroup")
    if _is_pinned(found):
        overruled = sorted(name for name in given if name and name.startswith(OVERRULED))
        notes += (f"{name} has no effect: the snapshot names what is read" for name in overruled)
    return SourceOptions(
        cluster=cluster_of(found),
        topics=Topics(found.get("subscribe", ()), found.get("subscribePattern"), found.get("assign", ())),
        start=_bound(found, "starting") or Everywhere(LATEST if side is Side.STREAM else EARLIEST),
        end=_bound(found, "ending") or Everywhere(LATEST),
        unmatched_start_is_latest=found.get("startingOffsetsByTimestampStrategy") == "latest",
        partitions_min=found.get("minPartitions"),
        partition_records_max=found.get("maxRecordsPerPartition"),
        split_bytes=found.get("splitBytes"),
        columns=_columns(found),
        fail_on_data_loss=found.get("failOnDataLoss", True),
        stall_seconds=found.get("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        snapshot=found.get("snapshot", "plan"),
        group=_group(found),
        limits=StreamLimits(
            offsets_max=found.get("maxOffsetsPerTrigger"),
            offsets_min=found.get("minOffsetsPerTrigger"),
            delay_seconds=found.get("maxTriggerDelay", 15 * 60_000) / 1000,
        ),
        closed=_closed(found),
        notes=tuple(notes),
    )


def parse_either(options: Mapping[str, str]) -> tuple[SourceOptions, Side]:
    """The options of a batch, or else of a stream: Spark asks for a schema without saying which it is for."""
    try:
        return parse(options, Side.BATCH), Side.BATCH
    except OptionError as trouble:
        try:
            return parse(options, Side.STREAM), Side.STREAM
        except OptionError:
            raise trouble from None


def notes_on_either(options: Mapping[str, str]) -> frozenset[str]:
    """The notes that hold for a batch as for a stream, as far as the options are good for either."""
    found: list[frozenset[str]] = []
    for side in Side:
        try:
            found.append(frozenset(parse(options, side).notes))
        except OptionError:
            continue
    return frozenset.intersection(*found)


def cluster_of(found: Mapping[str, Any]) -> ClusterOptions:
    """How brokers are reached, for whoever reads or writes."""
    request_ms = min(found.get("kafka.request.timeout.ms") or 30_000, INT_MAX)  # in no time none is answered
    return ClusterOptions(
        bootstrap=found.get(SERVERS, ()),
        client_id=found.get("kafka.client.id") or "strandline-spark",
        rack=found.get("kafka.client.rack", ""),
        request_seconds=request_ms / 1000,
        isolation=int(found.get("kafka.isolation.level") == "read_committed"),
        fetch_bytes=min(
            max(1, found.get("kafka.fetch.max.bytes", 50 << 20)),  # a batch comes, as for 0 with Kafka
            max(1, found.get("kafka.max.partition.fetch.bytes", 4 << 20)),
            FETCH_BYTES_MAX,
        ),
        fetch_min_bytes=min(found.get("kafka.fetch.min.bytes", 1), INT_MAX),
        fetch_wait_ms=min(found.get("kafka.fetch.max.wait.ms", 500), request_ms // 2),  # else no answer came
        retries=found.get("fetchOffset.numRetries", 3),
        retry_seconds=found.get("fetchOffset.retryIntervalMs", 1000) / 1000,
    )


def _columns(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Those named by `columns`, in that order; else Spark's, headers if asked for, then the metadata."""
    kafka = [name for name in COLUMNS if name != "headers" or found.get("includeHeaders", False)]
    extra = (name for name in found.get("metadataColumns", ()) if name != FILE or LOG_DIRS in found)
    return tuple(found.get("columns", (*kafka, *extra)))


def _closed(found: Mapping[str, Any]) -> ClosedLogs | None:
    if LOG_DIRS not in found:
        return None
    return ClosedLogs(found[LOG_DIRS], found.get("replica"), found.get("upto") == "leo")


def _group(found: Mapping[str, Any]) -> str | None:
    """`true` means the group named by kafka.group.id."""
    named: str = found.get("commitOffsetsToGroup", "false")
    if named.lower() in ("true", "false"):
        group: str | None = found.get("kafka.group.id") if named.lower() == "true" else None
        return group
    return named


def _is_pinned(found: Mapping[str, Any]) -> bool:
    """The snapshot names what is read."""
    return str(found.get("snapshot", "")).startswith("{")


def _contradictions(found: Mapping[str, Any], side: Side) -> list[str]:
    """What no single option is to blame for."""
    complaints: list[str] = []
    start, end = _bound(found, "starting"), _bound(found, "ending")
    if side is Side.BATCH and mentions(start, LATEST):
        complaints.append("startingOffsets must not be latest (-1) in a batch read")
    if mentions(end, EARLIEST):
        complaints.append("endingOffsets must not be earliest (-2)")
    complaints += _turned_round(start, end)
    least, most = found.get("minOffsetsPerTrigger", 0), found.get("maxOffsetsPerTrigger")
    if most is not None and least > most:
        complaints.append(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    if found.get("commitOffsetsToGroup", "").lower() == "true" and "kafka.group.id" not in found:
        complaints.append("commitOffsetsToGroup=true needs kafka.group.id; or name the group itself")
    if "headers" in found.get("columns", ()) and found.get("includeHeaders") is False:
        complaints.append("columns names headers, and includeHeaders is false")
    snapshot = str(found.get("snapshot", "plan"))
    if snapshot.lower() not in ("plan", "load") and not _is_pinned(found):
        complaints.append(f"snapshot={snapshot!r} must be plan, load, or a snapshot as JSON")
    return complaints


def _of_closed_logs(found: Mapping[str, Any]) -> list[str]:
    """What closed logs have not, and what only they have."""
    if LOG_DIRS in found:
        group = found.get("commitOffsetsToGroup", "false").lower() != "false"
        return [f"commitOffsetsToGroup needs brokers, and {LOG_DIRS} asks none"] if group else []
    complaints = [f"{name} needs {LOG_DIRS}" for name in OF_LOG_DIRS if name in found]
    named = (found.get("columns", ()), found.get("metadataColumns", ()))
    if any(FILE in names and not {*names}.issuperset(METADATA_COLUMNS) for names in named):
        complaints.append(f"column {FILE} needs {LOG_DIRS}")
    return complaints


def _turned_round(start: Bound | None, end: Bound | None) -> list[str]:
    """What is wrong with partitions whose start, as it is given, is behind their end."""
    match start, end:
        case Offsets(starts), Offsets(ends):
            kind = "offset"
        case Times(None, starts), Times(None, ends):
            kind = "timestamp"
        case _:
            return []
    return [
        f"{tp}: the starting {kind} {first} is after the ending {kind} {ends[tp]}"
        for tp, first in sorted(starts.items())
        if first > ends.get(tp, LATEST) >= 0
    ]


def _bound(found: Mapping[str, Any], side: str) -> Bound | None:
    """The bound of one side, if one is given: the most specific option wins, as in Spark."""
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    return next((found[name] for name in names if name in found), None)


def read_values(
    table: OptionTable, options: Mapping[str, str], side: Side | None = None
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The values of served options; notes on harmless ones; complaints about the others."""
    found: dict[str, Any] = {}
    notes: list[str] = []
    complaints: list[str] = []
    for given, value in options.items():
        name, verdict = table.verdict_on(given)
        if isinstance(verdict, Served) and side is not None and side not in verdict.sides:
            verdict = verdict.elsewhere
        match verdict:
            case None:
                complaints.append(_unknown(table, given))
            case Harmless(reason):
                notes.append(f"{name} has no effect: {reason}")
            case Refused(reason):
                complaints.append(f"{name} is not supported: {reason}")
            case Served() if name in found:
                complaints.append(f"{name} is given twice")
            case Served(parse=parser):
                try:
                    found[name] = parser(str(value))
                except ValueError as trouble:
                    complaints.append(f"{name}={value!r} {trouble}")
    return found, notes, complaints


def _unknown(table: OptionTable, given: str) -> str:
    near = get_close_matches(given.lower(), table.known, n=1, cutoff=0.5)
    if near:
        return f"unknown option {given}; did you mean {table.known[near[0]]}?"
    served = (name for name in table.known.values() if isinstance(table.verdict_on(name)[1], Served))
    return f"unknown option {given}; expected one of {', '.join(dict.fromkeys(served))}"

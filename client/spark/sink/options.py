"""The options of a write: parsed once, on the driver, and checked together.

Defaults are Kafka's, but for the size of a batch: rows come by the thousand, so batches can be larger than
those of a producer that waits for single records.
Left to others: the list of options (option_table.py), their values (../option_values.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....protocol.compression import Codec
from ..option_table import SERVERS
from ..options import ClusterOptions, OptionError, cluster_of, read_values
from .option_table import WRITING, Spread

ACKS_ALL = -1
IDEMPOTENT_IN_FLIGHT_MAX = 5  # batches of a producer that a broker remembers
RETRIES_MAX = (1 << 31) - 1
BATCH_BYTES = 256 << 10
TRANSACTION_MS = 900_000  # what brokers allow by default: a transaction is open until its batch is committed
DEFAULT_LEVEL = -1  # as Kafka says it of gzip


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of a write, with their defaults."""

    cluster: ClusterOptions
    topic: str | None  # overrides the column
    spread: Spread
    acks: int  # on the wire: -1 all replicas in sync, 1 the leader, 0 nobody
    idempotent: bool
    codec: Codec
    level: int | None
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    in_flight_max: int  # requests to one broker
    delivery_seconds: float
    block_seconds: float  # for a topic or a producer id to be known
    retries: int
    exactly_once: bool
    transaction_ms: int  # how long a task's transaction may be open
    notes: tuple[str, ...] = field(default=(), compare=False)  # what has no effect, and why


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Check all options together; raises OptionError."""
    found, notes, complaints = read_values(WRITING, options)
    if SERVERS not in {WRITING.known.get(name.lower()) for name in options}:
        complaints.append(f"{SERVERS} is missing")
    complaints += _contradictions(found)
    if complaints:
        raise OptionError("; ".join(dict.fromkeys(complaints)))
    if "kafka.enable.idempotence" not in found:
        price = "a batch may be written twice, or behind a later one"
        if _acks(found) == 0:
            price = "rows may be lost, and nobody is told"
        notes += (f"{each} turns idempotence off: {price}" for each in _against_idempotence(found))
    ignores_keys = found.get("kafka.partitioner.ignore.keys", False)
    codec = Codec[found.get("kafka.compression.type", "none").upper()]
    request_bytes = found.get("kafka.max.request.size", 1 << 20)
    level = found.get(f"kafka.compression.{codec.name.lower()}.level")
    return SinkOptions(
        cluster=cluster_of(found),
        topic=found.get("topic"),
        spread=found.get("kafka.partitioner.class", Spread.STICKY if ignores_keys else Spread.BY_KEY),
        acks=_acks(found),
        idempotent=_is_idempotent(found),
        codec=codec,
        level=None if codec is Codec.GZIP and level == DEFAULT_LEVEL else level,
        batch_bytes=max(1, min(request_bytes, found.get("kafka.batch.size", BATCH_BYTES))),
        request_bytes=request_bytes,
        buffer_bytes=found.get("kafka.buffer.memory", 32 << 20),
        in_flight_max=found.get("kafka.max.in.flight.requests.per.connection", IDEMPOTENT_IN_FLIGHT_MAX),
        delivery_seconds=found.get("kafka.delivery.timeout.ms", 120_000) / 1000,
        block_seconds=found.get("kafka.max.block.ms", 60_000) / 1000,
        retries=found.get("kafka.retries", RETRIES_MAX),
        exactly_once=found.get("exactlyOnce", False),
        transaction_ms=found.get("kafka.transaction.timeout.ms", TRANSACTION_MS),
        notes=tuple(notes),
    )


def _acks(found: Mapping[str, Any]) -> int:
    acks = found.get("kafka.acks", "all")
    return ACKS_ALL if acks == "all" else int(acks)


def _is_idempotent(found: Mapping[str, Any]) -> bool:
    """As in Kafka: on, unless another option contradicts it and it was not asked for."""
    asked: bool | None = found.get("kafka.enable.idempotence")
    return not _against_idempotence(found) if asked is None else asked


def _against_idempotence(found: Mapping[str, Any]) -> list[str]:
    in_flight = found.get("kafka.max.in.flight.requests.per.connection", IDEMPOTENT_IN_FLIGHT_MAX)
    against = [] if _acks(found) == ACKS_ALL else [f"kafka.acks={found['kafka.acks']}"]
    if in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
        against.append(f"kafka.max.in.flight.requests.per.connection={in_flight}")
    if found.get("kafka.retries") == 0:
        against.append("kafka.retries=0")
    return against


def _contradictions(found: Mapping[str, Any]) -> list[str]:
    """What no single option is to blame for."""
    promises = {
        "exactlyOnce": found.get("exactlyOnce"),
        "kafka.enable.idempotence": found.get("kafka.enable.idempotence"),
    }
    against = _against_idempotence(found)
    if promises["exactlyOnce"] and promises["kafka.enable.idempotence"] is False:
        against.append("kafka.enable.idempotence=false")
    return [
        f"{name}=true contradicts {each}" for name, given in promises.items() if given for each in against
    ]

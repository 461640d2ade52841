"""Every option of `format("strandline")`, and of Spark's own Kafka source: served, harmless or refused.

A job moves over by changing one word, so whatever Spark's source takes is taken. What has no effect here is
harmless: it is told once, with the reason. Refused is what Spark refuses too, and what could be taken only by
pretending. A name that stands nowhere is an error.
Left to others: how values are read (option_values.py), what they do (options.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from . import option_values as values


class Side(Enum):
    """What the options are for."""

    BATCH = "a batch read"
    STREAM = "a stream read"


BOTH = frozenset(Side)
SERVERS = "kafka.bootstrap.servers"
LOG_DIRS = "logDirs"
OF_LOG_DIRS = ("replica", "upto")
ASKING = (SERVERS, "fetchOffset.", "kafkaConsumer.", "kafka.client.", "kafka.fetch.", "kafka.group.id",
          "kafka.max.partition.", "kafka.request.", "kafka.security.protocol")  # fmt: skip
"""How brokers are asked: names, or their beginnings."""
CHOICE = ("subscribe", "assign", "subscribePattern")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
METADATA_COLUMNS = (
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "batchBaseOffset",
    "servedBy",
    "highWatermark",
)
FILE = "file"
"""The segment that a record stands in: a metadata column of closed logs alone."""


@dataclass(frozen=True, slots=True)
class Served:
    """It does what it says, on those sides; elsewhere it is harmless or refused."""

    parse: Callable[[str], Any]
    sides: frozenset[Side] = BOTH
    elsewhere: "Harmless | Refused | None" = None


@dataclass(frozen=True, slots=True)
class Harmless:
    """It is taken and has no effect."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It is an error."""

    reason: str


Verdict: TypeAlias = Served | Harmless | Refused

_BATCH, _STREAM = frozenset({Side.BATCH}), frozenset({Side.STREAM})
_ENDLESS = Refused("a stream has no end; trigger(availableNow=True) reads what is there and stops")
_CLOSED = Refused("the logs of logDirs are closed, so nothing will come; read them as a batch: spark.read")
_NO_TRIGGER = Harmless("it limits a streaming trigger, and this is a batch read")
_OWN_PACE = Harmless("there are waits of its own here")
_NO_MEMBER = Harmless("tasks are given their offsets, nobody joins a group")
_NO_JVM = Harmless("there is no Java client")
_FOR_WRITING = Harmless("it is for writing")

_SERVED: dict[str, Served] = {
    SERVERS: Served(values.servers),
    LOG_DIRS: Served(values.directories, _BATCH, _CLOSED),
    "replica": Served(values.number(0), _BATCH, _CLOSED),
    "upto": Served(values.one_of("committed", "leo"), _BATCH, _CLOSED),
    "subscribe": Served(values.names),
    "subscribePattern": Served(values.pattern),
    "assign": Served(values.partitions),
    "startingOffsets": Served(values.position),
    "endingOffsets": Served(values.position, _BATCH, _ENDLESS),
    "startingTimestamp": Served(values.time),
    "endingTimestamp": Served(values.time, _BATCH, _ENDLESS),
    "startingOffsetsByTimestamp": Served(values.times),
    "endingOffsetsByTimestamp": Served(values.times, _BATCH, _ENDLESS),
    "startingOffsetsByTimestampStrategy": Served(values.one_of("error", "latest")),
    "minPartitions": Served(values.number(1)),
    "maxRecordsPerPartition": Served(values.number(1)),
    "splitBytes": Served(values.number(1)),
    "maxOffsetsPerTrigger": Served(values.number(1), _STREAM, _NO_TRIGGER),
    "minOffsetsPerTrigger": Served(values.number(1), _STREAM, _NO_TRIGGER),
    "maxTriggerDelay": Served(values.duration_ms, _STREAM, _NO_TRIGGER),
    "includeHeaders": Served(values.flag),
    "columns": Served(values.some_of((*COLUMNS, *METADATA_COLUMNS, FILE))),
    "metadataColumns": Served(values.some_of((*METADATA_COLUMNS, FILE), everything=True)),
    "snapshot": Served(values.text, _BATCH, Harmless("each micro-batch has its own offsets")),
    "commitOffsetsToGroup": Served(values.text),
    "failOnDataLoss": Served(values.flag),
    "kafkaConsumer.pollTimeoutMs": Served(values.number(1)),
    "fetchOffset.numRetries": Served(values.number(0)),
    "fetchOffset.retryIntervalMs": Served(values.number(0)),
    "kafka.group.id": Served(values.text),
    "kafka.client.id": Served(str.strip),
    "kafka.client.rack": Served(str.strip),
    "kafka.request.timeout.ms": Served(values.number(0)),
    "kafka.isolation.level": Served(values.one_of("read_uncommitted", "read_committed")),
    "kafka.fetch.min.bytes": Served(values.number(0)),
    "kafka.fetch.max.wait.ms": Served(values.number(0)),
    "kafka.fetch.max.bytes": Served(values.number(0)),
    "kafka.max.partition.fetch.bytes": Served(values.number(0)),
    "kafka.security.protocol": Served(values.plaintext),
}

_HARMLESS: dict[Harmless, str] = {
    Harmless("offsets live in Spark; commitOffsetsToGroup writes them to a group"): "groupIdPrefix",
    _NO_MEMBER: """kafka.group.instance.id kafka.group.protocol kafka.group.remote.assignor
        kafka.heartbeat.interval.ms kafka.session.timeout.ms kafka.max.poll.interval.ms
        kafka.partition.assignment.strategy kafka.internal.leave.group.on.close
        kafka.auto.commit.interval.ms kafka.internal.throw.on.fetch.stable.offset.unsupported""",
    Harmless("rows come in Arrow batches, as many as one fetch brought"): "kafka.max.poll.records",
    _OWN_PACE: """kafka.retry.backoff.ms kafka.retry.backoff.max.ms kafka.reconnect.backoff.ms
        kafka.reconnect.backoff.max.ms kafka.default.api.timeout.ms kafka.metadata.max.age.ms
        kafka.connections.max.idle.ms kafka.socket.connection.setup.timeout.ms
        kafka.socket.connection.setup.timeout.max.ms kafka.metadata.recovery.strategy
        kafka.metadata.recovery.rebootstrap.trigger.ms""",
    Harmless("the operating system sizes the buffers"): "kafka.receive.buffer.bytes kafka.send.buffer.bytes",
    Harmless("every batch is checked"): "kafka.check.crcs",
    Harmless("a read creates no topic"): "kafka.allow.auto.create.topics",
    Harmless("a pattern never matches internal topics, as in Spark"): "kafka.exclude.internal.topics",
    Harmless("names are looked up by the operating system"): "kafka.client.dns.lookup",
    _NO_JVM: """kafka.metric.reporters kafka.metrics.num.samples kafka.metrics.recording.level
        kafka.metrics.sample.window.ms kafka.auto.include.jmx.reporter kafka.enable.metrics.push
        kafka.security.providers kafka.config.providers""",
    _FOR_WRITING: """topic exactlyOnce kafka.acks kafka.batch.size kafka.buffer.memory kafka.compression.type
        kafka.compression.gzip.level kafka.compression.lz4.level kafka.compression.zstd.level
        kafka.delivery.timeout.ms kafka.enable.idempotence kafka.linger.ms kafka.max.block.ms
        kafka.max.in.flight.requests.per.connection kafka.max.request.size kafka.metadata.max.idle.ms
        kafka.partitioner.class kafka.partitioner.adaptive.partitioning.enable
        kafka.partitioner.availability.timeout.ms kafka.partitioner.ignore.keys kafka.retries
        kafka.transaction.timeout.ms kafka.transactional.id kafka.transaction.two.phase.commit.enable""",
}

_REFUSED: dict[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are always binary; cast them in the query",
    "kafka.value.deserializer": "values are always binary; cast them in the query",
    "kafka.key.serializer": "keys are binary or text; cast them in the query",
    "kafka.value.serializer": "values are binary or text; cast them in the query",
    "kafka.enable.auto.commit": "offsets live in Spark; commitOffsetsToGroup writes them to a group",
    "kafka.interceptor.classes": "there is no Java client to intercept",
    "path": "load() takes no path; name topics with subscribe, assign or subscribePattern",
}

OPTIONS: dict[str, Verdict] = {
    **_SERVED,
    **{name: verdict for verdict, listed in _HARMLESS.items() for name in listed.split()},
    **{name: Refused(reason) for name, reason in _REFUSED.items()},
}
"""Every option, as users spell it."""

FAMILIES: dict[str, Harmless] = {
    "kafka.ssl.": Harmless("kafka.security.protocol is PLAINTEXT"),
    "kafka.sasl.": Harmless("kafka.security.protocol is PLAINTEXT"),
    "kafka.config.providers.": _NO_JVM,
    "spark.kafka.": Harmless("it sets up pools and tokens of the JVM source; connections are kept here too"),
}
"""Options that are known by the beginning of their names."""

SPELLINGS = {"bootstrap.servers": SERVERS}


class OptionTable:
    """The options of reading or of writing, by their names in any case."""

    def __init__(self, options: Mapping[str, Verdict], families: Mapping[str, Verdict]) -> None:
        self.options = options
        self.known = {name.lower(): name for name in options} | SPELLINGS
        self._families = families

    def verdict_on(self, given: str) -> tuple[str, Verdict | None]:
        """An option as it is spelled, and what becomes of it; None if nobody knows it."""
        name = self.known.get(given.lower())
        if name is not None:
            return name, self.options[name]
        family = next((family for family in self._families if given.lower().startswith(family)), None)
        return given, self._families[family] if family else None


READING = OptionTable(OPTIONS, FAMILIES)

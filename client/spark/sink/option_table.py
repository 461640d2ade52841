"""Every option of writing with `format("strandline")`, and of Spark's own Kafka sink with its producer.

Served, harmless or refused, as in reading (../option_table.py). What is for reading is taken here as well: a
job may share its options.
Left to others: what the values do (options.py).
"""

import re
from enum import Enum

from .. import option_values as values
from ..option_table import FAMILIES, OPTIONS, SERVERS, Harmless, OptionTable, Refused, Served, Verdict

LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Spread(Enum):
    """Which partition a row goes to that names none."""

    BY_KEY = "org.apache.kafka.clients.producer.internals.defaultpartitioner"  # sticky without a key
    STICKY = "org.apache.kafka.clients.producer.uniformstickypartitioner"
    ROUND_ROBIN = "org.apache.kafka.clients.producer.roundrobinpartitioner"


def partitioner(value: str) -> Spread:
    """One of Kafka's own classes, which are rules that can be had here too."""
    try:
        return Spread(value.strip().lower())
    except ValueError:
        raise ValueError(
            "is a Java class, and there is no Java client: choose partitions in the query, in a column "
            "partition"
        ) from None


def is_topic(name: str) -> bool:
    """Whether a topic can have that name."""
    return LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def topic(value: str) -> str:
    """The name of a topic."""
    if not is_topic(value):
        raise ValueError("is no name of a topic: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    return value


def gzip_level(value: str) -> int:
    """-1 is zlib's default; 0 would not compress, and Kafka has no such level."""
    found = values.between(-1, 9)(value)
    if found == 0:
        raise ValueError("must be -1, or from 1 to 9")
    return found


_SERVED: dict[str, Served] = {
    SERVERS: Served(values.servers),
    "topic": Served(topic),
    "exactlyOnce": Served(values.flag),
    "kafka.acks": Served(values.one_of("all", "-1", "0", "1")),
    "kafka.enable.idempotence": Served(values.flag),
    "kafka.compression.type": Served(values.one_of("none", "gzip", "snappy", "lz4", "zstd")),
    "kafka.compression.gzip.level": Served(gzip_level),
    "kafka.compression.lz4.level": Served(values.between(1, 17)),
    "kafka.compression.zstd.level": Served(values.between(-131_072, 22)),
    "kafka.batch.size": Served(values.number(0)),
    "kafka.buffer.memory": Served(values.number(1)),
    "kafka.max.request.size": Served(values.number(1)),
    "kafka.max.in.flight.requests.per.connection": Served(values.number(1)),
    "kafka.delivery.timeout.ms": Served(values.number(1)),
    "kafka.request.timeout.ms": Served(values.number(0)),
    "kafka.max.block.ms": Served(values.number(0)),
    "kafka.retries": Served(values.number(0)),
    "kafka.transaction.timeout.ms": Served(values.number(1)),
    "kafka.client.id": Served(str.strip),
    "kafka.partitioner.class": Served(partitioner),
    "kafka.partitioner.ignore.keys": Served(values.flag),
    "kafka.security.protocol": Served(values.plaintext),
    "checkpointLocation": Served(values.text),  # by Spark itself, as the next ones
    "queryName": Served(values.text),
    "asyncProgressTrackingEnabled": Served(values.flag),
    "asyncProgressTrackingCheckpointIntervalMs": Served(values.number(0)),
}

_HARMLESS: dict[str, str] = {
    "kafka.linger.ms": "rows come in blocks; a batch leaves when it is full or its block has ended",
    "kafka.partitioner.adaptive.partitioning.enable": "rows without keys go to partitions that have leaders",
    "kafka.partitioner.availability.timeout.ms": "rows without keys go to partitions that have leaders",
    "kafka.transaction.two.phase.commit.enable": "transactions have a time limit",
    "kafka.metadata.max.idle.ms": "there are waits of its own here",
    "kafka.allow.auto.create.topics": "it is for reading; brokers may create a topic that is written to",
}

_REFUSED: dict[str, str] = {
    "kafka.key.serializer": "keys are binary or text; cast them in the query",
    "kafka.value.serializer": "values are binary or text; cast them in the query",
    "kafka.interceptor.classes": "there is no Java client to intercept",
    "kafka.transactional.id": "transactions are named after the query; see exactlyOnce",
    "path": "save() and start() take no path; name the topic with the option or a column topic",
}

_WRITING: dict[str, Verdict] = {
    **_SERVED,
    **{name: Harmless(reason) for name, reason in _HARMLESS.items()},
    **{name: Refused(reason) for name, reason in _REFUSED.items()},
}


def _when_reading(name: str) -> Harmless:
    """What becomes of a source's option."""
    verdict = OPTIONS[name]
    return verdict if isinstance(verdict, Harmless) else Harmless("it is for reading")


WRITING = OptionTable(
    {**{name: _when_reading(name) for name in OPTIONS if name not in _WRITING}, **_WRITING}, FAMILIES
)
"""Every option, as users spell it."""

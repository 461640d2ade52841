"""The same logs before Apache Kafka's cleaner: produced batch by batch, then made dirty enough at once.

Its own line about each cleaning is the figure: MB of log processed, seconds, MB/sec.
"""

import re
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from strandline.client.sync import Producer
from strandline.local.owned import temporary_prefix
from strandline.protocol.columns import runs
from strandline.storage.segment.file_names import LOG, file_name

from .kafka import Kafka

SEGMENT_BYTES = 64 << 20
WAIT_S = 240
ROWS, BYTES = 2_000, 1 << 20  # produced at once
CLEANED = re.compile(r"([\d.,]+) MB of log processed in ([\d.,]+) seconds \(([\d.,]+) MB/sec\)")
TOPIC = "compacted"
RATIO = "min.cleanable.dirty.ratio"
SETTINGS = {"log.cleaner.backoff.ms": "1000"}


def clean(kind: type[Kafka], directory: Path, name: str, sources: list[tuple[int, int]]) -> list[str]:
    """What this Kafka says of the cleaning of this log."""
    with (
        tempfile.TemporaryDirectory(prefix=temporary_prefix()) as folder,
        kind(Path(folder), 1, SETTINGS, {kind.log_of_cleaner: "INFO"}) as kafka,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        configs = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), RATIO: "1.0"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(20)
        produce(kafka.bootstrap, directory, sources, single=name.endswith("single"))
        ratio = ConfigEntry(RATIO, "0.01", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[ratio])
        admin.incremental_alter_configs([resource])[resource].result(20)
        log = kafka.folder(1) / "broker.log"
        deadline = time.monotonic() + WAIT_S
        while not (found := CLEANED.findall(log.read_text())):
            assert time.monotonic() < deadline, f"{kind.name} told of no cleaning in {WAIT_S} s"
            time.sleep(0.5)
        return [f"{mb} MB in {s} s, {rate} MB/s" for mb, s, rate in found]


def produce(bootstrap: str, directory: Path, sources: list[tuple[int, int]], single: bool) -> None:
    """All records of a log, in batches like its own."""
    batch_size = 1 if single else 17_000
    with Producer(bootstrap, batch_size=batch_size, linger_ms=0 if single else 50) as producer:
        for base, _ in sources:
            data = (directory / file_name(base, LOG)).read_bytes()
            for columns in runs(data, rows_max=ROWS, bytes_max=BYTES):
                rows = list(columns.rows())
                keys, values = [row.key for row in rows], [row.value for row in rows]
                producer.send_many(TOPIC, values, keys=keys, partition=0)
        producer.flush()

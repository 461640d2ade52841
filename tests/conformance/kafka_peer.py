"""Apache Kafka 3.9 as a peer: its broker on a log directory of our choice, and its dump tool.

The jars come from Maven Central, once, into the user's cache (bench/jars.py). A JVM is heavy: tests
start few, and one run of the dump tool reads many files.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from strandline.local.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from bench.jars import JarsMissing  # noqa: E402
from bench.kafka import LOG4J, Kafka39  # noqa: E402
from tests.patience import HANG_S  # noqa: E402

SMALL = ("-Xms64m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LEVELS = {"kafka.log": "INFO", "org.apache.kafka.storage": "INFO"}
EARLIEST = -2
ASK_S = 1.0  # it is asked again then
QUIET = {"log_level": 0}  # librdkafka would tell of every broker that we stop
ONE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
}


def jars() -> Path:
    """The folder with Kafka's jars. Without them the tests are skipped, but never in CI."""
    try:
        return Kafka39.jars()
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"Kafka's jars could not be fetched: {error}"
        pytest.skip(f"Kafka 3.9 could not be fetched: {error}")


def java(folder: Path, main: str, *arguments: str) -> list[str]:
    """The command line of one of Kafka's programs; its log4j configuration is written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return ["java", *SMALL, LOG4J.flag(folder, LEVELS), "-cp", f"{jars()}/*", main, *arguments]


def dump(folder: Path, files: Iterable[Path], *flags: str) -> str:
    """What Kafka's DumpLogSegments says of `files`; the exit status must be 0."""
    names = ",".join(map(str, files))
    line = java(folder, "kafka.tools.DumpLogSegments", "--files", names, *flags)
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


class KafkaBroker:
    """One broker of Apache Kafka 3.9 on the log directories `dirs`, in a process of its own."""

    def __init__(self, folder: Path, dirs: list[Path], zookeeper: str, settings: Mapping[str, str]) -> None:
        self.folder, self.dirs, self.zookeeper = folder, dirs, zookeeper
        self.settings = {**ONE_BROKER, **settings}
        self.port = free_ports(1)[0]
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "broker.log").read_text()

    def start(self, wait_s: float = 60) -> None:
        """Start it and wait until it answers."""
        self.launch()
        self.wait(wait_s)

    def launch(self) -> None:
        """Start the process and return at once."""
        lines = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": ",".join(map(str, self.dirs)),
            "zookeeper.connect": self.zookeeper,
            **self.settings,
        }
        properties = self.folder / "server.properties"
        line = java(self.folder, "kafka.Kafka", str(properties))
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        with (self.folder / "broker.log").open("ab") as log:
            self.child = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)

    def wait(self, wait_s: float = 60, brokers: int = 1) -> None:
        """Wait until it knows so many brokers, itself among them."""
        assert self.child is not None, "launch() comes before wait()"
        admin, deadline = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET}), wait_s
        deadline += time.monotonic()
        while not self._knows(admin, brokers):
            assert self.child.poll() is None, self.log[-3000:]
            assert time.monotonic() < deadline, self.log[-3000:]
            time.sleep(0.05)

    def _knows(self, admin: AdminClient, brokers: int) -> bool:
        try:
            return len(admin.list_topics(timeout=ASK_S).brokers) == brokers
        except KafkaException:
            return False

    def stop(self) -> None:
        """SIGTERM: Kafka's controlled shutdown, with its clean marker."""
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(60)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.wait(HANG_S)


def partitions_of(bootstrap: str) -> list[str]:
    """Every partition of every topic that is not internal."""
    topics = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).topics
    names = [f"{name}-{n}" for name, topic in topics.items() for n in topic.partitions]
    return sorted(name for name in names if not name.startswith("__"))


def wait_led(bootstrap: str, names: Iterable[str], wait_s: float = 30) -> None:
    """Wait until each of these partitions has a leader, of which a broker learns after its start."""
    admin, deadline = AdminClient({"bootstrap.servers": bootstrap, **QUIET}), time.monotonic() + wait_s
    while True:
        topics = admin.list_topics(timeout=30).topics
        led = {
            f"{name}-{n}"
            for name, topic in topics.items()
            for n, p in topic.partitions.items()
            if p.leader >= 0
        }
        if led >= set(names):
            return
        assert time.monotonic() < deadline, f"{set(names) - led} have no leader"
        time.sleep(0.02)


def place(name: str, offset: int = EARLIEST) -> TopicPartition:
    """`topic-3` as the client wants it."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number), offset)


def read_all(bootstrap: str, names: Iterable[str]) -> dict[str, list[list[Any]]]:
    """Every record of these partitions as a client sees it that reads uncommitted ones too."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "-",
        "isolation.level": "read_uncommitted",
        **QUIET,
    }
    consumer = Consumer({**options, "enable.partition.eof": True, "enable.auto.commit": False})
    found: dict[str, list[list[Any]]] = {name: [] for name in names}
    consumer.assign([place(name) for name in found])
    unfinished, deadline = set(found), time.monotonic() + 60
    while unfinished:
        assert time.monotonic() < deadline, f"{unfinished} did not end: {found}"
        message = consumer.poll(1)
        if message is None:
            continue
        name = f"{message.topic()}-{message.partition()}"
        if message.error() is None:
            found[name].append(row(message))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            unfinished.discard(name)
    consumer.close()
    return found


def row(message: Any) -> list[Any]:
    """A record as JSON can hold it: offset, ms, key, value, headers."""
    headers = [[name, text(value)] for name, value in message.headers() or ()]
    return [message.offset(), message.timestamp()[1], text(message.key()), text(message.value()), headers]


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def read_groups(
    bootstrap: str, groups: Iterable[str], names: Iterable[str]
) -> dict[str, dict[str, list[Any]]]:
    """What the groups have committed: offset and metadata."""
    every, found = [place(name) for name in names], dict[str, dict[str, list[Any]]]()
    for group in groups:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
        found[group] = {
            f"{one.topic}-{one.partition}": [one.offset, one.metadata or ""]
            for one in consumer.committed(every, 30)
            if one.offset >= 0
        }
        consumer.close()
    return found

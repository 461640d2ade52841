"""The systems under measurement: Strandline and Apache Kafka 3.9, each with its own ZooKeeper.

Both are started with the same settings of the same meaning; both are killed at the end of a workload.
Kafka's jars come by `mvn dependency:copy-dependencies` from `bench/kafka_pom.xml`.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient

from strandline.local.embedded_zookeeper import Zookeeper
from strandline.local.ports import free_ports
from strandline.local.processes import BrokerProcess

POM = Path(__file__).parent / "kafka_pom.xml"
STOCK_FLAGS = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
LOG4J = "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n" + (
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
)
FETCH_MAX_S = 300
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def settings(brokers: int) -> dict[str, str]:
    """What both are told: durability and topics alike, timeouts at each one's defaults."""
    return {
        "log.segment.bytes": str(128 << 20),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(brokers),
        "min.insync.replicas": "2" if brokers > 1 else "1",
        "group.initial.rebalance.delay.ms": "0",
        "message.max.bytes": str(2 << 20),
        "replica.fetch.max.bytes": str(2 << 20),
    }


class System(ABC):
    """A running system: brokers by id, with what they cost."""

    name = ""

    def __init__(self, directory: Path, brokers: int, more: Mapping[str, str] | None = None) -> None:
        self.directory, self.count = directory, brokers
        self.zookeeper = Zookeeper(directory / "zookeeper", tick_ms=2000)
        self.settings = {**settings(brokers), **(more or {})}
        ports = free_ports(2 * brokers)
        self.ports = {id: (ports[2 * id - 2], ports[2 * id - 1]) for id in range(1, brokers + 1)}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.ports.values())

    def __enter__(self) -> "System":
        self.zookeeper.start()
        for id in self.ports:
            self.start_broker(id)
        self.wait_ready(self.count)
        return self

    def __exit__(self, *_: object) -> None:
        for id in self.ports:
            self.signal(id, signal.SIGKILL)
        self.zookeeper.kill()

    @abstractmethod
    def start_broker(self, id: int) -> None:
        """Start one broker; it is ready when it answers."""

    @abstractmethod
    def pid(self, id: int) -> int:
        """The process of one broker."""

    @abstractmethod
    def signal(self, id: int, sign: signal.Signals) -> None:
        """Send a signal to one broker; SIGKILL is waited for."""

    @abstractmethod
    def wait_ended(self, id: int) -> None:
        """Wait until a broker that was told to stop has ended."""

    def wait_ready(self, brokers: int, wait_s: float = 60) -> None:
        """Wait until `brokers` brokers are known to a client."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            try:
                if len(admin.list_topics(timeout=1).brokers) >= brokers:
                    return
            except Exception:  # librdkafka has one exception for everything
                time.sleep(0.02)
        raise TimeoutError(f"{self.name} did not come up in {self.directory}")

    def cpu_s(self) -> float:
        """CPU seconds that all brokers have used, user and system."""
        return sum(_cpu_s(self.pid(id)) for id in self.ports)

    def rss_anon_mb(self) -> float:
        """Anonymous resident memory per broker, the mean, in MB."""
        return sum(_rss_anon_kb(self.pid(id)) for id in self.ports) / self.count / 1024


class Strandline(System):
    """Our brokers."""

    name = "strandline"

    def __init__(self, directory: Path, brokers: int, more: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, brokers, more)
        self.processes = {
            id: BrokerProcess(
                id, directory / f"broker-{id}", port, inner, self.zookeeper.address, dict(self.settings)
            )
            for id, (port, inner) in self.ports.items()
        }

    def start_broker(self, id: int) -> None:
        self.processes[id].start()

    def pid(self, id: int) -> int:
        return self.processes[id].pid or 0

    def signal(self, id: int, sign: signal.Signals) -> None:
        if sign is signal.SIGKILL:
            self.processes[id].kill()
        else:
            self.processes[id].signal(sign)

    def wait_ended(self, id: int) -> None:
        assert self.processes[id].wait(60), "a broker stops when it is told to"


class Kafka(System):
    """Apache Kafka 3.9 in ZooKeeper mode, with its stock JVM flags and a quiet log."""

    name = "kafka-3.9"
    more_flags: tuple[str, ...] = ()

    def __init__(self, directory: Path, brokers: int, more: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, brokers, more)
        self.jars = jars()
        self.children: dict[int, subprocess.Popen[bytes]] = {}

    def start_broker(self, id: int) -> None:
        folder = self.directory / f"broker-{id}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[id][0]}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": self.zookeeper.address,
            **self.settings,
        }
        (folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        (folder / "log4j.properties").write_text(LOG4J)
        flags = [*STOCK_FLAGS, *self.more_flags, f"-Dlog4j.configuration=file:{folder}/log4j.properties"]
        line = ["java", *flags, "-cp", f"{self.jars}/*", "kafka.Kafka", str(folder / "server.properties")]
        with (folder / "broker.log").open("ab") as log:
            self.children[id] = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)

    def pid(self, id: int) -> int:
        return self.children[id].pid

    def signal(self, id: int, sign: signal.Signals) -> None:
        child = self.children[id]
        if child.poll() is None:
            child.send_signal(sign)
            if sign is signal.SIGKILL:
                child.wait(10)

    def wait_ended(self, id: int) -> None:
        self.children[id].wait(60)


class JarsMissing(OSError):
    """Jars that could not be fetched, with Maven's own reason."""


def jars() -> Path:
    """Kafka's jars, fetched once into the user's cache."""
    return fetched(POM, "kafka-3.9")


def fetched(pom: Path, name: str) -> Path:
    """The folder with the jars that a POM names, fetched with Maven when it is not there yet.

    It has its name only when it is whole, and belongs to this text of the POM. Raises JarsMissing.
    """
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    folder = Path.home() / ".cache" / "strandline" / f"{name}-{version}"
    if not folder.exists():
        sys.stderr.write(f"fetching {name} with Maven\n")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as place:
            _fetch(pom, Path(place) / "jars")
            with suppress(OSError):  # someone else was faster
                (Path(place) / "jars").rename(folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    line = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=FETCH_MAX_S, check=False)
    except FileNotFoundError:
        raise JarsMissing("Maven is not installed: apt-get install maven") from None
    except subprocess.TimeoutExpired:
        raise JarsMissing(f"Maven did not end within {FETCH_MAX_S} s; is Maven Central reachable?") from None
    if done.returncode or not list(folder.glob("*.jar")):
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:3])
        raise JarsMissing(f"Maven ended with status {done.returncode}: {said or 'it said nothing'}")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _rss_anon_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")))

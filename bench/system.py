"""A system under measurement: what each one offers to the workloads, whoever wrote its brokers.

All are told the same settings of the same meaning; all are killed at the end of a workload, and also if the
process that measures is killed itself.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from strandline.local.cluster import last_words
from strandline.local.embedded_zookeeper import START_S, Zookeeper
from strandline.local.owned import mark
from strandline.local.ports import free_ports
from strandline.local.processes import machine_is_slower

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_MAX_S = 60


def settings(brokers: int) -> dict[str, str]:
    """What all are told: durability and topics alike, timeouts at each one's defaults."""
    return {
        "log.segment.bytes": str(128 << 20),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(brokers),
        "min.insync.replicas": "2" if brokers > 1 else "1",
        "group.initial.rebalance.delay.ms": "0",
        "message.max.bytes": str(2 << 20),
        "replica.fetch.max.bytes": str(2 << 20),
    }


class Process(Protocol):
    """A broker's process. It reads its settings when it starts."""

    settings: dict[str, str]

    @property
    def pid(self) -> int | None:
        """Its process id, None if it was never started."""

    def start(self) -> None:
        """Start it; it is ready when it answers."""

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal, if it runs."""

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""

    def wait(self, wait_s: float) -> bool:
        """Wait until it has ended, at most `wait_s` seconds. True if it has."""


class System:
    """A running system: brokers by id, with what they cost."""

    name: str
    title: str
    """Its name in tables."""
    uses_zookeeper = True
    warm_up_s: float
    """How long it is under load before it is measured."""
    failover_max_s: float
    """How long a load must go on after a broker was killed, so that its end comes after the gap."""
    spark_source: str
    """The data source with which Spark reads from it."""
    processes: Mapping[int, Process]

    def __init__(self, directory: Path, brokers: int, more: Mapping[str, str] | None = None) -> None:
        self.directory, self.count = directory, brokers
        self.zookeeper = Zookeeper(directory / "zookeeper", tick_ms=2000) if self.uses_zookeeper else None
        if self.zookeeper is not None:
            self.zookeeper.environment = mark()
        self.settings = {**settings(brokers), **(more or {})}
        ports = free_ports(2 * brokers)
        self.ports = {id: (ports[2 * id - 2], ports[2 * id - 1]) for id in range(1, brokers + 1)}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.ports.values())

    def __enter__(self) -> "System":
        try:
            self.prepare()
            for id in self.ports:
                self.start_broker(id)
            self.wait_ready(self.count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()

    def prepare(self) -> None:
        """Do what has to be done before a broker can start."""
        if self.zookeeper is not None:
            self.zookeeper.start(START_S * machine_is_slower())

    def folder(self, id: int) -> Path:
        """Where a broker has its data, and its log in `broker.log`."""
        return self.directory / f"broker-{id}"

    def start_broker(self, id: int) -> None:
        """Start one broker; it is ready when it answers."""
        self.processes[id].start()

    def pid(self, id: int) -> int:
        """The process of one broker."""
        return self.processes[id].pid or 0

    def signal(self, id: int, sign: signal.Signals) -> None:
        """Send a signal to one broker; SIGKILL is waited for."""
        if sign is signal.SIGKILL:
            self.processes[id].kill()
        else:
            self.processes[id].signal(sign)

    def wait_ended(self, id: int) -> None:
        """Wait until a broker that was told to stop has ended."""
        assert self.processes[id].wait(STOP_MAX_S), "a broker stops when it is told to"

    def wait_ready(self, brokers: int, wait_s: float = 60) -> None:
        """Wait until `brokers` brokers are known to a client; longer where the machine is slower."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        wait_s *= machine_is_slower()
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            try:
                if len(admin.list_topics(timeout=1).brokers) >= brokers:
                    return
            except KafkaException:
                time.sleep(0.02)
        logs = "; ".join(f"broker {id}: {last_words(self.folder(id) / 'broker.log')}" for id in self.ports)
        raise TimeoutError(f"{self.name} did not come up in {self.directory} within {wait_s:.0f} s: {logs}")

    def cpu_s(self) -> float:
        """CPU seconds that all brokers have used, user and system."""
        return sum(cpu_s(self.pid(id)) for id in self.ports)

    def rss_anon_mb(self) -> float:
        """Anonymous resident memory per broker, the mean, in MB."""
        return sum(_rss_anon_kb(self.pid(id)) for id in self.ports) / self.count / 1024


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, user and system, without those of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, those that these have started, and so on."""
    for thread in list(Path(f"/proc/{pid}/task").iterdir()):
        with suppress(FileNotFoundError):  # it has ended since
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from descendants(child)


def _rss_anon_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")))

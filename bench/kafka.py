"""Apache Kafka as a peer: 3.9, the last with ZooKeeper, and 4, whose brokers are their own quorum (KRaft).

A release is its jars (a POM beside this file) and what it is told beyond the settings of all. Each runs with
the JVM flags of Kafka's own start script and a log that is quiet: without a configuration its libraries log
at DEBUG into nothing, at half of Kafka's speed.
"""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from strandline.local.owned import mark

from .jars import fetched
from .system import System

HERE = Path(__file__).parent
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
TOOL_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
TOOL_MAX_S = 60
CLUSTER_ID = "c3RyYW5kbGluZS1iZW5jaA"


@dataclass(frozen=True)
class Logging:
    """How a release is told what to log: everything from WARN on, and what is named by `levels`."""

    file: str
    option: str
    root: str
    level: str

    def flag(self, folder: Path, levels: Mapping[str, str]) -> str:
        """Write the configuration to `folder`; the JVM's option that names it."""
        path = folder / self.file
        lines = (
            self.level.format(id=name.replace(".", "_"), name=name, level=level)
            for name, level in levels.items()
        )
        path.write_text(self.root + "".join(lines))
        return f"-D{self.option}=file:{path}"


LOG4J = Logging(
    "log4j.properties",
    "log4j.configuration",
    "log4j.rootLogger=WARN, out\n"
    "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n",
    "log4j.logger.{name}={level}\n",
)
LOG4J2 = Logging(
    "log4j2.properties",
    "log4j2.configurationFile",
    "appender.out.type=Console\n"
    "appender.out.name=OUT\n"
    "appender.out.layout.type=PatternLayout\n"
    "appender.out.layout.pattern=[%d] %p %m (%c)%n\n"
    "rootLogger.level=WARN\n"
    "rootLogger.appenderRef.out.ref=OUT\n",
    "logger.{id}.name={name}\nlogger.{id}.level={level}\n",
)


@dataclass
class KafkaProcess:
    """One broker: its folder, what it is told and, while it runs, its JVM."""

    folder: Path
    jars: Path
    logging: Logging
    settings: dict[str, str]
    levels: dict[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child else None

    @property
    def config(self) -> Path:
        return self.folder / "server.properties"

    def command(self, flags: tuple[str, ...], main: str, *arguments: str) -> list[str]:
        """Write what a program of this release reads; its command line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        logging = self.logging.flag(self.folder, self.levels)
        return ["java", *flags, logging, "-cp", f"{self.jars}/*", main, *arguments]

    def launch(self, flags: tuple[str, ...], main: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of this release; what it says is in `broker.log`."""
        line = self.command(flags, main, *arguments)
        with (self.folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                line, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **mark()}
            )

    def start(self) -> None:
        self.child = self.launch(STOCK_FLAGS, "kafka.Kafka", str(self.config))

    def signal(self, sign: signal.Signals) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(sign)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(10)

    def wait(self, wait_s: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            if self.child is not None:
                self.child.wait(wait_s)
            return True
        return False


class Kafka(System, ABC):
    """What the releases of Apache Kafka have in common."""

    warm_up_s = 20.0  # its code is compiled while it runs
    failover_max_s = 27.0
    spark_source = "kafka"
    pom: Path
    logging: Logging
    processes: dict[int, KafkaProcess]
    log_of_cleaner: str
    """The logger that tells how fast a log was compacted."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        more: Mapping[str, str] | None = None,
        levels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, brokers, more)
        jars = self.jars()
        self.processes = {
            id: KafkaProcess(self.folder(id), jars, self.logging, self._told(id), dict(levels or {}))
            for id in self.ports
        }

    @classmethod
    def jars(cls) -> Path:
        """The folder of its jars, fetched at the first time. Raises JarsMissing."""
        return fetched(cls.pom, cls.name)

    def _told(self, id: int) -> dict[str, str]:
        data = {"log.dirs": str(self.folder(id) / "data")}
        return {**data, **self.coordination(id), **self.settings}

    @abstractmethod
    def coordination(self, id: int) -> dict[str, str]:
        """Who a broker is, where it listens, and with whom it agrees on what."""


class Kafka39(Kafka):
    """Apache Kafka 3.9 in ZooKeeper mode."""

    name = "kafka-3.9"
    title = "Kafka 3.9.1"
    pom = HERE / "kafka_pom.xml"
    logging = LOG4J
    log_of_cleaner = "kafka.log.LogCleaner"

    def coordination(self, id: int) -> dict[str, str]:
        assert self.zookeeper is not None
        return {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[id][0]}",
            "zookeeper.connect": self.zookeeper.address,
        }


class Kafka43(Kafka):
    """Apache Kafka 4.3: each node is a broker and a controller of the quorum."""

    name = "kafka-4.3"
    title = "Kafka 4.3.1"
    uses_zookeeper = False
    pom = HERE / "kafka4_pom.xml"
    logging = LOG4J2
    log_of_cleaner = "org.apache.kafka.storage.internals.log"

    def coordination(self, id: int) -> dict[str, str]:
        client, controller = self.ports[id]
        return {
            "node.id": str(id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{port}" for node, (_, port) in self.ports.items()
            ),
        }

    def prepare(self) -> None:
        """Format every log directory with the id of the cluster, without which no node starts."""
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config")
        tools = [
            process.launch(TOOL_FLAGS, "kafka.tools.StorageTool", *arguments, str(process.config))
            for process in self.processes.values()
        ]
        for id, tool in zip(self.ports, tools, strict=True):
            status = tool.wait(TOOL_MAX_S)
            assert status == 0, (self.folder(id) / "broker.log").read_text()[-2000:]


class Kafka41(Kafka43):
    """Apache Kafka 4.1, for who asks for it."""

    name = "kafka-4.1"
    title = "Kafka 4.1.1"
    pom = HERE / "kafka41_pom.xml"


RELEASES: tuple[type[Kafka], ...] = (Kafka39, Kafka43)

"""Brokers of Apache Kafka 3.9 in ZooKeeper mode, as processes of this machine: what it does under the same
faults, alone or in one cluster with brokers of Strandline.

Its jars are those of an installation (its folder, or `libs` in it). Each broker is a JVM of modest size.
Left to others: ZooKeeper and what is done to processes (local.py), what is done to links (namespaces.py),
what Kafka makes of the directories in the end (dump_tool.py).
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....base.types import TopicPartition
from ....local.cluster import LocalCluster
from ....local.embedded_zookeeper import EnvironmentProblem, java
from ....local.processes import BrokerProcess, joined
from ...waiting import until
from ..znodes import Znodes
from .base import KAFKAS, OURS, PlaceProblem
from .dump_tool import examined
from .local import LocalPlace
from .namespaces import Apart

FLAGS = ("-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.log=INFO
log4j.logger.state.change.logger=INFO
"""
GONE_S = 60.0
SMALL = {"log.cleaner.dedupe.buffer.size": "2097152", "num.network.threads": "1", "num.io.threads": "2"}


def jars(home: Path) -> Path:
    """The folder with the jars of an installation. Raises PlaceProblem if it is none of Kafka 3."""
    for folder in (home / "libs", home):
        if list(folder.glob("kafka_2.*-[23].*.jar")):
            return folder
    libs = home / "libs"
    raise PlaceProblem(
        f"{home} holds no Apache Kafka with ZooKeeper: expected kafka_2.13-3.9.*.jar there or in {libs} (the "
        "archive of a release, unpacked)"
    )


class KafkaProcess(BrokerProcess):
    """A broker of Apache Kafka."""

    libs: Path

    def write_config(self) -> None:
        lines = {
            "broker.id": str(self.id),
            "listeners": f"CLIENT://{self.address},INTERNAL://{joined(self.host, self.internal_port)}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.directory / "data"),
            "zookeeper.connect": self.zookeeper,
            **SMALL,
            **self.settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._logging.write_text(LOGGING)

    @property
    def _logging(self) -> Path:
        return self.directory / "log4j.properties"

    def launch(self) -> None:
        assert not self.alive, f"broker {self.id} is already running"
        line = [java(), *FLAGS, f"-Dlog4j.configuration=file:{self._logging}"]
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [*self.within, *line, "-cp", f"{self.libs}/*", "kafka.Kafka", str(self.config)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip
        self.pid = self.child.pid


class KafkaPlace(LocalPlace):
    """A cluster of the run's own. Brokers with the ids `ours` are Strandline's.

    `of_ours` and `of_kafka` are what each broker is, or may become: with settings of its kind.
    """

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        brokers: int,
        settings: Mapping[str, str],
        home: Path,
        ours: frozenset[int] = frozenset(),
        first: int | None = None,
        tools: Path | None = None,
    ) -> None:
        """`home` holds Kafka's jars. Broker `first` starts before the others, and so becomes controller.

        If `home` is an earlier Kafka, `tools` has a dump tool of 3.9. That complains of earlier followers'
        indexes, which have an entry for several batches at once, so it does not get to see these.
        """
        self._first, self._libs, self._folder = first, jars(home), folder
        self._tools, self._is_earlier = jars(tools or home), tools is not None
        self.kind = "Apache Kafka and Strandline" if ours else "Apache Kafka"
        self.has_tracebacks = bool(ours)
        try:
            java()
        except EnvironmentProblem as problem:
            raise PlaceProblem(str(problem)) from None
        cluster = self._cluster(folder, brokers, settings)
        self.of_ours: dict[int, BrokerProcess] = dict(cluster.brokers)
        self.of_kafka: dict[int, KafkaProcess] = {}
        for id, one in cluster.brokers.items():
            self.of_kafka[id] = kafkas = KafkaProcess(
                id, one.directory, one.port, one.internal_port, one.zookeeper, dict(one.settings), one.host,
                within=one.within, environment=one.environment,
            )  # fmt: skip
            kafkas.libs = self._libs
        super().__init__(cluster, is_ours=True)
        for id in cluster.brokers.keys() - ours:
            self.turn(id)

    def _cluster(self, folder: Path, brokers: int, settings: Mapping[str, str]) -> LocalCluster:
        return LocalCluster(folder / "cluster", brokers, settings=settings)

    def software(self, broker: int) -> str:
        return KAFKAS if isinstance(self.cluster.brokers[broker], KafkaProcess) else OURS

    def logs(self) -> dict[int, str]:
        """Of our brokers: Kafka's have exceptions of their own."""
        return {id: text for id, text in super().logs().items() if self.software(id) == OURS}

    def examined(self, holders: Mapping[TopicPartition, Sequence[int]]) -> list[str]:
        """By Kafka's dump tool."""
        unindexed = [id for id in self.ids if self._is_earlier and self.software(id) == KAFKAS]
        return examined(self._tools, self._folder, self.directories(), holders, unindexed)

    def turn(self, broker: int) -> None:
        """A broker that does not run becomes one of the other kind, with its id, ports and directories."""
        brokers = self.cluster.brokers
        assert not brokers[broker].alive, f"broker {broker} runs"
        is_kafkas = isinstance(brokers[broker], KafkaProcess)
        brokers[broker] = self.of_ours[broker] if is_kafkas else self.of_kafka[broker]

    def start(self) -> None:
        if self._first is not None:
            self.cluster.directory.mkdir(parents=True, exist_ok=True)
            self.cluster.start_first(self._first)
        super().start()

    def launch(self, broker: int) -> None:
        """Kafka's broker ends at once if ZooKeeper still has a session of its predecessor."""
        if not isinstance(self.cluster.brokers[broker], KafkaProcess):
            super().launch(broker)
            return
        with Znodes(self.cluster.zookeeper) as znodes:
            until(lambda: not znodes.registered(broker), GONE_S, f"the session of broker {broker} is over")
        super().launch(broker)


class KafkaApart(Apart, KafkaPlace):
    """The same with three ZooKeepers, each broker in a network namespace, so that links can be cut. To be
    called after `leave_the_network`.
    """

    def _cluster(self, folder: Path, brokers: int, settings: Mapping[str, str]) -> LocalCluster:
        self.lay_out(folder)
        return self.field.cluster(folder / "cluster", brokers, settings)

"""A cluster as a suite wants it: so many brokers, with these ids and settings, Strandline's or Kafka's.

Both kinds run as processes with a ZooKeeper of their own. The suite is handed addresses; a suite that stops
brokers does it by their number. Left to others: what the suite does with it (`running.py`).
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.kafka import Kafka43
from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import Zookeeper
from strandline.local.ports import free_ports
from tests.conformance.kafka_peer import KafkaBroker

FULL_START_S = 120.0
BENCHMARKED = {"log.segment.bytes", "message.max.bytes", "min.insync.replicas", "replica.fetch.max.bytes"}


@dataclass(frozen=True)
class Shape:
    """`each` gives the settings of one broker by its id; `advertised` the port that clients are told."""

    brokers: int = 1
    first_id: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    each: Callable[[int], Mapping[str, str]] = lambda _: {}
    advertised: Callable[[int], int | None] = lambda _: None

    @property
    def ids(self) -> range:
        return range(self.first_id, self.first_id + self.brokers)


class Cluster(ABC):
    """Started and stopped by `with`."""

    title: str

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.directory, self.shape = directory.resolve(), shape
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    @abstractmethod
    def ports(self) -> dict[int, int]:
        """The port where each broker listens for clients, by its id."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def stop_broker(self, id: int) -> None:
        """A controlled shutdown; returns when it has ended."""

    @abstractmethod
    def start_broker(self, id: int) -> None:
        """Returns when all brokers know each other again."""

    @abstractmethod
    def is_up(self, id: int) -> bool: ...

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> "Cluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Strandline(Cluster):
    title = "Strandline"

    def __init__(self, directory: Path, shape: Shape) -> None:
        super().__init__(directory, shape)
        self.cluster = LocalCluster(self.directory, shape.brokers, settings=shape.settings)
        for broker, id in zip(self.cluster.brokers.values(), shape.ids, strict=True):
            broker.settings = {**broker.settings, "broker.id": str(id), **shape.each(id)}
            if port := shape.advertised(id):
                internal = f"INTERNAL://{broker.host}:{broker.internal_port}"
                broker.settings["advertised.listeners"] = f"CLIENT://127.0.0.1:{port},{internal}"

    @property
    def ports(self) -> dict[int, int]:
        return dict(zip(self.shape.ids, (b.port for b in self.cluster.brokers.values()), strict=True))

    def _number(self, id: int) -> int:
        return id - self.shape.first_id + 1

    def start(self) -> None:
        self.cluster.start()

    def kill(self) -> None:
        self.cluster.kill()

    def is_up(self, id: int) -> bool:
        return self.cluster.brokers[self._number(id)].alive

    def stop_broker(self, id: int) -> None:
        self.cluster.brokers[self._number(id)].stop()

    def start_broker(self, id: int) -> None:
        self.cluster.brokers[self._number(id)].start()
        self.cluster.wait_ready(wait_s=FULL_START_S)


class Kafka(Cluster):
    title = "Kafka 3.9"

    def __init__(self, directory: Path, shape: Shape) -> None:
        super().__init__(directory, shape)
        self.zookeeper = Zookeeper(self.directory / "zookeeper", free_ports(1)[0])
        self.brokers: dict[int, KafkaBroker] = {}
        for id, inner in zip(shape.ids, free_ports(shape.brokers), strict=True):
            folder = self.directory / f"broker-{id}"
            broker = KafkaBroker(folder, [folder / "data"], self.zookeeper.address, {})
            outer = shape.advertised(id)
            broker.settings |= {
                "auto.create.topics.enable": "true",
                "broker.id": str(id),
                "listeners": f"CLIENT://127.0.0.1:{broker.port},INTERNAL://127.0.0.1:{inner}",
                "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                **shape.settings,
                **shape.each(id),
            }
            if outer:
                told = f"CLIENT://127.0.0.1:{outer},INTERNAL://127.0.0.1:{inner}"
                broker.settings["advertised.listeners"] = told
            self.brokers[id] = broker

    @property
    def ports(self) -> dict[int, int]:
        return {id: broker.port for id, broker in self.brokers.items()}

    def start(self) -> None:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.launch()
        self._wait()

    def _wait(self) -> None:
        for broker in self.brokers.values():
            broker.wait(FULL_START_S, len(self.brokers))

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()

    def is_up(self, id: int) -> bool:
        child = self.brokers[id].child
        return child is not None and child.poll() is None

    def stop_broker(self, id: int) -> None:
        self.brokers[id].stop()

    def start_broker(self, id: int) -> None:
        self.brokers[id].launch()
        self._wait()


class Kafka4(Cluster):
    """Brokers that are their own quorum (KRaft), for what 3.9 with ZooKeeper does not serve."""

    title = "Kafka 4.3"

    def __init__(self, directory: Path, shape: Shape) -> None:
        super().__init__(directory, shape)
        assert shape.first_id == 1, "the nodes of a quorum are numbered from 1 on"
        self.system = Kafka43(self.directory, shape.brokers, shape.settings)
        for process in self.system.processes.values():
            for name in BENCHMARKED - shape.settings.keys():
                process.settings.pop(name, None)

    @property
    def ports(self) -> dict[int, int]:
        return {id: port for id, (port, _) in self.system.ports.items()}

    def start(self) -> None:
        self.system.__enter__()

    def kill(self) -> None:
        self.system.__exit__()

    def is_up(self, id: int) -> bool:
        child = self.system.processes[id].child
        return child is not None and child.poll() is None

    def stop_broker(self, id: int) -> None:
        self.system.signal(id, signal.SIGTERM)
        self.system.wait_ended(id)

    def start_broker(self, id: int) -> None:
        self.system.start_broker(id)
        self.system.wait_ready(self.shape.brokers, FULL_START_S)


KINDS: dict[str, type[Cluster]] = {"strandline": Strandline, "kafka": Kafka, "kafka-4": Kafka4}


def raise_interrupt(*_: object) -> None:
    """For SIGTERM: the cluster's processes end with the run."""
    raise KeyboardInterrupt


def end_with_us() -> None:
    signal.signal(signal.SIGTERM, raise_interrupt)

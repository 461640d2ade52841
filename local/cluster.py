"""A cluster on this machine: its own ZooKeeper and brokers as processes, under one directory.

`strandline up` leaves it running and `down` finds it again through `cluster.json`; the demo, the tests and
the benchmarks use the object directly. Left to others: a single process (`processes.py`).
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..client.sync import Admin
from ..protocol.errors import ApiError
from .embedded_zookeeper import EnvironmentProblem, Zookeeper
from .ports import free_ports, is_free
from .processes import BrokerProcess, runs, wait_gone

READY_S = 60.0
INTERNAL_REPLICAS = 3  # of __consumer_offsets and __transaction_state, the brokers' default


class LocalCluster:
    """ZooKeeper and `brokers` brokers with ids 1, 2, …; every method blocks."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        first_port: int | None = None,
        zookeeper: str | None = None,
        web: bool = False,
    ) -> None:
        """`settings` are Kafka names for every broker; `zookeeper` is an address that runs already.

        `web`: each broker has an HTTP port, too.
        """
        self.directory = directory.resolve()
        kinds = 3 if web else 2
        ports = free_ports(kinds * brokers) if first_port is None else _ports_from(first_port, brokers, kinds)
        self.own_zookeeper = None if zookeeper else Zookeeper(self.directory / "zookeeper", free_ports(1)[0])
        address = zookeeper or (self.own_zookeeper.address if self.own_zookeeper else "")
        few = {
            "offsets.topic.replication.factor": str(brokers),
            "transaction.state.log.replication.factor": str(brokers),
            "transaction.state.log.min.isr": "1",
        }
        self.brokers = {
            id: BrokerProcess(
                id,
                self.directory / f"broker-{id}",
                ports[id - 1],
                ports[brokers + id - 1],
                address,
                {**(few if brokers < INTERNAL_REPLICAS else {}), **(settings or {})},
                web_port=ports[2 * brokers + id - 1] if web else None,
            )
            for id in range(1, brokers + 1)
        }

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's address."""
        return next(iter(self.brokers.values())).zookeeper

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        """Start everything and wait until all brokers know each other and topics can be created."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            if self.own_zookeeper is not None:
                self.own_zookeeper.start()
            for broker in self.brokers.values():
                broker.start()
            self.wait_ready()
            undo.pop_all()

    def wait_ready(self, alive: int | None = None, wait_s: float = READY_S) -> None:
        """Wait until every running broker knows `alive` brokers (default: all) and a controller."""
        deadline = time.monotonic() + wait_s
        wanted = len(self.brokers) if alive is None else alive
        for broker in self.brokers.values():
            while broker.alive and not _knows(broker.address, wanted):
                if time.monotonic() > deadline:
                    raise EnvironmentProblem(f"broker {broker.id} is not ready; see {broker.log}")
                time.sleep(0.02)
            if alive is None and not broker.alive:
                raise EnvironmentProblem(f"broker {broker.id} exited: {last_words(broker.log)}")

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads the partition, or -1."""
        with Admin(self.bootstrap) as admin:
            (described,) = admin.describe_topics([topic])
            return next(p.leader for p in described.partitions if p.partition == partition)

    def controller(self) -> int:
        """The id of the controller's broker, or -1."""
        with Admin(self.bootstrap) as admin:
            return admin.describe_cluster().controller_id

    def stop(self) -> None:
        """Controlled shutdown of all brokers, then ZooKeeper."""
        for broker in self.brokers.values():
            broker.signal(signal.SIGTERM)
        for broker in self.brokers.values():
            broker.stop()
        if self.own_zookeeper is not None:
            self.own_zookeeper.stop()

    def kill(self) -> None:
        """SIGKILL for every process that still runs."""
        for broker in self.brokers.values():
            broker.kill()
        if self.own_zookeeper is not None:
            self.own_zookeeper.kill()

    def __enter__(self) -> "LocalCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ saved by `up`, found by `down`

    @property
    def state_file(self) -> Path:
        return self.directory / "cluster.json"

    def save(self) -> None:
        """Write addresses and pids to `cluster.json`: another process can then find and stop the cluster."""
        zookeeper = self.own_zookeeper
        state = {
            "bootstrap": self.bootstrap,
            "zookeeper": {"address": self.zookeeper, "pid": zookeeper.pid if zookeeper else None},
            "brokers": [
                {
                    "id": b.id,
                    "port": b.port,
                    "internal_port": b.internal_port,
                    "web_port": b.web_port,
                    "pid": b.pid,
                }
                for b in self.brokers.values()
            ],
        }
        self.state_file.write_text(json.dumps(state, indent=2) + "\n")


def read_state(directory: Path) -> dict[str, object]:
    """What `LocalCluster.save` wrote. Raises EnvironmentProblem when nothing was started there."""
    try:
        state: dict[str, object] = json.loads((directory / "cluster.json").read_text())
    except FileNotFoundError:
        raise EnvironmentProblem(f"no cluster in {directory}: start one with `strandline up`") from None
    except ValueError as error:
        raise EnvironmentProblem(
            f"{directory / 'cluster.json'} is damaged, `strandline up` did not write it like this: {error}"
        ) from None
    return state


def find(directory: Path) -> LocalCluster:
    """The cluster that `strandline up` left running in `directory`, with its pids."""
    state = read_state(directory)
    zookeeper, brokers = state["zookeeper"], state["brokers"]
    assert isinstance(zookeeper, dict) and isinstance(brokers, list), "written by save()"
    cluster = LocalCluster(directory, len(brokers), zookeeper=str(zookeeper["address"]))
    for entry in brokers:
        broker = cluster.brokers[entry["id"]]
        broker.port, broker.internal_port, broker.pid = entry["port"], entry["internal_port"], entry["pid"]
        broker.web_port = entry.get("web_port")  # absent if an older version started the cluster
    return cluster


def take_down(directory: Path) -> int:
    """Stop a cluster that was left running. Returns how many processes were stopped."""
    cluster = find(directory)
    running = [broker for broker in cluster.brokers.values() if broker.alive]
    cluster.stop()
    zookeeper = read_state(directory)["zookeeper"]
    assert isinstance(zookeeper, dict), "written by save()"
    pid, marker = zookeeper["pid"], str(cluster.directory / "zookeeper")
    stopped = len(running)
    if pid is not None and runs(pid, marker):
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid, marker, 10)
        stopped += 1
    cluster.state_file.unlink()
    return stopped


def last_words(log: Path) -> str:
    """The last line a process wrote before it ended."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else f"{log} is empty"


PORT_STEPS = (0, 10_000, 100)  # of the ports for clients, for brokers, for HTTP, from the first one


def _ports_from(first: int, brokers: int, kinds: int) -> list[int]:
    """The ports for clients from `first` on, then those for brokers, and for HTTP; none may be taken."""
    ports = [first + step + i for step in PORT_STEPS[:kinds] for i in range(brokers)]
    for port in ports:
        if not is_free(port):
            raise EnvironmentProblem(f"port {port} is in use: stop what listens there, or choose --port")
    return ports


def _knows(address: str, brokers: int) -> bool:
    """Whether the broker at `address` answers and knows at least `brokers` brokers and a controller."""
    try:
        with Admin(address, request_timeout_ms=2000, default_api_timeout_ms=2000) as admin:
            cluster = admin.describe_cluster()
            return len(cluster.brokers) >= brokers and cluster.controller_id >= 0
    except (OSError, ApiError):
        return False

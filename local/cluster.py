"""A cluster on this machine: its own ZooKeeper and brokers as processes, under one directory.

`strandline up` leaves it running and other commands find it again through `cluster.json`; the demo, the tests
and the benchmarks use the object directly.
Left to others: a single process (`processes.py`), what may be done to which (`members.py`), who belongs to it
(`roster.py`).
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..client.sync import Admin
from ..protocol.errors import ApiError
from .embedded_zookeeper import EnvironmentProblem, Zookeeper
from .owned import mark
from .ports import free_ports, is_free
from .processes import BrokerProcess, State, machine_is_slower

READY_S = 60.0
ZOOKEEPER_S = 30.0  # until a JVM that nothing else delays has come up
SLOWER_MAX = 4.0  # a machine that is slower still is not waited for
STATE_FILE, LOCK_FILE = "cluster.json", "cluster.lock"
CHANGING_S = 10.0  # how long a command waits for another one that changes the same cluster
WITHOUT_ZOOKEEPER_S = 5.0  # a broker that stops hands its leaderships over, which needs ZooKeeper
ZOOKEEPER = "zookeeper"
"""Its directory, and its name among the processes."""

INTERNAL_REPLICAS = 3  # of __consumer_offsets and __transaction_state, the brokers' default


class LocalCluster:
    """ZooKeeper and some brokers; every method blocks."""

    def __init__(
        self,
        directory: Path,
        brokers: int | Sequence[int] = 3,
        *,
        settings: Mapping[str, str] | None = None,
        first_port: int | None = None,
        ports: Sequence[int] | None = None,
        zookeeper: str | None = None,
        web: bool = False,
        bind: str | None = None,
        advertised: str | None = None,
        owned: bool = False,
    ) -> None:
        """`brokers`: how many, with ids 1, 2, …, or which ids. `settings` are Kafka names for every broker;
        `zookeeper` is an address that runs already.

        Ports are free ones, those from `first_port` on (broker 1 has that one), or exactly `ports`: all for
        clients, all for brokers, all for HTTP, each in the order of the ids.
        `web`: each broker has an HTTP port, too. Clients and browsers are heard at the host `bind`, and sent
        to `advertised`; without them, at 127.0.0.1, where brokers and ZooKeeper always meet.
        `owned`: no process outlives this one, however that ends.

        Raises EnvironmentProblem for a directory that brokers cannot have.
        """
        self.directory = fit(directory)
        ids = list(range(1, brokers + 1)) if isinstance(brokers, int) else sorted(brokers)
        count = len(ids)
        kinds = 3 if web else 2
        if ports is None and first_port is not None:
            ports = _ports_from(first_port, ids, kinds, bind)
        ports = ports or free_ports(kinds * count)
        self.own_zookeeper = None if zookeeper else Zookeeper(self.directory / ZOOKEEPER, free_ports(1)[0])
        environment = mark() if owned else {}
        if self.own_zookeeper is not None:
            self.own_zookeeper.environment = environment
        address = zookeeper or (self.own_zookeeper.address if self.own_zookeeper else "")
        few = {
            "offsets.topic.replication.factor": str(count),
            "transaction.state.log.replication.factor": str(count),
            "transaction.state.log.min.isr": "1",
        }
        self.brokers = {
            id: BrokerProcess(
                id,
                self.directory / f"broker-{id}",
                ports[place],
                ports[count + place],
                address,
                {**(few if count < INTERNAL_REPLICAS else {}), **(settings or {})},
                environment=dict(environment),
                web_port=ports[2 * count + place] if web else None,
                bind=bind,
                advertised=advertised,
            )
            for place, id in enumerate(ids)
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
            slower = min(SLOWER_MAX, machine_is_slower())
            if self.own_zookeeper is not None and self.own_zookeeper.state is State.STOPPED:
                self.own_zookeeper.start(ZOOKEEPER_S * slower)
            for broker in self.brokers.values():
                if not broker.alive:
                    broker.start()
            self.wait_ready(wait_s=READY_S * slower)
            undo.pop_all()

    def start_first(self, id: int) -> None:
        """Start ZooKeeper and one broker, which becomes controller; `start` starts the others."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            slower = min(SLOWER_MAX, machine_is_slower())
            if self.own_zookeeper is not None:
                self.own_zookeeper.start(ZOOKEEPER_S * slower)
            self.brokers[id].start()
            self.wait_member(id, READY_S * slower)
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

    def wait_member(self, id: int, wait_s: float = READY_S) -> None:
        """Wait until broker `id` answers and belongs to the cluster. Raises EnvironmentProblem."""
        broker, deadline = self.brokers[id], time.monotonic() + wait_s
        while not _knows(broker.address, 1, id):
            if not broker.alive:
                raise EnvironmentProblem(f"broker {id} exited: {last_words(broker.log)}")
            if time.monotonic() > deadline:
                raise EnvironmentProblem(
                    f"broker {id} runs, but has not joined the cluster in {wait_s:.0f} s; see {broker.log}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Controlled shutdown of all brokers, then ZooKeeper. What is paused goes on for that.

        Without ZooKeeper there is no controlled shutdown: brokers get a moment, then SIGKILL.
        """
        zookeeper = self.own_zookeeper
        if zookeeper is not None:
            zookeeper.send_signal(signal.SIGCONT)
        for sign in (signal.SIGCONT, signal.SIGTERM):
            for broker in self.brokers.values():
                broker.signal(sign)
        alone = zookeeper is not None and zookeeper.state is State.STOPPED
        for broker in self.brokers.values():
            broker.stop(WITHOUT_ZOOKEEPER_S) if alone else broker.stop()
        if zookeeper is not None:
            zookeeper.stop()

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
        return self.directory / STATE_FILE

    @property
    def processes(self) -> dict[str, State]:
        """The state of each process by its name: `zookeeper`, if it is this cluster's own, and broker ids."""
        own = {} if self.own_zookeeper is None else {ZOOKEEPER: self.own_zookeeper.state}
        return own | {str(id): broker.state for id, broker in self.brokers.items()}

    def save(self) -> None:
        """Write addresses and pids to `cluster.json`: another process can then find the cluster."""
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
                    "bind": b.bind,
                    "advertised": b.advertised,
                }
                for b in self.brokers.values()
            ],
        }
        whole = self.state_file.with_suffix(".new")
        whole.write_text(json.dumps(state, indent=2) + "\n")
        os.replace(whole, self.state_file)


def read_state(directory: Path) -> dict[str, Any]:
    """What `LocalCluster.save` wrote. Raises EnvironmentProblem when nothing was started there."""
    try:
        state: dict[str, Any] = json.loads((directory / STATE_FILE).read_text())
    except FileNotFoundError:
        raise EnvironmentProblem(f"no cluster in {directory}: start one with `strandline up`") from None
    except ValueError as error:
        raise EnvironmentProblem(
            f"{directory / STATE_FILE} is damaged, `strandline up` did not write it like this: {error}"
        ) from None
    return state


def fit(directory: Path) -> Path:
    """The whole path of a directory for a cluster. Raises EnvironmentProblem if it holds a comma: brokers,
    Kafka's too, would take it for several, which the brokers of a cluster would share.
    """
    found = directory.resolve()
    if "," in str(found):
        raise EnvironmentProblem(
            f"{found}: brokers split `log.dirs` at commas; choose a directory without one"
        )
    return found


@contextmanager
def changing(directory: Path, wait_s: float = CHANGING_S) -> Iterator[None]:
    """Nobody else starts or ends the cluster in `directory` meanwhile. Raises EnvironmentProblem."""
    fit(directory).mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with (directory / LOCK_FILE).open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EnvironmentProblem(
                        f"another command is changing the cluster in {directory}: wait until it is done"
                    ) from None
                time.sleep(0.05)
        yield


def find(directory: Path) -> LocalCluster:
    """The cluster that `strandline up` left running in `directory`, with its pids."""
    state = read_state(directory)
    address, pid = str(state["zookeeper"]["address"]), state["zookeeper"]["pid"]
    entries = sorted(state["brokers"], key=lambda entry: entry["id"])
    # absent if an older version started the cluster: web_port, bind, advertised
    web = all(entry.get("web_port") is not None for entry in entries)
    kinds = ("port", "internal_port", *(("web_port",) if web else ()))
    cluster = LocalCluster(
        directory,
        [entry["id"] for entry in entries],
        ports=[entry[kind] for kind in kinds for entry in entries],
        zookeeper=address,
        web=web,
        bind=entries[0].get("bind"),
        advertised=entries[0].get("advertised"),
    )
    for entry in entries:
        cluster.brokers[entry["id"]].pid = entry["pid"]
    if pid is not None:
        port = int(address.rpartition(":")[2])
        cluster.own_zookeeper = Zookeeper(cluster.directory / ZOOKEEPER, port)
        cluster.own_zookeeper.found_pid = pid
    return cluster


def take_down(directory: Path) -> int:
    """Stop a cluster that was left running. Returns how many processes were stopped."""
    read_state(directory)  # the lock's file is made only where there is a cluster
    with changing(directory):
        cluster = find(directory)
        stopped = sum(state is not State.STOPPED for state in cluster.processes.values())
        cluster.stop()
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


def _ports_from(first: int, ids: Sequence[int], kinds: int, bind: str | None) -> list[int]:
    """The ports for clients, broker 1's being `first`, then those for brokers, and for HTTP."""
    ports = [first + step + id - 1 for step in PORT_STEPS[:kinds] for id in ids]
    check_free(ports, bind)
    return ports


def check_free(ports: Iterable[int], bind: str | None) -> None:
    """Raises EnvironmentProblem if anybody listens at one of these ports, here or at the host `bind`."""
    for port in ports:
        if not is_free(port) or (bind is not None and not is_free(port, bind)):
            where = f"port {port}" if bind is None else f"port {port} of {bind}"
            raise EnvironmentProblem(f"{where} is in use: stop what listens there, or choose --port")


def _knows(address: str, brokers: int, member: int | None = None) -> bool:
    """Whether the broker at `address` answers and knows a controller and so many brokers, `member` among
    them.
    """
    try:
        with Admin(address, request_timeout_ms=2000, default_api_timeout_ms=2000) as admin:
            cluster = admin.describe_cluster()
            listed = member is None or any(one.node_id == member for one in cluster.brokers)
            return listed and len(cluster.brokers) >= brokers and cluster.controller_id >= 0
    except (OSError, ApiError):
        return False

"""The ways in which a partition loses a leader that lives on, made on a cluster of three brokers.

A stage is a cluster (ours or Apache Kafka 3.9) with a topic of one partition for each client probe; all of
them are led by one broker, `leader`, that is not the controller. Each way takes every topic from it at once,
and `restore` gives them back. Each broker reaches ZooKeeper through a gate of its own.
Left to others: the clients (probing.py), what is asked of them (test_leader_moves.py).

    make moves     # ours and Kafka's: the longest silence of each client in ms, producer/consumer
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from driving import until
from probing import EVERY_MS, PROBES, Probe, now_ms, start

from strandline.base.types import TopicPartition
from strandline.client.loop_thread import LoopThread
from strandline.client.sync import Admin
from strandline.local.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from bench.kafka import Kafka39  # noqa: E402
from bench.system import System  # noqa: E402
from bench.systems import Strandline  # noqa: E402

SESSION_MS = 2000  # so soon does ZooKeeper give up a frozen broker
FLOWS = 30  # so many events of a client after a move show that it goes on
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "6",
    "log.segment.bytes": str(16 << 20),
    "num.partitions": "1",
}


class Gate:
    """A way to ZooKeeper that can be shut: its connections break and new ones are refused."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.port = free_ports(1)[0]
        self._thread = LoopThread("gate")
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def open(self) -> None:
        """Let everything through."""

        async def work() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

        self._thread.run(work)

    def shut(self) -> None:
        """Break what is open and refuse what comes."""

        def work() -> None:
            assert self._server is not None
            self._server.close()
            for writer in self._open:
                writer.transport.abort()

        self._thread.call(work)

    def close(self) -> None:
        """For good."""
        self.shut()
        self._thread.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.close()


SYSTEMS: dict[str, type[System]] = {kind.name: kind for kind in (Strandline, Kafka39)}


class Stage:
    """The cluster, its probes, and who leads at first."""

    def __init__(self, system: System, folder: Path) -> None:
        assert system.zookeeper is not None
        self.system, self.folder = system, folder
        self.probes: dict[str, Probe] = {}
        self.gates = {id: Gate(system.zookeeper.address) for id in system.ports}
        for id, process in system.processes.items():
            process.settings["zookeeper.connect"] = self.gates[id].address

    def begin(self) -> None:
        """Choose roles; called when the brokers run."""
        with Admin(self.system.bootstrap) as admin:
            self.controller = admin.describe_cluster().controller_id
        self.leader, self.other = (id for id in self.system.ports if id != self.controller)
        self.order = (self.leader, self.other, self.controller)
        self.admin = Admin(
            [f"127.0.0.1:{self.system.ports[id][0]}" for id in (self.other, self.controller)],
            request_timeout_ms=5_000,
        )

    def launch(self, name: str, command: list[str], every_ms: int = EVERY_MS) -> None:
        """Start a probe on a topic of its own, which writes every so many ms."""
        topic = f"moves-{name}"
        self.admin.create_topic(topic, 1, 3)
        self.probes[name] = start(name, command, self.system.bootstrap, topic, self.folder, every_ms)

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(probe.topic, 0) for probe in self.probes.values()]

    def leaders(self) -> set[int]:
        """Who leads the topics of the probes."""
        told = self.admin.describe_topics(place.topic for place in self.places)
        return {partition.leader for topic in told for partition in topic.partitions}

    def in_sync(self, replicas: tuple[int, ...]) -> bool:
        """Whether every topic has exactly these replicas, in this order, all in sync."""
        told = self.admin.describe_topics(place.topic for place in self.places)
        parts = [partition for topic in told for partition in topic.partitions]
        return all(tuple(part.replicas) == replicas and set(part.isr) == set(replicas) for part in parts)

    def wait_led_by(self, *brokers: int) -> None:
        until(lambda: self.leaders() <= set(brokers), f"one of {brokers} leads")

    def place(self, replicas: tuple[int, ...]) -> None:
        """Let every topic have these replicas, and wait until it is so."""
        self.admin.alter_partition_reassignments(dict.fromkeys(self.places, replicas))
        until(lambda: not self.admin.list_partition_reassignments(), "nothing moves any more")
        until(lambda: self.in_sync(replicas), f"all are in sync on {replicas}")

    def elect(self) -> None:
        """Elect the preferred leaders."""
        for error in self.admin.elect_leaders("preferred", self.places).values():
            assert error is None or error.code == 84, error  # ELECTION_NOT_NEEDED

    def restore(self) -> None:
        """Everything as at the beginning; waits for clients that have lost their way, too."""
        until(lambda: self.is_complete(), "all brokers are there")
        if not self.in_sync(self.order):
            self.place(self.order)
        self.elect()
        self.wait_led_by(self.leader)
        self.wait_flowing(now_ms())

    def is_complete(self) -> bool:
        """Whether all brokers are registered."""
        return len(self.admin.describe_cluster().brokers) == len(self.system.ports)

    def wait_flowing(self, since_ms: float, wait_s: float = 60) -> None:
        """Wait until every client has had enough events since then."""

        def lags() -> list[str]:
            return [
                f"{name}'s {role}"
                for name, probe in self.probes.items()
                for role, times in (("producer", probe.acked_at), ("consumer", probe.read_at))
                if sum(at > since_ms for at in times[-FLOWS:]) < FLOWS
            ]

        deadline = time.monotonic() + wait_s
        while late := lags():
            assert time.monotonic() < deadline, f"after {wait_s} s there is nothing from {late}"
            for name, probe in self.probes.items():
                assert probe.process.poll() is None, f"{name} ended: {probe.complaints[-2000:]}"
            time.sleep(0.02)


# Each way takes the leadership from `stage.leader`, and gives the moment from which on silence counts.


def preferred_election(stage: Stage) -> float:
    """An operator, or the automatic balance, elects the first replica."""
    stage.place((stage.other, stage.leader, stage.controller))
    stage.wait_flowing(now_ms())  # the plan has given the same leader a new epoch
    since = now_ms()
    stage.elect()
    stage.wait_led_by(stage.other)
    return since


def reassignment(stage: Stage) -> float:
    """The leader's replica goes away."""
    since = now_ms()
    stage.place((stage.other, stage.controller))
    stage.wait_led_by(stage.other, stage.controller)
    return since


def controlled_shutdown(stage: Stage) -> float:
    """The leader is told to stop; it is started again when it has ended."""
    since = now_ms()
    stage.system.signal(stage.leader, signal.SIGTERM)
    stage.wait_led_by(stage.other, stage.controller)
    stage.system.wait_ended(stage.leader)
    stage.wait_flowing(now_ms())
    stage.system.start_broker(stage.leader)
    return since


def freeze_and_thaw(stage: Stage) -> float:
    """The leader's process stands still until ZooKeeper has given it up. Silence counts from the thaw."""
    stage.system.signal(stage.leader, signal.SIGSTOP)
    try:
        stage.wait_led_by(stage.other, stage.controller)
    finally:
        since = now_ms()
        stage.system.signal(stage.leader, signal.SIGCONT)
    return since


def fence(stage: Stage) -> float:
    """The leader loses ZooKeeper, and nothing else, until another is elected."""
    since = now_ms()
    gate = stage.gates[stage.leader]
    gate.shut()
    try:
        stage.wait_led_by(stage.other, stage.controller)
    finally:
        gate.open()
    return since


WAYS: dict[str, Callable[[Stage], float]] = {
    "preferred election": preferred_election,
    "reassignment": reassignment,
    "controlled shutdown": controlled_shutdown,
    "freeze and thaw": freeze_and_thaw,
    "fence": fence,
}


@contextmanager
def staged(kind: str, folder: Path) -> Iterator[Stage]:
    """A running stage without probes."""
    system = SYSTEMS[kind](folder, 3, SETTINGS)
    stage = Stage(system, folder)
    for gate in stage.gates.values():
        gate.open()
    try:
        with system:
            stage.begin()
            try:
                yield stage
            finally:
                for probe in stage.probes.values():
                    probe.close()
                stage.admin.close()
    finally:
        for gate in stage.gates.values():
            gate.close()


Silences = dict[str, tuple[float, float]]  # of each client: producer and consumer, in seconds


def silences(stage: Stage, way: str) -> Silences:
    """Go one way and back; the longest silence of each client."""
    since = WAYS[way](stage)
    stage.wait_flowing(now_ms())
    told = {name: probe.silence(since) for name, probe in stage.probes.items()}
    stage.restore()
    return told


def line(system: str, way: str, told: Silences) -> str:
    """A row of the table: milliseconds of producer / consumer."""
    cells = (f"{name} {sent * 1000:.0f}/{read * 1000:.0f}" for name, (sent, read) in told.items())
    return f"{system:10} {way:20} {'  '.join(cells)}"


def settle(stage: Stage) -> None:
    """Writers stop; wait until all that was sent is acknowledged, and all that was acknowledged is read."""
    for probe in stage.probes.values():
        probe.tell()
    everybody = stage.probes.values()
    until(lambda: all(probe.sent is not None for probe in everybody), "every producer has flushed")
    until(lambda: all(probe.read >= probe.acked for probe in everybody), "what was acknowledged is read")


def main() -> None:
    """Ours and Kafka's, several times each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", nargs="+", choices=sorted(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--way", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--client", nargs="+", choices=list(PROBES), default=list(PROBES))
    given = parser.parse_args()
    for name in given.system:
        with tempfile.TemporaryDirectory() as folder, staged(name, Path(folder)) as stage:
            for client in given.client:
                stage.launch(client, PROBES[client]())
            stage.wait_flowing(now_ms())
            stage.restore()
            for _ in range(given.runs):
                for way in given.way:
                    print(line(name, way, silences(stage, way)), flush=True)
            settle(stage)


if __name__ == "__main__":
    main()

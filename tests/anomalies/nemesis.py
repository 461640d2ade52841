"""What is done to the cluster, drawn from a seed: processes die and stand still, links are cut.

Each fault returns how to mend it. Left to others: clients and verdicts (run.py).
"""

import random
import signal
import time
from collections.abc import Callable

from strandline.broker.coordinator_partitions import partition_of
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import EnvironmentProblem
from strandline.protocol.errors import ApiError
from strandline.testing.anomalies import Action, Notes, Type
from tests.faults.places import HERE, Field

Mend = Callable[[], None]
COORDINATOR_PARTITIONS = 6
CALM_S = (2.0, 5.0)
FAULT_S = (1.0, 8.0)
READY_S = 60.0


class Nemesis:
    """`strike` does one fault to its end."""

    def __init__(
        self, cluster: LocalCluster, field: Field, clients: str, kill_client: Callable[[random.Random], str],
        notes: Notes, seed: int,
    ) -> None:  # fmt: skip
        self.cluster, self.field, self.clients, self.notes = cluster, field, clients, notes
        self.kill_client = kill_client
        self.random = random.Random(seed)
        self.faults: list[Callable[[], Mend]] = [
            self.kill_leader,
            self.kill_transaction_coordinator,
            self.kill_group_coordinator,
            self.kill_controller,
            self.kill_two,
            self.kill_all,
            self.restart,
            self.pause_leader,
            self.pause_controller,
            self.kill_a_client,
            self.cut_from_clients,
            self.cut_from_zookeeper,
            self.cut_from_a_peer,
            self.cut_from_everybody,
        ]
        self._bag: list[Callable[[], Mend]] = []

    def strike(self) -> None:
        """A fault, some seconds, its end, and a calm. Each comes once before one comes again."""
        if not self._bag:
            self._bag = self.random.sample(self.faults, len(self.faults))
        fault = self._bag.pop()
        mend = fault()
        time.sleep(self.random.uniform(*FAULT_S))
        mend()
        try:
            self.cluster.wait_ready(wait_s=READY_S)
        except EnvironmentProblem as problem:
            raise AssertionError(f"after {fault.__name__}: {problem}") from None
        time.sleep(self.random.uniform(*CALM_S))

    def note(self, what: str, exact: str = "") -> None:
        self.notes.note(Type.INFO, Action.FAULT, error=what)
        print(f"{time.strftime('%H:%M:%S')} {what} {exact}", flush=True)

    def leader(self, topic: str, partition: int) -> int:
        """Who leads, or anybody."""
        try:
            with Admin(self.cluster.bootstrap) as admin:
                (described,) = admin.describe_topics([topic])
            found = {one.partition: one.leader for one in described.partitions}.get(partition, -1)
        except (ApiError, OSError):
            found = -1
        return found if found in self.cluster.brokers else self.random.choice(sorted(self.cluster.brokers))

    def controller(self) -> int:
        found = self.cluster.controller()
        return found if found in self.cluster.brokers else 1

    def _kill(self, what: str, *victims: int) -> Mend:
        self.note(f"kill -9 {what}", str(victims))
        for victim in victims:
            self.cluster.brokers[victim].kill()

        def mend() -> None:
            for victim in self.random.sample(victims, len(victims)):
                self.cluster.brokers[victim].start()

        return mend

    def kill_leader(self) -> Mend:
        return self._kill("leader", self.leader("t", self.random.randrange(6)))

    def kill_transaction_coordinator(self) -> Mend:
        partition = partition_of("transactions-librdkafka-1", COORDINATOR_PARTITIONS)
        return self._kill("transaction coordinator", self.leader("__transaction_state", partition))

    def kill_group_coordinator(self) -> Mend:
        partition = partition_of("copiers-in", COORDINATOR_PARTITIONS)
        return self._kill("group coordinator", self.leader("__consumer_offsets", partition))

    def kill_controller(self) -> Mend:
        return self._kill("controller", self.controller())

    def kill_two(self) -> Mend:
        return self._kill("two of three", *self.random.sample(sorted(self.cluster.brokers), 2))

    def kill_all(self) -> Mend:
        return self._kill("all", *sorted(self.cluster.brokers))

    def restart(self) -> Mend:
        victim = self.random.choice(sorted(self.cluster.brokers))
        self.note("stop", str(victim))
        self.cluster.brokers[victim].stop()
        return self.cluster.brokers[victim].start

    def _pause(self, what: str, victim: int) -> Mend:
        self.note(f"SIGSTOP {what}", str(victim))
        self.cluster.brokers[victim].signal(signal.SIGSTOP)
        return lambda: self.cluster.brokers[victim].signal(signal.SIGCONT)

    def pause_leader(self) -> Mend:
        return self._pause("leader", self.leader("t", self.random.randrange(6)))

    def pause_controller(self) -> Mend:
        return self._pause("controller", self.controller())

    def kill_a_client(self) -> Mend:
        self.note("kill -9 client", self.kill_client(self.random))
        return lambda: None

    def _cut(self, what: str, victim: int, *others: str) -> Mend:
        resets = self.random.random() < 0.5
        self.note(f"cut {what}", f"{victim}, {'with resets' if resets else 'silently'}")
        self.field.nodes[victim].cut(*others, reset=resets)
        return self.field.nodes[victim].heal

    def cut_from_clients(self) -> Mend:
        return self._cut("broker from clients", self.leader("t", self.random.randrange(6)), self.clients)

    def cut_from_zookeeper(self) -> Mend:
        return self._cut("broker from ZooKeeper", self.leader("t", self.random.randrange(6)), HERE)

    def cut_from_a_peer(self) -> Mend:
        victim, peer = self.random.sample(sorted(self.cluster.brokers), 2)
        return self._cut("broker from a peer", victim, self.cluster.brokers[peer].host)

    def cut_from_everybody(self) -> Mend:
        victim = self.leader("t", self.random.randrange(6))
        peers = [one.host for id, one in self.cluster.brokers.items() if id != victim]
        return self._cut("broker from everybody", victim, HERE, self.clients, *peers)

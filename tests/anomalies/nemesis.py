"""What is done to the cluster, drawn from a seed: processes die and stand still, links are cut.

Each fault returns how to mend it. Left to others: clients and verdicts (run.py).
"""

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from strandline.base.types import TopicPartition as TP
from strandline.broker.coordinator_partitions import partition_of
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import EnvironmentProblem
from strandline.protocol.errors import ApiError
from strandline.testing.anomalies import Action, Notes, Type
from strandline.zookeeper import documents
from tests.anomalies.client import TOPICS, TRANSACTION_MS
from tests.faults.drill import zookeeper
from tests.faults.places import HERE, Field
from tests.integration.support import until

Mend = Callable[[], None]
INTERNAL = ("__consumer_offsets", "__transaction_state")
COORDINATOR_PARTITIONS = 6
CALM_S = (2.0, 5.0)
FAULT_S = (1.0, 8.0)
READY_S = 60.0
APART_S = 20.0  # until the ISR is without a follower that does not fetch
AHEAD_S = (0.5, 1.5)  # for which the others go on without it


class Victims(Protocol):
    """The clients, as faults see them (run.py)."""

    def kill_one(self, draw: random.Random) -> str:
        """SIGKILL for somebody who will have another life."""
        ...

    def freeze_one(self, draw: random.Random, replaced: bool) -> tuple[str, Mend]:
        """SIGSTOP for somebody with transactions, who has another life at once if `replaced`."""
        ...


def wait_full(cluster: LocalCluster, within_s: float = 90) -> None:
    """Wait until every ISR is full."""
    topics = [*TOPICS, *INTERNAL]

    def full() -> bool:
        try:
            with Admin(cluster.bootstrap) as admin:
                described = admin.describe_topics(topics)
        except (ApiError, OSError):
            return False
        return all(len(p.isr) == len(p.replicas) and p.leader >= 0 for t in described for p in t.partitions)

    until(full, within_s, "every ISR is full", every_s=0.2)


class Nemesis:
    """`strike` does one fault to its end."""

    def __init__(
        self, cluster: LocalCluster, field: Field, clients: str, victims: Victims, notes: Notes, seed: int,
        pace: float = 1.0,
    ) -> None:  # fmt: skip
        """`clients` is the address from which all of them come; with a `pace` below 1 all goes faster."""
        self.cluster, self.field, self.clients, self.notes = cluster, field, clients, notes
        self.victims, self.pace = victims, pace
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
            self.zombie_client,
            self.sleeping_client,
            self.kill_leader_ahead,
            self.only_an_outsider,
            self.lose_a_disk,
            self.cut_from_clients,
            self.cut_from_zookeeper,
            self.cut_from_a_peer,
            self.cut_from_everybody,
        ]
        self._bag: list[Callable[[], Mend]] = []

    def keep(self, names: Sequence[str]) -> None:
        """Nothing but these faults, at first in their order; all if there are none."""
        known = {fault.__name__: fault for fault in self.faults}
        if unknown := [name for name in names if name not in known]:
            raise SystemExit(f"there are no faults {', '.join(unknown)}; there are {', '.join(known)}")
        self.faults = [known[name] for name in names] or self.faults
        self._bag = self.faults[::-1] if names else []

    def strike(self) -> None:
        """A fault, some seconds, its end, and a calm. Each comes once before one comes again."""
        if not self._bag:
            self._bag = self.random.sample(self.faults, len(self.faults))
        fault = self._bag.pop()
        mend = fault()
        time.sleep(self.pace * self.random.uniform(*FAULT_S))
        mend()
        try:
            self.cluster.wait_ready(wait_s=READY_S)
        except EnvironmentProblem as problem:
            raise AssertionError(f"after {fault.__name__}: {problem}") from None
        time.sleep(self.pace * self.random.uniform(*CALM_S))

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
        self.note("kill -9 client", self.victims.kill_one(self.random))
        return lambda: None

    def zombie_client(self) -> Mend:
        """A producer stands still while its next life begins, and goes on as if nothing had happened."""
        name, wake = self.victims.freeze_one(self.random, replaced=True)
        self.note("SIGSTOP client, and another life", name)
        return wake

    def sleeping_client(self) -> Mend:
        """A producer stands still for longer than its transaction may take."""
        name, wake = self.victims.freeze_one(self.random, replaced=False)
        self.note("SIGSTOP client", name)
        time.sleep(TRANSACTION_MS / 1000)
        return wake

    def _apart(self, partition: int, follower: int) -> None:
        """Wait until the follower is in the ISR no more, and the others have gone on without it.

        ZooKeeper is asked: if the follower is the controller, the others do not hear of the new ISR.
        """
        client = zookeeper(self.cluster)
        try:
            until(
                lambda: (
                    follower not in json.loads(client.get(documents.state_path(TP("t", partition)))[0])["isr"]
                ),
                APART_S,
                f"{follower} is not in the ISR of t-{partition} any more",
                every_s=0.2,
            )
        finally:
            client.stop()
            client.close()
        time.sleep(self.random.uniform(*AHEAD_S))

    def kill_leader_ahead(self) -> Mend:
        """A follower cannot fetch, the others go on, and the leader dies: it must not take its place."""
        partition = self.random.randrange(TOPICS["t"])
        leader = self.leader("t", partition)
        follower = self.random.choice([id for id in sorted(self.cluster.brokers) if id != leader])
        self.note("cut broker from peers, then kill -9 leader", f"{follower}, {leader}")
        self.field.nodes[follower].cut(*(b.host for id, b in self.cluster.brokers.items() if id != follower))
        try:
            self._apart(partition, follower)
        finally:
            self.cluster.brokers[leader].kill()
            self.field.nodes[follower].heal()
        return self.cluster.brokers[leader].start

    def only_an_outsider(self) -> Mend:
        """A follower stands still, the others go on and die: it is alone, and must not lead."""
        partition = self.random.randrange(TOPICS["t"])
        leader = self.leader("t", partition)
        outsider = self.random.choice([id for id in sorted(self.cluster.brokers) if id != leader])
        others = [id for id in sorted(self.cluster.brokers) if id != outsider]
        self.note("SIGSTOP broker, then kill -9 the others", f"{outsider}, {others}")
        self.cluster.brokers[outsider].signal(signal.SIGSTOP)
        try:
            self._apart(partition, outsider)
        finally:
            for id in others:
                self.cluster.brokers[id].kill()
            self.cluster.brokers[outsider].signal(signal.SIGCONT)

        def mend() -> None:
            for id in self.random.sample(others, len(others)):
                self.cluster.brokers[id].start()

        return mend

    def lose_a_disk(self) -> Mend:
        """A broker dies and comes back with nothing. Every ISR is full before, so nothing may be lost."""
        wait_full(self.cluster)
        victim = self.cluster.brokers[self.leader("t", self.random.randrange(6))]
        self.note("kill -9 broker, and its disk is lost", str(victim.id))
        victim.kill()
        shutil.rmtree(victim.directory / "data")
        return victim.start

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

"""`python -m tests.anomalies.run --minutes 10 --seed 1`: clients, faults, final reads, verdict. Needs root.

Three brokers and the clients live in network namespaces. In the end everything is healed, what is to be
copied is copied, every transactional id is fenced, all partitions are read from their first record on, and
every reader comes to their ends; then the replicas are compared byte by byte. Exit status 1 if anything was
found, if some kind of client has done less than `enough.py` demands, or met what it did not expect; the
histories are kept then. 2 if there can be no network namespaces here.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka import Producer as StockProducer

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer
from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import EnvironmentProblem
from strandline.protocol.errors import ApiError
from strandline.testing.anomalies import (
    Action,
    HistoryWriter,
    Notes,
    Record,
    Type,
    judge_operations,
    read_history,
)
from tests.anomalies.client import TOPICS
from tests.anomalies.enough import KINDS, behind, done, lacking, traceback_in
from tests.anomalies.nemesis import COORDINATOR_PARTITIONS, Nemesis, wait_full
from tests.anomalies.planted import PLANTED
from tests.anomalies.replicas import wait_same
from tests.anomalies.stuck import blame
from tests.faults.drill import assert_states_are_good, assert_tidy
from tests.faults.places import Field, Node, leave_the_network
from tests.integration.support import assert_no_traceback, revive, until

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = 100  # the number of their namespace
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "unclean.leader.election.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "group.consumer.session.timeout.ms": "45000",
}
WRITERS = ("plain-librdkafka", "plain-once", "transactions-librdkafka", "transactions-strandline")
COPIERS = ("copier-classic", "copier-consumer")
ENOUGH_S = 60.0  # more of load, if some kind of client has not yet done what it is there for
READERS = ("reader-librdkafka", "reader-strandline", "subscriber-classic", "subscriber-consumer")
TWICE = ("transactions-librdkafka", "transactions-strandline", *COPIERS, *READERS[2:])


class Clients:
    """The client processes; who ends too early gets another life."""

    def __init__(self, cluster: LocalCluster, node: Node, folder: Path, seed: int, few: bool) -> None:
        self.cluster, self.node, self.folder, self.seed = cluster, node, folder, seed
        twice = () if few else TWICE
        self.kinds = {
            f"{kind}-{number}": kind for kind in KINDS for number in range(1, 3 if kind in twice else 2)
        }
        self.lives = dict.fromkeys(self.kinds, 0)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.zombies: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> None:
        self.lives[name] += 1
        life = list(self.kinds).index(name) * 1000 + self.lives[name]
        history = self.folder / f"{name}.{self.lives[name]}.history"
        line = ("-W", "ignore", "-m", "tests.anomalies.worker", self.kinds[name], name, str(life))
        with history.with_suffix(".log").open("ab") as log:
            given = (self.cluster.bootstrap, str(history), str(self.seed))
            self.running[name] = subprocess.Popen(
                [*self.node.within, sys.executable, *line, *given],
                stdin=subprocess.DEVNULL, stderr=log, stdout=log, start_new_session=True, cwd=ROOT,
            )  # fmt: skip

    def tend(self) -> None:
        """The next life of all who have ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.start(name)

    def kill_one(self, draw: random.Random) -> str:
        """SIGKILL for somebody who has transactions or is a member of a group."""
        name = draw.choice([name for name, kind in self.kinds.items() if kind in TWICE])
        self.running[name].kill()
        self.running[name].wait(10)
        return name

    def freeze_one(self, draw: random.Random, replaced: bool) -> tuple[str, Callable[[], None]]:
        """SIGSTOP for somebody who has transactions, and how to wake it; if it is to be `replaced`, its next
        life begins at once.
        """
        name = draw.choice([name for name, kind in self.kinds.items() if kind in TWICE[:4]])
        frozen = self.running[name]
        frozen.send_signal(signal.SIGSTOP)
        if replaced:
            self.zombies.append(frozen)
            self.start(name)
        return name, lambda: frozen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Whoever is left."""
        for process in (*self.running.values(), *self.zombies):
            process.kill()
            process.wait(10)

    def stop(self, kinds: tuple[str, ...], within_s: float = 60) -> None:
        names = [name for name, kind in self.kinds.items() if kind in kinds and name in self.running]
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        deadline = time.monotonic() + within_s
        for name in names:
            process = self.running.pop(name)
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def fence(self, kinds: tuple[str, ...]) -> None:
        """Whatever they have left open is aborted."""
        for name, kind in self.kinds.items():
            if kind in kinds and not kind.startswith("plain"):
                options = {
                    "bootstrap.servers": self.cluster.bootstrap,
                    "transactional.id": name,
                    "log_level": 0,
                }
                StockProducer(options).init_transactions(60)


def partitions() -> list[TopicPartition]:
    return [TopicPartition(topic, each) for topic, count in TOPICS.items() for each in range(count)]


def create_topics(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, count, replication_factor=3) for name, count in TOPICS.items()])
        until(
            lambda: all(
                len(one.isr) == 3 for topic in admin.describe_topics(list(TOPICS)) for one in topic.partitions
            ),
            90,
            "the topics are there",
        )


def wait_copied(cluster: LocalCluster, clients: Clients) -> None:
    """Until the groups of the copiers have committed all there is."""
    for source in ("in", "in8"):
        places = [TopicPartition(source, each) for each in range(TOPICS[source])]
        with Consumer(cluster.bootstrap, group=f"copiers-{source}", enable_auto_commit=False) as consumer:
            ends = consumer.end_offsets(places)

            def done(consumer: Consumer = consumer, ends: dict[TopicPartition, int] = ends) -> bool:
                clients.tend()
                committed = consumer.committed(*ends)
                return all(
                    (mark := committed[tp]) is not None and mark.offset >= end for tp, end in ends.items()
                )

            until(done, 120, f"{source} is copied to its end", every_s=0.5)


def read_all(cluster: LocalCluster, folder: Path) -> None:
    """Wait until no transaction is open, then note what a reader of committed records finds."""
    with (
        HistoryWriter(folder / "final.history") as writer,
        Consumer(cluster.bootstrap) as everything,
        Consumer(cluster.bootstrap, isolation_level="read_committed") as committed,
    ):
        places = partitions()
        until(
            lambda: everything.end_offsets(places) == committed.end_offsets(places),
            90,
            "no transaction is open any more",
        )
        notes = Notes(writer, "final")
        notes.note(Type.INVOKE, Action.END)
        ends = everything.end_offsets(places)
        notes.note(Type.OK, Action.END, [Record(*tp, offset=end) for tp, end in ends.items()])
        committed.assign(places)
        for place in places:
            committed.seek(place, 0)
        seen: set[tuple[str, int]] = set()
        deadline = time.monotonic() + 120
        while any(committed.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, "the final read does not come to its end"
            found = [
                Record(one.topic, one.partition, one.offset, int.from_bytes(one.value[:8], "big"))
                for one in committed.poll(200, max_records=10_000)
            ]
            seen |= {(one.topic, one.partition) for one in found}
            notes.note(Type.OK, Action.WHOLE, found)
        empty = [Record(*tp) for tp in places if tuple(tp) not in seen]
        notes.note(Type.OK, Action.EMPTY, empty)


def wait_read(folder: Path) -> None:
    """Until all who only read have come to the ends of all partitions."""
    found: list[str] = []

    def read() -> bool:
        histories = [path for kind in (*READERS, "final") for path in folder.glob(f"{kind}*.history")]
        found[:] = behind(read_history(*histories))
        return not found

    try:
        until(read, 120, "everything is read by everybody", every_s=1)
    except AssertionError as failure:
        raise AssertionError("\n  ".join([str(failure), *found])) from None


def plant(cluster: LocalCluster, name: str) -> None:
    """All brokers have this bug from now on."""
    for broker in cluster.brokers.values():
        patched = (sys.executable, "-W", "ignore", "-m", "tests.anomalies.planted", name)
        broker.within = (*broker.within, *patched)
        broker.environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def strike(nemesis: Nemesis, clients: Clients, arguments: argparse.Namespace) -> None:
    """Faults until the time is over; those that were asked for at least once."""
    nemesis.keep(arguments.faults)
    at_least = len(arguments.faults)
    ends_s = time.monotonic() + arguments.minutes * 60
    time.sleep(min(10.0, arguments.minutes * 30))
    while time.monotonic() < ends_s or at_least > 0:
        nemesis.strike()
        clients.tend()
        at_least -= 1


def wait_enough(clients: Clients, folder: Path) -> None:
    """Until each kind of client has done what it is there for; the verdict tells who has not."""
    deadline = time.monotonic() + ENOUGH_S
    while lacking(done(read_history(*folder.glob("*.history")))) and time.monotonic() < deadline:
        clients.tend()
        time.sleep(1)


def drive(folder: Path, arguments: argparse.Namespace) -> None:
    """Everything up to the verdict."""
    minutes, seed = arguments.minutes, arguments.seed
    field = Field(folder, apart=True)
    cluster = field.cluster(folder / "cluster", 3, SETTINGS)
    clients = Clients(cluster, field.node(CLIENTS), folder, seed, arguments.few)
    if arguments.plant:
        plant(cluster, arguments.plant)
    try:
        (folder / "cluster").mkdir(exist_ok=True)
        cluster.start()
        create_topics(cluster)
        for name in clients.kinds:
            clients.start(name)
        with HistoryWriter(folder / "nemesis.history", {"seed": seed, "minutes": minutes}) as writer:
            notes = Notes(writer, "nemesis")
            nemesis = Nemesis(cluster, field, clients.node.address, clients, notes, seed, arguments.pace)
            strike(nemesis, clients, arguments)
        wait_enough(clients, folder)
        field.heal()
        revive(cluster)
        wait_full(cluster)
        clients.stop(WRITERS)
        clients.fence(WRITERS)
        wait_copied(cluster, clients)
        clients.stop(COPIERS)
        clients.fence(COPIERS)
        read_all(cluster, folder)
        clients.tend()
        wait_read(folder)
        clients.stop(READERS)
        wait_same(cluster, 60)
        assert_states_are_good(cluster)
        assert_no_traceback(cluster)
        cluster.stop()
        assert_tidy(cluster)
    finally:
        clients.kill()
        cluster.kill()
        field.close()
        print("lives:", ", ".join(f"{name} {lives}" for name, lives in clients.lives.items()))


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", metavar="NAME", help="nothing but these, at least once each")
    parser.add_argument("--pace", type=float, default=1, help="how long faults and calms are, 1: seconds")
    parser.add_argument("--plant", choices=PLANTED, help="let all brokers have this bug, which must be found")
    parser.add_argument("--few", action="store_true", help="one client of each kind")
    parser.add_argument("--keep", action="store_true", help="keep histories and logs of a good run, too")
    given = parser.parse_args(words)
    given.faults = given.faults or (list(PLANTED[given.plant].faults) if given.plant else [])
    return given


def judge(folder: Path, arguments: argparse.Namespace, troubles: list[str], begun_s: float) -> bool:
    """Print what was done and what was found; whether all of it is good."""
    operations = read_history(*folder.glob("*.history"))
    verdict = judge_operations(operations)
    counts = done(operations)
    troubles += lacking(counts)
    own: list[str] = []
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        if found := traceback_in(text):
            troubles.append(f"a client met what it did not expect: {log}: {found}")
        by_client, by_broker = blame(text)
        own += by_client
        troubles += by_broker
    took_s = time.monotonic() - begun_s
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes of load, {took_s:.0f} s in all")
    if arguments.plant:
        print(f"planted: {PLANTED[arguments.plant].what}")
    print(f"{verdict.acknowledged / (arguments.minutes * 60):.0f} records/s acknowledged for good")
    for kind, of_kind in counts.items():
        print(f"{kind:24}", ", ".join(f"{count} {what}" for what, count in of_kind.items()))
    for line in own:
        print(f"stuck: {line}")
    print(verdict)
    for trouble in troubles:
        print(f"\nand {trouble}")
    return verdict.good and not troubles


def main() -> int:
    arguments = parsed()
    if trouble := leave_the_network():
        print(trouble, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="strandline-anomalies-"))
    troubles: list[str] = []
    begun_s = time.monotonic()
    try:
        drive(folder, arguments)
    except (AssertionError, EnvironmentProblem, ApiError, KafkaException, OSError) as error:
        troubles.append(f"the cluster: {error}" if str(error) else f"the cluster: {error!r}")
    good = judge(folder, arguments, troubles, begun_s)
    if good and not arguments.keep:
        shutil.rmtree(folder)
    else:
        print(f"\nhistories and logs: {folder}")
    print("HELD" if good else "BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Members of a group with a sticky assignor, of every client that has one: the bundled client, librdkafka,
kafka-python, aiokafka and Java's. Each says what it has; a member that has just come or gone moves little.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import Consumer as ConfluentConsumer
from drive_aiokafka import AioKafkaMember
from drive_confluent import ConfluentMember
from drive_kafka_python import KafkaPythonMember
from drive_strandline import StrandlineMember
from driving import until
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from probing import java

from strandline.client.loop_thread import LoopThread
from strandline.client.sync import Consumer
from tests.patience import HANG_S

PARTITIONS = 6
HEARTBEAT_MS = 500
WAIT_S = 60
JAVAS = {
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
KAFKA_PYTHONS = {"sticky": StickyPartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
MEMBER = Path(__file__).parent / "probes" / "Member.java"


@contextmanager
def bundled(bootstrap: str, topic: str, group: str, strategy: str) -> Iterator[StrandlineMember]:
    options: dict[str, Any] = {"topics": [topic], "group": group, "heartbeat_interval_ms": HEARTBEAT_MS}
    with Consumer(bootstrap, partition_assignment_strategy=(strategy,), **options) as consumer:
        yield StrandlineMember(consumer)


@contextmanager
def librdkafka(bootstrap: str, topic: str, group: str, strategy: str) -> Iterator[ConfluentMember]:
    options = {"group.id": group, "partition.assignment.strategy": strategy, "log_level": 0}
    heart = {"heartbeat.interval.ms": HEARTBEAT_MS}
    with closing(ConfluentConsumer({"bootstrap.servers": bootstrap, **options, **heart})) as consumer:
        consumer.subscribe([topic])
        yield ConfluentMember(consumer)


@contextmanager
def kafka_python(bootstrap: str, topic: str, group: str, strategy: str) -> Iterator[KafkaPythonMember]:
    options = {"group_id": group, "partition_assignment_strategy": [KAFKA_PYTHONS[strategy]]}
    heart = {"heartbeat_interval_ms": HEARTBEAT_MS}
    with closing(KafkaConsumer(bootstrap_servers=bootstrap.split(","), **options, **heart)) as consumer:
        consumer.subscribe([topic])
        yield KafkaPythonMember(consumer)


@contextmanager
def aiokafka(bootstrap: str, topic: str, group: str, strategy: str) -> Iterator[AioKafkaMember]:
    assert strategy == "sticky", "aiokafka has no cooperative one"
    thread = LoopThread("aiokafka sticky")
    options = {"group_id": group, "partition_assignment_strategy": (AioSticky,)}
    heart = {"heartbeat_interval_ms": HEARTBEAT_MS}
    consumer = thread.call(lambda: AIOKafkaConsumer(bootstrap_servers=bootstrap, **options, **heart))
    try:
        thread.run(consumer.start)  # with a topic it would wait here for an assignment, and for the others
        thread.call(lambda: consumer.subscribe([topic]))
        yield AioKafkaMember(thread, consumer)
    finally:
        thread.run(consumer.stop)
        thread.close()


class JavaMember:
    """Java's consumer in a process of its own, which tells what it has."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.has = process, set[int]()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            _, _, told = line.strip().partition(" ")
            self.has = {int(one) for one in told.split(",") if one}

    def poll(self) -> list[Any]:
        assert self.process.poll() is None, "the Java member has ended"
        return []

    def assignment(self) -> set[int]:
        return self.has


@contextmanager
def javas(bootstrap: str, topic: str, group: str, strategy: str) -> Iterator[JavaMember]:
    line = [*java(MEMBER), bootstrap, topic, group, JAVAS[strategy]]
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield JavaMember(process)
        process.stdin.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait(HANG_S)
        process.stdout.close()


MEMBERS: dict[str, Callable[..., Any]] = {
    "bundled": bundled,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": javas,
}


class Party:
    """A group; members come and go, and each change is settled before the next one."""

    def __init__(self, bootstrap: str, topic: str, group: str, strategy: str, stack: ExitStack) -> None:
        self.told = (bootstrap, topic, group, strategy)
        self.stack = stack
        self.members: dict[str, Any] = {}
        self._leaving: dict[str, ExitStack] = {}

    def join(self, kind: str) -> None:
        """The first one leads the group."""
        name = f"{kind} {len(self.members) + 1}"
        self._leaving[name] = ExitStack()
        self.stack.enter_context(self._leaving[name])
        self.members[name] = self._leaving[name].enter_context(MEMBERS[kind](*self.told))

    def leave(self, place: int) -> str:
        name = list(self.members)[place]
        del self.members[name]
        self._leaving.pop(name).close()
        return name

    def settle(self, what: str) -> dict[str, set[int]]:
        """Wait until every partition has one owner and all have about as many; who has what then."""
        found: dict[str, set[int]] = {}

        def is_fair() -> bool:
            for member in self.members.values():
                member.poll()
            found.clear()
            found.update({name: member.assignment() for name, member in self.members.items()})
            sizes = sorted(map(len, found.values()))
            every = set().union(*found.values())
            return sum(sizes) == len(every) == PARTITIONS and sizes[-1] - sizes[0] <= 1

        try:
            until(is_fair, what, WAIT_S)
        except AssertionError as late:
            raise AssertionError(f"{late}; they have {found}") from None
        return found

"""Waiting for what must come, looking at a cluster from outside, and speaking to a broker byte by byte."""

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from strandline.cli.demo.verdict import compare_replicas
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess, machine_is_slower
from strandline.protocol.connection import ClientEnd
from strandline.protocol.errors import ApiError
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.records import BatchBuilder
from strandline.testing.history import judge
from strandline.testing.waiting import until as until
from strandline.testing.workload import Workload
from tests import command_line
from tests.patience import HANG_S

DURABLE = {"default.replication.factor": "3", "min.insync.replicas": "2"}
UNCLOCKED = {  # no file appears in a log directory just because time has passed
    "replica.high.watermark.checkpoint.interval.ms": "3600000",
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "log.flush.start.offset.checkpoint.interval.ms": "3600000",
}
PRODUCE_VERSION = 9


class View:
    """What clients are told about one topic."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.admin = Admin(cluster.bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.admin.close()

    def partitions(self) -> list[Any]:
        """The topic's partitions, by number; none while nobody answers."""
        try:
            (described,) = self.admin.describe_topics([self.topic])
        except (ApiError, OSError):
            return []
        return sorted(described.partitions)

    def leaders(self) -> list[int]:
        return [partition.leader for partition in self.partitions()]

    def wait_full_isr(self, within_s: float = 30.0) -> float:
        """Wait until every replica is in its ISR and each partition is led; how long that took."""
        began = time.monotonic()

        def full() -> bool:
            partitions = self.partitions()
            return bool(partitions) and all(
                len(p.isr) == len(p.replicas) and p.leader >= 0 for p in partitions
            )

        try:
            until(full, within_s, f"every ISR of {self.topic} is full")
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {self.partitions()}") from None
        return time.monotonic() - began

    def wait_led_by(self, leader: int, isr: Iterable[int], within_s: float = 60.0) -> None:
        """Wait until the topic's only partition has this leader and this ISR."""
        wanted = [(leader, sorted(isr))]
        until(
            lambda: [(p.leader, sorted(p.isr)) for p in self.partitions()] == wanted,
            within_s,
            f"{self.topic} is led by {leader} with ISR {wanted[0][1]}",
        )

    def wait_led_without(self, broker: int, within_s: float = HANG_S) -> None:
        """Wait until each partition is led, and none by `broker`."""
        until(
            lambda: (leaders := self.leaders()) and broker not in leaders and min(leaders) >= 0,
            within_s,
            f"{self.topic} is led by others than {broker}",
        )


def create(cluster: LocalCluster, name: str, leaders: Iterable[int]) -> View:
    """A topic with one partition for each of `leaders`, its preferred leader, held by all brokers."""
    everybody = sorted(cluster.brokers)
    assignments = {
        number: [leader, *(b for b in everybody if b != leader)] for number, leader in enumerate(leaders)
    }
    view = View(cluster, name)
    view.admin.create_topics([NewTopic(name, assignments=assignments)])
    until(
        lambda: view.leaders() == [a[0] for a in assignments.values()], HANG_S, f"{name} is led as assigned"
    )
    view.wait_full_isr()
    return view


def wait_alike(
    cluster: LocalCluster,
    topic: str,
    partitions: int,
    within_s: float = HANG_S,
    brokers: Iterable[int] | None = None,
) -> None:
    """Wait until the segment files of all replicas (on all brokers, if not said) are alike, byte for byte."""
    data = [cluster.brokers[id].directory / "data" for id in brokers or cluster.brokers]
    until(
        lambda: not compare_replicas(data, topic, partitions), within_s, f"the replicas of {topic} are alike"
    )


def revive(cluster: LocalCluster) -> None:
    """Start every broker that does not run, and wait until all know each other."""
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()
    cluster.wait_ready()


def incarnation(broker: BrokerProcess) -> int:
    """How often the broker has started or begun a new session, as its disk remembers."""
    remembered: int = json.loads((broker.directory / "data" / "incarnation.json").read_text())["last_k"]
    return remembered


def assert_no_traceback(cluster: LocalCluster) -> None:
    """No broker has logged what it did not expect."""
    for broker in cluster.brokers.values():
        text = broker.log.read_text(errors="replace")
        assert "Traceback" not in text, f"{broker.log}: {text[text.index('Traceback') - 500 :][:3000]}"


def assert_kept(load: Workload) -> None:
    """Everything acknowledged is where it was promised, once; nobody was refused anything."""
    assert not load.refused, load.refused[:3]
    assert not load.troubles, load.troubles[:3]
    report = judge(load.finish())
    assert report.good, report


def strandline(
    *arguments: str, environment: Mapping[str, str] | None = None, within_s: float = 30.0
) -> "subprocess.CompletedProcess[str]":
    """Run the command line to its end. It may take longer where the machine is slower."""
    given = {**os.environ, **(environment or {})}
    return command_line.run([*arguments], given, within_s * machine_is_slower())


class Wire:
    """A connection on which anything can be said."""

    def __init__(self, port: int, timeout_s: float = 10.0, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.end = ClientEnd("integration")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, request: object, version: int) -> None:
        self.say(b"".join(bytes(part) for part in self.end.send(request, version)))

    def receive(self) -> Any:
        """The next answer. ConnectionError if there is none."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self.end.receive(self._exactly(size))[1]

    def ask(self, request: object, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def is_closed(self) -> bool:
        """Wait until the broker has closed the connection; False if it says something or just keeps it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def produce_request(
    topic: str, partition: int, *values: bytes, acks: int = -1, timeout_ms: int = 5_000
) -> ProduceRequest:
    """A produce request with one batch, without producer id."""
    builder = BatchBuilder()
    for value in values:
        builder.append(int(time.time() * 1000), None, value, ())
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=builder.build())]
            )
        ],
    )


def produced(response: Any) -> tuple[int, int]:
    """Error code and base offset of the one partition in a produce response."""
    ((partition,),) = (topic.partition_responses for topic in response.responses)
    return partition.error_code, partition.base_offset


def tree(directory: Path) -> set[str]:
    """Every path below `directory`."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}

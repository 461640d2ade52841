"""Failover with many partitions: a broker dies, the controller dies; how long until all is as it should be.

    python -m bench.failover [--partitions 1000 10000] [--system strandline kafka-4.3] [--only controller]

Three brokers, one topic, replication factor 3. The clock starts at SIGKILL and is stopped by what the living
answer over a socket: every partition has a living leader in Metadata, each of them has acknowledged a record
(acks=all), the next topic could be created. Prints a line per accident, with what the logs say about it.
"""

import argparse
import json
import signal
import socket
import struct
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from strandline.local.owned import temporary_prefix
from strandline.protocol.connection import ClientEnd
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.records import BatchBuilder

from .system import System
from .systems import SYSTEMS

METADATA_VERSION, PRODUCE_VERSION, CREATE_VERSION = 9, 9, 5
DESCRIBE_QUORUM = 55
WITHIN_S = 300.0
EVERY_S = 0.02
TOPIC = "many"


class Wire:
    """One connection to one broker; OSError when it does not answer."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.end = ClientEnd("bench")

    def ask(self, request: object, version: int) -> Any:
        self.socket.sendall(b"".join(bytes(part) for part in self.end.send(request, version)))
        return self.end.receive(self._frame())[1]

    def ask_bytes(self, request: bytes) -> bytes:
        """For what we have no messages for: a whole request, its answer from the correlation id on."""
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        return self._frame()

    def close(self) -> None:
        self.socket.close()

    def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(min(size - len(data), 1 << 20))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)


class Cluster:
    """What is asked of a system from outside."""

    def __init__(self, system: System) -> None:
        self.system = system

    def metadata(self, broker: int, *topics: str) -> Any:
        return self._once(
            broker,
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
            ),
            METADATA_VERSION,
        )

    def controller(self) -> int:
        """The broker that is the controller, or leads the quorum of controllers: Metadata names any there."""
        for broker, (port, _) in self.system.ports.items():
            with suppress(OSError):
                if self.system.uses_zookeeper:
                    return int(self.metadata(broker).controller_id)
                return quorum_leader(port)
        raise ConnectionError("no broker answers")

    def leaders(self, broker: int) -> dict[int, int]:
        """The leader of each partition, as `broker` tells it; -1 for none."""
        (topic,) = self.metadata(broker, TOPIC).topics
        return {p.partition_index: p.leader_id for p in topic.partitions}

    def led(self, broker: int, count: int, dead: int | None = None) -> bool:
        leaders = self.leaders(broker)
        return len(leaders) == count and all(leader not in (-1, dead) for leader in leaders.values())

    def create(self, name: str, partitions: int, replicas: int) -> bool:
        """Ask whoever is the controller now; False if that did not work."""
        for broker in self.system.ports:
            try:
                target = self.metadata(broker).controller_id
                answer = self._once(
                    target,
                    CreateTopicsRequest(
                        topics=[
                            CreatableTopic(
                                name=name,
                                num_partitions=partitions,
                                replication_factor=replicas,
                                assignments=[],
                                configs=[],
                            )
                        ],
                        timeout_ms=120_000,
                    ),
                    CREATE_VERSION,
                )
            except (OSError, KeyError):
                continue
            return bool(answer.topics[0].error_code in (0, 36))
        return False

    def produce_everywhere(self, broker: int, missing: set[int]) -> set[int]:
        """One record to each of `missing`, a request per leader; those that were not acknowledged."""
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for partition, leader in self.leaders(broker).items():
            if partition in missing:
                by_leader[leader].append(partition)
        left = set(missing)
        for leader, partitions in by_leader.items():
            try:
                answer = self._once(leader, _records(partitions), PRODUCE_VERSION)
            except (OSError, KeyError):
                continue
            for one in answer.responses[0].partition_responses:
                if one.error_code == 0:
                    left.discard(one.index)
        return left

    def _once(self, broker: int, request: object, version: int) -> Any:
        wire = Wire(self.system.ports[broker][0], 130)
        try:
            return wire.ask(request, version)
        finally:
            wire.close()


def quorum_leader(port: int) -> int:
    """Who leads a KRaft quorum, by DescribeQuorum, which we do not speak; -1 if nobody does."""
    topic = b"__cluster_metadata"
    partitions = struct.pack(">Bib", 2, 0, 0)
    body = struct.pack(">BB", 2, len(topic) + 1) + topic + partitions + bytes(2)
    header = struct.pack(">hhihb", DESCRIBE_QUORUM, 0, 1, -1, 0)
    wire = Wire(port)
    try:
        answer = wire.ask_bytes(header + body)
    finally:
        wire.close()
    # behind the correlation id: tags, error, one topic with its name, one partition with index and error
    at = 4 + 1 + 2 + 1 + 1 + len(topic) + 1 + 4 + 2
    return int(struct.unpack_from(">i", answer, at)[0])


def _records(partitions: list[int]) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"after the accident", ())
    batch = builder.build()
    data = [PartitionProduceData(index=p, records=batch) for p in partitions]
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )


def until(condition: Callable[[], bool]) -> float:
    """Wait for it; the moment at which it was so."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            if condition():
                return time.monotonic()
        except (OSError, KeyError):
            pass
        time.sleep(EVERY_S)
    raise TimeoutError(f"not within {WITHIN_S:g} s")


def accident(cluster: Cluster, victim: int, partitions: int) -> dict[str, float]:
    """Kill `victim`: seconds until a topic was created, all were led, all took a record."""
    system = cluster.system
    living = [broker for broker in system.ports if broker != victim]
    marks = {broker: _size(system, broker) for broker in living}
    system.signal(victim, signal.SIGKILL)
    began = time.monotonic()
    name = f"next-{victim}-{int(began)}"
    created = until(lambda: cluster.create(name, 1, 2)) - began
    led = max(until(lambda b=broker: cluster.led(b, partitions, victim)) for broker in living) - began  # type: ignore[misc]
    missing = set(range(partitions))

    def produced() -> bool:
        nonlocal missing
        missing = cluster.produce_everywhere(living[0], missing)
        return not missing

    taken = until(produced) - began
    found = {"created_s": round(created, 2), "led_s": round(led, 2), "produced_s": round(taken, 2)}
    return {**found, **_told(system, marks)}


def revive(cluster: Cluster, victim: int, partitions: int) -> float:
    """Start it again: seconds until every ISR is full."""
    began = time.monotonic()
    cluster.system.start_broker(victim)

    def full() -> bool:
        (topic,) = cluster.metadata(victim, TOPIC).topics
        return len(topic.partitions) == partitions and all(len(p.isr_nodes) == 3 for p in topic.partitions)

    return until(full) - began


def _size(system: System, broker: int) -> int:
    return (system.directory / f"broker-{broker}" / "broker.log").stat().st_size


def _told(system: System, marks: dict[int, int]) -> dict[str, float]:
    """Plans and LeaderAndIsr requests of more than one partition, as our brokers' logs count them."""
    counts: dict[str, float] = {}
    for broker, mark in marks.items():
        text = (system.directory / f"broker-{broker}" / "broker.log").read_bytes()[mark:].decode()
        for line in text.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "partition_states_changed" and event["partitions"] > 1:
                counts["plans"] = counts.get("plans", 0) + 1
            if event.get("event") == "leader_and_isr_applied" and event["partitions"] > 1:
                counts[f"told_{broker}"] = counts.get(f"told_{broker}", 0) + 1
                counts[f"told_{broker}_ms"] = max(counts.get(f"told_{broker}_ms", 0), event["took_ms"])
    return counts


def run(kind: type[System], partitions: int, only: list[str], directory: Path) -> None:
    """One cluster, one topic, an accident or two."""
    with kind(directory, 3) as system:
        cluster = Cluster(system)
        began = time.monotonic()
        assert cluster.create(TOPIC, partitions, 3), "the topic is created"
        answered = time.monotonic() - began
        ready = max(until(lambda b=b: cluster.led(b, partitions)) for b in system.ports) - began  # type: ignore[misc]
        full = until(lambda: not cluster.produce_everywhere(1, set(range(partitions)))) - began
        say(system, partitions, "create", {"answered_s": answered, "led_s": ready, "produced_s": full})
        before, at = system.cpu_s(), time.monotonic()
        time.sleep(5)
        idle = (system.cpu_s() - before) / (time.monotonic() - at)
        say(system, partitions, "idle", {"cores": idle, "rss_mb": system.rss_anon_mb()})
        for role in only:
            controller = cluster.controller()
            victim = controller if role == "controller" else next(b for b in system.ports if b != controller)
            say(system, partitions, f"{role} killed", accident(cluster, victim, partitions))
            say(system, partitions, f"{role} back", {"full_s": revive(cluster, victim, partitions)})


def say(system: System, partitions: int, what: str, found: dict[str, float]) -> None:
    figures = "  ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"{system.name:11} {partitions:>6} partitions  {what:18} {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000])
    parser.add_argument("--system", nargs="+", choices=sorted(SYSTEMS), default=["strandline"])
    parser.add_argument("--only", nargs="+", default=["broker", "controller"])
    parser.add_argument("--keep", type=Path, help="directory for data and logs, kept afterwards")
    given = parser.parse_args()
    for name in given.system:
        for partitions in given.partitions:
            with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as scratch:
                folder = (given.keep or Path(scratch)) / f"{name}-{partitions}"
                folder.mkdir(parents=True, exist_ok=True)
                run(SYSTEMS[name], partitions, given.only, folder)


if __name__ == "__main__":
    main()

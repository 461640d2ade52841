"""What drills look at: what brokers have said, what ZooKeeper has of partitions, the records of a topic.

Left to others: what a topic's clients are told (integration/support.py), the verdict (drill.py).
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from strandline.base.types import TopicPartition
from strandline.client.sync import Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess


def last_said(log: Path, event: str) -> dict[str, Any]:
    """The last line in which a broker told of this event."""
    told = [json.loads(line) for line in log.read_text().splitlines() if f'"{event}"' in line]
    return [each for each in told if each["event"] == event][-1]


def told_of(broker: BrokerProcess, event: str, since: int = 0) -> list[dict[str, Any]]:
    """The lines of a broker's log that tell of this event, from a position of the file on."""
    lines = broker.log.read_bytes()[since:].decode().splitlines()
    return [told for line in lines if f'"{event}"' in line and (told := json.loads(line))["event"] == event]


def documents(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    """The states of the partitions, as ZooKeeper has them."""
    with session(cluster) as client:
        return [json.loads(data) for data, _ in _states(client, topic)]


def states(cluster: LocalCluster, topic: str) -> list[tuple[int, int, list[int]]]:
    """Of the same: leader, epoch and ISR of each partition."""
    found = documents(cluster, topic)
    return [(state["leader"], state["leader_epoch"], state["isr"]) for state in found]


def versions(cluster: LocalCluster, topic: str) -> int:
    """How often the states of the partitions have been written, together."""
    with session(cluster) as client:
        return sum(stat.version for _, stat in _states(client, topic))


def _states(client: KazooClient, topic: str) -> list[tuple[bytes, ZnodeStat]]:
    path = f"/brokers/topics/{topic}/partitions"
    return [client.get(f"{path}/{number}/state") for number in sorted(client.get_children(path))]


def controller_of(cluster: LocalCluster) -> tuple[int, int]:
    """The controller, and its epoch, as ZooKeeper has them."""
    with session(cluster) as client:
        return json.loads(client.get("/controller")[0])["brokerid"], int(client.get("/controller_epoch")[0])


@contextmanager
def session(cluster: LocalCluster) -> Iterator[KazooClient]:
    """A session at the cluster's ZooKeeper, while the context lasts."""
    client = KazooClient(hosts=cluster.zookeeper, timeout=10)
    client.start(20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def send(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    """Send them to the first partition, and wait until they are acknowledged."""
    with Producer(cluster.bootstrap) as producer:
        for sent in [producer.send(topic, value, partition=0) for value in values]:
            sent.result(30)


def read(cluster: LocalCluster, topic: str) -> list[bytes]:
    """The values in the first partition."""
    where = TopicPartition(topic, 0)
    found: list[bytes] = []
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        deadline = time.monotonic() + 30
        while consumer.position(where) < end and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(300)]
    return found

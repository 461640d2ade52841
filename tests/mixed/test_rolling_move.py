"""The move: a cluster of Apache Kafka 3.9 becomes one of ours, broker by broker, under load, and back."""

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.status import picture
from strandline.client.results import CommittedOffset
from strandline.client.sync import Admin, Consumer, Producer
from strandline.protocol.errors import UnknownTopicOrPartition
from strandline.testing.history import judge
from strandline.testing.verify.places.kafka import KafkaPlace, KafkaProcess
from strandline.testing.waiting import until
from strandline.testing.workload import Workload
from tests.mixed.test_mixed_cluster import place

TOPIC, PAID = "moved", "paid"
CONFIGS = {"retention.ms": "86400000", "min.insync.replicas": "2"}
WHOLE_S = 60.0


def is_whole(cluster: KafkaPlace) -> bool:
    """A broker of Kafka that has just started may not know any topic yet."""
    with suppress(UnknownTopicOrPartition), Admin(cluster.bootstrap) as admin:
        topics = admin.describe_topics([TOPIC, PAID])
        return all(len(one.isr) == 3 for topic in topics for one in topic.partitions)
    return False


def kafkas(cluster: KafkaPlace) -> list[int]:
    """The brokers of Apache Kafka, as `strandline status` tells them."""
    with Admin(cluster.bootstrap) as admin:
        return sorted(one["node_id"] for one in picture(admin)["brokers"] if one["kafka"])


class Step:
    """A broker that has become one of the other kind, and how long a partition was without a receipt."""

    def __init__(self, broker: int, kind: str, began_s: float, ended_s: float) -> None:
        self.broker, self.kind, self.began_s, self.ended_s = broker, kind, began_s, ended_s

    def gap_s(self, load: Workload) -> float:
        receipts: dict[TopicPartition, list[float]] = {}
        for send in load.history.acknowledgements:
            if self.began_s <= send.settled_s <= self.ended_s:
                receipts.setdefault(send.partition, []).append(send.settled_s)
        return max(after - before for times in receipts.values() for before, after in pairwise(times))


def move(
    cluster: KafkaPlace, load: Workload, payer: Producer, end: Callable[[KafkaPlace, int], None]
) -> list[Step]:
    """Every broker in turn ends, becomes one of the other kind on its directories, and is in sync again."""
    steps = []
    for id in cluster.ids:
        began_s = time.monotonic()
        end(cluster, id)
        cluster.turn(id)
        cluster.launch(id)
        until(lambda: is_whole(cluster), WHOLE_S, f"every ISR is whole with broker {id}", every_s=0.2)
        load.wait_acknowledged_everywhere()
        pay(payer)
        kind = "Kafka" if isinstance(cluster.cluster.brokers[id], KafkaProcess) else "Strandline"
        steps.append(Step(id, kind, began_s, time.monotonic()))
    return steps


def pay(payer: Producer) -> None:
    """A transaction that counts, and one that does not."""
    with payer.transaction():
        payer.send(PAID, b"good")
        payer.send_offsets({TopicPartition(TOPIC, 0): CommittedOffset(7)}, "accounts")
    payer.begin()
    payer.send(PAID, b"bad")
    payer.flush()
    payer.abort()


@pytest.mark.parametrize(
    "end",
    [KafkaPlace.stop, pytest.param(KafkaPlace.kill, marks=pytest.mark.long)],
    ids=["in order", "by kills"],
)
def test_a_cluster_moves_to_us_and_back(end: Callable[[KafkaPlace, int], None], tmp_path: Path) -> None:
    """Nothing acknowledged is lost, twice there or out of order, and writes go on. What was paid,
    committed by a group and set for a topic comes along, there and back. A broker that was killed leaves no
    marker that all is on its disk: it joins every ISR anew.
    """
    cluster = place(tmp_path, "KKK")
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=3, replication_factor=3, configs=CONFIGS)
            admin.create_topic(PAID, partitions=1, replication_factor=3)
        with (
            Workload(cluster.bootstrap, TOPIC, 3) as load,
            Producer(cluster.bootstrap, transactional_id="payer") as payer,
        ):
            payer.init_transactions()
            load.wait_acknowledged_everywhere()
            assert kafkas(cluster) == [1, 2, 3]
            steps = move(cluster, load, payer, end)
            assert kafkas(cluster) == []
            steps += move(cluster, load, payer, end)
        assert [step.kind for step in steps] == ["Strandline"] * 3 + ["Kafka"] * 3
        for step in steps:
            took_s = step.ended_s - step.began_s
            print(f"broker {step.broker} is {step.kind}: {took_s:.1f} s, gap {step.gap_s(load):.2f} s")
        verdict = judge(load.finish())
        assert verdict.good, verdict
        check_the_rest(cluster, len(steps))
    finally:
        cluster.close()


def check_the_rest(cluster: KafkaPlace, paid: int) -> None:
    with Admin(cluster.bootstrap) as admin:
        configs = {one.name: one.value for one in admin.describe_configs(topic=TOPIC)}
        assert CONFIGS.items() <= configs.items()
        offsets = admin.list_group_offsets("accounts")
        assert offsets[TopicPartition(TOPIC, 0)] == CommittedOffset(7)
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(cluster.bootstrap, group_id=None, **options) as consumer:
        consumer.assign([TopicPartition(PAID, 0)])
        found: list[bytes | None] = []
        until(lambda: len(read(consumer, found)) >= paid, 30, "what was paid is read")
        assert found == [b"good"] * paid


def read(consumer: Consumer, found: list[bytes | None]) -> list[bytes | None]:
    found += [record.value for record in consumer.poll(200)]
    return found

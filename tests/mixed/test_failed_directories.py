"""A log directory of a broker fails under a controller of the other kind: others lead what lies there."""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.documents import state_path
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars

CONTROLLER, VICTIM = 1, 2
TOPICS, PARTITIONS = ("spread", "apart", "beside", "further"), 3
ALL = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
"""An odd number of each: the directories take turns, so each has other partitions of each topic."""
WITHIN_S = 60.0
SOON = {
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


def states(znodes: Znodes) -> list[tuple[int, list[int]]]:
    """Leader and ISR of each partition."""
    found = [znodes.document(state_path(tp)) for tp in ALL]
    return [(state["leader"], sorted(state["isr"])) for state in found]


def write_everywhere(there: KafkaPlace, value: bytes) -> None:
    with Producer(there.bootstrap) as producer:
        for tp in ALL:
            producer.send(tp.topic, value, partition=tp.partition)
        producer.flush()


@pytest.mark.long
@pytest.mark.parametrize("ours", [CONTROLLER, VICTIM], ids=["Kafka's directory", "our directory"])
def test_others_lead_what_lies_in_a_failed_directory(ours: int, tmp_path: Path) -> None:
    """What lies in the other one it goes on to lead. A file stands where the directory was."""
    there = KafkaPlace(tmp_path, 2, SETTINGS | SOON, jars(), frozenset({ours}), CONTROLLER)
    good, failed = (there.cluster.brokers[VICTIM].directory / name for name in ("data", "more"))
    for one in (there.of_ours[VICTIM], there.of_kafka[VICTIM]):
        one.settings["log.dirs"] = f"{good},{failed}"
    try:
        there.start()
        with Admin(there.cluster.brokers[CONTROLLER].address) as admin:
            wanted = {number: [VICTIM, CONTROLLER] for number in range(PARTITIONS)}
            for topic in TOPICS:
                admin.create_topics([NewTopic(topic, assignments=wanted)])
        with Znodes(there.cluster.zookeeper) as znodes:
            assert znodes.controller() == CONTROLLER
            whole = [(VICTIM, [1, 2])] * len(ALL)
            until(lambda: states(znodes) == whole, WITHIN_S, "broker 2 leads all")
            write_everywhere(there, b"before")
            lost = {tp for tp in ALL if (failed / str(tp)).exists()}
            assert lost and len(lost) < len(ALL)
            failed.rename(failed.with_name("away"))
            failed.write_text("no directory")
            left = [(CONTROLLER, [CONTROLLER]) if tp in lost else whole[0] for tp in ALL]
            until(lambda: states(znodes) == left, WITHIN_S, "broker 1 leads what was there")
            write_everywhere(there, b"after")
            there.stop(VICTIM)
            failed.unlink()
            failed.with_name("away").rename(failed)
            there.launch(VICTIM)
            until(lambda: all(isr == [1, 2] for _, isr in states(znodes)), WITHIN_S, "all are in sync again")
    finally:
        there.close()

"""The way back from ours to Kafka, where nobody else holds what a broker holds."""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Consumer, Producer
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.documents import state_path
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_earlier_kafka import jars as earlier
from tests.mixed.test_mixed_cluster import jars

FIRST, SECOND = 1, 2
WITHIN_S = 60.0
ALONE = TopicPartition("alone", 0)


def written_in(producer: Producer, znodes: Znodes, value: str) -> int:
    """Writes a record. The leader epoch afterwards."""
    producer.send("alone", value.encode(), partition=0)
    producer.flush()
    epoch: int = znodes.document(state_path(ALONE))["leader_epoch"]
    return epoch


def test_a_replica_that_is_the_only_one_goes_to_kafka_and_comes_back(tmp_path: Path) -> None:
    """The controller stays ours. The state told in which start of ours its leader was elected: what that
    says is void once the leader is Kafka's, else each look would take it for one that has restarted.
    """
    there = KafkaPlace(tmp_path, 2, SETTINGS, jars(), frozenset({FIRST, SECOND}), FIRST)
    try:
        there.start()
        with Admin(there.cluster.brokers[FIRST].address) as admin:
            admin.create_topics([NewTopic("alone", assignments={0: [SECOND]})])
        with Znodes(there.cluster.zookeeper) as znodes:
            assert znodes.controller() == FIRST
            for kind in ("Kafka's", "ours", "Kafka's again"):
                there.stop(SECOND)
                there.turn(SECOND)
                there.launch(SECOND)
                with Producer(there.bootstrap) as producer:
                    epochs = [written_in(producer, znodes, kind) for _ in range(2)]
                assert epochs[0] == epochs[1], f"broker 2, {kind}, is not elected again and again"
        with Consumer(there.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
            consumer.assign([ALONE])
            read: list[bytes | None] = []
            while len(read) < 6:
                read += [record.value for record in consumer.poll(2_000)]
        assert read[::2] == [b"Kafka's", b"ours", b"Kafka's again"]
    finally:
        there.close()


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.5.2"])
def test_several_directories_go_back_to_an_earlier_kafka(version: str, tmp_path: Path) -> None:
    """It starts only if all of them say the same of their owner: the id of each stands elsewhere."""
    there = KafkaPlace(tmp_path, 2, SETTINGS, earlier(version), frozenset({FIRST}), FIRST, jars())
    for one in (there.of_ours[SECOND], there.of_kafka[SECOND]):
        one.settings["log.dirs"] = f"{one.directory}/data,{one.directory}/more"
    try:
        there.start()
        with Admin(there.cluster.brokers[FIRST].address) as admin:
            wanted = {number: [SECOND, FIRST] for number in range(4)}
            admin.create_topics([NewTopic("spread", assignments=wanted)])
        with Znodes(there.cluster.zookeeper) as znodes:

            def is_back() -> bool:
                return znodes.registered(SECOND) and all(len(znodes.isr("spread", n)) == 2 for n in wanted)

            for kind in ("ours", "Kafka's"):
                there.stop(SECOND)
                there.turn(SECOND)
                there.launch(SECOND)
                until(is_back, WITHIN_S, f"broker 2 is {kind}, and in sync")
                assert there.cluster.brokers[SECOND].alive
    finally:
        there.close()

"""A broker of Kafka is killed: for all that ZooKeeper says it is there until its session ends."""

import time
from pathlib import Path

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.documents import state_path
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars
from tests.patience import HANG_S

KAFKAS, OURS = 1, 2
SESSION_S = 60


def test_a_controller_of_ours_does_not_wait_for_it_nor_have_it_lead(tmp_path: Path) -> None:
    times = {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}
    there = KafkaPlace(tmp_path, 2, SETTINGS | times, jars(), frozenset({OURS}), OURS)
    there.start()
    try:
        ours = there.cluster.brokers[OURS]
        with Admin(ours.address) as admin, Znodes(there.cluster.zookeeper) as znodes:
            admin.create_topics([NewTopic("before", assignments={0: [KAFKAS, OURS]})])
            there.kill(KAFKAS)
            until(lambda: "broker_out_of_reach" in ours.log.read_text(), HANG_S, "ours has noticed")
            began = time.monotonic()
            admin.create_topics([NewTopic("after", assignments={0: [KAFKAS, OURS]})])
            took_s = time.monotonic() - began
            state = znodes.document(state_path(TopicPartition("after", 0)))
            assert znodes.registered(KAFKAS), "this story was not told: its session has ended"
            assert took_s < SESSION_S / 2
            assert state["leader"] == OURS, "the one that is there, though it is not the preferred one"
    finally:
        there.close()

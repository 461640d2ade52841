"""What Kafka leaves undone, and a controller of ours does not: a broker of Kafka that refuses all its roles
for one replica that it did not make, and a topic that Kafka's controller has half deleted.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.testing.faults.links import ZOOKEEPER, Links, Quality
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.documents import DELETE_TOPICS, state_path
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars

KAFKAS, OURS = 1, 2
WITHIN_S = 60.0
CUT = Quality(cut=True)


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[tuple[KafkaPlace, Links]]:
    """Ours is the controller. Leaders miss a follower long before ZooKeeper misses its session."""
    times = {"zookeeper.session.timeout.ms": "10000", "replica.lag.time.max.ms": "2000"}
    there = KafkaPlace(tmp_path, 2, SETTINGS | times, jars(), frozenset({OURS}), OURS)
    links = Links(there.cluster)
    try:
        there.start()
        yield there, links
    finally:
        there.close()
        links.close()


def test_a_broker_that_did_not_make_a_replica_takes_its_roles_in_a_new_epoch(
    cut_off: tuple[KafkaPlace, Links],
) -> None:
    """Its session ends while it asks ZooKeeper for the topic's settings. It has noted the leader epoch then,
    has no log, and refuses each LeaderAndIsr that names the partition in this epoch, with all other roles.
    """
    there, links = cut_off
    zookeeper = there.cluster.own_zookeeper
    assert zookeeper is not None
    with Admin(there.cluster.brokers[OURS].address) as admin, Znodes(zookeeper.address) as znodes:
        admin.create_topics([NewTopic("before", assignments={0: [OURS, KAFKAS]})])
        until(lambda: len(znodes.isr("before", 0)) == 2, WITHIN_S, "Kafka's broker follows")
        links.set([KAFKAS], [ZOOKEEPER], CUT, reset=False)
        links.set([ZOOKEEPER], [KAFKAS], CUT, reset=False)
        admin.create_topics([NewTopic("meanwhile", assignments={0: [OURS, KAFKAS]})])
        until(lambda: not znodes.registered(KAFKAS), WITHIN_S, "its session is over")
        state = znodes.document(state_path(TopicPartition("meanwhile", 0)))
        assert state["isr"] == [OURS] and state["leader_epoch"] == 0, "its leader was faster"
        links.heal()
        for topic in ("before", "meanwhile"):
            until(lambda topic=topic: len(znodes.isr(topic, 0)) == 2, WITHIN_S, f"it follows {topic} again")
    told = there.cluster.brokers[OURS].log.read_text()
    assert "control_request_refused" in told, "it has made the replica: this story was not told"
    assert told.count("refused_roles_renewed") == 1


def test_a_deletion_that_kafkas_controller_has_begun_is_completed(tmp_path: Path) -> None:
    """Of one replica it has heard, of the other one not yet."""
    times = {"zookeeper.session.timeout.ms": "10000"}
    there = KafkaPlace(tmp_path, 2, SETTINGS | times, jars(), frozenset({OURS}), KAFKAS)
    there.start()
    try:
        with Znodes(there.cluster.zookeeper) as znodes:
            with Admin(there.cluster.brokers[KAFKAS].address) as admin:
                admin.create_topics([NewTopic("t", assignments={0: [KAFKAS, OURS], 1: [OURS, KAFKAS]})])
                assert znodes.controller() == KAFKAS
                there.pause(OURS)
                admin.delete_topics(["t"])
            folders = there.directories()
            left = [f"t-{number}" for number in (0, 1)]
            until(
                lambda: not any((folders[KAFKAS] / each).exists() for each in left),
                WITHIN_S,
                "Kafka's own replicas are deleted",
            )
            there.kill(KAFKAS)
            there.resume(OURS)
            until(lambda: znodes.controller() == OURS, WITHIN_S, "ours is the controller")
            assert znodes.deleted() == ["t"] and (folders[OURS] / "t-0").exists(), f"see {DELETE_TOPICS}"
            there.launch(KAFKAS)
            until(lambda: not znodes.deleted(), WITHIN_S, "the topic is deleted")
            until(lambda: not (folders[OURS] / "t-0").exists(), WITHIN_S, "so is our replica")
            with Admin(there.bootstrap) as admin:
                until(lambda: "t" not in admin.list_topics(), WITHIN_S, "nobody tells of it any more")
    finally:
        there.close()

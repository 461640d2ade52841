"""What one controller has begun, one of the other kind finishes: a move, a deletion, topics that are new.

Broker 3 stands still meanwhile, so that nothing is done before the controller dies.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.protocol.errors import RequestTimedOut
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.documents import state_path, topic_path
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars

FIRST, SECOND, STILL = 1, 2, 3
WITHIN_S = 90.0
TIMES = {"zookeeper.session.timeout.ms": "10000", "replica.lag.time.max.ms": "3000"}


@pytest.mark.long
@pytest.mark.parametrize("ours", [{SECOND, STILL}, {FIRST}, {SECOND}], ids=["KSS", "SKK", "KSK"])
def test_a_controller_of_the_other_kind_finishes_it(ours: set[int], tmp_path: Path) -> None:
    there = KafkaPlace(tmp_path, 3, SETTINGS | TIMES, jars(), frozenset(ours), FIRST)
    try:
        there.start()
        with Znodes(there.cluster.zookeeper) as znodes:
            assert znodes.controller() == FIRST
            with Admin(there.cluster.brokers[FIRST].address) as admin:
                admin.create_topics(
                    [
                        NewTopic("moved", assignments={0: [FIRST, SECOND]}),
                        NewTopic("grown", assignments={0: [SECOND, STILL]}),
                        NewTopic("gone", assignments={0: [SECOND, STILL], 1: [STILL, SECOND]}),
                    ]
                )
                until(lambda: len(znodes.isr("gone", 1)) == 2, WITHIN_S, "all are in sync")
                until(lambda: len(znodes.isr("moved", 0)) == 2, WITHIN_S, "all are in sync")
                there.pause(STILL)
                admin.alter_partition_reassignments({TopicPartition("moved", 0): [STILL, SECOND]})
                admin.create_topics([NewTopic("made", assignments={0: [STILL, SECOND]})])
                with suppress(RequestTimedOut):  # ours would tell when it is done
                    admin.delete_topics(["gone"], timeout_ms=1000)
            moving = znodes.document(topic_path("moved"))
            assert moving["adding_replicas"] == {"0": [STILL]} and moving["removing_replicas"] == {
                "0": [FIRST]
            }
            there.kill(FIRST)
            until(lambda: znodes.controller() == SECOND, WITHIN_S, "broker 2 is the controller")
            assert znodes.deleted() == ["gone"]
            there.resume(STILL)
            until(
                lambda: znodes.document(topic_path("moved"))["partitions"] == {"0": [STILL, SECOND]},
                WITHIN_S,
                "it has moved",
            )
            until(lambda: sorted(znodes.isr("moved", 0)) == [SECOND, STILL], WITHIN_S, "to both")
            until(
                lambda: sorted(znodes.isr("made", 0)) == [SECOND, STILL], WITHIN_S, "the new topic is whole"
            )
            until(lambda: not znodes.deleted(), WITHIN_S, "the topic is deleted")
            there.launch(FIRST)
            until(lambda: znodes.registered(FIRST), WITHIN_S, "broker 1 is back")
            with Admin(there.bootstrap) as admin:
                until(
                    lambda: sorted(admin.list_topics()) == ["grown", "made", "moved"], WITHIN_S, "all know it"
                )
                admin.elect_leaders("PREFERRED", [TopicPartition("moved", 0)])
            until(
                lambda: znodes.document(state_path(TopicPartition("moved", 0)))["leader"] == STILL,
                WITHIN_S, "the preferred leader leads",
            )  # fmt: skip
            folders = there.directories()
            until(lambda: not list(folders[STILL].glob("gone-?")), WITHIN_S, "no replica is left")
    finally:
        there.close()

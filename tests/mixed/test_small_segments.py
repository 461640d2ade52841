"""Segments that are smaller than what a follower asks for: one of Kafka's gets no more than fits a segment.

It appends an answer as a whole. One that is larger than a segment it refuses, and then fetches the partition
no more until the next leader epoch.
"""

import pytest

from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from tests.mixed.conftest import KAFKAS, OURS

WITHIN_S = 60.0
SEGMENT_BYTES = 16384


@pytest.mark.parametrize("leader", [KAFKAS, OURS], ids=["Kafka's leader", "our leader"])
def test_who_copies_many_segments_at_once_stays_in_sync(pair: KafkaPlace, leader: int) -> None:
    topic, other = f"small-{leader}", KAFKAS + OURS - leader
    with Admin(pair.bootstrap) as admin, Znodes(pair.cluster.zookeeper) as znodes:
        configs = {"segment.bytes": str(SEGMENT_BYTES)}
        admin.create_topics([NewTopic(topic, assignments={0: [leader, other]}, configs=configs)])
        with Producer(pair.bootstrap, batch_size=4000, linger_ms=5) as producer:
            for _ in range(4000):
                producer.send(topic, b"x" * 900, partition=0)
            producer.flush()  # acks=all
        until(lambda: sorted(znodes.isr(topic, 0)) == [KAFKAS, OURS], WITHIN_S, "both are in sync")

"""A leader whose log does not begin at 0: a follower of the other kind that has nothing so old begins there.

So it is in each cluster that is older than its retention. Leaders of ours say where their logs begin beside
the error for an offset that they do not have; Kafka's want to be asked. DeleteRecords leaves a log that
begins within a batch, which its followers get as a whole.
"""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.protocol.messages.offsets import EARLIEST, LATEST
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from tests.mixed.conftest import KAFKAS, OURS, SETTINGS
from tests.mixed.test_mixed_cluster import jars

WITHIN_S = 60.0
RECORDS = 50


def fill(bootstrap: str, topic: str, single: bool) -> None:
    """In batches of one record, or all in one."""
    size = {"batch_size": 1, "linger_ms": 0} if single else {"batch_size": 1 << 18, "linger_ms": 200}
    with Producer(bootstrap, **size) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()


def bounds(admin: Admin, tp: TopicPartition) -> tuple[int, int]:
    first, last = (admin.list_offsets({tp: time})[tp].offset for time in (EARLIEST, LATEST))
    return first, last


@pytest.mark.parametrize("single", [True, False], ids=["between batches", "within a batch"])
@pytest.mark.parametrize("leader", [KAFKAS, OURS], ids=["Kafka's leader", "our leader"])
def test_a_new_replica_begins_where_the_leaders_log_begins(
    pair: KafkaPlace, leader: int, single: bool
) -> None:
    topic, other = f"begun-{leader}-{single}", KAFKAS + OURS - leader
    tp = TopicPartition(topic, 0)
    with Admin(pair.bootstrap) as admin, Znodes(pair.cluster.zookeeper) as znodes:
        admin.create_topics([NewTopic(topic, assignments={0: [leader]})])
        fill(pair.bootstrap, topic, single)
        assert admin.delete_records({tp: 30}) == {tp: 30}
        admin.alter_partition_reassignments({tp: [leader, other]})
        until(lambda: sorted(znodes.isr(topic, 0)) == [KAFKAS, OURS], WITHIN_S, "the new replica is in sync")
        admin.alter_partition_reassignments({tp: [other]})
        until(lambda: znodes.isr(topic, 0) == [other], WITHIN_S, "it is the only one")
        until(lambda: bounds(admin, tp) == (30, RECORDS), WITHIN_S, "it holds what the other one held")


@pytest.mark.long
@pytest.mark.parametrize("leader", [KAFKAS, OURS], ids=["Kafka's leader", "our leader"])
def test_who_was_away_for_longer_than_its_leader_keeps_records_begins_anew(
    leader: int, tmp_path: Path
) -> None:
    there = KafkaPlace(tmp_path, 2, SETTINGS, jars(), frozenset({OURS}), leader)
    other = KAFKAS + OURS - leader
    there.start()
    tp = TopicPartition("t", 0)
    try:
        with Admin(there.cluster.brokers[leader].address) as admin, Znodes(there.cluster.zookeeper) as znodes:
            admin.create_topics([NewTopic("t", assignments={0: [leader, other]})])
            fill(there.bootstrap, "t", single=True)
            until(lambda: sorted(znodes.isr("t", 0)) == [KAFKAS, OURS], WITHIN_S, "both have it")
            there.stop(other)
            until(lambda: znodes.isr("t", 0) == [leader], WITHIN_S, "one is away")
            fill(there.bootstrap, "t", single=True)
            assert admin.delete_records({tp: RECORDS + 30}) == {tp: RECORDS + 30}
            there.launch(other)
            until(lambda: sorted(znodes.isr("t", 0)) == [KAFKAS, OURS], WITHIN_S, "it is in sync again")
            there.stop(leader)
        with Admin(there.cluster.brokers[other].address) as admin:
            until(lambda: bounds(admin, tp) == (RECORDS + 30, 2 * RECORDS), WITHIN_S, "it leads what is left")
    finally:
        there.close()

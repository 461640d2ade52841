"""A compacted topic on a real broker: cleaned by a helper process, read by clients, the same after a kill."""

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import InvalidRecord
from tests.integration.support import assert_no_traceback, until
from tests.patience import HANG_S

TOPIC = "compacted"
UPDATES, KEYS = 10_000, 100
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "0"}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "50000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(1, SETTINGS)


def key_of(number: int) -> bytes:
    return b"key-%d" % (number * 7 % KEYS)


def read(cluster: LocalCluster) -> dict[int, tuple[bytes, bytes]]:
    """All records by their offsets."""
    found = {}
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while not found or max(found) < UPDATES - 1:
            for record in consumer.poll(timeout_ms=5_000):
                found[record.offset] = (record.key, record.value)
    return found


def test_the_newest_of_each_key_is_left_where_it_was(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1, CONFIGS)])
    with Producer(cluster.bootstrap, linger_ms=1, batch_size=5000) as producer:
        for number in range(UPDATES):
            producer.send(TOPIC, key=key_of(number), value=b"value-%d" % number)
        producer.flush()
        with pytest.raises(InvalidRecord, match="key"):
            producer.send(TOPIC, key=None, value=b"of nobody").result(HANG_S)
    newest = {key_of(number): number for number in range(UPDATES)}

    def cleaned() -> dict[int, tuple[bytes, bytes]] | None:
        found = read(cluster)
        return found if len(found) < UPDATES / 5 else None

    found = until(cleaned, 60.0, "the topic is compacted", every_s=0.5)
    assert found == {offset: (key_of(offset), b"value-%d" % offset) for offset in found}
    assert "cleaner_started" in cluster.brokers[1].log.read_text()
    assert {key: max(o for o, (k, _) in found.items() if k == key) for key in newest} == newest
    cluster.brokers[1].kill()
    cluster.brokers[1].start()
    cluster.wait_ready()
    again = read(cluster)
    assert set(again) <= set(found)
    assert set(newest.values()) <= set(again)
    assert_no_traceback(cluster)

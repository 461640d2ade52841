"""Old records leave real brokers: by size, by time, by hand; on every replica, and past a kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.messages.offsets import EARLIEST, LATEST
from tests.integration.support import until

AT_ONCE = {"file.delete.delay.ms": "0"}
SETTINGS = {
    "log.retention.check.interval.ms": "100",
    "log.segment.bytes": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(3, SETTINGS)


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as admin:
        yield admin


def fill(cluster: LocalCluster, topic: str, count: int = 60) -> None:
    """Records of about half a kilobyte, a batch each."""
    with Producer(cluster.bootstrap, serializer="bytes", linger_ms=0, batch_size=1) as producer:
        for one in [producer.send(topic, b"%d " % n + b"x" * 500, partition=0) for n in range(count)]:
            one.result(30)


def size(file: Path) -> int:
    """In bytes; 0 of one that has been deleted since it was listed."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def offset_at(admin: Admin, topic: str, time: int) -> int:
    where = TopicPartition(topic, 0)
    return admin.list_offsets({where: time})[where].offset


def files(cluster: LocalCluster, topic: str, ending: str = ".log") -> list[list[Path]]:
    """The partition's files of each broker."""
    places = (broker.directory / "data" / f"{topic}-0" for broker in cluster.brokers.values())
    return [sorted(place.glob(f"*{ending}")) for place in places]


def first_offsets(cluster: LocalCluster, topic: str) -> set[int]:
    return {int(found[0].name.split(".")[0]) for found in files(cluster, topic) if found}


def test_a_partition_keeps_to_its_size_on_all_replicas(cluster: LocalCluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("sized", 1, 3, {"retention.bytes": "6000", **AT_ONCE})])
    fill(cluster, "sized")
    until(lambda: offset_at(admin, "sized", EARLIEST) >= 40, 30, "the oldest segments have gone")
    assert offset_at(admin, "sized", LATEST) == 60

    def bounded() -> bool:
        sizes = [sum(map(size, found)) for found in files(cluster, "sized")]
        return all(6000 <= total < 6000 + 2000 for total in sizes)

    until(bounded, 30, "each replica holds between retention.bytes and a segment more")
    until(lambda: not any(files(cluster, "sized", ".deleted")), 30, "and their files from the disks")
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        where = TopicPartition("sized", 0)
        consumer.assign([where])
        consumer.seek(where, 3)
        (first, *_) = until(lambda: consumer.poll(200), 30, "a consumer of what has gone reads on")
        assert first.offset == offset_at(admin, "sized", EARLIEST)


def test_an_idle_partition_grows_old_and_empty(cluster: LocalCluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("timed", 1, 3, {"retention.ms": "1500", **AT_ONCE})])
    fill(cluster, "timed", 10)
    until(lambda: offset_at(admin, "timed", EARLIEST) == 10, 30, "the active segment has gone, too")
    until(lambda: first_offsets(cluster, "timed") == {10}, 30, "on every replica")
    fill(cluster, "timed", 1)
    assert offset_at(admin, "timed", LATEST) == 11


def test_what_was_deleted_stays_deleted_when_its_only_broker_is_killed(
    cluster: LocalCluster, admin: Admin
) -> None:
    admin.create_topics([NewTopic("by-hand", 1, 1, {"min.insync.replicas": "1", **AT_ONCE})])
    fill(cluster, "by-hand", 12)
    where = TopicPartition("by-hand", 0)
    assert admin.delete_records({where: 8}) == {where: 8}
    (described,) = admin.describe_topics(["by-hand"])
    broker = cluster.brokers[described.partitions[0].leader]
    broker.kill()
    broker.start()
    assert offset_at(admin, "by-hand", EARLIEST) == 8
    until(lambda: max(first_offsets(cluster, "by-hand")) in (6, 7, 8), 30, "the segments before it have gone")
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        found = until(lambda: consumer.poll(200), 30, "what is left can be read")
    assert found[0].offset == 8


def read_by_group(cluster: LocalCluster, topic: str, count: int) -> list[int]:
    """The offsets that a group gets, committed at its end."""
    found: list[int] = []
    with Consumer(
        cluster.bootstrap, topics=[topic], group="readers", auto_offset_reset="earliest"
    ) as consumer:
        until(lambda: found.extend(r.offset for r in consumer.poll(200)) or len(found) >= count, 30, "read")
        consumer.commit()
    return found


def test_a_topic_that_is_made_again_is_read_from_its_beginning(cluster: LocalCluster, admin: Admin) -> None:
    """What a group has committed goes with the topic: else it would skip as many records of the new one."""
    admin.create_topics([NewTopic("again", 1, 3)])
    fill(cluster, "again", 10)
    assert read_by_group(cluster, "again", 10) == list(range(10))
    admin.delete_topics(["again"])
    until(lambda: "again" not in admin.list_topics(), 30, "the topic is gone")
    admin.create_topics([NewTopic("again", 1, 3)])
    fill(cluster, "again", 15)
    assert read_by_group(cluster, "again", 15) == list(range(15))

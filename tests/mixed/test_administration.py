"""What administrators do in a mixed cluster, with a controller of either kind: each broker follows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Consumer, Producer
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.waiting import until
from tests.mixed.test_mixed_cluster import place

WITHIN_S = 30.0
T0 = TopicPartition("t", 0)


@pytest.fixture(params=["KSS", "SKK"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaPlace]:
    """The first broker, of the kind of which there is one, is the controller."""
    there = place(tmp_path, request.param, 1)
    try:
        there.start()
        yield there
    finally:
        there.close()


def partition(admin: Admin, number: int = 0) -> Any:
    """As the broker that is asked knows it: once all of them have been told of it."""
    found: list[Any] = []

    def is_known() -> bool:
        (topic,) = admin.describe_topics(["t"])
        found[:] = topic.partitions[number:]
        return bool(found)

    until(is_known, WITHIN_S, f"the broker that is asked knows t-{number}")
    return found[0]


def folders(cluster: KafkaPlace, name: str) -> dict[int, list[str]]:
    """For each broker the folders of such partitions, without those that are about to be deleted."""
    return {
        id: [
            each.name
            for each in data.iterdir()
            if each.name.startswith(name) and not each.name.endswith("-delete")
        ]
        for id, data in cluster.directories().items()
    }


def retention(admin: Admin) -> str | None:
    """As some broker tells it."""
    return next(one.value for one in admin.describe_configs(topic="t") if one.name == "retention.ms")


def test_topics_are_made_changed_moved_and_deleted(cluster: KafkaPlace) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert admin.describe_cluster().controller_id == 1
        admin.create_topics([NewTopic("t", assignments={0: [1, 2]}, configs={"retention.ms": "86400000"})])
        with Producer(cluster.bootstrap) as producer:
            for _ in range(100):
                producer.send("t", b"record", partition=0)
            producer.flush()

        admin.alter_configs({"retention.ms": "43200000"}, topic="t")
        assert retention(admin) == "43200000", "whichever broker is asked has heard of it"

        admin.alter_partition_reassignments({T0: [2, 3]})
        until(lambda: sorted(partition(admin).isr) == [2, 3], WITHIN_S, "it has moved to 2 and 3")
        until(lambda: not folders(cluster, "t-0")[1], WITHIN_S, "broker 1 has none of it any more")
        until(lambda: partition(admin).leader in (2, 3), WITHIN_S, "one of those leads")

        admin.create_partitions({"t": 2})
        until(lambda: partition(admin, 1).leader >= 0, WITHIN_S, "the new partition is led")

        with Consumer(cluster.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            read = 0
            while read < 100:
                read += len(consumer.poll(2_000))

        admin.delete_topics(["t"])
        until(lambda: "t" not in admin.list_topics(), WITHIN_S, "it is deleted")
        until(lambda: not any(folders(cluster, "t-").values()), WITHIN_S, "no broker has a replica of it")

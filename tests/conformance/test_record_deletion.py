"""Every client that can administer deletes records; every client sees what is left."""

import time
from typing import Any

from driving import Row

from strandline.base.types import TopicPartition
from strandline.client.sync import Consumer

TO_THE_END = -1


def filled(ours: Any, topic: str) -> int:
    """Ten records in one partition; which one."""
    ours.produce(topic, [Row(b"one key", str(i).encode()) for i in range(10)], "none", idempotent=True)
    (partition,) = {one.partition for one in ours.read(topic, range(3), 10)}
    return int(partition)


def test_records_before_an_offset_are_deleted(administrator: Any, ours: Any, topic: str) -> None:
    partition = filled(ours, topic)
    assert administrator.delete_records(topic, {partition: 4}) == {partition: 4}
    for reader in (administrator, ours):
        assert reader.ends(topic, partition) == (4, 10)
        assert [one.offset for one in reader.read(topic, [partition], 6)] == [*range(4, 10)]


def test_everything_is_deleted_in_all_partitions(administrator: Any, ours: Any, topic: str) -> None:
    partition = filled(ours, topic)
    low = administrator.delete_records(topic, dict.fromkeys(range(3), TO_THE_END))
    assert low == {one: 10 if one == partition else 0 for one in range(3)}
    assert administrator.ends(topic, partition) == (10, 10)


def test_a_consumer_in_what_was_deleted_goes_on_behind_it(ours: Any, topic: str) -> None:
    where = TopicPartition(topic, filled(ours, topic))
    with Consumer(ours.bootstrap, auto_offset_reset="earliest") as consumer:
        ours.delete_records(topic, {where.partition: 4})
        consumer.assign([where])
        consumer.seek(where, 1)
        found: list[int] = []
        deadline = time.monotonic() + 30
        while len(found) < 6:
            assert time.monotonic() < deadline, found
            found += [one.offset for one in consumer.poll(200)]
    assert found == [*range(4, 10)]

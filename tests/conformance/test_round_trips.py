"""Every client writes what the bundled one reads, and the other way round, in every codec."""

import time
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from driving import CODECS, Read, Row, until

ROWS = [
    Row(b"alice", b"plain"),
    Row(None, b"no key"),
    Row(b"alice", None),
    Row(b"bob", b"with headers", (("trace", b"1"), ("trace", b"2"), ("kind", b"order"))),
    Row(b"carol", b"x" * 5000),
    *(Row(f"key-{i}".encode(), f"value {i} {'z' * (i % 50)}".encode()) for i in range(200)),
]
PARTITIONS = range(3)


def same(found: Iterable[Read], sent: Iterable[Row]) -> None:
    assert sorted((one.row for one in found), key=repr) == sorted(sent, key=repr)


def in_order_of_keys(found: list[Read], sent: list[Row]) -> None:
    """Records of one key stand in one partition, in the order in which they were sent."""
    for key in {row.key for row in sent if row.key is not None}:
        of_key = sorted((one.partition, one.offset, one.row) for one in found if one.row.key == key)
        assert len({partition for partition, _, _ in of_key}) == 1
        assert [row for _, _, row in of_key] == [row for row in sent if row.key == key]


@pytest.mark.parametrize("codec", CODECS)
def test_their_records_reach_all(driver: Any, ours: Any, topic: str, codec: str) -> None:
    assert codec in driver.codecs
    driver.produce(topic, ROWS, codec, idempotent=False)
    for reader in (ours, driver):
        found = reader.read(topic, PARTITIONS, len(ROWS))
        same(found, ROWS)
    if driver.name != "kcat":  # it needs a run of its own for each set of headers, so their order is its own
        in_order_of_keys(found, ROWS)


@pytest.mark.parametrize("codec", CODECS)
def test_our_records_reach_them(driver: Any, ours: Any, topic: str, codec: str) -> None:
    ours.produce(topic, ROWS, codec, idempotent=True)
    same(driver.read(topic, PARTITIONS, len(ROWS)), ROWS)


def test_idempotent_producers(driver: Any, ours: Any, topic: str) -> None:
    for _ in range(2):  # a second producer gets an id of its own
        driver.produce(topic, ROWS, "none", idempotent=True)
    same(ours.read(topic, PARTITIONS, 2 * len(ROWS)), 2 * ROWS)


def test_all_clients_read_one_topic_alike(drivers: dict[str, Any], driver: Any, topic: str) -> None:
    for writer in drivers.values():
        writer.produce(topic, ROWS[:5], "zstd", idempotent=False)
    everything = sorted(drivers["strandline"].read(topic, PARTITIONS, 5 * len(drivers)))
    assert sorted(driver.read(topic, PARTITIONS, len(everything))) == everything


def test_topics_are_created_and_listed(administrator: Any) -> None:
    name = f"made-{uuid.uuid4().hex[:12]}"
    administrator.create_topic(name, 4)
    until(lambda: administrator.topics().get(name) == 4, "the topic is in the client's metadata")


def test_metadata_lists_the_topic(driver: Any, topic: str) -> None:
    until(lambda: driver.topics().get(topic) == 3, "the topic is in the client's metadata")


def test_a_topic_is_created_by_its_first_record(driver: Any, ours: Any) -> None:
    name = f"auto-{uuid.uuid4().hex[:12]}"
    driver.produce(name, ROWS, "none", idempotent=False)
    count = ours.topics()[name]
    same(ours.read(name, range(count), len(ROWS)), ROWS)


def test_offsets_by_place_and_time(driver: Any, ours: Any, topic: str) -> None:
    before = int(time.time() * 1000)
    keyed = [Row(b"one key", str(i).encode()) for i in range(10)]
    driver.produce(topic, keyed, "none", idempotent=False)
    (partition,) = {one.partition for one in ours.read(topic, PARTITIONS, 10)}
    assert driver.ends(topic, partition) == (0, 10)
    between = int(time.time() * 1000) + 1
    until(lambda: time.time() * 1000 > between, "the clock goes on")
    driver.produce(topic, keyed, "none", idempotent=False)
    assert driver.ends(topic, partition) == (0, 20)
    assert driver.offset_at(topic, partition, before) == 0
    assert driver.offset_at(topic, partition, between) == 10
    assert driver.ends(topic, (partition + 1) % 3) == (0, 0)

"""The rules without a socket: partitioner, serializers, batches, positions, view, config."""

from random import Random
from sys import getrefcount
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.config import ConfigError, ConsumerConfig, ProducerConfig, configure
from strandline.client.consumer.positions import FetchedBatches, PartitionPosition, surveyed
from strandline.client.consumer.unpacking import Unpacker
from strandline.client.network.connections import backoff
from strandline.client.network.metadata import ClusterView
from strandline.client.producer.accumulator import Accumulator, Limits
from strandline.client.producer.partition_queues import Identity, PartitionQueue
from strandline.client.producer.partitioner import Sticky, murmur2, partition_for_key
from strandline.client.results import ConsumerRecord
from strandline.client.serializers import DESERIALIZERS, SERIALIZERS, bytes_in
from strandline.protocol.batches import read_header
from strandline.protocol.compression import Codec
from strandline.protocol.errors import error_for
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.records import BatchBuilder, iterate

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (signed & 0x7FFFFFFF) % 7


@pytest.mark.parametrize(("size", "kept"), [(16, 1), (1 << 16, 0)])
def test_large_keys_do_not_stay_in_memory(size: int, kept: int) -> None:
    """What keys hash to is remembered, of thousands of them: that held large keys beyond buffer_memory."""
    key = bytes(size - 8) + b"its only"
    before = getrefcount(key)
    assert partition_for_key(key, 7) in range(7)
    assert getrefcount(key) == before + kept


def test_the_keyless_stay_until_a_batch_is_full() -> None:
    sticky = Sticky(Random(1))
    first = sticky.choose("t", [0, 1, 2], 3)
    assert sticky.choose("t", [0, 1, 2], 3) == first
    sticky.move_on("t", [0, 1, 2], first)
    assert sticky.choose("t", [0, 1, 2], 3) != first


def test_the_keyless_go_on_after_small_batches_of_as_many_bytes() -> None:
    sticky = Sticky(Random(1))
    first = sticky.choose("t", [0, 1, 2], 3)
    sticky.left(TopicPartition("t", (first + 1) % 3), 500, 500)  # records with a key
    sticky.left(TopicPartition("t", first), 499, 500)
    assert sticky.current("t", 3) == first
    sticky.left(TopicPartition("t", first), 1, 500)
    second = sticky.choose("t", [0, 1, 2], 3)
    assert second != first
    sticky.left(TopicPartition("t", second), 499, 500)
    assert sticky.current("t", 3) == second, "it begins at nothing"


@pytest.mark.parametrize("name", ["bytes", "str", "json", "msgpack"])
def test_serializers_return_what_they_took(name: str) -> None:
    value: Any = {"bytes": b"x", "str": "ü"}.get(name, {"a": [1, None, "ü"]})
    raw = SERIALIZERS[name](value)
    assert isinstance(raw, bytes)
    assert DESERIALIZERS[name](raw) == value
    assert SERIALIZERS[name](None) is None
    if name == "bytes":
        with pytest.raises(TypeError):
            SERIALIZERS[name](7)


LIMITS = Limits(300, 0.01, 10.0, 5, True, False, 1 << 31, 0, None)


def accumulated(count: int) -> tuple[Accumulator[int], PartitionQueue[int]]:
    """So many records, two of them to a batch, of a producer that leaders know: number 0 is acknowledged."""
    accumulator: Accumulator[int] = Accumulator(LIMITS)
    accumulator.append(T0, (0, None, b"x" * 90, ()), 0, 0.0, 120)
    lane = accumulator.lane(T0)
    lane.adopt(Identity(7, 0))
    first = lane.take()
    lane.succeeded(first)
    accumulator.release(first)
    for n in range(count):
        accumulator.append(T0, (n, None, b"x" * 90, ()), n, 0.0, 120)
    return accumulator, lane


def test_batches_leave_when_full_or_due() -> None:
    accumulator, lane = accumulated(1)
    assert not accumulator.is_due(lane, 0.005)
    assert accumulator.wake_at() == 0.01
    assert accumulator.is_due(lane, 0.01)
    accumulator.append(T0, (1, None, b"x" * 90, ()), 1, 0.0, 120)
    assert accumulator.append(T0, (2, None, b"x" * 90, ()), 2, 0.0, 120)
    assert accumulator.is_due(lane, 0.0)
    assert accumulator.used == 360
    batch = lane.take()
    assert batch.tokens == [0, 1]
    lane.succeeded(batch)
    accumulator.release(batch)
    assert accumulator.used == 120
    accumulator.rush = True
    assert accumulator.is_due(lane, 0.0)


def test_the_first_batch_under_an_identity_travels_alone_until_it_is_acknowledged() -> None:
    """A leader that knows no number of the producer's would take any other for the first one."""
    _, lane = accumulated(8)
    lane.adopt(Identity(8, 0))
    first = lane.take()
    assert first.sequence == 0 and not lane.may_send
    assert lane.failed(first, error_for(6), 0.0)
    assert lane.take() is first and not lane.may_send
    lane.succeeded(first)
    two, three = lane.take(), lane.take()
    assert (two.sequence, three.sequence) == (2, 4)
    assert lane.failed(two, error_for(6), 0.0) and lane.failed(three, error_for(6), 0.0)
    assert [lane.take(), lane.take()] == [two, three], "every leader knows by now what comes first"


def test_a_failed_batch_goes_before_the_later_ones_under_its_old_number() -> None:
    _, lane = accumulated(8)
    one, two, three = lane.take(), lane.take(), lane.take()
    assert [batch.sequence for batch in (one, two, three)] == [1, 3, 5]
    assert lane.failed(one, error_for(7), 0.0)
    assert not lane.may_send
    assert lane.failed(two, error_for(45), 0.0)
    assert lane.failed(three, error_for(45), 0.0)
    assert [lane.take() for _ in range(3)] == [one, two, three]
    assert [batch.sequence for batch in (one, two, three)] == [1, 3, 5]


def test_a_retry_is_never_left_behind_farther_than_the_broker_remembers() -> None:
    """The first batch was appended, but nobody says so; those behind it are acknowledged, time and again."""
    _, lane = accumulated(40)
    lane.take()
    while lane.may_send:
        lane.take()
    first, *others = lane.in_flight
    assert lane.failed(first, error_for(7), 0.0)
    for batch in others:
        lane.succeeded(batch)
    assert lane.take() is first
    assert not lane.may_send, "the broker remembers five batches, and the first is one of them"
    lane.succeeded(first)
    assert lane.may_send


def test_after_a_gap_only_what_is_certain_is_numbered_anew() -> None:
    _, lane = accumulated(6)
    one, two, three = lane.take(), lane.take(), lane.take()
    assert not lane.failed(one, error_for(10), 0.0)
    assert lane.failed(two, ConnectionError(), 0.0)
    assert lane.failed(three, error_for(45), 0.0)
    assert not lane.needs_identity
    assert lane.take() is two and two.sequence == 3 and two.identity == Identity(7, 0)
    assert not lane.failed(two, error_for(45), 0.0)
    assert lane.needs_identity and lane.retired == Identity(7, 0)
    lane.adopt(Identity(8, 0))
    assert lane.take() is three and three.sequence == 0 and three.identity == Identity(8, 0)


def test_a_batch_that_is_too_large_goes_again_in_halves_under_its_numbers() -> None:
    accumulator, lane = accumulated(6)
    one, two, three = lane.take(), lane.take(), lane.take()
    assert accumulator.split(one)
    assert not one.tokens and accumulator.used == 720
    assert lane.failed(two, error_for(45), 0.0)
    assert lane.failed(three, error_for(45), 0.0)
    first, second = lane.take(), lane.take()
    assert [(half.tokens, half.sequence, half.builder.count) for half in (first, second)] == [
        ([0], 1, 1),
        ([1], 2, 1),
    ]
    assert [record.timestamp for record in iterate(second.builder.build())] == [1]
    assert not accumulator.split(first), "one record is the least"
    assert lane.failed(second, error_for(45), 0.0), "the other half is under way"
    assert lane.failed(first, error_for(7), 0.0)
    assert [lane.take() for _ in range(4)] == [first, second, two, three]
    assert first.is_uncertain and [batch.sequence for batch in (two, three)] == [3, 5]


def test_halves_of_an_uncertain_batch_are_uncertain_and_never_get_other_numbers() -> None:
    """If the whole was appended by an attempt without an answer, brokers refuse both."""
    accumulator, lane = accumulated(2)
    whole = lane.take()
    assert lane.failed(whole, error_for(7), 0.0)
    assert accumulator.split(lane.take())
    first = lane.take()
    assert not lane.failed(first, error_for(45), 0.0) and first.is_uncertain
    second = lane.take()
    assert second.sequence == whole.sequence + 1
    assert not lane.failed(second, error_for(45), 0.0) and second.is_uncertain


def test_records_are_split_as_they_are() -> None:
    """Names of headers too that are no UTF-8: other clients may write them, and readers hand them on."""
    builder = BatchBuilder(Codec.GZIP)
    for at, elapsed in enumerate((0, 5000, -70_000, 3)):
        value = None if at == 1 else bytes(200 * at)
        builder.append(1_000_000 + elapsed, b"k%d" % at, value, [("h?", b"x"), ("n", None)])
    whole = BatchBuilder(Codec.GZIP)
    section = b"".join(builder._parts).replace(b"h?", b"h\xff")
    whole.extend(section, 4, 1_000_000, 1_005_000)
    parts = [whole.part(0, 2), whole.part(2, 4)]
    assert [b"".join(part._parts).count(b"h\xff") for part in parts] == [2, 2]
    assert [len(part.build()) < part.size for part in parts] == [False, True], "compressed where that helps"
    found = [record for part in parts for record in iterate(part.build())]
    wanted = [record._replace(offset=at % 2) for at, record in enumerate(iterate(whole.build()))]
    assert found == wanted
    assert read_header(parts[1].build()).max_timestamp == 1_000_003


def test_what_is_late_is_told_once() -> None:
    accumulator, lane = accumulated(4)
    sent = lane.take()
    assert [batch.tokens for batch in accumulator.expire(10.0)] == [[0, 1], [2, 3]]
    assert accumulator.expire(11.0) == []
    assert not lane.failed(sent, error_for(7), 0.0)
    accumulator.release(sent)
    assert accumulator.is_empty and accumulator.used == 0


def batch_at(base: int, values: list[bytes], **more: Any) -> bytearray:
    builder = BatchBuilder(**more)
    for value in values:
        builder.append(1, None, value)
    data = bytearray(builder.build())
    data[0:8] = base.to_bytes(8, "big")
    return data


def test_a_place_skips_what_lies_before_it_and_what_a_seek_made_void() -> None:
    place = PartitionPosition(T0)
    place.seek(3)
    data = bytes(batch_at(0, [b"%d" % n for n in range(5)]))
    found = surveyed(data, 3)
    place.fetched(FetchedBatches(data, 3, found.end, found.batches))
    assert place.fetch_at == 5
    whole = Unpacker(bytes_in, bytes_in, True)
    rows: list[ConsumerRecord] = []
    place.take(1, whole, rows)
    assert [row.offset for row in rows] == [3] and place.cursor == 4
    age = place.age
    place.seek(1)
    place.take(1, whole, rows)
    assert len(rows) == 1 and place.age == age + 1


def marker_at(base: int, producer_id: int, committed: bool) -> bytearray:
    data = marker_batch(producer_id, 0, EndMarker(committed, 0), 0)
    data[0:8] = base.to_bytes(8, "big")
    return data


def test_aborted_records_and_control_batches_are_not_seen() -> None:
    data = b"".join(
        (
            batch_at(0, [b"a"], producer_id=1, transactional=True),
            batch_at(1, [b"b"], producer_id=2, transactional=True),
            marker_at(2, 1, committed=False),
            batch_at(3, [b"c"], producer_id=1, transactional=True),
            marker_at(4, 1, committed=True),
            marker_at(5, 2, committed=True),
        )
    )
    for aborted, seen in (([(1, 0)], [1, 3]), ([], [0, 1, 3])):
        found = surveyed(data, 0, aborted)
        assert [header.base_offset for _, header in found.batches] == seen
        assert (found.end, found.last_epoch) == (6, -1)


def told(leader: int, epoch: int) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
    )
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=[partition])])


def test_an_older_leader_epoch_is_not_believed() -> None:
    view = ClusterView()
    assert view.absorb(told(1, 5))
    assert not view.absorb(told(1, 5))
    assert view.absorb(told(2, 6))
    view.absorb(told(1, 5))
    leader = view.leader(T0)
    assert leader is not None and leader.leader == 2
    assert not view.moved(T0, 1, 6, None)
    assert not view.moved(T0, 9, 7, None)
    assert view.moved(T0, 9, 7, ("h", 9))


def test_backoff_doubles_up_to_its_bound() -> None:
    pauses = [backoff(attempt, 0.05, 1.0, Random(attempt)) for attempt in range(10)]
    assert 0.04 <= pauses[0] <= 0.06 and 0.8 <= pauses[9] <= 1.2


def test_options_are_refused_by_name_and_value() -> None:
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        configure(ProducerConfig, "h:1", {"lingerms": 3})
    with pytest.raises(ConfigError, match="batch_size=0"):
        configure(ProducerConfig, "h:1", {"batch_size": 0})
    with pytest.raises(ConfigError, match="host:port"):
        configure(ProducerConfig, "h", {})
    with pytest.raises(ConfigError, match="acks='all'"):
        configure(ProducerConfig, "h:1", {"acks": 1, "enable_idempotence": True})
    assert configure(ProducerConfig, "h:1,[::1]:2", {}).addresses == [("h", 1), ("::1", 2)]
    assert configure(ProducerConfig, "h:1", {"acks": 1}).enable_idempotence is False
    with pytest.raises(ConfigError, match="did you mean 'serializer'"):
        configure(ProducerConfig, "h:1", {"value_serializer": str})
    assert configure(ConsumerConfig, "h:1", {"group_id": "g"}).group == "g"
    with pytest.raises(ConfigError, match="give only one"):
        configure(ConsumerConfig, "h:1", {"group_id": "g", "group": "g"})
    with pytest.raises(ConfigError, match="interceptors"):
        configure(ProducerConfig, "h:1", {"interceptors": [print]})
    with pytest.raises(ConfigError, match="heartbeat"):
        configure(ConsumerConfig, "h:1", {"session_timeout_ms": 10})


def test_what_was_handed_out_is_done_when_the_caller_comes_back_also_while_the_position_is_lost() -> None:
    place = PartitionPosition(T0)
    place.look_up(-2)
    place.go_on(0)
    assert place.processed == 0, "nothing was handed out before"
    place.stand_at(10)
    place.lose(-1)
    assert place.processed == 0
    place.came_back()
    assert (place.position, place.processed) == (None, 10)
    place.go_on(500)
    assert (place.position, place.processed) == (500, 500)
    place.stand_at(510)
    place.lose(-2)
    place.go_on(20)
    assert (place.position, place.processed) == (20, 20), "what comes again is not done"
    place.stand_at(30)
    place.look_up(-1)
    assert place.processed is None
    place.go_on(600)
    assert place.processed == 600, "who seeks is done with what it had"

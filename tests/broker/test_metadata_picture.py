"""What UpdateMetadata makes of a picture, and that a picture never changes."""

from dataclasses import replace
from uuid import UUID

import pytest

from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.metadata.cache import MetadataCache, Picture
from strandline.protocol.messages.control import (
    TopicConfigEntry,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ONE, TWO = UUID(int=1), UUID(int=2)


def broker(number: int, listener: str = "PLAINTEXT") -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=9000 + number, host="h", listener=listener)
    return UpdateMetadataBroker(id=number, endpoints=[endpoint], rack="r")


def partition(index: int, leader: int, epoch: int = 0) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1],
        zk_version=0,
        replicas=[1, 2],
    )


def topic(name: str, topic_id: UUID, *partitions: UpdateMetadataPartitionState) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        topic_name=name,
        topic_id=topic_id,
        partition_states=list(partitions),
        configs=[TopicConfigEntry(name="retention.ms", value="5")],
    )


def update(*topics: UpdateMetadataTopicState, brokers: tuple[int, ...] = (1, 2)) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=list(topics),
        live_brokers=[broker(number) for number in brokers],
    )


def full(*topics: UpdateMetadataTopicState) -> UpdateMetadataRequest:
    request = update(*topics)
    request.type = 2
    return request


def gone(before: Picture, request: UpdateMetadataRequest) -> list[str]:
    return sorted(map(str, before.updated(request).gone_since(before, request)))


def test_what_an_update_deletes_is_told() -> None:
    a, b = topic("a", ONE, partition(0, 1), partition(1, 2)), topic("b", TWO, partition(0, 1))
    before = Picture().updated(full(a, b))
    assert gone(before, update(topic("a", ONE, partition(1, 1, epoch=4)))) == [], "a new leader"
    assert gone(before, update(topic("a", ONE, partition(2, 1)))) == []
    assert gone(before, update(topic("a", ONE, partition(1, leader=-2)))) == ["a-1"]
    assert gone(before, update(topic("a", ONE, partition(0, -2), partition(1, -2)))) == ["a-0", "a-1"]
    assert gone(before, update(topic("a", UUID(int=3), partition(0, 1)))) == ["a-0", "a-1"], "made again"
    assert gone(before, full(b)) == ["a-0", "a-1"], "heard of by its absence"
    assert gone(before, full(a, topic("b", UUID(int=3), partition(0, 1)))) == ["b-0"]


def test_only_who_was_told_of_all_topics_knows_what_there_is_not() -> None:
    a, c = topic("a", ONE, partition(0, 1)), topic("c", TWO, partition(0, 1))
    some = Picture().updated(update(a))
    assert not some.lacks(TopicPartition("b", 0))
    told = some.updated(full(a)).updated(update(c))
    assert told.lacks(TopicPartition("b", 0)) and told.lacks(TopicPartition("a", 1))
    assert not told.lacks(TopicPartition("a", 0)) and not told.lacks(TopicPartition("c", 0))


@pytest.mark.parametrize("by_kafkas", [False, True])
def test_what_an_earlier_controller_has_named_is_not_all_there_is(by_kafkas: bool) -> None:
    """A broker that it could not reach any more knows no topic that was made since, and may hear of its role
    from the next one before it hears of the topics, if that is Kafka's.
    """
    a, b = topic("a", ONE, partition(0, 1)), topic("b", TWO, partition(0, 1))
    told = Picture().updated(full(a))
    assert told.updated(update()).lacks(TopicPartition("b", 0))
    after = told.updated(replace(update(), controller_epoch=9), by_kafkas)
    assert not after.lacks(TopicPartition("b", 0))
    assert not after.updated(replace(update(b), controller_epoch=9), by_kafkas).lacks(TopicPartition("c", 0))
    assert after.updated(replace(full(b), controller_epoch=9)).lacks(TopicPartition("a", 0))


def test_who_is_out_of_the_controllers_reach_does_not_know_what_there_is_not() -> None:
    a = topic("a", ONE, partition(0, 1))
    cache = MetadataCache(BrokerId(1))
    cache.picture = cache.picture.updated(full(a))
    cache.doubt()
    assert not cache.picture.lacks(TopicPartition("b", 0)) and cache.has(TopicPartition("a", 0))
    assert not cache.picture.updated(update(a)).lacks(TopicPartition("b", 0)), "one update does not name all"
    assert cache.picture.updated(full(a)).lacks(TopicPartition("b", 0))


def test_a_controller_of_kafka_does_not_say_that_it_tells_of_all_topics_and_does() -> None:
    a, c = topic("a", ONE, partition(0, 1)), topic("c", TWO, partition(0, 1))
    brokers_alone = Picture().updated(update(), by_kafkas=True)
    assert not brokers_alone.is_whole
    told = brokers_alone.updated(update(a, c), by_kafkas=True)
    assert told.is_whole
    assert not told.lacks(TopicPartition("b", 0)), "all its replicas may be away: it comes a moment later"
    request = update(topic("a", ONE, partition(0, leader=-2)))
    fewer = told.updated(request, by_kafkas=True)
    assert "a" not in fewer.topics and "c" in fewer.topics
    assert list(map(str, fewer.gone_since(told, request))) == ["a-0"]


def test_an_update_names_what_changed_and_all_brokers() -> None:
    first = Picture().updated(update(topic("a", ONE, partition(0, 1), partition(1, 2))))
    second = first.updated(update(topic("a", ONE, partition(1, 1, epoch=3)), brokers=(1,)))
    assert sorted(second.brokers) == [1]
    assert [p.leader for p in second.topics["a"].partitions.values()] == [1, 1]
    known = second.partition("a", 1)
    assert known is not None
    assert known.leader_epoch == 3
    assert second.names == {ONE: "a"}


def test_a_picture_that_somebody_holds_does_not_change() -> None:
    first = Picture().updated(update(topic("a", ONE, partition(0, 1))))
    first.updated(update(topic("a", ONE, partition(0, 2)), topic("b", TWO, partition(0, 2)), brokers=()))
    assert sorted(first.topics) == ["a"]
    known = first.partition("a", 0)
    assert known is not None
    assert known.leader == 1
    assert sorted(first.brokers) == [1, 2]


def test_a_topic_that_is_deleted_goes() -> None:
    first = Picture().updated(update(topic("a", ONE, partition(0, 1), partition(1, 1))))
    half = first.updated(update(topic("a", ONE, partition(0, -2))))
    assert sorted(half.topics["a"].partitions) == [1]
    gone = half.updated(update(topic("a", ONE, partition(1, -2))))
    assert (dict(gone.topics), dict(gone.names)) == ({}, {})


def test_a_topic_created_again_has_nothing_of_the_old_one() -> None:
    first = Picture().updated(update(topic("a", ONE, partition(0, 1), partition(1, 1))))
    again = first.updated(update(topic("a", TWO, partition(0, 2))))
    assert sorted(again.topics["a"].partitions) == [0]
    assert again.names == {TWO: "a"}


def test_addresses_are_those_of_a_listener() -> None:
    picture = Picture().updated(update())
    address = picture.address(1, "PLAINTEXT")
    assert address is not None
    assert (address.host, address.port) == ("h", 9001)
    assert picture.address(1, "OTHER") is None
    assert picture.address(7, "PLAINTEXT") is None


def test_another_replica_is_in_sync_only_if_it_lives_and_the_isr_says_so() -> None:
    both = partition(0, leader=1)
    both.isr = [1, 2]
    picture = Picture().updated(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            live_brokers=[broker(1), broker(2)],
            topic_states=[topic("t", ONE, both, partition(1, leader=1))],
        )
    )
    held = {n: picture.is_in_sync_elsewhere(1, TopicPartition("t", n)) for n in range(3)}
    assert held == {0: True, 1: False, 2: False}
    picture = picture.updated(
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=[broker(1)], topic_states=[])
    )
    assert not picture.is_in_sync_elsewhere(1, TopicPartition("t", 0))

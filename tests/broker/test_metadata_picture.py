"""What UpdateMetadata makes of a picture, and that a picture never changes."""

from uuid import UUID

from strandline.broker.metadata import Picture
from strandline.protocol.messages.control import (
    ConfigEntry,
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
        configs=[ConfigEntry(name="retention.ms", value="5")],
    )


def update(*topics: UpdateMetadataTopicState, brokers: tuple[int, ...] = (1, 2)) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=list(topics),
        live_brokers=[broker(number) for number in brokers],
    )


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

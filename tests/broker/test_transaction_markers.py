"""Markers on their way: to this broker's partitions, to others, again when nobody took them, to nobody."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.base.tasks import Tasks
from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.metadata.cache import Picture
from strandline.broker.transactions import markers
from strandline.broker.transactions.markers import Errand, MarkerSender
from strandline.broker.transactions.state import Marking, ProducerIdentity
from strandline.client.network.connection import ConnectionLost
from strandline.protocol.errors import ErrorCode
from strandline.protocol.markers import EndMarker
from strandline.protocol.messages.control import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.zookeeper.client import Unknown, ZkError

ME, OTHER, THIRD = 1, 2, 3
X, Y, Z = TopicPartition("x", 0), TopicPartition("y", 0), TopicPartition("z", 0)
PRODUCER = ProducerIdentity(7, 3)


class Peer:
    """A connection to another broker, which answers when it is told to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_lost = False
        self.asked: list[WriteTxnMarkersRequest] = []
        self.answers: list[asyncio.Future[Any]] = []

    def submit(self, request: WriteTxnMarkersRequest, *, deadline: float) -> "asyncio.Future[Any]":
        self.asked.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The same result for all partitions of the last request."""
        self.answers[-1].set_result(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(partition_index=each, error_code=code)
                                    for each in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in self.asked[-1].markers
                ]
            )
        )

    def give_up(self, reason: str) -> None:
        self.is_lost = True
        self.answers[-1].set_exception(ConnectionLost(reason))

    async def close(self) -> None:
        self.is_lost = True


@dataclass
class Stage:
    """A sender of broker 1, and the cluster that it knows."""

    leaders: dict[TopicPartition, int] = field(default_factory=lambda: {X: ME, Y: OTHER, Z: OTHER})
    written: list[tuple[TopicPartition, int, int, EndMarker, Callable[[ErrorCode], None]]] = field(
        default_factory=list
    )
    peers: list[Peer] = field(default_factory=list)
    heard: list[tuple[TopicPartition, ErrorCode]] = field(default_factory=list)
    unreachable: bool = False
    looks: int = 0  # at who leads
    is_kafkas: bool = False  # the controller, which never says that it has named all topics
    gone: dict[str, bool | ZkError] = field(default_factory=dict)  # what ZooKeeper says of topics
    looked_for: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sender = MarkerSender(
            BrokerId(ME), "INTERNAL", self.picture, self.write, Tasks("markers"), self.is_gone, self.open
        )

    def picture(self) -> Picture:
        self.looks += 1
        topics = [
            UpdateMetadataTopicState(
                topic_name=tp.topic,
                topic_id=markers_id(tp),
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=tp.partition, controller_epoch=1, leader=leader, leader_epoch=1,
                        isr=[leader], zk_version=1, replicas=[leader], offline_replicas=[],
                    )
                ],
            )
            for tp, leader in self.leaders.items()
        ]  # fmt: skip
        brokers = [
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(port=broker, host="h", listener="INTERNAL", security_protocol=0)
                ],
            )
            for broker in (ME, OTHER, THIRD)
        ]
        request = UpdateMetadataRequest(
            controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=topics, live_brokers=brokers,
            type=0 if self.is_kafkas else 2,
        )  # fmt: skip
        return Picture().updated(request)

    async def is_gone(self, topic: str) -> bool:
        self.looked_for.append(topic)
        answer = self.gone[topic]
        if isinstance(answer, ZkError):
            raise answer
        return answer

    def write(
        self,
        tp: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        marker: EndMarker,
        done: Callable[[ErrorCode], None],
        deadline: float,
    ) -> None:
        self.written.append((tp, producer_id, producer_epoch, marker, done))

    async def open(self, address: Any) -> Peer:
        if self.unreachable:
            raise OSError("nobody listens")
        self.peers.append(Peer(address.port))
        return self.peers[-1]

    def send(self, *partitions: TopicPartition, producer: ProducerIdentity = PRODUCER) -> Errand:
        marking = Marking(producer, True, set(partitions))

        def heard(tp: TopicPartition, code: ErrorCode) -> None:
            self.heard.append((tp, code))
            if code is ErrorCode.NONE:
                marking.waiting.discard(tp)
            else:
                marking.is_over = True

        errand = Errand(marking, 5, heard)
        self.sender.send(errand)
        return errand

    async def asked(self, requests: int = 1, peer: int = -1) -> Peer:
        """Wait until a peer has been asked so often."""
        async with asyncio.timeout(20):
            while not self.peers or len(self.peers[peer].asked) < requests:
                await asyncio.sleep(0.001)
        return self.peers[peer]

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not there():
                await asyncio.sleep(0.001)

    async def looked_again(self, times: int = 3) -> None:
        """Wait until the sender has looked so often at who leads: what it does then, it has done."""
        wanted = self.looks + times
        await self.until(lambda: self.looks >= wanted)


def markers_id(tp: TopicPartition) -> Any:
    from uuid import UUID

    return UUID(int=ord(tp.topic))


def plays(story: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    async def play() -> None:
        stage = Stage()
        stage.sender.start()
        await story(stage)
        await stage.sender.stop()

    def test() -> None:
        asyncio.run(play())

    test.__name__, test.__doc__ = story.__name__, story.__doc__  # type: ignore[attr-defined]
    return test


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "PAUSE_S", (0.001, 0.01))
    monkeypatch.setattr(markers, "LOOK_S", 0.005)


@plays
async def test_each_leader_is_told(stage: Stage) -> None:
    """What this broker leads is written at once; another broker gets one request with the rest."""
    stage.send(X, Y, Z)
    ((tp, producer_id, epoch, marker, done),) = stage.written
    assert (tp, producer_id, epoch, marker) == (X, 7, 3, EndMarker(True, 5))
    peer = await stage.asked()
    (told,) = peer.asked[0].markers
    assert (told.producer_id, told.producer_epoch, told.transaction_result, told.coordinator_epoch) == (
        7,
        3,
        True,
        5,
    )
    assert [(topic.name, topic.partition_indexes) for topic in told.topics] == [("y", [0]), ("z", [0])]
    assert stage.heard == [] and peer.port == OTHER
    done(ErrorCode.NONE)
    peer.answer()
    await stage.until(lambda: len(stage.heard) == 3)
    assert {code for _, code in stage.heard} == {ErrorCode.NONE}


@plays
async def test_one_request_at_a_time(stage: Stage) -> None:
    """What comes meanwhile goes together in the next, over the same connection."""
    stage.send(Y)
    peer = await stage.asked()
    stage.send(Y, producer=ProducerIdentity(8, 0))
    stage.send(Z, producer=ProducerIdentity(9, 0))
    await stage.looked_again()
    assert len(peer.asked) == 1
    peer.answer()
    await stage.asked(2)
    assert [marker.producer_id for marker in peer.asked[1].markers] == [8, 9]
    peer.answer()
    await stage.until(lambda: len(stage.heard) == 3)
    assert len(stage.peers) == 1


@plays
async def test_a_refused_marker_follows_the_leader(stage: Stage) -> None:
    """Whoever is asked may lead no more, or have too few replicas: the marker goes to whoever leads then."""
    stage.send(X)
    stage.leaders[X] = OTHER
    stage.written[0][-1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    peer = await stage.asked()
    peer.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    await stage.asked(2)
    stage.leaders[X] = THIRD
    peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await stage.until(lambda: len(stage.peers) == 2 and bool(stage.peers[1].asked))
    assert stage.peers[1].port == THIRD and stage.heard == []
    stage.peers[1].answer()
    await stage.until(lambda: stage.heard == [(X, ErrorCode.NONE)])


@plays
async def test_a_leader_that_hangs_is_given_up_when_another_leads(stage: Stage) -> None:
    """Not before: a marker that is on its way must not arrive after the next transaction has begun."""
    stage.send(Y)
    peer = await stage.asked()
    await stage.looked_again()
    assert not peer.is_lost
    stage.leaders[Y] = THIRD
    await stage.until(lambda: len(stage.peers) == 2 and bool(stage.peers[1].asked))
    assert peer.is_lost
    stage.peers[1].answer()
    await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])


@plays
async def test_a_partition_without_a_leader_waits(stage: Stage) -> None:
    stage.leaders[X] = -1
    stage.send(X)
    await stage.until(lambda: stage.sender.homeless == 1)
    await stage.looked_again()
    assert stage.written == [] and stage.heard == []
    stage.leaders[X] = ME
    await stage.until(lambda: bool(stage.written))
    stage.written[0][-1](ErrorCode.NONE)
    assert stage.heard == [(X, ErrorCode.NONE)] and not stage.sender.homeless


@plays
async def test_a_broker_that_cannot_be_reached_is_tried_again(stage: Stage) -> None:
    stage.unreachable = True
    stage.send(Y)
    await stage.until(lambda: stage.sender.homeless == 1)
    stage.unreachable = False
    (await stage.asked()).answer()
    await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])


@plays
async def test_a_deleted_partition_needs_no_marker(stage: Stage) -> None:
    """But a broker that has just become coordinator may only not have heard of it yet."""
    del stage.leaders[Y]
    stage.send(Y)
    await stage.looked_again()
    assert stage.heard == []
    stage.leaders[Y] = OTHER
    (await stage.asked()).answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before, markers.GONE_AFTER_S = markers.GONE_AFTER_S, 0.02
    try:
        del stage.leaders[Y]
        await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])
    finally:
        markers.GONE_AFTER_S = before
    assert len(stage.peers[0].asked) == 1


@plays
async def test_under_a_controller_of_kafka_zookeeper_says_that_a_partition_is_deleted(stage: Stage) -> None:
    """The transaction was never complete, and its producer could not begin another one."""
    stage.is_kafkas, stage.gone["y"] = True, Unknown()
    before, markers.GONE_AFTER_S = markers.GONE_AFTER_S, 0.02
    try:
        del stage.leaders[Y]
        stage.send(Y)
        await stage.until(lambda: len(stage.looked_for) == 2)
        stage.gone["y"] = False
        await stage.until(lambda: len(stage.looked_for) == 4)
        assert stage.heard == [], "it is there, and will be heard of"
        stage.gone["y"] = True
        await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])
    finally:
        markers.GONE_AFTER_S = before
    assert not stage.peers


@plays
async def test_whoever_knows_a_later_coordinator_is_believed(stage: Stage) -> None:
    """The rest of the transaction is not told to anybody: the later coordinator does that."""
    stage.leaders[X] = -1
    errand = stage.send(X, Y)
    (await stage.asked()).answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    await stage.until(lambda: stage.heard == [(Y, ErrorCode.TRANSACTION_COORDINATOR_FENCED)])
    assert errand.marking.is_over
    stage.leaders[X] = ME
    await stage.until(lambda: not stage.sender._pausing)  # its turn has come again
    assert stage.written == [] and not stage.sender.homeless


@plays
async def test_where_a_newer_epoch_writes_no_marker_is_needed_and_the_others_get_theirs(stage: Stage) -> None:
    """Whoever made that epoch up must not keep readers of the other partitions waiting."""
    stage.leaders[X] = -1
    errand = stage.send(X, Y)
    (await stage.asked()).answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])
    assert not errand.marking.is_over
    stage.leaders[X] = ME
    await stage.until(lambda: bool(stage.written))


@plays
async def test_what_is_over_is_neither_sent_nor_heard(stage: Stage) -> None:
    """This broker coordinates no more."""
    first = stage.send(Y)
    peer = await stage.asked()
    second = stage.send(Z, producer=ProducerIdentity(8, 0))
    first.marking.is_over = second.marking.is_over = True
    peer.answer()
    stage.send(Y, producer=ProducerIdentity(9, 0))
    await stage.asked(2)
    assert [marker.producer_id for marker in peer.asked[1].markers] == [9] and stage.heard == []
    peer.answer()
    await stage.until(lambda: stage.heard == [(Y, ErrorCode.NONE)])


@plays
async def test_a_partition_that_is_late_does_not_hold_up_the_others(stage: Stage) -> None:
    """Its markers go by a connection of their own until one is committed."""
    stage.send(Y)
    first = await stage.asked()
    first.answer(ErrorCode.REQUEST_TIMED_OUT)
    await stage.until(lambda: len(stage.peers) == 2 and bool(stage.peers[1].asked))
    stage.send(Z, producer=ProducerIdentity(8, 0))
    await stage.asked(2, peer=0)
    first.answer()
    await stage.until(lambda: stage.heard == [(Z, ErrorCode.NONE)])
    stage.peers[1].answer()
    await stage.until(lambda: stage.heard[1:] == [(Y, ErrorCode.NONE)])
    stage.send(Y, producer=ProducerIdentity(9, 0))
    await stage.asked(3, peer=0)
    first.answer()
    await stage.until(lambda: len(stage.heard) == 3)
    assert len(stage.peers) == 2

"""Asking coordinators: this broker's own, or another one over one connection, in few requests."""

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from strandline.base.tasks import Tasks
from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.metadata.cache import MetadataCache
from strandline.broker.transactions import verification
from strandline.broker.transactions.verification import Line, Question, Verification, served
from strandline.client.network.connection import ConnectionLost
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, NotCoordinator, UnsupportedVersion
from strandline.protocol.messages.control import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


class Here:
    """This broker's coordinator."""

    def __init__(self) -> None:
        self.raises: Exception | None = None

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        if self.raises is not None:
            raise self.raises
        return {tp: ErrorCode.NONE if tp == A else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}


class Peer:
    """Another coordinator's broker, and the connections to it. It answers when the test says so."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[AddPartitionsToTxnRequest] = []
        self._answers: list[asyncio.Future[Any]] = []
        self.is_lost = False
        self.closed = False
        self.versions = {Api.ADD_PARTITIONS_TO_TXN: 5}

    async def connect(self, deadline: float) -> Any:
        self.connections += 1
        self.is_lost = False
        return self

    async def request(self, message: AddPartitionsToTxnRequest, *, deadline: float) -> Any:
        self.requests.append(message)
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    async def close(self) -> None:
        self.closed = True

    def answer(self, code: int = 0) -> None:
        """Every partition of the last request gets this code."""
        results = [
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in self.requests[-1].transactions
        ]
        self._answers[-1].set_result(AddPartitionsToTxnResponse(results_by_transaction=results))

    def refuse(self, code: int) -> None:
        self._answers[-1].set_result(AddPartitionsToTxnResponse(error_code=code))

    def break_off(self) -> None:
        self.is_lost = True
        self.fail(ConnectionLost("gone"))

    def fail(self, error: Exception) -> None:
        self._answers[-1].set_exception(error)

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.requests) < count:
                await asyncio.sleep(0)


class Desk:
    """A line to the peer, and questions to it."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.tasks = Tasks("test")
        self.line = Line(cast(Any, self.peer.connect), self.tasks)

    def ask(self, name: str, *partitions: TopicPartition, epoch: int = 0, producer_id: int = 7) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.line.add(Question(name, producer_id, epoch, partitions, answer))
        return answer

    async def stop(self) -> None:
        await self.tasks.stop()
        await self.line.stop()


async def test_questions_that_come_meanwhile_share_the_next_request() -> None:
    desk = Desk()
    first = desk.ask("one", A)
    await desk.peer.asked(1)
    others = [desk.ask("two", A), desk.ask("three", B), desk.ask("two", A, B)]
    assert len(desk.peer.requests) == 1, "one request is under way at a time"
    desk.peer.answer()
    assert await first == {A: ErrorCode.NONE}
    await desk.peer.asked(2)
    asked = desk.peer.requests[1].transactions
    assert [(one.transactional_id, one.verify_only) for one in asked] == [("two", True), ("three", True)]
    desk.peer.answer(ErrorCode.TRANSACTION_ABORTABLE)
    no = ErrorCode.TRANSACTION_ABORTABLE
    assert [await one for one in others] == [{A: no}, {B: no}, {A: no, B: no}]
    assert desk.peer.connections == 1
    await desk.stop()
    assert desk.peer.closed


async def test_producers_hear_what_they_expect() -> None:
    desk = Desk()
    for said, heard in (
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ):
        for whole in (False, True):
            answer = desk.ask("one", A)
            await desk.peer.asked(1)
            desk.peer.refuse(said) if whole else desk.peer.answer(said)
            assert await answer == {A: heard}
            desk.peer.requests.clear()
    await desk.stop()


async def test_a_lost_connection_answers_and_the_next_question_makes_another() -> None:
    desk = Desk()
    answer = desk.ask("one", A)
    await desk.peer.asked(1)
    desk.peer.break_off()
    assert await answer == {A: ErrorCode.NETWORK_EXCEPTION}
    again = desk.ask("one", A)
    await desk.peer.asked(2)
    desk.peer.answer()
    assert await again == {A: ErrorCode.NONE}
    assert desk.peer.connections == 2
    await desk.stop()


async def test_a_newer_producer_of_the_same_id_takes_the_place_of_the_older() -> None:
    desk = Desk()
    desk.ask("busy", A)
    await desk.peer.asked(1)
    old, new, late = (desk.ask("one", A, epoch=epoch) for epoch in (1, 2, 1))
    assert await old == await late == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    moved = desk.ask("one", A, epoch=2, producer_id=8)
    assert await new == {A: ErrorCode.NETWORK_EXCEPTION}
    desk.peer.answer()
    await desk.peer.asked(2)
    assert [one.producer_id for one in desk.peer.requests[1].transactions] == [8]
    desk.peer.answer()
    assert await moved == {A: ErrorCode.NONE}
    await desk.stop()


async def test_epochs_of_different_producer_ids_are_not_compared() -> None:
    """A new producer id begins at 0, when the epochs of the one before are used up."""
    desk = Desk()
    desk.ask("busy", A)
    await desk.peer.asked(1)
    zombie, rightful = desk.ask("one", A, epoch=32766), desk.ask("one", A, producer_id=8)
    assert await zombie == {A: ErrorCode.NETWORK_EXCEPTION}
    desk.peer.answer()
    await desk.peer.asked(2)
    desk.peer.answer()
    assert await rightful == {A: ErrorCode.NONE}
    await desk.stop()


async def test_a_coordinator_of_before_kafka_3_6_is_not_asked() -> None:
    """It knows no question between brokers, and would hang up on one: Kafka's leaders trust then, too."""
    desk = Desk()
    desk.peer.versions = {Api.ADD_PARTITIONS_TO_TXN: 3}
    with capture_logs() as told:
        for _ in range(2):
            assert await desk.ask("one", A, B) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert not desk.peer.requests
    assert [one["event"] for one in told] == ["transactions_not_verified"], "told once for a connection"
    await desk.stop()


def test_a_coordinator_of_ours_is_asked_though_it_offered_less_than_it_serves() -> None:
    """For some time our brokers told each other what clients are told. Kafka's are taken at their word."""
    add, heartbeat = Api.ADD_PARTITIONS_TO_TXN, Api.CONSUMER_GROUP_HEARTBEAT
    assert served({add: 3, heartbeat: 1})[add] == 5
    for kafkas in ({add: 3}, {add: 4, heartbeat: 0}, {add: 5, heartbeat: 0}):
        assert served(kafkas) == kafkas


@pytest.mark.parametrize("code", [999, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_coordinator_that_does_not_understand_ends_nobody(code: int) -> None:
    desk = Desk()
    answer = desk.ask("one", A)
    await desk.peer.asked(1)
    desk.peer.answer(code) if code == 999 else desk.peer.fail(UnsupportedVersion("it is older"))
    said = {A: ErrorCode.UNKNOWN_SERVER_ERROR if code == 999 else ErrorCode.NETWORK_EXCEPTION}
    async with asyncio.timeout(20):
        assert await answer == said
    again = desk.ask("one", A)
    await desk.peer.asked(2)
    desk.peer.answer()
    assert await again == {A: ErrorCode.NONE}
    await desk.stop()


async def test_questions_are_bounded_and_none_is_left_at_the_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(verification, "QUESTIONS_MAX", 2)
    desk = Desk()
    under_way = desk.ask("zero", A)
    await desk.peer.asked(1)
    waiting = [desk.ask(f"{number}", A) for number in range(3)]
    assert await waiting[2] == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not waiting[1].done()
    await desk.stop()
    for one in (under_way, *waiting[:2]):
        assert await one == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def picture(leader: int) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=leader, leader_epoch=0, isr=[1], zk_version=0,
        replicas=[1, 2],
    )  # fmt: skip
    topic = UpdateMetadataTopicState(topic_name="__transaction_state", partition_states=[state])
    point = UpdateMetadataEndpoint(port=1, host="127.0.0.1", listener="PLAINTEXT")
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic],
        live_brokers=[UpdateMetadataBroker(id=1, endpoints=[point])],
    )  # fmt: skip


async def test_who_coordinates_is_read_from_the_picture() -> None:
    cache, here = MetadataCache(BrokerId(1)), Here()
    config = SimpleNamespace(id=1, broker_id=1, inter_broker_listener="PLAINTEXT")
    asks = Verification(cast(Any, SimpleNamespace(current=config)), cache, here, Tasks("test"))
    assert asks.ask("tx", 7, 0, [A]).result() == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    cache.picture = cache.picture.updated(picture(1))
    assert asks.ask("tx", 7, 0, [A, B]).result() == {A: 0, B: ErrorCode.TRANSACTION_ABORTABLE}
    here.raises = NotCoordinator()
    assert asks.ask("tx", 7, 0, [A]).result() == {A: ErrorCode.NOT_COORDINATOR}
    cache.picture = cache.picture.updated(picture(-1))
    assert asks.ask("tx", 7, 0, [A]).result() == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    cache.picture = cache.picture.updated(picture(2))
    assert await asks.ask("tx", 7, 0, [A]) == {A: ErrorCode.NETWORK_EXCEPTION}, "it is not registered"
    await asks.stop()

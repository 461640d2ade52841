"""Requests about transactions through their handlers, in every version, from request to answer."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.coordinator_partitions import partition_of
from strandline.broker.handlers import producers
from strandline.broker.handlers.groups import coordinators
from strandline.broker.handlers.transactions import listing, patience, progress
from strandline.broker.network.exchange import Exchange, Listener
from strandline.broker.replicas.purgatory import Deadlines
from strandline.broker.transactions.state import EPOCH_GIVEN_MAX, ProducerIdentity
from strandline.protocol.apis import APIS, Api, response_header_version
from strandline.protocol.error_codes import ApiError, ErrorCode
from strandline.protocol.messages import groups, transactions
from strandline.protocol.messages import producers as ids
from strandline.protocol.schema import decode, encode
from tests.broker.cluster_harness import TellsAtOnce
from tests.broker.coordinator_harness import TransactionStage, X, Y
from tests.broker.test_group_handlers import picture, topic

HANDLERS = {
    api: entry
    for file in (producers, progress, listing, coordinators)
    for api, entry in file.HANDLERS.items()  # type: ignore[attr-defined]
}
GROUPS = 50  # partitions of __consumer_offsets


class Client:
    """Sends requests straight to the handlers, by way of their bytes."""

    def __init__(self, stage: TransactionStage) -> None:
        self.stage = stage
        self.channel: Any = None  # of the last request
        self.deadlines: Any = SimpleNamespace(add=lambda waiter, deadline: False)  # nobody may wait
        self.picture = picture(topic("__transaction_state"), topic("x"), topic("y"))

    async def send(self, request: Any, version: int) -> Any:
        """The answer, after whatever had to be committed."""
        answers = await self.begin(request, version)
        self.stage.commit()
        (answer,) = answers
        return answer

    async def begin(self, request: Any, version: int) -> list[Any]:
        """The list holds the answer once there is one."""
        api = next(api for api in HANDLERS if APIS[api].request is type(request))
        answers: list[Any] = []

        def answered(exchange: Exchange) -> None:
            frame = b"".join(exchange.parts or ())
            body_at = 8 + response_header_version(api, version)
            body, end = decode(APIS[api].response, version, frame, body_at)
            assert end == len(frame)
            answers.append(body)

        channel: Any = SimpleNamespace(peer="127.0.0.1:5000", answered=answered, closed=False)
        self.channel = channel
        exchange = Exchange(channel, Listener("CLIENT", version >= 4), api, version, 1, "me")
        broker: Any = SimpleNamespace(
            transactions=self.stage.coordinator,
            shared=SimpleNamespace(loop=asyncio.get_running_loop(), deadlines=self.deadlines),
            groups=SimpleNamespace(partition_count=lambda: GROUPS),
            metadata=self.picture,
            held=TellsAtOnce(),
            producer_ids=SimpleNamespace(take=self.stage._take),
        )
        entry = HANDLERS[api]
        body, _ = decode(type(request), version, b"".join(encode(request, version)))
        try:
            answer = entry.handle(broker, exchange, body)
            answer = await answer if inspect.isawaitable(answer) else answer
        except ApiError as error:
            answer = entry.refuse(body, error)
        if answer is not None:
            exchange.answer(answer)
        return answers

    async def init(self, name: str = "t", version: int = 5, **options: Any) -> Any:
        asked = ids.InitProducerIdRequest(
            transactional_id=name, **{"transaction_timeout_ms": 60_000, **options}
        )
        return await self.send(asked, version)

    async def ongoing(self) -> Any:
        """A producer with a transaction in x."""
        producer = await self.init()
        await self.send(adding(producer, X, version=3), 3)
        return producer


def adding(producer: Any, *partitions: TopicPartition, version: int, **options: Any) -> Any:
    topics = [
        transactions.AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition]) for tp in partitions
    ]
    if version < 4:
        return transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
    one = transactions.AddPartitionsToTxnTransaction(
        transactional_id=options.pop("name", "t"),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
        **options,
    )
    return transactions.AddPartitionsToTxnRequest(transactions=[one])


def added(answer: Any, version: int) -> dict[str, int]:
    results = (
        answer.results_by_topic_v3_and_below
        if version < 4
        else answer.results_by_transaction[0].topic_results
    )
    return {result.name: result.results_by_partition[0].partition_error_code for result in results}


def ending(producer: Any, committed: bool = True) -> Any:
    return transactions.EndTxnRequest(
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )


def in_every_version(api: Api) -> Any:
    versions = range(APIS[api].spec.versions[0], APIS[api].spec.versions[-1] + 1)
    return pytest.mark.parametrize("version", versions, ids=lambda version: f"v{version}")


def play(story: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = await TransactionStage().lead()
        await story(Client(stage))
        await stage.coordinator.stop()

    asyncio.run(run())


@in_every_version(Api.INIT_PRODUCER_ID)
def test_init(version: int) -> None:
    """Old clients know no PRODUCER_FENCED."""

    async def story(client: Client) -> None:
        first = await client.init(version=version)
        assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 7, 0)
        assert (await client.init(version=version)).producer_epoch == 1
        if version >= 3:
            zombie = await client.init(version=version, producer_id=7, producer_epoch=0)
            fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
            assert (zombie.error_code, zombie.producer_id, zombie.producer_epoch) == (fenced, -1, -1)
        for wrong, code in (
            ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ):
            assert (await client.init(version=version, **wrong)).error_code == code

    play(story)


@in_every_version(Api.ADD_PARTITIONS_TO_TXN)
def test_partitions_are_added(version: int) -> None:
    """All or none; clients send one transaction, brokers several."""

    async def story(client: Client) -> None:
        producer = await client.init()
        gone = TopicPartition("gone", 0)
        answer = await client.send(adding(producer, X, gone, version=version), version)
        assert added(answer, version) == {
            "x": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert client.stage.state() == "Empty"
        answer = await client.send(adding(producer, X, Y, version=version), version)
        assert added(answer, version) == {"x": 0, "y": 0} and client.stage.state() == "Ongoing"
        zombie = replace(producer, producer_epoch=producer.producer_epoch - 1)
        answer = await client.send(adding(zombie, X, version=version), version)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert added(answer, version) == {"x": fenced}
        client.stage.resign()
        answer = await client.send(adding(producer, X, version=version), version)
        assert added(answer, version) == {"x": ErrorCode.NOT_COORDINATOR}

    play(story)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_whether_a_partition_is_in_it(version: int) -> None:
    async def story(client: Client) -> None:
        producer = await client.ongoing()
        asked = adding(producer, X, Y, version=version, verify_only=True)
        asked.transactions.extend(
            adding(producer, X, version=version, name="u", verify_only=True).transactions
        )
        answer = await client.send(asked, version)
        assert added(answer, version) == {"x": 0, "y": ErrorCode.TRANSACTION_ABORTABLE}
        other = answer.results_by_transaction[1]
        assert other.transactional_id == "u"
        assert other.topic_results[0].results_by_partition[0].partition_error_code == (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        assert not client.stage.waiting, "a question writes nothing"
        nothing = await client.send(transactions.AddPartitionsToTxnRequest(transactions=[]), version)
        assert nothing.results_by_transaction == []

    play(story)


@in_every_version(Api.ADD_OFFSETS_TO_TXN)
def test_offsets_are_added(version: int) -> None:
    """By the partition of __consumer_offsets that has the group, even before that topic exists."""

    async def story(client: Client) -> None:
        producer = await client.init()
        asked = transactions.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=7, producer_epoch=0, group_id="g"
        )
        answers = await client.begin(asked, version)
        assert answers == []
        client.stage.commit()
        assert answers[0].error_code == 0
        found = client.stage.coordinator.find("t")
        assert found is not None and found.standing is not None
        assert found.standing.partitions == {TopicPartition("__consumer_offsets", partition_of("g", GROUPS))}
        asked.producer_epoch = producer.producer_epoch + 1
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await client.send(asked, version)).error_code == fenced
        client.stage.resign()
        assert (await client.send(asked, version)).error_code == ErrorCode.NOT_COORDINATOR

    play(story)


@in_every_version(Api.END_TXN)
def test_end(version: int) -> None:
    async def story(client: Client) -> None:
        producer = await client.ongoing()
        answers = await client.begin(ending(producer), version)
        assert answers == [] and not client.stage.markers.sent
        client.stage.commit()
        assert answers[0].error_code == 0
        client.stage.deliver()
        assert (await client.send(ending(producer), version)).error_code == 0
        other = await client.send(ending(producer, committed=False), version)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE
        await client.init()
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await client.send(ending(producer), version)).error_code == fenced
        client.stage.resign()
        assert (await client.send(ending(producer), version)).error_code == ErrorCode.NOT_COORDINATOR

    play(story)


def test_describe() -> None:
    async def story(client: Client) -> None:
        await client.ongoing()
        asked = transactions.DescribeTransactionsRequest(transactional_ids=["t", "u"])
        first, second = (await client.send(asked, 0)).transaction_states
        assert (first.error_code, first.transaction_state, first.transaction_timeout_ms) == (
            0,
            "Ongoing",
            60_000,
        )
        assert (first.producer_id, first.producer_epoch) == (7, 0)
        assert first.transaction_start_time_ms == client.stage.clock.ms
        assert [(each.topic, each.partitions) for each in first.topics] == [("x", [0])]
        assert (second.transactional_id, second.error_code) == ("u", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        client.stage.resign()
        answer = await client.send(asked, 0)
        assert {each.error_code for each in answer.transaction_states} == {ErrorCode.NOT_COORDINATOR}

    play(story)


@in_every_version(Api.LIST_TRANSACTIONS)
def test_list(version: int) -> None:
    async def story(client: Client) -> None:
        await client.ongoing()
        await client.init("u")

        async def found(**filters: Any) -> tuple[set[str], list[str]]:
            answer = await client.send(transactions.ListTransactionsRequest(**filters), version)
            assert answer.error_code == 0
            names = {each.transactional_id for each in answer.transaction_states}
            return names, answer.unknown_state_filters

        assert await found() == ({"t", "u"}, [])
        assert await found(state_filters=["Ongoing", "Dead", "Sleepy"]) == ({"t"}, ["Sleepy"])
        assert await found(producer_id_filters=[8]) == ({"u"}, [])
        if version >= 1:
            client.stage.clock.ms += 1000
            assert "t" in (await found(duration_filter=999))[0]
            assert "t" not in (await found(duration_filter=1000))[0]
        next = await client.stage.successor(high_watermark=0)
        answer = await Client(next).send(transactions.ListTransactionsRequest(), version)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await next.coordinator.stop()

    play(story)


@in_every_version(Api.FIND_COORDINATOR)
def test_a_coordinator_is_found(version: int) -> None:
    """By the partition of the transactional id; whoever asks first has the topic created."""

    async def story(client: Client) -> None:
        if version == 0:
            return  # it knows groups only
        asked = groups.FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"])

        async def one() -> Any:
            answer = await client.send(asked, version)
            return answer.coordinators[0] if version >= 4 else answer

        found = await one()
        assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        client.picture = picture()
        client.stage.picture = client.picture
        found = await one()
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "transaction.state.log.replication.factor" in found.error_message
        asked.key_type = 2
        shares = ErrorCode.COORDINATOR_NOT_AVAILABLE if version >= 6 else ErrorCode.INVALID_REQUEST
        assert (await one()).error_code == shares
        asked.key_type = 3
        assert (await one()).error_code == ErrorCode.INVALID_REQUEST

    play(story)


def test_the_next_transaction_begins_when_the_last_one_has_ended() -> None:
    """Without a pause of the client's: the question waits until the last marker is written."""

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        producer = await client.ongoing()
        assert (await client.send(ending(producer), 3)).error_code == 0
        for version in (0, 3):
            next_one = await client.begin(adding(producer, Y, version=version), version)
            assert next_one == []
            client.stage.deliver()
            (answer,) = next_one
            assert added(answer, version) == {"y": 0}
            assert (await client.send(ending(producer), 3)).error_code == 0
        offsets = transactions.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
            group_id="g",
        )  # fmt: skip
        asked = await client.begin(offsets, 3)
        assert asked == []
        client.stage.deliver()
        assert asked[0].error_code == 0 and len(client.deadlines) == 0

    play(story)


@in_every_version(Api.INIT_PRODUCER_ID)
def test_a_producer_begins_when_the_transaction_before_it_has_ended(version: int) -> None:
    """Some clients take CONCURRENT_TRANSACTIONS for final. Who was there before is fenced as ever."""

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        first = await client.ongoing()
        asked = ids.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        begun = await client.begin(asked, version)
        client.stage.commit()
        assert begun == [] and client.stage.state() == "PrepareAbort"
        fenced = await client.send(adding(first, Y, version=3), 3)
        assert added(fenced, 3) == {"y": ErrorCode.PRODUCER_FENCED}, "from the decision on"
        client.stage.deliver()
        assert [(one.error_code, one.producer_id, one.producer_epoch) for one in begun] == [(0, 7, 2)]
        ended = await client.send(ending(first), 3)
        assert ended.error_code == ErrorCode.PRODUCER_FENCED and len(client.deadlines) == 0

    play(story)


def test_a_producer_that_aborts_goes_on_with_the_next_epoch() -> None:
    """What it has is judged when its transaction has ended: its own epoch still counts, an older one does
    not. Two who ask at once get two epochs, unless they say that they are the same.
    """

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        producer = await client.ongoing()
        assert (await client.send(ending(producer, committed=False), 3)).error_code == 0
        asked = ids.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=7, producer_epoch=0
        )
        begun = await client.begin(asked, 4)
        repeated = await client.begin(asked, 4)
        other = await client.begin(replace(asked, producer_id=-1, producer_epoch=-1), 4)
        client.stage.deliver()
        assert [one.producer_epoch for one in (*begun, *repeated, *other)] == [1, 1, 2]
        zombie = await client.send(asked, 4)
        assert zombie.error_code == ErrorCode.PRODUCER_FENCED and len(client.deadlines) == 0

    play(story)


def test_a_producer_whose_connection_has_ended_begins_nothing() -> None:
    """Else it would fence, for nobody, whoever has begun instead."""

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        await client.ongoing()
        asked = ids.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        begun = await client.begin(asked, 4)
        client.stage.commit()
        client.channel.closed = True
        client.stage.deliver()
        assert begun == [] and client.stage.state() == "CompleteAbort" and len(client.deadlines) == 0
        assert (await client.init()).producer_epoch == 2

    play(story)


def test_who_begins_while_no_end_comes_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the epochs are used up meanwhile: a new producer id is found by the next question."""
    monkeypatch.setattr(producers, "BEGIN_PATIENCE_S", 0.02)

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        await client.ongoing()
        found = client.stage.coordinator.find("t")
        assert found is not None and found.standing is not None
        last = ProducerIdentity(7, EPOCH_GIVEN_MAX)
        found.standing = replace(found.standing, producer=last)
        asked = ids.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        begun = await client.begin(asked, 4)
        client.stage.commit()
        client.stage.deliver()
        async with asyncio.timeout(20):
            while not begun:
                await asyncio.sleep(0.005)
        assert begun[0].error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        client.stage.commit()
        assert len(begun) == 1, "it is answered once"
        again = await client.init()
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, 8, 0)

    play(story)


def test_who_waits_for_an_end_that_does_not_come_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.02)

    async def story(client: Client) -> None:
        client.deadlines = Deadlines(asyncio.get_running_loop())
        producer = await client.ongoing()
        await client.send(ending(producer), 3)
        early = await client.begin(adding(producer, Y, version=3), 3)
        async with asyncio.timeout(20):
            while not early:
                await asyncio.sleep(0.005)
        assert added(early[0], 3) == {"y": ErrorCode.CONCURRENT_TRANSACTIONS}
        client.stage.deliver()
        assert len(early) == 1, "it is answered once"
        assert added(await client.send(adding(producer, Y, version=3), 3), 3) == {"y": 0}
        await client.send(ending(producer), 3)
        waiting = await client.begin(adding(producer, X, version=3), 3)
        client.stage.resign()
        async with asyncio.timeout(20):
            while not waiting:
                await asyncio.sleep(0.005)
        assert added(waiting[0], 3) == {"x": ErrorCode.CONCURRENT_TRANSACTIONS}

    play(story)

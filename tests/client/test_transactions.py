"""The transactional producer against a cluster that refuses, dies and forgets to answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client import (
    Admin,
    Consumer,
    GroupMetadata,
    IllegalGeneration,
    InvalidProducerEpoch,
    Producer,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TopicPartition,
    TransactionAborted,
)
from strandline.client import sync as blocking
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.groups import FindCoordinatorResponse
from strandline.protocol.messages.producers import InitProducerIdResponse
from strandline.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
)
from tests.client.broker_harness import SWALLOW, Double
from tests.client.test_producer import refusal
from tests.client.transaction_harness import added
from tests.patience import HANG_S

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def transactional(double: Double, name: str = "tx", **options: Any) -> Producer:
    return Producer(double.servers, transactional_id=name, **options)


async def committed(double: Double, topic: str = "t") -> list[bytes]:
    """What a reader of committed records sees now."""
    reader: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(double.servers, **reader) as consumer:
        parts = [TopicPartition(topic, number) for number in range(len(double.topics[topic]))]
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        found: list[bytes] = []
        while any([await consumer.position(one) < ends[one] for one in parts]):
            found += [one.value for one in await consumer.poll(50)]
    return sorted(found)


def asked(double: Double, api: Api) -> list[Any]:
    return [request for broker in double.brokers.values() for key, request in broker.requests if key == api]


class Once:
    """A hook that answers the first requests of one API, and then lets all pass."""

    def __init__(self, api: Api, *answers: Callable[[Any], Any]) -> None:
        self.api, self.answers = api, list(answers)

    def __call__(self, broker: Any, api: int, request: Any) -> Any:
        return self.answers.pop(0)(request) if api == self.api and self.answers else None


def end_with(code: int) -> Callable[[Any], Any]:
    return lambda request: EndTxnResponse(error_code=code)


def add_with(code: int) -> Callable[[Any], Any]:
    return lambda request: AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[added(topic, code) for topic in request.v3_and_below_topics]
    )


def test_all_of_a_transaction_becomes_visible_at_once_or_never(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            double.topic("t", 2)
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                sent = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
                await asyncio.gather(*sent)
                assert await committed(double) == []
                await producer.commit()
                assert await committed(double) == [b"0", b"1", b"2", b"3"]
                producer.begin()
                await producer.send("t", b"never", partition=0)
                await producer.abort()
                producer.begin()
                await producer.send("t", b"4", partition=0)
                await producer.commit()
            assert await committed(double) == [b"0", b"1", b"2", b"3", b"4"]
            assert double.transactions.known["tx"].ends == [True, False, True]
            batches = [h for log in double.topics["t"] for h in log.headers() if not h.is_control]
            assert all(h.is_transactional and h.producer_epoch == 0 for h in batches), "no bump without need"

    run(story())


def test_new_partitions_are_announced_together_and_before_anything_is_sent_to_them(run: Any) -> None:
    """The double refuses a batch for a partition that was not announced."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 8)
            async with transactional(double) as producer, producer.transaction():
                for _ in range(3):
                    for number in range(8):
                        producer.send("t", b"x", partition=number)
            assert len(asked(double, Api.ADD_PARTITIONS_TO_TXN)) == 1
            assert len(await committed(double)) == 24

    run(story())


def test_a_transaction_without_records_asks_nothing(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, transactional(double) as producer:
            async with producer.transaction():
                pass
            with pytest.raises(KeyError):
                async with producer.transaction():
                    raise KeyError
            assert not asked(double, Api.END_TXN)

    run(story())


def test_an_exception_in_the_block_aborts_and_what_was_not_sent_fails(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, linger_ms=10_000) as producer:
                await producer.init_transactions()
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        waiting = producer.send("t", b"lingers")
                        raise KeyError("the caller's own")
                with pytest.raises(TransactionAborted):
                    await waiting
                async with producer.transaction():
                    producer.send("t", b"kept")
            assert await committed(double) == [b"kept"]

    run(story())


def test_calls_at_the_wrong_time_say_what_to_do_first(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer:
                with pytest.raises(RuntimeError, match="init_transactions"):
                    producer.begin()
                await producer.init_transactions()
                for too_early in (producer.commit(), producer.abort(), producer.send_offsets({T0: 1}, "g")):
                    with pytest.raises(RuntimeError, match="begin"):
                        await too_early
                with pytest.raises(RuntimeError, match="begin"):
                    producer.send("t", b"x")
                producer.begin()
                with pytest.raises(RuntimeError, match="commit"):
                    producer.begin()
                with pytest.raises(RuntimeError, match="commit"):
                    await producer.init_transactions()
            async with Producer(double.servers) as plain:
                with pytest.raises(RuntimeError, match="transactional_id"):
                    plain.begin()

    run(story())


async def old_again(double: Double) -> None:
    async with transactional(double) as third:
        await third.init_transactions()


def test_who_takes_the_id_fences_the_one_before_and_aborts_its_transaction(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as old, transactional(double) as new:
                await old.init_transactions()
                old.begin()
                await old.send("t", b"of the old one")
                await new.init_transactions()
                assert double.transactions.known["tx"].ends == [False]
                with pytest.raises(InvalidProducerEpoch):
                    await old.send("t", b"too late")
                with pytest.raises(InvalidProducerEpoch):
                    await old.commit()
                with pytest.raises(ProducerFenced):
                    await old.abort()
                for useless in (old.commit, old.abort, old.init_transactions):
                    with pytest.raises(ProducerFenced):
                        await useless()
                async with new.transaction():
                    new.send("t", b"of the new one")
                await old_again(double)
                with pytest.raises(ProducerFenced):
                    async with new.transaction():
                        await new.send("t", b"fenced in its turn")
            assert await committed(double) == [b"of the new one"]

    run(story())


def test_an_administrator_fences_a_producer_by_its_transactional_id(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:
            double.topic("t")
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"x")
                await admin.fence_producers(["tx"])
                assert double.transactions.known["tx"].ends == [False]
                with pytest.raises(ProducerFenced):
                    await producer.commit()
            assert await committed(double) == []

    run(story())


@pytest.mark.parametrize(
    "code",
    [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
)
def test_what_passes_by_itself_is_waited_out(run: Any, code: ErrorCode) -> None:
    async def story() -> None:
        async with Double(2) as double:
            double.topic("t")
            async with transactional(double) as producer:
                double.hook = Once(
                    Api.INIT_PRODUCER_ID, lambda request: InitProducerIdResponse(error_code=code)
                )
                await producer.init_transactions()
                double.hook = Once(Api.ADD_PARTITIONS_TO_TXN, add_with(code), add_with(code))
                producer.begin()
                await producer.send("t", b"x")
                double.hook = Once(Api.END_TXN, end_with(code), end_with(code))
                await producer.commit()
                assert len(asked(double, Api.END_TXN)) == 3
            assert await committed(double) == [b"x"]
            is_moved = code == ErrorCode.NOT_COORDINATOR
            assert (len(asked(double, Api.FIND_COORDINATOR)) > 1) == is_moved

    run(story())


def test_the_coordinators_death_costs_only_time(run: Any) -> None:
    """The answer to the commit is lost with its broker; the next coordinator has the outcome."""

    async def story() -> None:
        async with Double(2) as double:
            double.topic("t")
            double.move("t", 0, 2)

            def lost(request: Any) -> Any:
                double.transactions.answer(Api.END_TXN, request)
                double.kill(1)
                return SWALLOW

            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"x")
                double.hook = Once(Api.END_TXN, lost)
                await producer.commit()
            assert double.transactions.known["tx"].ends == [True]
            assert await committed(double) == [b"x"]

    run(story())


def test_a_failed_batch_fails_the_commit_and_the_abort_brings_a_new_epoch(run: Any) -> None:
    """Its number is missing in the log, so the numbers begin again, under another epoch (KIP-360)."""

    async def story() -> None:
        async with Double(1) as double:
            log, _ = double.topic("t", 2)
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"0", partition=0)
                double.hook = Once(
                    Api.PRODUCE, lambda request: refusal(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                )
                with pytest.raises(TopicAuthorizationFailed):
                    await producer.send("t", b"1", partition=0)
                for refused in (producer.commit(), producer.send_offsets({T0: 1}, "g")):
                    with pytest.raises(TopicAuthorizationFailed):
                        await refused
                with pytest.raises(TopicAuthorizationFailed):
                    producer.send("t", b"2", partition=1)
                await producer.abort()
                async with producer.transaction():
                    await producer.send("t", b"3", partition=0)
            assert await committed(double) == [b"3"]
            data = [h for h in log.headers() if not h.is_control]
            assert [(h.producer_epoch, h.base_sequence) for h in data] == [(0, 0), (1, 0)]

    run(story())


def test_a_commit_that_fails_in_its_block_is_aborted(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer:
                double.hook = Once(Api.END_TXN, end_with(ErrorCode.TRANSACTION_ABORTABLE))
                with pytest.raises(Exception, match="TRANSACTION_ABORTABLE"):
                    async with producer.transaction():
                        producer.send("t", b"0")
                async with producer.transaction():
                    producer.send("t", b"1")
            assert double.transactions.known["tx"].ends == [False, True]

    run(story())


def test_a_partition_that_may_not_be_written_fails_its_transaction_alone(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            async with transactional(double) as producer:
                await producer.init_transactions()
                double.hook = Once(Api.ADD_PARTITIONS_TO_TXN, add_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                producer.begin()
                sent = producer.send("t", b"0", partition=0)
                with pytest.raises(TransactionAborted, match="TOPIC_AUTHORIZATION_FAILED"):
                    await sent
                await producer.abort()
                assert not asked(double, Api.END_TXN), "the coordinator has heard of no partition"
                async with producer.transaction():
                    producer.send("t", b"1", partition=1)
            assert await committed(double) == [b"1"]

    run(story())


def test_a_coordinator_that_lost_the_id_is_asked_for_a_new_epoch_and_has_nothing_to_abort(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"0")
                double.hook = Once(Api.END_TXN, end_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
                await producer.abort()
                assert [one.producer_id >= 0 for one in asked(double, Api.INIT_PRODUCER_ID)] == [False, True]
                async with producer.transaction():
                    producer.send("t", b"1")
            assert await committed(double) == [b"1"]

    run(story())


def test_a_commit_without_an_answer_is_waited_for_by_the_same_call(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, max_block_ms=1500, request_timeout_ms=5_000) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"x")
                answer = asyncio.Event()

                async def late(broker: Any, api: int, request: Any) -> Any:
                    if api == Api.END_TXN:
                        await answer.wait()
                    return None

                double.hook = late
                with pytest.raises(RequestTimedOut, match="commit"):
                    await producer.commit()
                with pytest.raises(RuntimeError, match="commit"):
                    await producer.abort()
                with pytest.raises(RuntimeError, match="commit"):
                    producer.begin()
                answer.set()
                await producer.commit()
                async with producer.transaction():
                    producer.send("t", b"y")
            assert double.transactions.known["tx"].ends == [True, True]

    run(story())


def test_an_abort_waits_for_batches_on_their_way(run: Any) -> None:
    """A marker that overtook one would leave it in a transaction that nobody ends."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                arrived, go_on = asyncio.Event(), asyncio.Event()

                async def slow(broker: Any, api: int, request: Any) -> Any:
                    if api == Api.PRODUCE:
                        arrived.set()
                        await go_on.wait()
                    return None

                double.hook = slow
                sent = producer.send("t", b"slow")
                await arrived.wait()
                aborting = asyncio.ensure_future(producer.abort())
                await asyncio.sleep(0.1)
                assert not asked(double, Api.END_TXN)
                go_on.set()
                await aborting
                assert (await sent).offset == 0
            assert [header.is_control for header in log.headers()] == [False, True]
            assert await committed(double) == []

    run(story())


def test_closing_aborts_what_is_open(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"x")
            assert double.transactions.known["tx"].ends == [False]

    run(story())


def test_offsets_are_committed_with_the_transaction_and_only_then(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            offsets = double.groups.group("g").offsets
            async with transactional(double) as producer:
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        await producer.send_offsets({T0: 3}, "g")
                        raise KeyError
                assert offsets == {} and double.transactions.known["tx"].ends == [False]
                async with producer.transaction():
                    await producer.send_offsets({T0: 4}, "g")
                    assert offsets == {}
                    await producer.send_offsets({}, "g")
                assert offsets[T0][0] == 4

    run(story())


def test_offsets_of_a_member_that_its_group_has_expelled_are_refused(run: Any) -> None:
    """KIP-447: the coordinator checks generation and member."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            reader: Any = {"group": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with (
                Consumer(double.servers, topics=["t"], **reader) as consumer,
                transactional(double) as producer,
            ):
                while not consumer.assignment():
                    await asyncio.sleep(0.01)
                mine = consumer.group_metadata([T0])
                assert mine.is_member and mine.group == "g"
                async with producer.transaction():
                    await producer.send_offsets({T0: 1}, mine)
                assert double.groups.group("g").offsets[T0][0] == 1
                double.groups.group("g").generation += 1
                with pytest.raises(IllegalGeneration):
                    async with producer.transaction():
                        await producer.send_offsets({T0: 2}, mine)
                async with producer.transaction():
                    await producer.send_offsets({T0: 3}, GroupMetadata("g"))
            assert double.groups.group("g").offsets[T0][0] == 3

    run(story())


def test_the_coordinator_of_transactions_is_found_by_its_own_kind_of_key(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.FIND_COORDINATOR:
                    return None
                node = 2 if request.key_type == 1 else 1
                return FindCoordinatorResponse(node_id=node, host="127.0.0.1", port=double.brokers[node].port)

            double.hook = hook
            async with transactional(double, "same") as producer, producer.transaction():
                await producer.send_offsets({T0: 1}, "same")
            kinds = {api: node for node, broker in double.brokers.items() for api, _ in broker.requests}
            assert kinds[Api.END_TXN] == kinds[Api.ADD_OFFSETS_TO_TXN] == 2
            assert kinds[Api.TXN_OFFSET_COMMIT] == 1

    run(story())


def test_blocking_transactions(servers: list[str]) -> None:
    with blocking.Admin(servers) as admin, blocking.Producer(servers, transactional_id="tx") as producer:
        admin.create_topic("t", 1)
        with pytest.raises(KeyError), producer.transaction():
            producer.send("t", b"never").result(HANG_S)
            raise KeyError
        with producer.transaction():
            producer.send("t", b"x")
            producer.send_offsets({T0: 1}, "g")
        producer.begin()
        producer.send("t", b"neither").result(HANG_S)
        producer.abort()
        reader: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with blocking.Consumer(servers, topics=["t"], **reader) as consumer:
            assert next(consumer).value == b"x"
            assert consumer.end_offsets([T0]) == {T0: 6}
        assert admin.list_group_offsets("g")[T0].offset == 1

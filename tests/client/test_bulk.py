"""Lists that are handed over whole: the same with the compiled encoder, its source as Python, and none."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from strandline.client import (
    BufferExhausted,
    MessageTooLarge,
    NotEnoughReplicas,
    Producer,
    TransactionAborted,
)
from strandline.client.network import cluster
from strandline.client.producer import record_lists
from strandline.client.producer.partition_queues import Run, tokens_between
from strandline.client.producer.partitioner import partition_for_key
from strandline.client.producer.receipts import Outcomes, Receipts, all_of, never_sent
from strandline.protocol import kernel
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, InvalidPartitions
from tests.client.broker_harness import Double
from tests.client.test_producer import refusal, values
from tests.client.test_transactions import committed, transactional
from tests.patience import HANG_S
from tests.protocol.kernel_forms import encoder_of


@pytest.fixture(params=["compiled", "plain", "one by one"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which encoder there is; "one by one" is for installs without one."""
    found = None if request.param == "one by one" else encoder_of(request.param)
    monkeypatch.setattr(kernel, "encoder", lambda: found)
    yield request.param


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only whole lists do."""
    found = encoder_of("plain")
    monkeypatch.setattr(kernel, "encoder", lambda: found)


def produced(request: Any) -> list[tuple[int, Any]]:
    return [(one.index, one.records) for topic in request.topic_data for one in topic.partition_data]


def test_a_list_keeps_its_place_among_single_records(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, batch_size=200, list_batch_size=200) as producer:
                await producer.send("t", b"known")
                before = [producer.send("t", b"%d" % n) for n in range(5)]
                listed = asyncio.ensure_future(producer.send_many("t", [b"%d" % n for n in range(5, 90)]))
                while len(values(log)) < 10:
                    await asyncio.sleep(0)
                after = [producer.send("t", b"after %d" % n) for n in range(5)]
                receipts = await listed
                await asyncio.gather(*before, *after)
            found = values(log)
            assert [one for one in found[1:] if not one.startswith(b"after")] == [
                b"%d" % n for n in range(90)
            ]
            assert [one for one in found if one.startswith(b"after")] == [b"after %d" % n for n in range(5)]
            assert [found[receipt.offset] for receipt in receipts] == [b"%d" % n for n in range(5, 90)]
            assert max(len(batch) for _, batch in log.batches) <= 200

    run(story())


def test_a_list_stands_behind_what_waits_in_line(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"buffer_memory": 1000, "batch_size": 200}
            async with Producer(double.servers, **options) as producer:
                await producer.send("t", b"known")
                line = [producer.send("t", b"%d" % n * 20) for n in range(25)]
                await producer.send_many("t", [b"%d" % n for n in range(25, 50)])
                await asyncio.gather(*line)
            assert values(log)[1:26] == [b"%d" % n * 20 for n in range(25)]
            assert values(log)[26:] == [b"%d" % n for n in range(25, 50)]

    run(story())


def test_each_receipt_says_where_its_record_lies(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(2) as double:
            logs = double.topic("t", 5)
            keys = [None if n % 7 == 0 else f"key-{n % 40}" for n in range(600)]
            times = [None if n % 3 else n for n in range(600)]
            headers = [{"h": b"%d" % n} if n % 5 == 0 else None for n in range(600)]
            listed = [None if n % 11 == 0 else b"%d" % n for n in range(600)]
            async with Producer(double.servers, batch_size=300, list_batch_size=300) as producer:
                receipts = await producer.send_many(
                    "t", listed, keys=keys, timestamps_ms=times, headers=headers
                )
            assert len(receipts) == 600
            for n, receipt in enumerate(receipts):
                record = logs[receipt.partition].records()[receipt.offset] if n % 20 == 0 else None
                if record is not None:
                    assert (record.value, record.timestamp) == (listed[n], receipt.timestamp)
                    assert record.key == (None if keys[n] is None else keys[n].encode())
                    assert record.headers == ((("h", b"%d" % n),) if n % 5 == 0 else ())
                assert times[n] in (None, receipt.timestamp)
                if keys[n] is not None:
                    assert receipt.partition == partition_for_key(keys[n].encode(), 5)
            assert sum(len(log.records()) for log in logs) == 600
            assert len({(one.partition, one.offset) for one in receipts}) == 600
            for log in logs:
                numbers = [int(one.value) for one in log.records() if one.value]
                assert numbers == sorted(numbers)

    run(story())


def test_receipts_are_a_sequence(run: Any, compiled: None) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers) as producer:
                receipts = await producer.send_many("t", [b"a", b"b", b"c"], timestamps_ms=[1, 2, 3])
                assert await producer.send_many("t", []) == []
            as_list = [("t", 0, n, n + 1) for n in range(3)]
            assert isinstance(receipts, Receipts)
            assert receipts == as_list and list(receipts) == as_list and receipts[1:] == as_list[1:]
            assert (receipts[-1], len(receipts), bool(receipts)) == (as_list[-1], 3, True)
            assert receipts != as_list[:2] and receipts != "abc" and as_list[0] in receipts
            with pytest.raises(IndexError, match="receipt 3 of 3"):
                receipts[3]
            assert "offset=2" in repr(receipts)

    run(story())


def test_a_list_over_the_topics_limit_is_split(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            double.hook = lambda broker, api, request: (
                refusal(request, ErrorCode.MESSAGE_TOO_LARGE)
                if api == Api.PRODUCE and any(len(records) > 1000 for _, records in produced(request))
                else None
            )
            async with Producer(double.servers, retry_backoff_ms=1, linger_ms=5) as producer:
                single = producer.send("t", b"first")
                receipts = await producer.send_many("t", [b"%d" % n * 20 for n in range(300)])
                assert (await single).offset == 0
            assert [receipt.offset for receipt in receipts] == list(range(1, 301))
            assert values(log)[1:] == [b"%d" % n * 20 for n in range(300)]

    run(story())


def test_a_part_that_fails_is_told_by_itself(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t", 2)

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.PRODUCE or all(index == 0 for index, _ in produced(request)):
                    return None
                for topic in request.topic_data:
                    for one in topic.partition_data:
                        if one.index == 0:
                            logs[0].append(bytes(one.records))
                answer = refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS)
                for one in answer.responses[0].partition_responses:
                    if one.index == 0:
                        one.error_code, one.base_offset = 0, 0
                return answer

            double.hook = hook
            keys = [b"%d" % n for n in range(40)]
            there = [n for n in range(40) if partition_for_key(keys[n], 2) == 1]
            async with Producer(double.servers, retries=0) as producer:
                with pytest.raises(NotEnoughReplicas) as caught:
                    await producer.send_many("t", keys, keys=keys)
            receipts = caught.value.receipts  # type: ignore[attr-defined]
            assert [(rows, type(error)) for rows, error in receipts.failed] == [(there, NotEnoughReplicas)]
            assert f"{len(there)} of 40 records of the list failed" in caught.value.__notes__[0]
            kept = [n for n in range(40) if n not in there]
            assert [logs[0].records()[receipts[n].offset].value for n in kept] == [keys[n] for n in kept]
            with pytest.raises(NotEnoughReplicas):
                receipts[there[0]]

    run(story())


def test_the_error_of_a_list_is_uncertain_if_a_part_of_it_is(run: Any) -> None:
    async def story() -> None:
        for doubt in (True, False):
            outcomes, lost = Outcomes(2, None, None, None), NotEnoughReplicas()
            lost.uncertain = doubt  # type: ignore[attr-defined]
            outcomes.run_refused(Run(outcomes, 0, 1, -1), never_sent(BufferExhausted("full")))
            outcomes.run_refused(Run(outcomes, 1, 1, -1), lost)
            with pytest.raises(BufferExhausted) as caught:
                await all_of("t", [outcomes])
            assert caught.value.uncertain is doubt  # type: ignore[attr-defined]

    run(story())


def test_a_lost_answer_repeats_nothing(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(2) as double:
            logs = double.topic("t", 2)
            lost = 0

            def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal lost
                if api == Api.PRODUCE and len(broker.requests) % 4 == 0 and lost < 5:
                    lost += 1
                    for index, records in produced(request):
                        logs[index].append(bytes(records))
                    for link in list(broker.links):
                        link.transport.abort()
                return None

            double.hook = hook
            listed = [b"%d" % n for n in range(2000)]
            async with Producer(
                double.servers, batch_size=500, list_batch_size=500, retry_backoff_ms=1
            ) as producer:
                receipts = await producer.send_many("t", listed, keys=listed)
            assert lost
            assert sorted(values(logs[0]) + values(logs[1])) == sorted(listed)
            for n in range(0, 2000, 97):
                assert logs[receipts[n].partition].records()[receipts[n].offset].value == listed[n]

    run(story())


def test_a_list_waits_for_room(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"buffer_memory": 4000, "batch_size": 500}
            async with Producer(double.servers, **options) as producer:
                most = 0

                def hook(broker: Any, api: int, request: Any) -> Any:
                    nonlocal most
                    most = max(most, producer._accumulator.used)

                double.hook = hook
                await producer.send_many("t", [b"x" * 100] * 500)
                assert len(values(log)) == 500
                assert 1000 < most <= 4000

    run(story())


def test_a_list_gets_room_beside_those_who_send_record_by_record(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            double.topic("others")
            options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 2000}
            async with Producer(double.servers, **options) as producer:
                listed, sent = [b"%04d" % n + b"x" * 200 for n in range(600)], 0

                async def others(topic: str) -> None:
                    nonlocal sent
                    while True:
                        await producer.room(topic)
                        producer.send(topic, b"y" * 1000)
                        sent += 1

                tasks = [asyncio.ensure_future(others(topic)) for topic in ("t", "others") * 4]
                while not sent > 100:
                    await asyncio.sleep(0)
                before = sent
                try:
                    await producer.send_many("t", listed)
                finally:
                    for task in tasks:
                        task.cancel()
                assert sent > before, "those go on, too"
                assert not any(task.done() and not task.cancelled() for task in tasks)
            assert [one for one in values(log) if one != b"y" * 1000] == listed

    run(story())


def test_while_a_list_waits_for_room_single_records_stand_in_line(run: Any, compiled: None) -> None:
    """They would fit, and whoever sends many of them would take all the room that comes."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"buffer_memory": 4000, "linger_ms": 60_000, "max_block_ms": 60_000}
            async with Producer(double.servers, **options) as producer:
                first = producer.send("t", b"a" * 3000)
                listed = asyncio.ensure_future(producer.send_many("t", [b"b" * 2000]))
                async with asyncio.timeout(20):
                    while not producer._claims:
                        await asyncio.sleep(0)
                held = producer._accumulator.used
                last = producer.send("t", b"c")
                assert producer._accumulator.used == held, "it has not gone past the list"
                while not (first.done() and listed.done() and last.done()):
                    await producer.flush()
                    await asyncio.sleep(0)
            assert sorted(values(log)) == [b"a" * 3000, b"b" * 2000, b"c"]

    run(story())


def test_without_room_the_rest_is_not_sent(run: Any, compiled: None) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"buffer_memory": 4000, "batch_size": 500, "max_block_ms": 200}
            go_on = asyncio.Event()

            async def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE:
                    await go_on.wait()

            async with Producer(double.servers, **options) as producer:
                await producer._cluster.partitions("t", asyncio.get_running_loop().time() + HANG_S)
                double.hook = hook
                asyncio.get_running_loop().call_later(2, go_on.set)
                with pytest.raises(BufferExhausted) as caught:
                    await producer.send_many("t", [b"x" * 100] * 500)
            ((rows, _),) = caught.value.receipts.failed  # type: ignore[attr-defined]
            assert repr(caught.value.receipts).endswith(" failed)"), "to show them raises nothing"  # type: ignore
            assert 0 < rows[0] == len(values(log)) < 50
            assert rows == list(range(rows[0], 500))
            assert caught.value.uncertain is False  # type: ignore[attr-defined]
            assert caught.value.receipts.failed[0][1].uncertain is False  # type: ignore[attr-defined]

    run(story())


def test_what_cannot_be_sent_is_named_before_anything_is(
    run: Any, compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PROPAGATION_SECONDS", 0.05)

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, max_request_size=1000) as producer:
                fine = [b"x"] * 50
                with pytest.raises(MessageTooLarge, match="record 50 of the list has 1024 bytes, more than"):
                    await producer.send_many("t", [*fine, b"x" * 1000])
                with pytest.raises(TypeError, match="expected bytes, got int") as caught:
                    await producer.send_many("t", [*fine, 3])
                assert caught.value.__notes__ == ["it is the value of record 50 of the list"]
                with pytest.raises(ValueError, match="timestamp_ms=-1"):
                    await producer.send_many("t", [b"x"], timestamps_ms=[-1])
                with pytest.raises(TypeError, match="expected a header name of type str"):
                    await producer.send_many("t", [b"x"], headers=[[(1, b"x")]])
                with pytest.raises(InvalidPartitions, match="t has no partition 9: it has 1"):
                    await producer.send_many("t", [b"x"], partition=9)
                await producer.send_many("t", [bytearray(b"a"), memoryview(b"b")], keys=["k", b"l"])
            assert [(one.key, one.value) for one in log.records()] == [(b"k", b"a"), (b"l", b"b")]
            async with Producer(
                double.servers, serializer="json", key_serializer=lambda key: b"<%d>" % key
            ) as producer:
                await producer.send_many("t", [{"a": 1}, None], keys=[1, 2])
            assert [(one.key, one.value) for one in log.records()[2:]] == [
                (b"<1>", b'{"a":1}'),
                (b"<2>", None),
            ]

    run(story())


def test_an_iterator_is_taken_in_pieces(run: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lists, "CHUNK_ROWS", 4)

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers) as producer:
                receipts = await producer.send_many(
                    "t", (b"%d" % n for n in range(10)), keys=iter("abcdefghij")
                )
                assert [one.offset for one in receipts] == list(range(10))
                assert [one.key for one in log.records()] == [b"%c" % n for n in b"abcdefghij"]
                for keys in ("abc", "abcdefg"):
                    with pytest.raises(ValueError, match="the argument keys has"):
                        await producer.send_many("t", (b"%d" % n for n in range(6)), keys=iter(keys))

    run(story())


def test_a_piece_of_an_iterator_ends_by_bytes_too() -> None:
    large = (b"x" * 400_000 for _ in range(10))
    assert [len(piece[0]) for piece in record_lists.chunks(large, None, None, None)] == [3, 3, 3, 1]


def test_what_was_sent_of_an_iterator_before_it_failed_is_told(
    run: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_lists, "CHUNK_ROWS", 4)

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers) as producer:
                with pytest.raises(TypeError) as caught:
                    await producer.send_many("t", (n if n == 9 else b"%d" % n for n in range(20)))
                receipts = caught.value.receipts  # type: ignore[attr-defined]
                assert len(receipts) == (9 if form == "one by one" else 8)
                assert [one.offset for one in receipts] == list(range(len(receipts)))
                assert values(log) == [b"%d" % n for n in range(len(receipts))]
                assert (receipts.failed, caught.value.uncertain) == ([], False)  # type: ignore[attr-defined]

    run(story())


def test_a_list_is_of_one_transaction(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            async with transactional(double) as producer:
                await producer.init_transactions()
                with pytest.raises(RuntimeError, match="begin"):
                    await producer.send_many("t", [b"none is open"])
                producer.begin()
                await producer.send_many("t", [b"a", b"b"], keys=["1", "2"])
                await producer.abort()
                producer.begin()
                await producer.send_many("t", [b"c", b"d", b"e"], keys=["1", "2", "3"])
                await producer.commit()
            assert await committed(double) == [b"c", b"d", b"e"]

    run(story())


def test_what_an_aborted_transaction_left_of_a_list_is_not_sent_in_the_next_one(run: Any, form: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            go_on, asked = asyncio.Event(), asyncio.Event()

            async def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.METADATA and any(one.name == "t" for one in request.topics or ()):
                    asked.set()
                    await go_on.wait()

            async with transactional(double) as producer:
                await producer.init_transactions()
                double.hook = hook
                producer.begin()
                waits = asyncio.ensure_future(producer.send_many("t", [b"1", b"2"], keys=["1", "2"]))
                await asked.wait()
                await producer.abort()
                producer.begin()
                go_on.set()
                again = await producer.send_many("t", [b"1", b"2"], keys=["1", "2"])
                with pytest.raises(TransactionAborted, match="another one has begun"):
                    await waits
                await producer.commit()
            assert len(again) == 2
            assert await committed(double) == [b"1", b"2"]

    run(story())


def test_a_run_is_cut_where_its_batch_is() -> None:
    one, two = Run("a", 10, 5, -1), Run("b", 0, 3, 7)
    tokens = [("s", 0, 0), one, ("s", 1, 0), two]
    assert tokens_between(tokens, 0, 10) == tokens
    assert tokens_between(tokens, 0, 4) == [("s", 0, 0), Run("a", 10, 3, -1)]
    assert tokens_between(tokens, 4, 10) == [Run("a", 13, 2, -1), ("s", 1, 0), two]
    assert tokens_between(tokens, 2, 3) == [Run("a", 11, 1, -1)]
    assert tokens_between(tokens, 6, 8) == [("s", 1, 0), Run("b", 0, 1, 7)]
    assert tokens_between(tokens[::2], 1, 2) == [("s", 1, 0)]


@pytest.mark.parametrize("listed", [False, True])
def test_few_records_without_a_key_do_not_all_go_to_one_partition(run: Any, form: str, listed: bool) -> None:
    """No batch is ever full, for each leaves before the next record comes."""

    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t", 3)
            async with Producer(double.servers, batch_size=500) as producer:
                for n in range(200):
                    if listed:
                        await producer.send_many("t", [b"%03d" % n * 13, None])
                    else:
                        await producer.send("t", b"%03d" % n * 13)
            sizes = [len(log.headers()) for log in logs]
            assert min(sizes) >= 10, sizes
            first = [one[:3] for log in logs for one in values(log) if one is not None]
            neighbours = sum(int(b) == int(a) + 1 for a, b in pairwise(first))
            assert neighbours > 100, "yet about a batch of them stays together"

    run(story())

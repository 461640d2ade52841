"""What cannot be sent is refused to who gave it, at once; nothing else is held up by it."""

import asyncio
from typing import Any

import pytest

from strandline.client import ApiError, ConfigError, Producer
from strandline.client.config import ProducerConfig, configure
from strandline.client.producer.sender import Sender
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import Double
from tests.patience import HANG_S

BAD: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"timestamp_ms": 1.5}, TypeError),
    ({"timestamp_ms": "1"}, TypeError),
    ({"timestamp_ms": -1}, ValueError),
    ({"timestamp_ms": 1 << 63}, ValueError),
    ({"headers": [("h", "text")]}, TypeError),
    ({"headers": [("h", 7)]}, TypeError),
    ({"headers": [(b"h", b"")]}, TypeError),
    ({"headers": [("\ud800", b"")]}, ValueError),
    ({"headers": [("h",)]}, ValueError),
    ({"partition": 0.0}, TypeError),
    ({"topic": b"t"}, TypeError),
    ({"topic": "\ud800"}, ValueError),
]


@pytest.mark.parametrize(("given", "error"), BAD)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_record_that_cannot_be_sent_is_refused_at_once(
    run: Any, given: dict[str, Any], error: type[Exception], known: bool
) -> None:
    """Also while its topic is not known yet; nothing of it is left, and others go on."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("good")
            (log,) = double.topic("t")
            async with asyncio.timeout(HANG_S), Producer(double.servers) as producer:
                if known:
                    await producer.send("t", b"before")
                with pytest.raises(error):
                    producer.send(**{"topic": "t", "value": b"bad", **given})
                assert producer._accumulator.is_empty and not producer._lines
                await producer.send("good", b"1")
                await producer.send("t", b"after")
            assert [one.value for one in log.records()] == [b"before"] * known + [b"after"]
            assert all(header.record_count for header in log.headers())

    run(story())


@pytest.mark.parametrize("option", ["serializer", "key_serializer"])
@pytest.mark.parametrize("returned", ["text", 7])
def test_a_function_that_serializes_returns_bytes(run: Any, option: str, returned: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options = {option: lambda value: returned if value == b"bad" else value}
            async with asyncio.timeout(HANG_S), Producer(double.servers, **options) as producer:
                with pytest.raises(TypeError, match=type(returned).__name__):
                    producer.send("t", b"bad", key=b"bad")
                await producer.send("t", b"good", key=b"good")
            assert [one.value for one in log.records()] == [b"good"]

    run(story())


def test_what_is_given_as_a_generator_or_changed_later_is_what_was_given(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            key, value, header = bytearray(b"k"), bytearray(b"v"), bytearray(b"h")
            options = {name: lambda one: one for name in ("serializer", "key_serializer")}
            async with Producer(double.servers, linger_ms=20, **options) as producer:
                headers = (pair for pair in [("h", header)])
                sent = producer.send("t", value, key=key, headers=headers)  # type: ignore[arg-type]
                key[0] = value[0] = header[0] = 0
                await sent
            (record,) = log.records()
            assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"h"),))

    run(story())


@pytest.mark.parametrize(
    ("codec", "bad", "good"),
    [
        ("gzip", [-2, 10], [-1, 0, 9]),
        ("lz4", [-2, 18], [-1, 0, 17]),
        ("zstd", [-131_073, 23], [-131_072, 22]),
        ("snappy", [], [-1, 99]),
        ("none", [], [-1, 99]),
    ],
)
def test_a_level_is_one_that_the_codec_has(codec: str, bad: list[int], good: list[int]) -> None:
    for level in bad:
        with pytest.raises(ConfigError, match="compression_level"):
            configure(ProducerConfig, "h:1", {"compression_type": codec, "compression_level": level})
    for level in good:
        configure(ProducerConfig, "h:1", {"compression_type": codec, "compression_level": level})


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", -1), ("lz4", -1), ("lz4", 17), ("zstd", -131_072), ("zstd", -1), ("snappy", -1)],
)
def test_every_level_allowed_compresses(run: Any, codec: str, level: int) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"compression_type": codec, "compression_level": level}
            async with Producer(double.servers, **options) as producer:
                await asyncio.wait_for(producer.send("t", b"x" * 10_000), HANG_S)
            assert [one.value for one in log.records()] == [b"x" * 10_000]

    run(story())


def test_a_batch_that_cannot_be_built_is_refused_alone(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = BatchBuilder.sealed

    def faulty(self: BatchBuilder) -> bytearray:
        if b"bad" in self._parts:
            raise MemoryError("no room to compress")
        return sealed(self)

    monkeypatch.setattr(BatchBuilder, "sealed", faulty)

    async def story() -> None:
        async with Double(1) as double:
            (bad,), (good,) = double.topic("bad"), double.topic("good")
            async with asyncio.timeout(HANG_S), Producer(double.servers) as producer:
                await asyncio.gather(producer.send("bad", b"0"), producer.send("good", b"0"))
                one, two = producer.send("bad", b"bad"), producer.send("good", b"1")
                with pytest.raises(MemoryError) as refused:
                    await one
                assert refused.value.uncertain is False  # type: ignore[attr-defined]
                await two
                await producer.send("bad", b"1")
            assert [record.value for record in bad.records()] == [b"0", b"1"]
            assert [record.value for record in good.records()] == [b"0", b"1"]

    run(story())


@pytest.mark.parametrize(("owner", "name"), [(Sender, "_keeps_order"), (ProduceRequest, "__init__")])
def test_a_pump_that_breaks_refuses_what_is_held_and_begins_again(
    run: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """Whether it had taken the batch already or not; the numbers that are used up are a gap to nobody."""
    sound, faults = getattr(owner, name), list[None]()

    def faulty(*given: Any, **more: Any) -> Any:
        assert not faults or faults.pop(), "what cannot be true"
        return sound(*given, **more)

    monkeypatch.setattr(owner, name, faulty)

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with asyncio.timeout(HANG_S), Producer(double.servers) as producer:
                await producer.send("t", b"0")
                faults.append(None)
                with pytest.raises(RuntimeError) as refused:
                    await producer.send("t", b"bad")
                assert isinstance(refused.value.__cause__, AssertionError)
                assert refused.value.uncertain is False  # type: ignore[attr-defined]
                await producer.send("t", b"1")
            assert [record.value for record in log.records()] == [b"0", b"1"]

    run(story())


def test_a_producer_whose_task_broke_leaves_nothing_open(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is raised again by `close`, after all receipts were settled and all connections closed."""

    async def broken(self: Sender) -> None:
        raise AssertionError("what cannot be true")

    monkeypatch.setattr(Sender, "_ask_identity", broken)

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            producer = await Producer(double.servers).start()
            waiting = producer.send("t", b"0")
            while producer._sender is None or not producer._sender._tasks._failures:
                await asyncio.sleep(0)
            with pytest.raises(AssertionError):
                await producer.close(flush=False)
            with pytest.raises(ApiError):
                await asyncio.wait_for(waiting, HANG_S)
            assert not producer._cluster.tasks, "nothing runs any more"

    run(story())


def test_a_partitioner_that_fails_for_a_waiting_record_fails_that_record_only(run: Any) -> None:
    def choose(key: bytes | None, count: int) -> Any:
        if key == b"bad":
            raise LookupError("no place for this key")
        return 0.5 if key == b"half" else 0

    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, partitioner=choose) as producer:
            sent = [producer.send("t", b"0", key=key) for key in (b"bad", b"half", b"good")]
            assert "t" in producer._lines
            double.topic("t")
            results = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), HANG_S)
            assert [type(one).__name__ for one in results] == ["LookupError", "TypeError", "Receipt"]

    run(story())

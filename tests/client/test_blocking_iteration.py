"""`for record in consumer`, without asyncio: the next record is taken by the caller's own thread.

What the client's thread says of positions, commits and the end must be as if each record had been asked for.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from strandline.client import ConsumerInterceptor, TopicPartition
from strandline.client.results import ConsumerRecord
from strandline.client.sync import Admin, Consumer, Producer
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
COUNT = 30
READER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20, "deserializer": "str"}


@pytest.fixture
def filled(servers: list[str]) -> list[str]:
    """A topic with the values 0, 1, 2 ..."""
    with Admin(servers) as admin, Producer(servers, serializer="str") as producer:
        admin.create_topic("t", 1)
        producer.send_many("t", [str(n) for n in range(COUNT)], partition=0)
    return servers


@pytest.fixture
def consumer(filled: list[str]) -> Iterator[Consumer]:
    with Consumer(filled, topics=["t"], group="g", enable_auto_commit=False, **READER) as reader:
        yield reader


def test_every_record_moves_the_position_by_itself(consumer: Consumer) -> None:
    for n in range(COUNT):
        assert int(next(consumer).value) == n
        if n % 7 == 0:
            assert consumer.position(T0) == n + 1
            assert consumer.lag(T0) == COUNT - n - 1
    assert consumer.poll(50) == []


def test_a_commit_and_a_seek_amid_records_that_lie_ready(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == 4:
            consumer.commit()
            (found,) = consumer.committed(T0).values()
            assert found is not None and found.offset == 5
            break
    consumer.seek(T0, 20)
    assert next(consumer).offset == 20
    consumer.seek(T0, 2)
    assert next(consumer).offset == 2
    assert [one.offset for one in consumer.poll(1000, max_records=3)] == [3, 4, 5]
    assert next(consumer).offset == 6


def test_what_is_paused_is_not_taken_though_it_lies_ready(consumer: Consumer) -> None:
    assert next(consumer).offset == 0
    consumer.pause(T0)
    assert consumer.poll(50) == []
    consumer.resume(T0)
    assert next(consumer).offset == 1


@pytest.mark.parametrize("way", ["one by one", "lists"])
def test_who_waits_goes_on_when_another_thread_resumes(filled: list[str], way: str) -> None:
    """The records came before the pause, so nothing else would wake it."""
    with Consumer(filled, topics=["t"], max_poll_records=10, **READER) as reader:
        assert len(reader.poll(2000)) == 10
        reader.pause(T0)
        found: list[int] = []

        def ask() -> None:
            found.append(next(reader).offset if way == "one by one" else next(reader.records())[0].offset)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            until_it_waits(reader)
            assert reader._inner._fetcher.places[T0].chunks
            reader.resume(T0)
            thread.join(HANG_S)
            assert found == [10]
        finally:
            if thread.is_alive():  # woken, else it would hold up the end of the tests
                reader._thread.call(reader._inner._fetcher.arrived.set)
                thread.join(HANG_S)


def until_it_waits(reader: Consumer) -> None:
    """Until somebody waits for records to arrive."""
    until = time.monotonic() + HANG_S
    while not reader._inner._fetcher.arrived._waiters:
        assert time.monotonic() < until, "nobody waits"
        time.sleep(0.01)


def test_who_waits_holds_no_record(filled: list[str]) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Held:
        def __init__(self, raw: bytes) -> None:
            alive.add(self)

    with Consumer(filled, topics=["t"], **READER | {"deserializer": Held}) as reader:
        for n in range(COUNT):
            assert next(reader).offset == n
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(next(reader).offset))
        thread.start()
        try:
            until_it_waits(reader)
            assert len(alive) == 0
        finally:
            with Producer(filled) as producer:
                producer.send("t", b"the end", partition=0)
            thread.join(HANG_S)
        assert found == [COUNT]


def test_closing_commits_the_record_before_the_one_in_hand_or_that_too(filled: list[str]) -> None:
    """Whether the caller was done with the last one: after an error it was not."""

    def read(last: int, error: bool) -> None:
        with Consumer(filled, topics=["t"], group="h", **READER) as reader:
            for record in reader:
                if record.offset == last:
                    if error:
                        raise LookupError
                    return

    with pytest.raises(LookupError):
        read(4, error=True)
    with Consumer(filled, group="h", **READER) as reader:
        assert reader.committed(T0)[T0].offset == 4  # type: ignore[union-attr]
    read(9, error=False)
    with Consumer(filled, group="h", **READER) as reader:
        assert reader.committed(T0)[T0].offset == 10  # type: ignore[union-attr]


def test_nothing_is_taken_from_a_closed_consumer(filled: list[str]) -> None:
    before = threading.active_count()
    with Consumer(filled, topics=["t"], **READER) as reader:
        assert next(reader).offset == 0
    with pytest.raises(RuntimeError, match="closed"):
        next(reader)
    assert threading.active_count() == before


def test_who_is_interrupted_before_anything_was_taken_keeps_what_it_has(consumer: Consumer) -> None:
    """Those records reached it: they are neither lost nor handed out again."""
    found = [next(consumer).offset for _ in range(3)]
    inner = consumer._inner
    consumer._thread.call(lambda: inner.not_received(inner.handout.returns))
    assert [*found, *(next(consumer).offset for _ in range(3))] == list(range(6))


def test_interceptors_see_each_record_before_the_caller(filled: list[str]) -> None:
    class Marking(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [one._replace(value=f"<{one.value}>") for one in records]

    with Consumer(filled, topics=["t"], interceptors=(Marking(),), **READER) as reader:
        assert [next(reader).value for _ in range(COUNT)] == [f"<{n}>" for n in range(COUNT)]


TAKES: dict[str, Callable[[Consumer], Iterable[int]]] = {
    "poll": lambda reader: [one.offset for one in reader.poll(1000, max_records=7)],
    "poll_batch": lambda reader: [
        offset for batch in reader.poll_batch(1000) for offset in batch.columns.offset.tolist()
    ],
    "iterator": lambda reader: [next(reader).offset],
}


@pytest.mark.parametrize("take", TAKES)
def test_what_was_taken_as_an_interrupt_came_is_not_lost(
    filled: list[str], take: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in `poll`, and then `close`, as many a loop ends: what nobody got is not committed."""
    real = Future.result

    def interrupted(future: "Future[Any]", timeout: float | None = None) -> Any:
        found = real(future, timeout)
        if found:
            monkeypatch.setattr(Future, "result", real)
            raise KeyboardInterrupt
        return found

    options = READER | {"group": "g", "topics": ["t"], "max_poll_records": 1 if take == "iterator" else 7}
    seen: list[int] = []
    with Consumer(filled, **options) as reader:
        while len(seen) < 5:
            seen += TAKES["iterator"](reader)
        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            while True:
                TAKES[take](reader)
        (found,) = reader.committed(T0).values()
        assert found is None or found.offset <= 5
        if take == "poll":  # and goes on
            while len(seen) < 9:
                seen += TAKES[take](reader)
    with Consumer(filled, **options) as reader:
        until = time.monotonic() + HANG_S
        while seen[-1] < COUNT - 1 and time.monotonic() < until:
            seen += TAKES["poll"](reader)
    assert seen == list(range(COUNT))

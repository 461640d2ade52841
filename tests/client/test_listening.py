"""Whoever is called by a blocking client may call it: listeners; others are told that they may not."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from strandline.client import RebalanceListener, TopicPartition
from strandline.client.loop_thread import LoopThread
from strandline.client.sync import Admin, Consumer, Producer
from tests.patience import HANG_S

GROUP: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 50,
    "fetch_max_wait_ms": 20,
    "partition_assignment_strategy": ("range",),
}


@pytest.fixture
def filled(servers: list[str]) -> list[str]:
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic("t", 2)
        for partition in range(2):
            producer.send_many("t", [b"%d" % n for n in range(10)], partition=partition)
    return servers


class Calling(RebalanceListener):
    """Calls its consumer whenever it is told something."""

    consumer: Consumer

    def __init__(self, action: Callable[[Consumer], Any] = Consumer.commit) -> None:
        self.action = action
        self.heard: list[tuple[str, Any]] = []
        self.threads: set[int] = set()

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        try:
            self.heard.append(("revoked", self.action(self.consumer)))
        except RuntimeError as trouble:
            self.heard.append(("revoked", trouble))


def read_all(consumer: Consumer, count: int) -> None:
    seen = 0
    while seen < count:
        seen += len(consumer.poll(200))


def in_time(work: Callable[[], Any]) -> Any:
    """Run it in a thread of its own: what is stuck fails the test instead of holding it up."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as trouble:
            done.set_exception(trouble)
            raise

    threading.Thread(target=run, daemon=True).start()
    return done.result(HANG_S)


@pytest.mark.parametrize("given", ["to the constructor", "to subscribe"])
def test_a_blocking_listener_may_commit(filled: list[str], given: str) -> None:
    """As Kafka's standard listener does: the offsets are written before the partitions are given away."""

    def story() -> None:
        ear = Calling()
        options = {"topics": ["t"], "listener": ear} if given == "to the constructor" else {}
        with Consumer(filled, **options, **GROUP) as first:
            ear.consumer = first
            if not options:
                first.subscribe(["t"], listener=ear)
            read_all(first, 20)
            with Consumer(filled, topics=["t"], **GROUP) as second:
                while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                    first.poll(50)
                assert ear.heard[0] == ("revoked", None)
                written = second.committed(TopicPartition("t", 0), TopicPartition("t", 1))
                assert [one.offset for one in written.values() if one is not None] == [10, 10]
                first.close()  # before the other leaves: that would revoke once more
        assert ear.heard == [("revoked", None)] * 2, "closing revokes too, and the consumer can still commit"
        assert threading.get_ident() not in ear.threads

    before = threading.active_count()
    in_time(story)
    assert threading.active_count() <= before + 1, "no thread is left but the one of this story"


def test_a_blocking_listener_commits_nothing_that_the_caller_still_works_on(filled: list[str]) -> None:
    def story() -> None:
        ear = Calling()
        with Consumer(filled, topics=["t"], listener=ear, max_poll_records=5, **GROUP) as first:
            ear.consumer = first
            while not (held := first.poll(200)):
                pass
            with Consumer(filled, topics=["t"], **GROUP) as second:
                while not ear.heard:
                    second.poll(20)
                written = second.committed(TopicPartition("t", 0), TopicPartition("t", 1))
                assert sum(one.offset for one in written.values() if one is not None) == 0, held

    in_time(story)


def test_a_listener_of_a_blocking_consumer_cannot_close_it(filled: list[str]) -> None:
    def story() -> None:
        ear = Calling(Consumer.close)
        with Consumer(filled, topics=["t"], listener=ear, **GROUP) as consumer:
            ear.consumer = consumer
            read_all(consumer, 20)
        ((_, trouble),) = ear.heard
        assert isinstance(trouble, RuntimeError) and "listener" in str(trouble)

    in_time(story)


def test_nothing_is_handed_out_before_the_listener_has_said_where_to_begin(filled: list[str]) -> None:
    """It may seek, to offsets that are kept elsewhere; meanwhile records come from where the group was."""
    asked, go_on = threading.Event(), threading.Event()

    class Seeking(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            asked.set()
            assert go_on.wait(HANG_S)
            for one in partitions:
                consumer.seek(one, 7)

    consumer = Consumer(filled, topics=["t"], listener=Seeking(), **GROUP)

    def story() -> None:
        with consumer:
            places = consumer._inner._fetcher.places
            while not asked.is_set() or not all(place.chunks for place in places.values()):
                assert consumer.poll(10) == []
                places = consumer._inner._fetcher.places
            assert consumer.poll(50) == [] and consumer.poll_batch(50) == []
            go_on.set()
            read = consumer.poll(200)
            while len(read) < 6:
                read += consumer.poll(200)
            assert sorted(int(each.value or b"") for each in read) == [7, 7, 8, 8, 9, 9]

    in_time(story)


def test_what_a_listener_raises_is_raised_by_poll(filled: list[str]) -> None:
    class Failing(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise LookupError("no such state")

    def story() -> None:
        consumer = Consumer(filled, topics=["t"], listener=Failing(), **GROUP)
        with pytest.raises(LookupError, match="no such state"):
            read_all(consumer, 1)
        consumer.close()

    in_time(story)


def test_an_async_listener_runs_in_the_clients_thread(filled: list[str]) -> None:
    class Async(RebalanceListener):
        heard: list[Any] = []

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.heard.append(threading.current_thread().name)
            with pytest.raises(RuntimeError, match="own thread"):
                consumer.assignment()

    def story() -> None:
        nonlocal consumer
        consumer = Consumer(filled, **GROUP)
        with consumer:
            consumer.subscribe(["t"], listener=Async())
            read_all(consumer, 20)
        assert Async.heard == ["strandline-consumer"]

    consumer: Any = None
    in_time(story)


def test_a_call_from_the_clients_own_thread_is_refused(filled: list[str]) -> None:
    """A serializer, or who waits for a receipt: it would wait for itself."""
    refused: list[BaseException] = []

    def look(value: Any) -> bytes:
        for call in (producer.flush, producer.close):
            try:
                call()
            except RuntimeError as trouble:
                refused.append(trouble)
        return bytes(value)

    def story() -> None:
        nonlocal producer
        producer = Producer(filled, serializer=look)
        with producer:
            producer.send("t", b"0").result(HANG_S)
            producer.send("t", b"1").result(HANG_S)
        assert len(refused) == 4 and all("own thread" in str(trouble) for trouble in refused)

    producer: Any = None
    in_time(story)


def test_a_call_while_another_thread_closes_ends() -> None:
    """It is carried out, cancelled or refused; none is queued behind the end of the loop."""

    async def nothing() -> None:
        return None

    for _ in range(50):
        thread, ready = LoopThread("test"), threading.Barrier(5)

        def call(thread: LoopThread = thread, ready: threading.Barrier = ready) -> None:
            ready.wait(HANG_S)
            while True:
                thread.run(nothing)

        with ThreadPoolExecutor(4) as callers:
            calls = [callers.submit(call) for _ in range(4)]
            ready.wait(HANG_S)
            thread.close()
            for one in calls:
                assert one.exception(HANG_S) is not None

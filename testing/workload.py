"""A workload to run while brokers are killed: a producer sends numbers with acks=all, a consumer reads them.

    with Workload(cluster.bootstrap, "orders", 6) as load:
        load.wait_acknowledged(500)
        cluster.brokers[2].kill()
        load.wait_acknowledged(500)
    assert judge(load.finish()).good

They are the bundled clients with their default timeouts, in a thread with its own event loop. Everything is
recorded in a `History`. Left to others: judging the history (history.py), killing brokers.
"""

import asyncio
import time
from types import TracebackType
from typing import Any, Self

from ..base.types import TopicPartition
from ..client.consumer.consumer import Consumer
from ..client.loop_thread import LoopThread
from ..client.producer.producer import Producer
from ..client.results import Receipt
from ..protocol.errors import ApiError
from .history import History

EVERY_S = 0.005
VALUE_BYTES = 100
POLL_MS = 200
FINAL_READ_S = 60.0


class Workload:
    """Both clients. `wait_acknowledged` and `finish` block; `history` may be read meanwhile."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, every_s: float = EVERY_S, **producer: Any
    ) -> None:
        """One number every `every_s` seconds, to each partition in turn; `producer`: its options."""
        self.history = History()
        self.refused: list[str] = []
        self.troubles: list[str] = []  # what made the reader or the sender stop
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._bootstrap, self._topic, self._every_s, self._options = bootstrap, topic, every_s, producer
        self._count = 0
        self._thread = LoopThread("strandline-workload")
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.call(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending and wait for the last acknowledgements; after an exception, just stop."""
        try:
            self._thread.run(self._end if kind is None else self._abandon)
        finally:
            self._thread.close()

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        return self._count

    def numbers_acknowledged(self) -> set[int]:
        """Those that were acknowledged so far."""
        return self._thread.call(
            lambda: {number for number, send in self.history.sends.items() if send.settled_s > 0}
        )

    def wait_acknowledged(self, more: int, within_s: float = 30.0) -> None:
        """Wait for `more` acknowledgements from now on. AssertionError if they do not come in time."""
        goal, deadline = self._count + more, time.monotonic() + within_s
        while self._count < goal:
            assert not self.troubles, self.troubles[0]
            assert time.monotonic() < deadline, (
                f"{goal - self._count} of {more} receipts are missing after {within_s:g} s"
            )
            time.sleep(0.01)

    def wait_acknowledged_everywhere(self, within_s: float = 30.0) -> None:
        """Wait until each partition has acknowledged a record that was sent after this call."""
        asked, deadline = time.monotonic(), time.monotonic() + within_s
        missing = set(self.partitions)
        while missing:
            late = sorted(map(str, missing))
            assert not self.troubles, self.troubles[0]
            assert time.monotonic() < deadline, f"no receipts from {', '.join(late)} within {within_s:g} s"
            time.sleep(0.01)
            recent = self._thread.call(lambda: self._since(asked))
            missing -= recent

    def finish(self) -> History:
        """Read every partition from its first record to its end, and return the complete history."""
        thread = LoopThread("strandline-final-read")
        try:
            thread.run(self._read_whole)
        finally:
            thread.close()
        return self.history

    # -- on the loop

    def _begin(self) -> None:
        self._tasks = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._follow())]

    def _since(self, asked: float) -> set[TopicPartition]:
        recent: set[TopicPartition] = set()
        for send in reversed(self.history.sends.values()):
            if send.sent_s < asked:
                break
            if send.settled_s > 0:
                recent.add(send.partition)
        return recent

    async def _end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        async with Producer(self._bootstrap, **self._options) as producer:
            number = 0
            while not self._stop.is_set():
                partition = self.partitions[number % len(self.partitions)]
                await producer.room()
                value = number.to_bytes(8, "big").ljust(VALUE_BYTES, b".")
                self.history.sending(number, partition, time.monotonic())
                sent = producer.send(self._topic, value, partition=partition.partition)
                sent.add_done_callback(lambda done, number=number: self._settled(number, done))  # type: ignore[misc]
                number += 1
                await asyncio.sleep(self._every_s)
            await producer.flush()

    def _settled(self, number: int, sent: "asyncio.Future[Receipt]") -> None:
        if sent.cancelled():
            return
        error = sent.exception()
        if error is not None:
            self.refused.append(f"{number}: {error!r}")
            return
        self.history.acknowledged(number, sent.result().offset, time.monotonic())
        self._count += 1

    async def _follow(self) -> None:
        """Read committed records as they come, until the workload ends or a read is refused."""
        async with Consumer(self._bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(self.partitions)
            while not self._stop.is_set():
                try:
                    records = await consumer.poll(POLL_MS)
                except ApiError as error:
                    self.troubles.append(f"the reader was refused: {error!r}")
                    return
                if records:
                    self.history.polled(
                        (TopicPartition(r.topic, r.partition), r.offset, number_in(r.value)) for r in records
                    )

    async def _read_whole(self) -> None:
        async with (
            asyncio.timeout(FINAL_READ_S),
            Consumer(self._bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign(self.partitions)
            asked = time.monotonic()
            ends = await consumer.end_offsets(self.partitions)
            found: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in self.partitions}
            for partition, end in ends.items():
                self.history.told_end(partition, end, asked)
                consumer.seek(partition, 0)
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for record in await consumer.poll(POLL_MS, max_records=10_000):
                    place = TopicPartition(record.topic, record.partition)
                    found[place].append((record.offset, number_in(record.value)))
            for partition, records in found.items():
                self.history.read_whole(partition, records)


def number_in(value: bytes) -> int:
    """The number at the start of a value that `Workload` sent."""
    return int.from_bytes(value[:8], "big")

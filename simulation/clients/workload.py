"""The main workload: a producer sends numbers with acks=all, a consumer reads them, all is recorded.

They are the bundled clients, in processes that never crash. Left to others: judging (`checks/invariants.py`).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...client.results import ConsumerRecord, Receipt
from ...protocol.errors import ApiError, InvalidReplicationFactor, OutOfOrderSequenceNumber
from ..checks.committed import Violation
from ..checks.history import History
from ..environment.host import Host

if TYPE_CHECKING:
    from ..world import World

TOPIC = "numbers"
PARTITIONS = 2
BOOTSTRAP = "b1:9092,b2:9092,b3:9092"
PAUSE_S = (0.001, 0.03)
REST_S = (0.05, 0.4)
BATCH_BYTES = 512
"""Small, because a batch that is larger than a segment is refused for good."""
BURST_MAX = 8
"""Numbers come in bursts: interesting things happen with several in flight, and idle time is cheap."""


class SimWorkload:
    """The producer and the consumer of the judged topic, and what they were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acknowledged: dict[tuple[TopicPartition, int], int] = {}  # (partition, offset) -> number
        self.refused: list[str] = []
        self.seen: dict[tuple[TopicPartition, int], int] = {}  # what the reader has read
        self.forgotten: dict[tuple[TopicPartition, int], int] = {}  # read, then forgiven; may still be there
        self.contradictions: list[str] = []
        self.history = History()
        self.has_lost_power = False
        self._next: dict[TopicPartition, int] = {}  # the next offset for the reader
        self._open: dict[TopicPartition, dict[int, float]] = {tp: {} for tp in self.partitions}
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def forgive(self, flushed: dict[tuple[TopicPartition, int], set[int]]) -> None:
        """All machines lost power: acknowledged or read records that were not flushed count no more."""
        self.has_lost_power = True
        self.forgotten.update(self.seen)
        for told in (self.acknowledged, self.seen):
            for place, number in list(told.items()):
                if number not in flushed.get(place, ()):
                    del told[place]
        self.history.forgive(flushed, at_s=self.world.loop.now)
        self.world.errands.promised.clear()

    def promised(self, tp: TopicPartition) -> dict[int, int]:
        """Records acknowledged in this partition and not forgiven: offset -> number."""
        return {at: number for (of, at), number in self.acknowledged.items() if of == tp}

    def oldest_open(self, tp: TopicPartition) -> float | None:
        """Since when the oldest number waits for its acknowledgement there; None if none waits."""
        return min(self._open[tp].values(), default=None)

    async def begin(self) -> None:
        """Create the topic and start to send and read."""
        await self.world.loop.spawn(Host("admin"), self._create())
        spawn = self.world.loop.spawn
        self._tasks = [spawn(Host("producer"), self._produce()), spawn(Host("reader"), self._follow())]

    async def finish(self) -> None:
        """Stop sending, wait for the last acknowledgements, then until the reader has read them."""
        self._stop.set()
        async with asyncio.timeout(180):
            await asyncio.gather(*self._tasks)

    async def _create(self) -> None:
        async with asyncio.timeout(60), Admin(BOOTSTRAP, random=self._chance()) as admin:
            while True:
                try:
                    await admin.create_topic(TOPIC, PARTITIONS, 3, configs=self.world.topic_settings)
                    break
                except InvalidReplicationFactor:
                    await asyncio.sleep(0.1)  # not all brokers are there yet

    async def _produce(self) -> None:
        draw = self._chance()
        async with Producer(
            BOOTSTRAP,
            random=self._chance(),
            clock=self.world.clock,
            linger_ms=2,
            batch_size=BATCH_BYTES,
            request_timeout_ms=self.world.patience_ms,
        ) as producer:
            number, left = 0, 0
            while not self._stop.is_set():
                number += 1
                partition = draw.randrange(PARTITIONS)
                await producer.room()
                self.history.sending(number, TopicPartition(TOPIC, partition), self.world.loop.now)
                self._open[TopicPartition(TOPIC, partition)][number] = self.world.loop.now
                sent = producer.send(TOPIC, b"%d" % number, partition=partition)
                sent.add_done_callback(lambda done, number=number: self._settled(number, done))  # type: ignore[misc]
                left = left - 1 if left else draw.randint(0, BURST_MAX - 1)
                await asyncio.sleep(draw.uniform(*(PAUSE_S if left else REST_S)))
            await producer.flush()

    def _settled(self, number: int, sent: asyncio.Future[Receipt]) -> None:
        if sent.cancelled():
            return
        tp = self.history.sends[number].partition
        self._open[tp].pop(number)
        self.world.liveness.acknowledged(tp)
        error = sent.exception()
        if isinstance(error, OutOfOrderSequenceNumber) and self.has_lost_power:
            return  # correct: the records before it in the sequence are lost
        if error is not None:
            self.refused.append(f"{number}: {error!r}")
            return
        receipt = sent.result()
        self.history.acknowledged(number, receipt.offset, self.world.loop.now)
        place = (TopicPartition(receipt.topic, receipt.partition), receipt.offset)
        if place in self.acknowledged:
            self.contradictions.append(
                f"{place} was acknowledged for {self.acknowledged[place]} and {number}"
            )
        self.acknowledged[place] = number
        self._compare(place, number)

    async def _follow(self) -> None:
        """Read committed records as they come, until all acknowledged ones are read."""
        async with Consumer(BOOTSTRAP, random=self._chance(), auto_offset_reset="earliest") as consumer:
            consumer.assign(self.partitions)
            while not (self._stop.is_set() and self._has_seen_all()):
                try:
                    records = await consumer.poll(200)
                except ApiError as error:
                    self.contradictions.append(f"the reader was refused: {error!r}")
                    return
                self._note_jumps(records)
                self.history.polled(
                    (TopicPartition(record.topic, record.partition), record.offset, int(record.value))
                    for record in records
                )
                for record in records:
                    place = (TopicPartition(record.topic, record.partition), record.offset)
                    self._compare(place, int(record.value))
                    self._committed(*place)
                    self.seen[place] = int(record.value)

    def _note_jumps(self, records: list[ConsumerRecord]) -> None:
        """Retention may remove records before the reader gets them: then it goes on at the log start."""
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            expected, start = self._next.get(tp, 0), self.world.checks.starts.get(tp, 0)
            if expected < record.offset <= start:
                self.world.note(f"the reader goes on at {tp}@{record.offset}, {expected} is gone")
                self.history.moved()
            self._next[tp] = record.offset + 1

    def _has_seen_all(self) -> bool:
        """Whether the reader has read all acknowledged records; those it read before a power loss count."""
        missed = self.acknowledged.items() - self.seen.items()
        starts = self.world.checks.starts
        return all(
            self.forgotten.get(place) == number or place[1] < starts.get(place[0], 0)
            for place, number in missed
        )

    def _committed(self, tp: TopicPartition, offset: int) -> None:
        try:
            self.world.checks.read(tp, offset)
        except Violation as violation:
            self.world.checks.fail(violation)

    def _compare(self, place: tuple[TopicPartition, int], number: int) -> None:
        """What was acknowledged at an offset and what was read there must be the same, at any time."""
        for told in (self.acknowledged.get(place), self.seen.get(place)):
            if told is not None and told != number:
                self.contradictions.append(f"{place} held {told}, then {number}")

    def _chance(self) -> random.Random:
        return random.Random(self.world.random.getrandbits(64))

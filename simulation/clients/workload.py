"""The main workload: a producer sends numbers with acks=all, a consumer reads them, all is recorded.

They are the bundled clients, in processes that never crash. Left to others: what they were told
(`checks/ledger.py`), judging it (`checks/invariants.py`).
"""

from __future__ import annotations

import asyncio
import random

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...client.results import ConsumerRecord, Receipt
from ...protocol.errors import ApiError, InvalidReplicationFactor, OutOfOrderSequenceNumber
from ..checks.invariants import Checks
from ..checks.ledger import PARTITIONS, TOPIC, Ledger
from ..cluster import BOOTSTRAP, SimCluster
from ..environment.host import Host
from ..trace import Violation

PAUSE_S = (0.001, 0.03)
REST_S = (0.05, 0.4)
BATCH_BYTES = 512
"""Small, because a batch that is larger than a segment is refused for good."""
BURST_MAX = 8
"""Numbers come in bursts: interesting things happen with several in flight, and idle time is cheap."""


class SimWorkload:
    """The producer and the consumer of the judged topic."""

    def __init__(
        self,
        cluster: SimCluster,
        ledger: Ledger,
        checks: Checks,
        *,
        patience_ms: int,
        topic_settings: dict[str, str],
    ) -> None:
        """`patience_ms`: the producer's request timeout."""
        self.cluster, self.ledger, self.checks = cluster, ledger, checks
        self.patience_ms, self.topic_settings = patience_ms, topic_settings
        self._next: dict[TopicPartition, int] = {}  # the next offset for the reader
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Create the topic and start to send and read."""
        await self.cluster.loop.spawn(Host("admin"), self._create())
        spawn = self.cluster.loop.spawn
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
                    await admin.create_topic(TOPIC, PARTITIONS, 3, configs=self.topic_settings)
                    break
                except InvalidReplicationFactor:
                    await asyncio.sleep(0.1)  # not all brokers are there yet

    async def _produce(self) -> None:
        draw = self._chance()
        async with Producer(
            BOOTSTRAP,
            random=self._chance(),
            clock=self.cluster.clock,
            linger_ms=2,
            batch_size=BATCH_BYTES,
            request_timeout_ms=self.patience_ms,
        ) as producer:
            number, left = 0, 0
            while not self._stop.is_set():
                number += 1
                partition = draw.randrange(PARTITIONS)
                await producer.room()
                self.ledger.sending(number, TopicPartition(TOPIC, partition), self.cluster.loop.now)
                sent = producer.send(TOPIC, b"%d" % number, partition=partition)
                sent.add_done_callback(lambda done, number=number: self._settled(number, done))  # type: ignore[misc]
                left = left - 1 if left else draw.randint(0, BURST_MAX - 1)
                await asyncio.sleep(draw.uniform(*(PAUSE_S if left else REST_S)))
            await producer.flush()

    def _settled(self, number: int, sent: asyncio.Future[Receipt]) -> None:
        if sent.cancelled():
            return
        self.ledger.answered(number, self.cluster.loop.now)
        error = sent.exception()
        if isinstance(error, OutOfOrderSequenceNumber) and self.ledger.has_lost_power:
            return  # correct: the records before it in the sequence are lost
        if error is not None:
            self.ledger.refused.append(f"{number}: {error!r}")
        else:
            self.ledger.acknowledge(number, sent.result(), self.cluster.loop.now)

    async def _follow(self) -> None:
        """Read committed records as they come, until all acknowledged ones are read."""
        async with Consumer(BOOTSTRAP, random=self._chance(), auto_offset_reset="earliest") as consumer:
            consumer.assign(self.ledger.partitions)
            while not (self._stop.is_set() and self.ledger.has_seen_all(self.checks.starts)):
                try:
                    records = await consumer.poll(200)
                except ApiError as error:
                    self.ledger.contradictions.append(f"the reader was refused: {error!r}")
                    return
                self._note_jumps(records)
                self.ledger.polled(records)
                for record in records:
                    tp = TopicPartition(record.topic, record.partition)
                    self._committed(tp, record.offset)
                    self.ledger.read(tp, record.offset, int(record.value))

    def _note_jumps(self, records: list[ConsumerRecord]) -> None:
        """Retention may remove records before the reader gets them: then it goes on at the log start."""
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            expected, start = self._next.get(tp, 0), self.checks.starts.get(tp, 0)
            if expected < record.offset <= start:
                self.cluster.note(f"the reader continues at {tp}@{record.offset}: {expected} is gone")
                self.ledger.history.moved()
            self._next[tp] = record.offset + 1

    def _committed(self, tp: TopicPartition, offset: int) -> None:
        try:
            self.checks.read(tp, offset)
        except Violation as violation:
            self.cluster.trace.fail(violation)

    def _chance(self) -> random.Random:
        return random.Random(self.cluster.random.getrandbits(64))

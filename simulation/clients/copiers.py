"""Copiers: each copies one partition of the judged topic to another topic, exactly once.

A copier is a process that may be killed or stand still. Then another one with the same transactional id takes
its place; one that stood still may go on afterwards, and must be fenced.
Left to others: what must hold (`checks/copies.py`), when copiers die (`faults/requests.py`).
"""

from __future__ import annotations

import asyncio
import random

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...client.results import Receipt
from ...protocol.errors import ApiError, TopicAlreadyExists
from ..checks.copies import COPIES, Copies, Outcome, Transaction
from ..checks.invariants import Checks
from ..checks.ledger import Ledger
from ..cluster import BOOTSTRAP, SimCluster
from ..environment.host import Host
from ..trace import Violation

GROUP = "copiers"
TARGETS = 2
RECORDS_MAX = 6
"""In one transaction."""
ABORTS = 0.2
"""The share of transactions that a copier aborts."""
TRANSACTION_MS = 4_000
STANDS_STILL_S = (0.5, 8.0)
CAUGHT_UP_S = 90.0
PATIENCE_MS = 5_000


class Copiers:
    """One copier for each partition of the judged topic, and a reader of what they commit."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, checks: Checks) -> None:
        self.cluster, self.ledger, self.checks = cluster, ledger, checks
        self.copies = Copies()
        self.copied = dict.fromkeys(ledger.partitions, 0)  # all before it is copied, as far as copiers know
        self._hosts: dict[TopicPartition, Host] = {}
        self._copying: dict[TopicPartition, asyncio.Task[None]] = {}  # who copies now; others died, or will
        self._lives = 0
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []  # of those who are to end by themselves

    # ------------------------------------------------------------ life

    def begin(self) -> None:
        """Create the topic, and start the copiers and the reader."""
        self.cluster.loop.spawn(Host("copies-admin"), self._create())

    async def _create(self) -> None:
        async with asyncio.timeout(60), Admin(BOOTSTRAP, random=self._chance()) as admin:
            while True:
                try:
                    await admin.create_topic(COPIES, TARGETS, 3, configs={"min.insync.replicas": "2"})
                    break
                except TopicAlreadyExists:
                    break
                except ApiError:
                    await asyncio.sleep(0.1)  # not all brokers are there yet
        for source in self.ledger.partitions:
            self._start(source)
        self._tasks.append(self.cluster.loop.spawn(Host("copies-reader"), self._follow()))

    def _start(self, source: TopicPartition) -> None:
        self._lives += 1
        host = self._hosts[source] = Host(f"copier-{source.partition}.{self._lives}")
        self._copying[source] = self.cluster.loop.spawn(host, self._copy(source, host))

    def kill(self) -> None:
        """A copier is killed, and another one takes its place at once."""
        source = self._one()
        if source is not None:
            self.cluster.note(f"{self._hosts[source].name} is killed")
            self.cluster.loop.crash(self._hosts[source])
            self._start(source)

    def replace(self) -> None:
        """A copier stands still, and another one takes its place. Later the first goes on: a zombie."""
        source = self._one()
        if source is None:
            return
        host = self._hosts[source]
        self.cluster.note(f"{host.name} stands still")
        host.stopped = True
        self.cluster.loop.call_later(self.cluster.random.uniform(*STANDS_STILL_S), self._resume, host)
        self._start(source)

    def _resume(self, host: Host) -> None:
        self.cluster.note(f"{host.name} goes on")
        self.cluster.loop.resume(host)

    def _one(self) -> TopicPartition | None:
        return self.cluster.random.choice(sorted(self._hosts)) if self._hosts else None

    async def finish(self) -> None:
        """Wait until all is copied and read, stop, and judge. Raises Violation."""
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                while not self._is_done():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            ends = {str(tp): committed.end for tp, committed in self.checks.committed.items()}
            raise Violation(f"liveness: copied up to {self.copied}; the ends are {ends}") from None
        self._stop.set()
        async with asyncio.timeout(CAUGHT_UP_S):
            await asyncio.gather(*self._tasks, *self._copying.values())
        sources = {tp: self.checks.committed[tp].numbers for tp in self.ledger.partitions}
        self.copies.judge(sources, self.checks.starts)

    def _is_done(self) -> bool:
        asked = [one for one in self.copies.transactions if one.outcome is Outcome.COMMITTED]
        return all(copied >= self._end(tp) for tp, copied in self.copied.items()) and all(
            number in self.copies.seen for one in asked for number in one.numbers
        )

    def _end(self, source: TopicPartition) -> int:
        """Up to where it must be copied. What was acknowledged a moment ago is not among `committed` yet."""
        acknowledged = max(self.ledger.promised(source), default=-1) + 1
        return max(acknowledged, self.checks.committed[source].end)

    # ------------------------------------------------------------ copying

    async def _copy(self, source: TopicPartition, host: Host) -> None:
        draw = random.Random(self.cluster.random.getrandbits(64))
        while not self._stop.is_set() and self._hosts[source] is host:
            try:
                await self._one_life(source, host, draw)
            except (ApiError, OSError, TimeoutError) as error:
                self.cluster.note(f"{host.name} begins again: {error!r}")
                await asyncio.sleep(0.2)

    async def _one_life(self, source: TopicPartition, host: Host, draw: random.Random) -> None:
        async with (
            Consumer(
                BOOTSTRAP, group=GROUP, auto_offset_reset="earliest", enable_auto_commit=False,
                isolation_level="read_committed", request_timeout_ms=PATIENCE_MS,
                default_api_timeout_ms=2 * PATIENCE_MS, random=random.Random(draw.getrandbits(64)),
            ) as consumer,
            Producer(
                BOOTSTRAP, transactional_id=f"copier-{source.partition}",
                transaction_timeout_ms=TRANSACTION_MS, linger_ms=2, clock=self.cluster.clock,
                request_timeout_ms=PATIENCE_MS, random=random.Random(draw.getrandbits(64)),
            ) as producer,
        ):  # fmt: skip
            await producer.init_transactions()
            consumer.assign([source])
            at = (await consumer.committed(source))[source]
            self.copied[source] = 0 if at is None else at.offset
            while not self._stop.is_set():
                records = (await consumer.poll(200))[:RECORDS_MAX]
                if not records:
                    continue
                transaction = self.copies.begin(host.name)
                producer.begin()
                for record in records:
                    number = int(record.value)
                    transaction.numbers.append(number)
                    value = b"%d:%d" % (number, transaction.id)
                    sent = producer.send(COPIES, value, partition=number % TARGETS)
                    sent.add_done_callback(_settled)
                    await asyncio.sleep(draw.uniform(0, 0.02))
                after = records[-1].offset + 1
                await producer.send_offsets({source: after}, GROUP)
                if draw.random() < ABORTS:
                    transaction.outcome = Outcome.ABORTED
                    await producer.abort()
                    consumer.seek(source, records[0].offset)
                    continue
                await self._commit(producer, transaction)
                self.copied[source] = max(self.copied[source], after)
                consumer.seek(source, after)

    async def _commit(self, producer: Producer, transaction: Transaction) -> None:
        transaction.outcome = Outcome.ASKED
        await producer.commit()
        transaction.outcome = Outcome.COMMITTED

    # ------------------------------------------------------------ reading

    async def _follow(self) -> None:
        """Read committed copies as they come, until told to stop."""
        places = [TopicPartition(COPIES, number) for number in range(TARGETS)]
        async with Consumer(
            BOOTSTRAP, random=self._chance(), auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(places)
            while not self._stop.is_set():
                try:
                    for record in await consumer.poll(200):
                        place = TopicPartition(record.topic, record.partition)
                        self.copies.read(place, record.offset, record.value)
                except (Violation, ApiError) as trouble:
                    self.cluster.trace.fail(
                        trouble if isinstance(trouble, Violation) else Violation(f"I23: refused: {trouble!r}")
                    )
                    return

    def _chance(self) -> random.Random:
        return random.Random(self.cluster.random.getrandbits(64))


def _settled(sent: asyncio.Future[Receipt]) -> None:
    """What became of a record is told by the end of its transaction."""
    if not sent.cancelled():
        sent.exception()

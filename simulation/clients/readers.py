"""A consumer group: members come and go, coordinators die, and each record is read at least once.

A newly assigned member must start where the group is: not below the committed offset (that would read records
twice for no reason), and not above what some member has read (that would skip records). At the end all is
read, and each member has partitions: none is left waiting outside the group.
Left to others: which record is at an offset (`checks/ledger.py`), when members leave (`faults/faults.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from ...base.types import TopicPartition
from ...client.consumer.consumer import Consumer
from ...client.consumer.subscription import RebalanceListener
from ...client.results import ConsumerRecord
from ...protocol.errors import ApiError
from ..checks.invariants import Checks
from ..checks.ledger import TOPIC, Ledger
from ..cluster import BOOTSTRAP, SimCluster
from ..environment.host import Host
from ..trace import Violation

GROUP = "readers"
MEMBERS = 2
SESSION_MS = 6_000
CAUGHT_UP_S = 60.0


class _Member(RebalanceListener):
    """One member, from its join to its end."""

    def __init__(self, least: Callable[[TopicPartition], int]) -> None:
        """`least`: the lowest offset at which a member that is assigned a partition now may start."""
        self.leaves = False
        self.consumer: Consumer | None = None
        self.fresh: dict[TopicPartition, int] = {}  # assigned but nothing read yet -> `least` at that time
        self._least = least

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.fresh.update({tp: self._least(tp) for tp in partitions})


class Readers:
    """A group that reads the topic."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, checks: Checks) -> None:
        self.cluster, self.ledger, self.checks = cluster, ledger, checks
        self.covered = dict.fromkeys(ledger.partitions, 0)  # members have read all before it
        self.committed = dict.fromkeys(ledger.partitions, 0)  # the highest acknowledged commit
        self.maybe: dict[TopicPartition, list[int]] = {tp: [] for tp in ledger.partitions}
        self._members: dict[int, _Member] = {}
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start the members."""
        for number in range(MEMBERS):
            self._tasks.append(self.cluster.loop.spawn(Host(f"member-{number}"), self._read(number)))

    def churn(self) -> None:
        """One member leaves; another joins in its place."""
        number = self.cluster.random.randrange(MEMBERS)
        if number in self._members:
            self.cluster.note(f"member-{number} leaves")
            self._members[number].leaves = True

    async def finish(self) -> None:
        """Wait until the group has read everything and every member has a partition, then stop it."""
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                while not (self._has_read_all() and all(self.shares())):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            ends = {str(tp): committed.end for tp, committed in self.checks.committed.items()}
            read = f"the group has read up to {self.covered}; the ends are {ends}"
            raise Violation(f"liveness: {read}; its members own {self.shares()}") from None
        self._stop.set()
        async with asyncio.timeout(CAUGHT_UP_S):
            await asyncio.gather(*self._tasks)

    def shares(self) -> list[list[TopicPartition]]:
        """What each member reads now."""
        consumers = [member.consumer for _, member in sorted(self._members.items())]
        return [sorted(consumer.assignment()) if consumer else [] for consumer in consumers]

    def _has_read_all(self) -> bool:
        return self.ledger.has_lost_power or all(
            covered >= self.checks.committed[tp].end for tp, covered in self.covered.items()
        )

    async def _read(self, number: int) -> None:
        draw = random.Random(self.cluster.random.getrandbits(64))
        while not self._stop.is_set():
            member = self._members[number] = _Member(self._least)
            try:
                await self._one_life(member, draw)
            except (ApiError, OSError, TimeoutError):
                await asyncio.sleep(0.2)

    async def _one_life(self, member: _Member, draw: random.Random) -> None:
        async with Consumer(
            BOOTSTRAP,
            topics=[TOPIC],
            group=GROUP,
            listener=member,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=5_000,
            default_api_timeout_ms=10_000,
            random=random.Random(draw.getrandbits(64)),
        ) as consumer:
            member.consumer = consumer
            while not (self._stop.is_set() or member.leaves):
                records = await consumer.poll(500)
                if records:
                    self._handed(member, records)
                    await self._commit(consumer, records)

    def _handed(self, member: _Member, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            if not self.ledger.has_lost_power:
                self._judge(tp, record.offset, member.fresh.get(tp))
            member.fresh.pop(tp, None)
            self.covered[tp] = max(self.covered[tp], record.offset + 1)

    def _least(self, tp: TopicPartition) -> int:
        return min([self.committed[tp], *self.maybe[tp]])

    def _judge(self, tp: TopicPartition, offset: int, assigned_at: int | None) -> None:
        """A member may start below commits made since its assignment: cut off, it cannot know them."""
        if offset > self.covered[tp] and offset > self.checks.starts.get(tp, 0):
            self._fail(f"the group got {tp}@{offset} although it had read only up to {self.covered[tp]}")
        if assigned_at is not None:
            least = min(assigned_at, self._least(tp))
            if offset < least:
                self._fail(f"a member starts at {tp}@{offset}, but {least} was committed")

    def _fail(self, what: str) -> None:
        self.cluster.trace.fail(Violation(f"I20: {what}"))

    async def _commit(self, consumer: Consumer, records: Iterable[ConsumerRecord]) -> None:
        """Commit. Until it is acknowledged, it may or may not take effect, and late."""
        offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        for tp, offset in offsets.items():
            self.maybe[tp].append(offset)
        await consumer.commit(offsets)
        for tp, offset in offsets.items():
            self.maybe[tp].remove(offset)
            self.committed[tp] = max(self.committed[tp], offset)

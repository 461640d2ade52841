"""An administrator who creates, grows and deletes extra topics, and asks for elections.

A request may be lost, or carried out much later. There are few names, so that a topic is created again while
replicas of its predecessor are still being deleted. Records acknowledged for a topic that still exists must
be in it, except for those that an unclean election lost: such elections are asked for, too.
Left to others: what was acknowledged (`checks/ledger.py`), whether it is there in the end
(`checks/judging.py`), deletion of ISR members (`checks/invariants.py`), bytes (`checks/committed.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.producer.producer import Producer
from ...protocol.errors import ApiError
from ..checks.ledger import EXTRA, Ledger
from ..cluster import BOOTSTRAP, SimCluster
from ..environment.host import Host

NAMES = 2
PARTITIONS_MAX = 3
PATIENCE_S = 5.0
RECORDS = 6
"""How many are written to a topic after it was created or grown."""
FIRST_NUMBER = 1_000_000


class Errands:
    """Sends the requests, and records to topics that were created or grown."""

    def __init__(self, cluster: SimCluster, ledger: Ledger) -> None:
        self.cluster, self.ledger = cluster, ledger
        self._tasks: list[asyncio.Task[None]] = []
        self._next = FIRST_NUMBER

    # ------------------------------------------------------------ requests

    def make(self) -> None:
        """Create a topic, perhaps while one with its name is being deleted."""
        name, partitions = self._name(), self.cluster.random.randint(1, PARTITIONS_MAX - 1)
        self._ask(f"topic {name} is created", lambda admin: admin.create_topic(name, partitions, 3), name)

    def grow(self) -> None:
        """Add a partition to a topic."""
        name = self._name()
        count = min(len(self._partitions(name)) + 1, PARTITIONS_MAX)
        self._ask(
            f"topic {name} grows to {count} partitions",
            lambda admin: admin.create_partitions({name: count}),
            name,
        )

    def delete(self) -> None:
        """Delete a topic."""
        name = self._name()
        self._ask(f"topic {name} is deleted", lambda admin: admin.delete_topics([name]), None)

    def elect(self) -> None:
        """Ask for preferred leader elections."""
        self._ask("a preferred election is requested", lambda admin: admin.elect_leaders("preferred"), None)

    def elect_uncleanly(self) -> None:
        """Ask for unclean elections in these topics: any live replica shall lead if there is no leader."""
        wanted = [tp for n in range(NAMES) for tp in self._partitions(f"{EXTRA}{n}")]
        self._ask(
            "an unclean election is requested", lambda admin: admin.elect_leaders("unclean", wanted), None
        )

    # ------------------------------------------------------------ the end

    async def finish(self) -> None:
        """Wait for all requests to end."""
        await asyncio.gather(*self._tasks)

    # ------------------------------------------------------------ how

    def _name(self) -> str:
        return f"{EXTRA}{self.cluster.random.randrange(NAMES)}"

    def _partitions(self, name: str) -> list[TopicPartition]:
        numbers = self.cluster.topic(name).get("partitions", {})
        return [TopicPartition(name, int(number)) for number in sorted(numbers)]

    def _ask(self, what: str, deed: Callable[[Admin], Awaitable[object]], write: str | None) -> None:
        self.cluster.note(what)
        draw = random.Random(self.cluster.random.getrandbits(64))
        self._tasks.append(self.cluster.loop.spawn(Host("admin"), self._run(deed, write, draw)))

    async def _run(
        self, deed: Callable[[Admin], Awaitable[object]], write: str | None, draw: random.Random
    ) -> None:
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                Admin(
                    BOOTSTRAP,
                    random=random.Random(draw.getrandbits(64)),
                    request_timeout_ms=int(PATIENCE_S * 1000),
                ) as admin,
            ):
                await deed(admin)
        except (ApiError, OSError, TimeoutError):
            pass  # done or not: unknown
        if write is not None:
            await self._write(write, draw)

    async def _write(self, name: str, draw: random.Random) -> None:
        try:
            async with (
                asyncio.timeout(2 * PATIENCE_S),
                Producer(
                    BOOTSTRAP,
                    random=random.Random(draw.getrandbits(64)),
                    clock=self.cluster.clock,
                    delivery_timeout_ms=int(PATIENCE_S * 1000),
                    request_timeout_ms=2_000,
                    max_block_ms=2_000,
                    allow_auto_create_topics=False,
                ) as producer,
            ):
                for _ in range(RECORDS):
                    await self._send(producer, name, draw)
        except (ApiError, OSError, TimeoutError):
            pass

    async def _send(self, producer: Producer, name: str, draw: random.Random) -> None:
        id, partitions = self.cluster.topic(name).get("topic_id"), self._partitions(name)
        if not partitions:
            return
        self._next += 1
        number = self._next
        receipt = await producer.send(name, b"%d" % number, partition=draw.choice(partitions).partition)
        if id == self.cluster.topic(name).get("topic_id") and not self.ledger.has_lost_power:
            self.ledger.extra[id, TopicPartition(name, receipt.partition), receipt.offset] = number
        # else it went to the topic before or to this one (nobody knows), or may be lost with the power
        await asyncio.sleep(draw.uniform(0.0, 0.3))

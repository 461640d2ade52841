"""Members of a group for which the broker assigns (KIP-848): they come, go, die and stand still.

The bundled client speaks the classic protocol only, so these members are written here: they send heartbeats,
give up what they are told to, and commit for each partition that they own one offset more than was committed,
as if they had read a record. After a lost answer they say everything again, as Kafka's clients do.
Left to others: what must hold (`checks/owners.py`), when members die (`faults/requests.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...client.config import ClientConfig, configure
from ...client.consumer.commits import Commit, GroupMember, ask_coordinator, check, fetch_committed
from ...client.network.cluster import Cluster
from ...client.results import CommittedOffset
from ...protocol.errors import ApiError, ErrorCode, TopicAlreadyExists
from ...protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from ..checks.owners import Owner, Owners
from ..cluster import BOOTSTRAP, SimCluster
from ..environment.host import Host
from ..families import ASSIGNED_SESSION_S
from ..trace import Violation

T = TypeVar("T")

GROUP, TOPIC = "assigned", "shared"
PARTITIONS = 5
MEMBERS = 3
REBALANCE_S = 2.0
BEAT_S = (0.1, 0.4)
STANDS_STILL_S = (1.0, 6.0)
ZOMBIE_S = (0.2, 2.0)
"""For so long a member that stood still goes on beside the one that has joined in its place."""
CAUGHT_UP_S = 60.0
PATIENCE_MS = 2_000
GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID))
LEAVING = -1


class Members:
    """The group: so many members live at a time, each in a process of its own."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.owners = Owners(PARTITIONS, min(ASSIGNED_SESSION_S, REBALANCE_S))
        self._hosts: dict[int, Host] = {}
        self._lives = 0
        self._leaving: set[Host] = set()
        self._tasks: dict[Host, asyncio.Task[None]] = {}  # of those who are to end by themselves
        self._stop = asyncio.Event()

    # ------------------------------------------------------------ life

    def begin(self) -> None:
        """Create the topic, and start the members."""
        self.cluster.loop.spawn(Host("shared-admin"), self._create())

    async def _create(self) -> None:
        async with asyncio.timeout(60), Admin(BOOTSTRAP, random=self._chance()) as admin:
            while True:
                try:
                    await admin.create_topic(TOPIC, PARTITIONS, 3)
                    break
                except TopicAlreadyExists:
                    break
                except ApiError:
                    await asyncio.sleep(0.1)  # not all brokers are there yet
        for number in range(MEMBERS):
            self._start(number)

    def _start(self, number: int) -> None:
        self._lives += 1
        host = self._hosts[number] = Host(f"assigned-{number}.{self._lives}")
        self._tasks[host] = self.cluster.loop.spawn(host, self._live(number, host))

    def kill(self) -> None:
        """A member is killed, and another one joins in its place at once."""
        if (number := self._one()) is not None:
            host = self._hosts[number]
            self.cluster.note(f"{host.name} is killed")
            self.cluster.loop.crash(host)
            del self._tasks[host]
            self.owners.alive.pop(host.name, None)
            self._start(number)

    def replace(self) -> None:
        """A member stands still, and another one joins. Later the first goes on: a zombie, for a moment."""
        if (number := self._one()) is not None:
            host = self._hosts[number]
            self.cluster.note(f"{host.name} stands still")
            host.stopped = True
            self.cluster.loop.call_later(self.cluster.random.uniform(*STANDS_STILL_S), self._resume, host)
            self._start(number)

    def leave(self) -> None:
        """A member leaves the group, and another one joins."""
        if (number := self._one()) is not None:
            self.cluster.note(f"{self._hosts[number].name} leaves")
            self._leaving.add(self._hosts[number])
            self._start(number)

    def _resume(self, host: Host) -> None:
        self.cluster.note(f"{host.name} goes on")
        self.cluster.loop.resume(host)
        self.cluster.loop.call_later(self.cluster.random.uniform(*ZOMBIE_S), self._leaving.add, host)

    def _one(self) -> int | None:
        return self.cluster.random.choice(sorted(self._hosts)) if self._hosts else None

    async def finish(self) -> None:
        """Wait until every partition is some member's and more of each is committed. Raises Violation."""
        before = dict(self.owners.committed)
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                while self.owners.nobodys() or not all(
                    self.owners.committed[each] > before[each] for each in before
                ):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise Violation(
                f"liveness: nobody has {sorted(self.owners.nobodys())}; committed {self.owners.committed}"
            ) from None
        self._stop.set()
        async with asyncio.timeout(CAUGHT_UP_S):
            await asyncio.gather(*self._tasks.values())

    # ------------------------------------------------------------ a member

    async def _live(self, number: int, host: Host) -> None:
        draw = random.Random(self.cluster.random.getrandbits(64))
        try:
            cluster = await self._connected(draw)
        except (ApiError, OSError, TimeoutError):
            if self._hosts[number] is host and not self._stop.is_set():
                self._start(number)
            return
        owner = self.owners.alive[host.name] = Owner(host.name)
        member = _Member(cluster, owner, self.owners, self.cluster.loop.time)
        try:
            while not (self._stop.is_set() or host in self._leaving):
                for deed in draw.sample((member.beat, member.work), 2):  # it may commit before it hears
                    await self._tried(host, deed)
                await asyncio.sleep(draw.uniform(*BEAT_S))
            await self._tried(host, member.leave)
        finally:
            self.owners.alive.pop(host.name, None)
            await cluster.stop()

    async def _connected(self, draw: random.Random) -> Cluster:
        patience = {"request_timeout_ms": PATIENCE_MS, "default_api_timeout_ms": 10 * PATIENCE_MS}
        config = configure(ClientConfig, BOOTSTRAP, patience)
        cluster = Cluster(config, random.Random(draw.getrandbits(64)))
        cluster.track([TOPIC])
        await cluster.start()
        return cluster

    async def _tried(self, host: Host, deed: Callable[[], Awaitable[None]]) -> None:
        try:
            await deed()
        except (ApiError, OSError, TimeoutError) as error:
            self.cluster.note(f"{host.name}: {error!r}")
        except Violation as violation:
            self.cluster.trace.fail(violation)

    def _chance(self) -> random.Random:
        return random.Random(self.cluster.random.getrandbits(64))


class _Member:
    """What one member does."""

    def __init__(self, cluster: Cluster, owner: Owner, owners: Owners, now: Callable[[], float]) -> None:
        self.cluster, self.owner, self.owners, self._now = cluster, owner, owners, now
        self.topic_id: UUID | None = None
        self._at: dict[int, int] = {}  # the last offset that it tried to commit
        self._says_all = True
        self._told: set[int] = set()  # what the coordinator was last told that it owns

    async def beat(self) -> None:
        """Tell the coordinator that it is alive and what it owns, and hear what it may have."""
        owner, sent_at = self.owner, self._now()
        whole = self._says_all or owner.epoch == 0
        owned = set(owner.owned)
        tells = whole or owned != self._told
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=owner.id,
            member_epoch=owner.epoch,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if whole else -1,
            subscribed_topic_names=[TOPIC] if whole else None,
            topic_partitions=self._partitions(owned) if tells else None,
        )
        self._says_all = True
        answer: ConsumerGroupHeartbeatResponse = await ask_coordinator(
            self.cluster, GROUP, request, self.cluster.deadline()
        )
        if answer.error_code in GONE:
            owner.lose()
            self._at.clear()
            return
        check(self.cluster, GROUP, answer.error_code, GROUP)
        self._says_all = False
        self._told = owned if tells else self._told
        epoch, now = answer.member_epoch, self._now()
        if answer.assignment is None:
            self.owners.stays(owner, epoch, sent_at, now)
        else:
            topics = answer.assignment.topic_partitions
            if topics:
                self.topic_id = topics[0].topic_id
            given = {number for topic in topics for number in topic.partitions}
            self.owners.give(owner, epoch, given, sent_at, now)
        self._at = {each: at for each, at in self._at.items() if each in owner.owned}

    def _partitions(self, owned: set[int]) -> list[HeartbeatTopicPartitions]:
        if not owned:
            return []
        assert self.topic_id is not None, "who owns something was given it"
        return [HeartbeatTopicPartitions(topic_id=self.topic_id, partitions=sorted(owned))]

    async def work(self) -> None:
        """Commit what follows what is committed, for everything that it owns."""
        owner, epoch = self.owner, self.owner.epoch
        fresh = sorted(owner.owned - self._at.keys())
        if fresh:
            acknowledged = dict(self.owners.committed)
            asked = [TopicPartition(TOPIC, each) for each in fresh]
            found = await fetch_committed(self.cluster, GROUP, asked, self.cluster.deadline(PATIENCE_MS))
            for tp in asked:
                offset = found[tp].offset if tp in found else 0
                self.owners.found(tp.partition, offset, acknowledged[tp.partition])
                self._at[tp.partition] = offset
        if not owner.owned:
            return
        for each in owner.owned:
            self._at[each] += 1
        offsets = {each: self._at[each] for each in sorted(owner.owned)}
        acknowledged = dict(self.owners.committed)
        commit = Commit(
            self.cluster,
            GROUP,
            {TopicPartition(TOPIC, each): CommittedOffset(at, "", -1) for each, at in offsets.items()},
            GroupMember(epoch, owner.id),
        )
        await commit.write(self.cluster.deadline(PATIENCE_MS), once=True)
        self.owners.accepted(owner, offsets, acknowledged)

    async def leave(self) -> None:
        """Leave the group. What it owned may be given away from when this is sent."""
        owner, epoch = self.owner, self.owner.epoch
        owner.lose()
        if epoch > 0:
            request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=owner.id, member_epoch=LEAVING)
            await ask_coordinator(self.cluster, GROUP, request, self.cluster.deadline(PATIENCE_MS))

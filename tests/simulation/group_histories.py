"""A consumer group in virtual time, in which everything happens at random: members join, leave, die and stand
still, poll, iterate and take batches, commit, seek, pause and give up waiting, while brokers die.

The brokers are real, and so are the consumers; a seed repeats a history. What must hold:
- a record is handed out after the one before it, unless the caller has sought or the partition was assigned
  anew; then it begins no later than the first record that nobody has done;
- nothing of a partition is handed out between its revocation and its next assignment;
- what is committed was done before, all of it, by whomever;
- in the end every record was done.
Left to others: the brokers and their world (simulation/), the protocol of members (test_membership.py).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import structlog

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import Admin
from strandline.client.consumer.consumer import Consumer
from strandline.client.consumer.subscription import RebalanceListener
from strandline.client.producer.producer import Producer
from strandline.protocol.errors import ApiError, FencedInstanceId
from strandline.simulation.cluster import BOOTSTRAP, BROKERS, SimCluster
from strandline.simulation.environment.disk import SimDisk
from strandline.simulation.environment.host import Host, current_host
from strandline.simulation.environment.loop import SimLoop
from strandline.simulation.settings import SETTINGS
from strandline.simulation.trace import Trace

TOPIC, GROUP = "t", "g"
PARTITIONS = 3
MEMBERS_MAX = 4
STRATEGIES = (("range",), ("cooperative-sticky",), ("sticky",), ("range", "cooperative-sticky"))
OPTIONS: dict[str, Any] = {
    "group": GROUP, "auto_offset_reset": "earliest", "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 300, "auto_commit_interval_ms": 500, "max_poll_interval_ms": 15_000,
    "request_timeout_ms": 3_000, "default_api_timeout_ms": 8_000, "metadata_max_age_ms": 5_000,
}  # fmt: skip
END_S = 120.0  # of virtual time: longer than closing, or catching up, may take
STEPS = 40


class Ear(RebalanceListener):
    """Says which partitions its member may hand out, and commits what is revoked, if its member would."""

    def __init__(self, member: "Member") -> None:
        self.member = member

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        member = self.member
        for one in partitions:
            member.at.pop(one, None)
        await asyncio.sleep(member.draw.choice((0, 0, 0.1, 1.0)))
        if not member.world.commits_itself and member.draw.random() < 0.7:
            await member.allowed(member.consumer.commit())
        member.turns.update(partitions)  # not before: what it has let go of by then it was done with

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.member.turns.update(partitions)
        for one in partitions:
            self.member.at.pop(one, None)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(self.member.draw.choice((0, 0, 0.1, 1.0)))
        for one in partitions:
            self.member.at[one] = None


class Member:
    """One consumer, from its start to its end."""

    def __init__(self, world: "GroupWorld", number: int, seat: str | None) -> None:
        self.world, self.draw = world, Random(world.draw.getrandbits(64))
        self.host = Host(f"member-{number}")
        self.at: dict[TopicPartition, int | None] = {}  # what comes next; None: where the group is
        self.turns = Counter[TopicPartition]()  # how often each was taken away
        self.owes = False  # it has let go of records that it had, and has not asked for more since
        self.leaves, self.seat = False, seat
        self.consumer: Consumer
        self.task = world.loop.spawn(self.host, self.life())

    async def life(self) -> None:
        """Join, do what is drawn, leave; or end with an error of its own, with records in hand."""
        self.consumer = Consumer(
            BOOTSTRAP, topics=[TOPIC], listener=Ear(self), enable_auto_commit=self.world.commits_itself,
            partition_assignment_strategy=self.world.strategy, max_poll_records=self.draw.choice((1, 7, 500)),
            group_instance_id=self.seat, random=Random(self.draw.getrandbits(64)), **OPTIONS,
        )  # fmt: skip
        self.consumer._subscription.tell_commits_to(self.world.accepted)
        try:
            async with asyncio.timeout(None) as patience:
                async with self.consumer:
                    while not self.leaves:
                        await self.draw.choice(CALM if self.world.is_calm else DEEDS)(self)
                    patience.reschedule(self.world.loop.time() + END_S)
                    if self.draw.random() < 0.3:
                        raise LookupError("its caller fails")
        except LookupError:
            pass
        except FencedInstanceId:
            # what a coordinator has told a static member last, its successor may not know
            assert self.seat is not None

    # -- what it does

    async def take(self, taking: Awaitable[Any], most_s: float | None = None) -> None:
        """Take records, by any way; give up waiting now and then; work on them."""
        try:
            async with asyncio.timeout(self.draw.choice((0.0, 0.001, 0.05, most_s, most_s))):
                found = await taking
        except TimeoutError:
            return
        self.owes = False
        for tp, offset in found:
            self.world.handed(self, tp, offset)
        if not found:
            return
        before = dict(self.turns)
        await asyncio.sleep(self.draw.choice((0, 0, 0.01, 0.2, 2.0)))
        if not self.world.commits_itself and self.draw.random() < 0.5:
            kept = [one for one in found if self.turns[one[0]] == before.get(one[0], 0)]
            self.owes, found = kept != found, kept
        self.world.do(found)

    async def poll(self) -> None:
        async def taking() -> list[tuple[TopicPartition, int]]:
            records = await self.consumer.poll(self.draw.choice((0, 100, 1_000)), self.draw.choice((None, 3)))
            return [(TopicPartition(one.topic, one.partition), one.offset) for one in records]

        await self.take(taking())

    async def iterate(self) -> None:
        async def taking() -> list[tuple[TopicPartition, int]]:
            one = await anext(self.consumer)
            return [(TopicPartition(one.topic, one.partition), one.offset)]

        for _ in range(self.draw.randrange(10)):
            await self.take(taking(), 1.0)

    async def batches(self) -> None:
        async def taking() -> list[tuple[TopicPartition, int]]:
            found = await self.consumer.poll_batch(self.draw.choice((0, 100)))
            return [(one.partition, at) for one in found for at in one.columns.offset.tolist()]

        await self.take(taking())

    async def commit(self) -> None:
        if not self.owes and (not self.world.commits_itself or self.draw.random() < 0.2):
            await self.allowed(self.consumer.commit())

    async def seek(self) -> None:
        """Back, for what is ahead is not done."""
        if self.draw.random() < 0.3 and (places := sorted(self.consumer.assignment() & self.at.keys())):
            tp = self.draw.choice(places)
            self.at[tp] = max(self.world.prefix(tp) - self.draw.randrange(10), 0)
            self.consumer.seek(tp, self.at[tp] or 0)

    async def pause(self) -> None:
        if places := sorted(self.consumer.assignment()):
            self.consumer.pause(self.draw.choice(places))

    async def resume(self) -> None:
        self.consumer.resume(*self.consumer.assignment())

    async def rest(self) -> None:
        await asyncio.sleep(self.draw.choice((0, 0.3, 3.0)))

    async def allowed(self, commit: Awaitable[None]) -> None:
        """A commit may be refused; or its caller gives up waiting."""
        try:
            async with asyncio.timeout(self.draw.choice((0.001, None, None))):
                await commit
        except (ApiError, TimeoutError) as refusal:
            self.world.trace.note(f"{self.host.name}: not committed: {refusal!r}")


DEEDS: tuple[Callable[[Member], Awaitable[None]], ...] = (
    Member.poll, Member.poll, Member.iterate, Member.iterate, Member.batches, Member.commit, Member.seek,
    Member.pause, Member.resume, Member.resume, Member.resume, Member.rest,
)  # fmt: skip
CALM = (Member.poll, Member.iterate, Member.batches, Member.commit, Member.resume)


class GroupWorld:
    """Three brokers, a topic that is written to, and the group that reads it, under one seed."""

    kind: type[Member] = Member

    def __init__(self, seed: int) -> None:
        self.loop, self.draw = SimLoop(seed), Random(seed)
        self.trace = Trace(self.loop.time)
        disks = {id: SimDisk() for id in BROKERS}
        self.cluster = SimCluster(self.loop, self.trace, disks, SETTINGS, None)
        self.strategy, self.commits_itself = self.draw.choice(STRATEGIES), self.draw.random() < 0.5
        self.has_seats = self.draw.random() < 0.3
        self.places = [TopicPartition(TOPIC, n) for n in range(PARTITIONS)]
        self.done: dict[TopicPartition, set[int]] = {tp: set() for tp in self.places}
        self.ends = dict.fromkeys(self.places, 0)
        self.members: list[Member] = []
        self.born = 0
        self.is_calm = False
        self.complaints: list[str] = []

    # -- what must hold

    def handed(self, member: Member, tp: TopicPartition, offset: int) -> None:
        wanted, name = member.at.get(tp), member.host.name
        if tp not in member.at:
            self.complain(f"{name} got {tp}@{offset}, which is not its own")
        elif offset != wanted if wanted is not None else offset > self.prefix(tp):
            self.complain(f"{name} got {tp}@{offset}: wanted {wanted}, done {self.prefix(tp)}")
        else:
            member.at[tp] = offset + 1

    def do(self, records: list[tuple[TopicPartition, int]]) -> None:
        for tp, offset in records:
            self.done[tp].add(offset)

    def prefix(self, tp: TopicPartition) -> int:
        """All before it is done."""
        done = self.done[tp]
        return next(n for n in range(len(done) + 1) if n not in done)

    def accepted(self, offsets: Mapping[TopicPartition, Any]) -> None:
        for tp, one in offsets.items():
            if one.offset > self.prefix(tp):
                self.complain(f"{tp}: {one.offset} is committed, done is {self.prefix(tp)}")

    def complain(self, what: str) -> None:
        self.trace.note(f"COMPLAINT {what}")
        self.complaints.append(what)

    # -- the story

    def run(self, steps: int = STEPS) -> list[str]:
        """What was wrong."""
        asyncio.set_event_loop(self.loop)
        structlog.configure([self._to_trace], cache_logger_on_first_use=False)
        try:
            story = self.loop.create_task(self._story(steps))
            while not (story.done() or self.loop.failures or self.complaints):
                self.loop.run_until_complete(asyncio.wait([story], timeout=1.0))
            if story.done():
                story.result()
        finally:
            for host in (*self.cluster.hosts.values(), *(one.host for one in self.members)):
                host.alive = False
            self.loop.drain()
            self.loop.close()
            asyncio.set_event_loop(None)
            structlog.reset_defaults()
        return [*self.loop.failures[:1], *self.complaints]

    async def _story(self, steps: int) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        await self.loop.spawn(Host("admin"), self._prepare())
        stop = asyncio.Event()
        others = [
            self.loop.spawn(Host("writer"), self._write(stop)),
            self.loop.spawn(Host("watcher"), self._watch(stop)),
        ]
        for _ in range(steps):
            self._happen()
            await asyncio.sleep(self.draw.choice((0.05, 0.5, 2.0, 5.0)))
        stop.set()
        self.is_calm = True
        await asyncio.gather(*others)
        for id in BROKERS:
            if not self.cluster.lives(id):
                self.cluster.start(id)
        self._join()
        try:
            async with asyncio.timeout(END_S):
                while any(self.prefix(tp) < end for tp, end in self.ends.items()):
                    await asyncio.sleep(0.5)
                for one in self.members:
                    one.leaves = True
                await asyncio.gather(*(one.task for one in self.members))
        except TimeoutError:
            done = {str(tp): self.prefix(tp) for tp in self.places}
            self.complain(f"done {done} of {self.ends}; at work {[one.host.name for one in self.members]}")

    def _happen(self) -> None:
        """One thing at random."""
        self.members = [one for one in self.members if not one.task.done()]
        what = self.draw.choice(("join", "join", "join", "leave", "die", "still", "broker", "nothing"))
        at_work = [one for one in self.members if not one.leaves]
        if what == "join" and len(self.members) < MEMBERS_MAX:
            self._join()
        elif what == "broker":
            id = self.draw.choice(BROKERS)
            if all(map(self.cluster.lives, BROKERS)):
                self.cluster.crash(id, vanishes=self.draw.random() < 0.3)
                self.loop.call_later(self.draw.choice((0.2, 4.0)), self.cluster.start, id)
        elif at_work and what in ("leave", "die", "still"):
            member = self.draw.choice(at_work)
            self.trace.note(f"{member.host.name}: {what}")
            if what == "leave":
                member.leaves = True
            elif what == "die":
                self.members.remove(member)
                self.loop.crash(member.host)
            else:
                member.host.stopped = True
                self.loop.call_later(self.draw.choice((1.0, 10.0)), self.loop.resume, member.host)

    def _join(self) -> None:
        self.born += 1
        free = sorted({f"seat-{n}" for n in range(MEMBERS_MAX + 1)} - {one.seat for one in self.members})
        self.members.append(self.kind(self, self.born, self.draw.choice(free) if self.has_seats else None))

    async def _prepare(self) -> None:
        async with asyncio.timeout(END_S), Admin(BOOTSTRAP, random=Random(1)) as admin:
            while len((await admin.describe_cluster()).brokers) < len(BROKERS):
                await asyncio.sleep(0.1)
            await admin.create_topic(TOPIC, PARTITIONS, 3)

    async def _write(self, stop: asyncio.Event) -> None:
        async with Producer(BOOTSTRAP, clock=self.cluster.clock, random=Random(2)) as producer:
            while not stop.is_set():
                tp = self.draw.choice(self.places)
                values = [b"x"] * self.draw.randrange(1, 9)
                sent = await producer.send_many(TOPIC, values, partition=tp.partition)
                self.ends[tp] = sent[-1].offset + 1
                await asyncio.sleep(self.draw.choice((0.01, 0.1, 0.5)))

    async def _watch(self, stop: asyncio.Event) -> None:
        """Look at what is committed, whoever it was."""
        async with Consumer(BOOTSTRAP, random=Random(3), **OPTIONS) as consumer:
            while not stop.is_set():
                try:
                    found = await consumer.committed(*self.places)
                except ApiError:
                    continue
                self.accepted({tp: one for tp, one in found.items() if one is not None})
                await asyncio.sleep(0.3)

    def _to_trace(self, logger: object, method: str, event: structlog.typing.EventDict) -> str:
        name = str(event.pop("event", ""))
        error = event.get("exc_info")
        if (
            isinstance(error, BaseException)
            and not isinstance(error, FencedInstanceId)
            and current_host().alive
        ):
            self.loop.failed(name, error)
        facts = " ".join(f"{key}={value}"[:300] for key, value in sorted(event.items()) if key != "exc_info")
        self.trace.note(f"{current_host().name}: {name} {facts}".rstrip())
        raise structlog.DropEvent

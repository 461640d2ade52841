"""Brokers without a network: the real shells round the rules, real logs, and ZooKeeper in memory.

What stands between them is the story: a request, an answer or a write arrives when the transcript says so.
Left to others: how the controller decides (tests/controller).
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from strandline.base.types import BrokerId, Incarnation
from strandline.broker.fetch.read import FetchItem, FetchSource, Reading, charge
from strandline.broker.follower.round import EpochRound, FetchRound, Outcome
from strandline.broker.replicas.truncation import carry_out
from strandline.broker.throttle import LEADERS
from strandline.protocol.errors import ApiError
from strandline.protocol.messages.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from strandline.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, Delete, MultiFailed, NoNode, SetData
from strandline.zookeeper.config_nodes import Overrides
from tests.broker.replica_harness import TOPIC, TOPIC_ID, TP, batch
from tests.replication.brokers_actors import NAMES, Actor, Producer, Session, StoryLoop, said


class Story:
    """Three brokers, one partition, and whoever is controller."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loop = StoryLoop()
        self.zookeeper = SimZooKeeper()
        self.actors: dict[str, Actor] = {}
        self.terms: dict[str, tuple[Session, znodes.ControllerTerm]] = {}
        self.admin = Session(self.zookeeper)
        self.lines: list[str] = []

    def perform(self, event: str) -> list[str]:
        self.lines = []
        for pattern, method in self.VERBS.items():
            if found := re.fullmatch(pattern, event):
                self.loop.run_until_complete(self.turn(method, found.groups()))
                return self.lines
        raise AssertionError(f"no such event: {event}")

    async def turn(self, method: Callable[..., Any], words: tuple[str, ...]) -> None:
        done = method(self, *words)
        if asyncio.iscoroutine(done):
            await done
        for _ in range(20):
            await asyncio.sleep(0)
        for actor in self.actors.values():
            actor.turn.settle()
        for _ in range(20):
            await asyncio.sleep(0)

    def close(self) -> None:
        async def end() -> None:
            for actor in self.actors.values():
                for _, _, gate in actor.session.waiting:
                    gate.cancel()
                await actor.parts.stop()
                actor.logs.close(clean=False)

        self.loop.run_until_complete(end())
        self.loop.close()

    def say(self, line: str) -> None:
        self.lines.append(line)

    # The cluster as it stands in ZooKeeper.

    async def begins(self, leader: str, isr: str, flushing: str | None, profile: str | None) -> None:
        options: dict[str, Any] = {"storage": {"flush_before_ack": True}} if flushing else {}
        if profile:
            options |= {"semantics_profile": profile, "semantics_accept_loss": True}
        for path in documents.PERSISTENT_PATHS:
            await self.create(path, b"")
        await self.create(documents.CONTROLLER_EPOCH, b"1")
        for name in NAMES:
            actor = self.actors[name] = Actor(name, self.root, self.zookeeper, options, self.say)
            actor.begin()
            await self.create(documents.broker_path(actor.id), b'{"incarnation":1}')
            await self.create(documents.incarnation_path(actor.id), b"0")
            await self.admin.multi([SetData(documents.incarnation_path(actor.id), b"1", 0)])
        members = [NAMES.index(name) for name in isr.split()]
        state = documents.StateDocument(
            leader=NAMES.index(leader), leader_epoch=0, isr=members, controller_epoch=1,
            isr_epochs=dict.fromkeys(members, 1),
        )  # fmt: skip
        await self.create(documents.state_path(TP), state.data())
        for name in sorted(NAMES, key=lambda name: name != leader):
            await self.hears(name, "1")

    async def create(self, path: str, data: bytes) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            each = "/" + "/".join(parts[:depth])
            if self.zookeeper.exists(each, self.admin.session_id, None) is None:
                await self.admin.multi([Create(each, data if depth == len(parts) else b"")])

    async def elects(self, number: str, leader: str, isr: str) -> None:
        state, version = await znodes.read_state(cast(Any, self.admin), TP)
        members = [NAMES.index(name) for name in isr.split()]
        chosen = state.model_copy(
            update={
                "leader": NAMES.index(leader), "isr": members, "leader_epoch": state.leader_epoch + 1,
                "isr_epochs": {m: state.isr_epochs.get(m, 1) for m in members},
                "controller_epoch": int(number),
            }
        )  # fmt: skip
        write = [SetData(documents.state_path(TP), chosen.data(), version)]
        if number not in self.terms:
            await self.admin.multi(write)
            await self.shows_state()
            return
        session, term = self.terms[number]
        try:
            await znodes.fenced(cast(Any, session), term, write)
        except znodes.ControllerMoved as moved:
            self.say(f"ZooKeeper refuses: {moved}")
        await self.shows_state()

    async def takes_the_seat(self, number: str) -> None:
        session = Session(self.zookeeper)
        dead = await znodes.read_controller(cast(Any, session))
        if dead is None:
            term = await znodes.elect(cast(Any, session), int(number), 0)
        else:
            term = await znodes.take_over(cast(Any, session), int(number), 0, dead)
        assert term is not None
        self.terms[str(term.epoch)] = session, term
        self.say(f"it is controller, its epoch is {term.epoch}")

    async def shows_state(self) -> None:
        state, version = await znodes.read_state(cast(Any, self.admin), TP)
        isr = " ".join(NAMES[member] for member in state.isr)
        leads = f"leader {NAMES[state.leader]}, epoch {state.leader_epoch}"
        self.say(f"ZooKeeper: {leads}, isr {isr}, version {version}")

    async def hears(self, name: str, number: str) -> None:
        """LeaderAndIsr with the state as it is in ZooKeeper now, from a controller of this epoch."""
        state, version = await znodes.read_state(cast(Any, self.admin), TP)
        await self.obeys(name, number, state, version)

    async def hears_of(self, name: str, number: str, leader: str) -> None:
        state, version = await znodes.read_state(cast(Any, self.admin), TP)
        wished = {"leader": NAMES.index(leader), "leader_epoch": state.leader_epoch + 1}
        await self.obeys(name, number, state.model_copy(update=wished), version + 1)

    async def obeys(self, name: str, number: str, state: documents.StateDocument, version: int) -> None:
        actor = self.actors[name]
        registered = [n for n, a in self.actors.items() if self.is_registered(a)]
        actor.parts.shared.brokers_are(frozenset(BrokerId(NAMES.index(n)) for n in registered))
        told = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=int(number), leader=state.leader,
            leader_epoch=state.leader_epoch, isr=state.isr, partition_epoch=version, replicas=[0, 1, 2],
        )  # fmt: skip
        topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[told])
        answer = await actor.parts.roles.obey_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=1, controller_epoch=int(number), broker_epoch=actor.start_number,
                topic_states=[topic], live_leaders=[],
            )
        )  # fmt: skip
        await cuts_made()
        actor.session.is_open = False  # from here on the story says when its writes arrive
        if answer.error_code:
            self.say(f"{name} refuses: {said(answer.error_code)}")
            return
        self.say(actor.shown())

    def is_registered(self, actor: Actor) -> bool:
        return self.zookeeper.exists(documents.broker_path(actor.id), self.admin.session_id, None) is not None

    async def vanishes(self, name: str) -> None:
        await self.admin.multi([Delete(documents.broker_path(NAMES.index(name)), 0)])

    async def returns(self, name: str, is_empty: str | None) -> None:
        """A new start of the same id, registered with the next incarnation."""
        actor = self.actors[name]
        await actor.parts.stop()
        actor.logs.close(clean=False)
        actor.begin(disk_is_empty=is_empty is not None)
        path = documents.incarnation_path(actor.id)
        await self.admin.multi([SetData(path, str(actor.start_number).encode(), actor.start_number - 1)])
        if not self.is_registered(actor):
            start = f'{{"incarnation":{actor.start_number}}}'
            await self.create(documents.broker_path(actor.id), start.encode())
        self.say(f"{name} is registered again: this is its start {actor.start_number}")

    # Producers.

    def given(self, name: str, record: str, again: str | None = None, number: str | None = None) -> None:
        actor = self.actors[name]
        once = {"producer_id": 7, "sequence": int(number)} if number else {}
        data = memoryview(bytearray(batch(record.encode(), **once)))
        before = actor.partition.log.end_offset
        try:
            base, required, _ = actor.partition.append(data, -1)
        except ApiError as error:
            self.say(f"{name} refuses {record}: {said(error.code)}")
            return
        known = " (it has it already)" if actor.partition.log.end_offset == before else ""
        self.say(f"{name} has {record} at {base}{known}; its producer waits until {required} is committed")
        actor.partition.acks.add(required, Producer(record, self.say), 0)
        actor.partition.mark()

    # Followers.

    def asks(self, name: str) -> bool:
        actor = self.actors[name]
        if actor.partition.following is None:
            self.say(f"{name} does not follow")
            return False
        host, config = actor.parts.shared, actor.config.replication
        question: Any = EpochRound(host, [actor.partition])
        if not question:
            question = FetchRound(host, config, [actor.partition])
        if not question:
            must_flush = actor.partition.following.must_flush
            self.say(f"{name} flushes first" if must_flush else f"{name} is silent")
            return False
        actor.asking = question
        return True

    def arrives(self, name: str) -> None:
        """The leader reads the question and answers; the answer is on its way."""
        actor = self.actors[name]
        leader = self.actors[NAMES[actor.partition.following.leader]]
        request = actor.asking.request()
        if isinstance(actor.asking, EpochRound):
            asked = request.topics[0].partitions[0]
            self.say(f"{name} asks {leader.name} where epoch {asked.leader_epoch} ends")
            actor.answer = OffsetForLeaderEpochResponse(
                topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[epoch_end(leader, asked)])]
            )
            return
        asked = request.topics[0].partitions[0]
        self.say(f"{name} fetches from {asked.fetch_offset}")
        who = FetchSource(BrokerId(actor.id), Incarnation(actor.start_number))
        wanted = FetchItem(TOPIC, TOPIC_ID, asked)
        wanted.find(leader.replicas.get)
        throttle = leader.parts.leader_throttle
        reading = Reading(who, [wanted], 1 << 20, 0, throttle)
        reading.acknowledge()
        leader.turn.settle()
        (data,) = reading.read()
        if data.error_code:
            self.say(f"{leader.name} refuses: {said(data.error_code)}")
        elif reading.held_until:
            self.say(f"{leader.name} holds back what there is")
            data.records = None
        elif data.records is not None and data.records.nbytes:  # type: ignore[union-attr]
            charge(throttle, who, leader.partition, data.records.nbytes)  # type: ignore[union-attr]
            data.records = memoryview(b"".join(bytes(part) for part in data.records.parts))  # type: ignore[union-attr]
        else:
            data.records = None
        actor.answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])

    async def takes(self, name: str) -> None:
        """The follower does what the answer says."""
        actor = self.actors[name]
        asking, answer, actor.asking, actor.answer = actor.asking, actor.answer, None, None
        taken = asking.take(answer)
        for outcome in [taken] if isinstance(taken, Outcome) else taken:
            await carry_out(outcome.cuts)
        for _ in range(3):  # what the answer has set off says so first
            await asyncio.sleep(0)
        self.say(actor.shown())

    async def fetches(self, name: str) -> None:
        while self.asks(name):
            is_fetch = isinstance(self.actors[name].asking, FetchRound)
            self.arrives(name)
            await self.takes(name)
            if is_fetch:
                return

    def throttled(self, name: str, rate: str) -> None:
        parts = self.actors[name].parts
        parts.leader_throttle.set_rate(int(rate), self.loop.time())
        parts.settings.learn(TOPIC, Overrides({LEADERS: f"0:{NAMES.index(name)}"}, 1, 1))

    def asks_only(self, name: str) -> None:
        if self.asks(name):
            self.arrives(name)

    def flushes(self, name: str) -> None:
        self.actors[name].partition.log.flush()
        self.actors[name].partition.flushed()

    # Time, and writes to ZooKeeper.

    def passes(self, seconds: str) -> None:
        self.loop.ahead += float(seconds)
        for actor in self.actors.values():
            actor.parts.ticks.tick([actor.partition], self.loop.time())

    async def goes_on(self, name: str) -> None:
        session = self.actors[name].session
        while session.waiting:
            session.let_pass()
            for _ in range(5):
                await asyncio.sleep(0)
        await self.shows_state()
        leads = self.actors[name].partition.leading
        if leads is None:
            self.say(f"{name} leads no longer")
            return
        members = " ".join(NAMES[member] for member in sorted(leads.isr.members))
        self.say(f"{name} counts the ISR {members}")

    async def reads(self, name: str) -> None:
        session = self.actors[name].session
        assert session.waiting[0][0] == "get"
        while session.waiting[0][0] == "get":  # the state, and who is to join
            session.let_pass()
            for _ in range(5):
                await asyncio.sleep(0)
        assert session.waiting[0][0] == "multi"
        await self.shows_state()

    def is_delayed(self, name: str) -> None:
        self.actors[name].session.lose()

    async def lands_late(self, name: str) -> None:
        session = self.actors[name].session
        try:
            session.call("multi", session.in_the_air)
        except (MultiFailed, NoNode):
            self.say("ZooKeeper refuses it")
        await self.shows_state()

    VERBS: dict[str, Callable[..., Any]] = {
        r"([ABC]) leads, isr ([ABC ]+)(, all flushing before they say that they hold it)?"
        r"(?:, under the profile (\S+))?": begins,
        r"broker (\d) becomes controller": takes_the_seat,
        r"the controller of epoch (\d) writes: ([ABC]) leads, isr ([ABC ]+)": elects,
        r"([ABC]) hears how it stands from the controller of epoch (\d)": hears,
        r"([ABC]) hears from the controller of epoch (\d) that ([ABC]) leads": hears_of,
        r"([ABC]) is gone from ZooKeeper": vanishes,
        r"([ABC]) starts again(, its disk empty)?": returns,
        r"([ABC]) is given (\w+)( again)?(?:, number (\d+) of its producer)?": given,
        r"([ABC]) fetches": fetches,
        r"([ABC]) may send (\d+) bytes a second to whoever lags": throttled,
        r"([ABC]) asks(?: again, before it has written the answer)?": asks_only,
        r"the answer reaches ([ABC])": takes,
        r"the medium of ([ABC]) has taken all": flushes,
        r"([\d.]+) s pass": passes,
        r"([ABC]) is heard by ZooKeeper": goes_on,
        r"([ABC]) reads the state and sends its write": reads,
        r"the write of ([ABC]) is delayed, and its connection breaks": is_delayed,
        r"the delayed write of ([ABC]) arrives": lands_late,
    }


def epoch_end(leader: Actor, asked: Any) -> EpochEndOffset:
    try:
        leader.partition.led(asked.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=0, error_code=error.code)
    epoch, end = leader.partition.log.end_offset_for(asked.leader_epoch)
    return EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end)


async def cuts_made() -> None:
    """Wait for what an old profile cuts before it asks."""
    while any(task.get_name().endswith(".cuts") for task in asyncio.all_tasks()):
        await asyncio.sleep(0.001)

"""The fuzzer in virtual time: three brokers, one of them controller, and ZooKeeper in memory.

Nothing waits, and ZooKeeper's writes cost little, so most of what is drawn is what administrators ask for: of
any broker, which carries it to the controller as ever. A seed repeats a run byte by byte.
What must hold is what must hold of a real broker (run.py), but for its logs, memory and time: each request is
answered as it must be, no broker ends, none logs an exception.
Left to others: the brokers and their world (simulation/).
"""

import argparse
import asyncio
import json
import time
from collections import deque
from random import Random
from uuid import UUID

import structlog

from strandline.base.log_levels import LEVELS, ROOT
from strandline.base.types import TopicPartition
from strandline.client.admin.admin import Admin
from strandline.protocol.apis import Api
from strandline.protocol.errors import ApiError
from strandline.simulation.cluster import BOOTSTRAP, BROKERS, SimCluster
from strandline.simulation.environment.disk import SimDisk
from strandline.simulation.environment.host import Host, current_host
from strandline.simulation.environment.loop import SimLoop
from strandline.simulation.settings import SETTINGS
from strandline.simulation.trace import Trace
from strandline.zookeeper.client import SetData
from strandline.zookeeper.documents import state_path
from tests.fuzzing.drawing import ADMINISTRATION, Drawing
from tests.fuzzing.judging import Judge
from tests.fuzzing.known import OWN, STILL, VICTIM
from tests.fuzzing.ledger import Ledger
from tests.fuzzing.lines import BROKEN_SHARE
from tests.fuzzing.model import Asked
from tests.fuzzing.tools import Tool
from tests.fuzzing.values import INTERNAL, LOGGERS

DIFFICULT_SHARE = 0.6
LINES = 6
TOGETHER = (1, 4, 8, 16)
PATIENCE_S = 60.0  # of virtual time: longer than anything may take
PATIENCE = 20  # times as long as elsewhere may requests wait: that costs nothing here
PORT = 9092
REST_SHARE, REST_S = 0.1, (0.1, 1.0, 5.0, 30.0)  # of virtual time, which costs little
FRAMES_OF_A_LIFE = (1_000, 4_000)
FRAMES_BETWEEN_TOOLS = (1, 200)
LAST = "last"
REFUSED = "connection_refused"
DAMAGED = "BadDocument"  # who changes the settings of a node that a tool has damaged is told that
MORE = (
    "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1", "log.segment.bytes=4096",
    "offsets.topic.segment.bytes=1024", "transaction.state.log.segment.bytes=1024",
    "log.dirs=/data,/more", "strandline.log.dir.room.reserve.bytes=0", "auto.create.topics.enable=false",
    "group.min.session.timeout.ms=100", "group.consumer.session.timeout.ms=1000",
    "group.consumer.heartbeat.interval.ms=500", "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.min.heartbeat.interval.ms=500", "log.retention.ms=-1",
)  # fmt: skip


class FuzzedWorld:
    """Three brokers and what is sent to them, under one seed."""

    def __init__(self, seed: int, difficult_share: float = DIFFICULT_SHARE) -> None:
        self.loop = SimLoop(seed)
        self.trace = Trace(self.loop.time)
        disks = {id: SimDisk() for id in BROKERS}
        self.cluster = SimCluster(self.loop, self.trace, disks, (*SETTINGS, *MORE), None)
        self.random, self.difficult_share = Random(seed), difficult_share
        self.drawing: Drawing
        self.judge: Judge | None = None
        self.sent = 0  # frames
        self.restarts = 0
        self.accepted: set[Api] = set()  # what administrators ask for, carried out in full
        self.told: list[str] = []

    @property
    def complaints(self) -> list[str]:
        judged = self.judge.complaints if self.judge else []
        return [*self.loop.failures[:1], *judged[:1], *self.told[:1]][:2]

    def run(self, frames: int) -> None:
        """Send so many frames, or as many as go well."""
        asyncio.set_event_loop(self.loop)
        structlog.configure([self._to_trace], cache_logger_on_first_use=False)
        try:
            story = self.loop.create_task(self._story(frames))
            while not story.done() and not self.loop.failures:
                self.loop.run_until_complete(asyncio.wait([story], timeout=1.0))
            if story.done():
                story.result()
        finally:
            for host in self.cluster.hosts.values():
                host.alive = False
            self.loop.drain()
            self.loop.close()
            asyncio.set_event_loop(None)
            for name in LOGGERS:
                LEVELS.set(name, "INFO" if name == ROOT else None)
            structlog.reset_defaults()

    async def _story(self, frames: int) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        ids = await self.loop.spawn(Host("admin"), self._prepared())
        self.drawing = Drawing(self.random, ids, BROKERS, ("/data", "/more"), self.difficult_share, PATIENCE)
        judge = self.judge = Judge(self.drawing.known, Ledger(), foreseen=DAMAGED)
        lines = [self.loop.spawn(Host(f"line{n}"), self._line(frames, judge)) for n in range(LINES)]
        others = [
            self.loop.spawn(Host("faults"), self._restarts()),
            self.loop.spawn(Host("tools"), self._tools()),
        ]
        await asyncio.gather(*lines)
        for each in others:
            each.cancel()
        if not self.complaints:
            await self.loop.spawn(Host("admin"), self._still_works())

    async def _tools(self) -> None:
        """Write into ZooKeeper what tools write there."""
        tool, server = Tool(self.random, self.drawing.known, self.drawing.plausible), self.cluster.zookeeper
        while True:
            due = self.sent + self.random.randrange(*FRAMES_BETWEEN_TOOLS)
            while self.sent < due:
                await asyncio.sleep(0.1)
            for node in tool.nodes():
                found = None if node.sequential else server.nodes.get(node.path)
                self.trace.note(f"a tool writes {node.path} {node.data[:200]!r}")
                server.multi([SetData(node.path, node.data, found.version) if found else node], 0)

    async def _still_works(self) -> None:
        """After all that, brokers know each other, and a topic can be made and written to."""
        for id in BROKERS:
            if not self.cluster.lives(id):
                self.cluster.start(id)
        try:
            async with asyncio.timeout(PATIENCE_S), Admin(BOOTSTRAP, random=Random(1)) as admin:
                while len((await admin.describe_cluster()).brokers) < len(BROKERS):
                    await asyncio.sleep(0.1)
                await admin.create_topic(LAST, 3, 3, configs=OWN)
                while any(len(one.isr) < 3 for one in (await admin.describe_topics([LAST]))[0].partitions):
                    await asyncio.sleep(0.1)
        except (OSError, ApiError, TimeoutError) as error:
            self.told.append(f"the cluster does not work any more: {error!r}")

    async def _prepared(self) -> dict[str, UUID]:
        async with asyncio.timeout(PATIENCE_S), Admin(BOOTSTRAP, random=Random(1)) as admin:
            while len((await admin.describe_cluster()).brokers) < len(BROKERS):
                await asyncio.sleep(0.1)
            await admin.create_topic(STILL, 2, 1, configs=OWN)
            await admin.create_topic(VICTIM, 2, 2)
            return {each.name: each.topic_id for each in await admin.describe_topics([STILL, VICTIM])}

    async def _line(self, frames: int, judge: Judge) -> None:
        """One connection after the other, each to some broker that runs."""
        while self.sent < frames and not self.complaints:
            if self.random.random() < REST_SHARE:
                await asyncio.sleep(self.random.choice(REST_S))
            broker = self._asked()
            if broker not in self.cluster.nodes:
                await asyncio.sleep(0.1)
                continue
            host = self.cluster.hosts[broker]
            try:
                await self._connection(broker, host, judge)
            except (OSError, EOFError) as error:
                if host.alive and not self.complaints:
                    self.told.append(f"b{broker} takes no frames: {error!r}")

    def _asked(self) -> int:
        """Who is asked next: mostly who coordinates groups, or transactions."""
        topic = self.random.choice((*INTERNAL, "none"))
        state = self.cluster.zookeeper.nodes.get(state_path(TopicPartition(topic, 0)))
        leader: int = json.loads(state.data)["leader"] if state else -1
        return leader if leader in BROKERS else self.random.choice(BROKERS)

    async def _restarts(self) -> None:
        """Kill a broker now and then: the next one of its id reads all that was written."""
        while True:
            due = self.sent + self.random.randrange(*FRAMES_OF_A_LIFE)
            while self.sent < due:
                await asyncio.sleep(0.1)
            id = self.random.choice(BROKERS)
            self.cluster.crash(id)
            await asyncio.sleep(self.random.choice((0.1, 1.0, 5.0)))
            self.cluster.start(id)
            self.restarts += 1
            while id not in self.cluster.nodes:
                await asyncio.sleep(0.1)

    async def _connection(self, broker: int, host: Host, judge: Judge) -> None:
        reader, writer = await asyncio.open_connection(f"b{broker}", PORT, limit=1 << 26)
        try:
            for _ in range(self.random.choice((1, 2, 4))):
                waiting: deque[Asked] = deque()
                for _ in range(self.random.choice(TOGETHER)):
                    if (asked := self._drawn()) is not None:
                        waiting.append(asked)
                        writer.write(asked.frame)
                while waiting and not self.complaints:
                    if (answer := await self._answer(reader, waiting[0], host, judge)) is None:
                        return
                    self._look(waiting.popleft(), answer, judge)
        finally:
            writer.close()

    def _look(self, asked: Asked, answer: bytes, judge: Judge) -> None:
        self.sent += 1
        judge.look(asked, answer)
        if asked.api in ADMINISTRATION and not self.complaints and judge.took(asked, answer):
            self.accepted.add(asked.api)

    def _drawn(self) -> Asked | None:
        number = self.random.getrandbits(31)
        if self.random.random() >= BROKEN_SHARE:
            return self.drawing.whole(number)
        return self.drawing.broken(number)[1]

    async def _answer(
        self, reader: asyncio.StreamReader, asked: Asked, host: Host, judge: Judge
    ) -> bytes | None:
        """The answer; None if there is none, which is as it should be only if the broker was killed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                size = int.from_bytes(await reader.readexactly(4))
                return await reader.readexactly(size)
        except TimeoutError:
            judge.complain(asked, "no answer, nothing came")
        except (EOFError, OSError) as error:
            if host.alive and not self.complaints:
                judge.complain(asked, f"no answer, {error!r}")
        return None

    def _to_trace(self, logger: object, method: str, event: structlog.typing.EventDict) -> str:
        name = str(event.pop("event", ""))
        if isinstance(error := event.get("exc_info"), BaseException) and current_host().alive:
            self.loop.failed(name, error)
        if name == REFUSED and event.get("listener") == "INTERNAL":
            self.told.append(f"{current_host().name} refuses what a broker sends: {event.get('why')}")
        facts = " ".join(f"{key}={value}"[:300] for key, value in sorted(event.items()) if key != "exc_info")
        self.trace.note(f"{current_host().name}: {name} {facts}".rstrip())
        raise structlog.DropEvent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The fuzzer in virtual time, for some seeds.")
    parser.add_argument("--frames", type=int, default=10_000, help="of each seed")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=DIFFICULT_SHARE)
    parser.add_argument("--trace", type=int, default=0, help="lines of the trace that are shown")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        world, begun = FuzzedWorld(seed, given.share), time.monotonic()
        world.run(given.frames)
        took = time.monotonic() - begun
        print(
            f"seed {seed}: {world.sent} frames in {took:.1f} s, {world.loop.now:.0f} s of virtual time",
            flush=True,
        )
        if given.trace:
            print(*world.trace.lines[-given.trace :], sep="\n")
        for complaint in world.complaints:
            print(complaint)

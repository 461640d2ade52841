"""Brokers of a transcript: the real shells round the rules, real logs, and sessions with a gate."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from strandline.base.clock import SystemClock
from strandline.base.types import Incarnation
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.parts import ReplicaParts
from strandline.broker.replicas.purgatory import Waiter
from strandline.broker.turn import Turn
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import iterate
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk
from strandline.zookeeper.client import Unknown
from strandline.zookeeper.documents import LIVES
from tests.broker.replica_harness import TP

NAMES = "ABC"
Say = Callable[[str], None]


class StoryLoop(asyncio.SelectorEventLoop):
    """A loop whose clock the story moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Session:
    """One broker's session: each of its calls waits at the gate until the story lets it pass."""

    def __init__(self, zookeeper: SimZooKeeper, say: Say = lambda line: None) -> None:
        self.zookeeper = zookeeper
        self.say = say
        self.session_id = zookeeper.open(60.0, 0.0).id
        self.generation = 1
        self.connected = True
        self.waiting: list[tuple[str, Any, asyncio.Future[Any]]] = []
        self.in_the_air: Any = None  # a write that has left, and that nobody waits for any more
        self.is_open = True

    def listen(self, listener: Any) -> Any:
        return lambda: None

    async def get(self, path: str, watch: Any = None) -> Any:
        return await self.pass_gate("get", path)

    async def get_many(self, paths: Any) -> Any:
        """Which topic lives is no matter of these stories: a tool made theirs, so there is no such node."""
        return [None if path.startswith(LIVES) else await self.get(path) for path in paths]

    async def exists(self, path: str, watch: Any = None) -> Any:
        return self.zookeeper.exists(path, self.session_id, None)

    async def multi(self, ops: Any) -> Any:
        return await self.pass_gate("multi", ops)

    async def pass_gate(self, kind: str, what: Any) -> Any:
        if not self.is_open:
            gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.waiting.append((kind, what, gate))
            self.say(asked(what) if kind == "get" else written(what))
            await gate
        return self.call(kind, what)

    def call(self, kind: str, what: Any) -> Any:
        if kind == "get":
            return self.zookeeper.get(what, self.session_id, None)
        return self.zookeeper.multi(what, self.session_id)

    def let_pass(self) -> None:
        _, _, gate = self.waiting.pop(0)
        gate.set_result(None)

    def lose(self) -> None:
        """The connection breaks: the caller knows nothing, the write may still arrive."""
        _, self.in_the_air, gate = self.waiting.pop(0)
        gate.set_exception(Unknown("the connection broke"))


class Producer(Waiter):
    """Waits for its acknowledgement."""

    def __init__(self, record: str, say: Say) -> None:
        super().__init__()
        self.slot = 0
        self.record = record
        self.say = say

    def reached(self, place: int, code: ErrorCode) -> None:
        self.slot = None
        heard = "it is done" if code is ErrorCode.NONE else said(code)
        self.say(f"the producer of {self.record} hears: {heard}")


class StoryTurn(Turn):
    """It ends when the story says so, and nothing is flushed by itself."""

    def wake(self) -> None: ...

    def after_settling(self, work: Callable[[], None]) -> None: ...


def _fail(error: BaseException) -> None:
    raise error


class Actor:
    """One broker."""

    def __init__(
        self, name: str, root: Path, zookeeper: SimZooKeeper, options: dict[str, Any], say: Say
    ) -> None:
        self.say = say
        self.name, self.id, self.start_number = name, NAMES.index(name), 0
        self.root, self.zookeeper, self.options = root, zookeeper, options
        self.asking: Any = None
        self.answer: Any = None

    def begin(self, disk_is_empty: bool = False) -> None:
        self.start_number += 1
        self.disk_name = self.root / f"{self.name}{self.start_number if disk_is_empty else 1}"
        self.session = Session(self.zookeeper, lambda line: self.say(f"{self.name} {line}"))
        self.config = BrokerConfig.model_validate(
            {
                "broker_id": self.id, "log_dirs": str(self.disk_name),
                "zookeeper": {"connect": "127.0.0.1:1"}, **self.options,
            }
        )  # fmt: skip
        clock = SystemClock()
        self.logs = Logs.open(
            list(self.config.directories), RealDisk(), self.config.storage, clock,
            clean=False, before_loss=lambda *_: None,
        )  # fmt: skip
        self.turn = StoryTurn(_fail)
        self.parts = ReplicaParts(
            self.config, Incarnation(self.start_number), self.logs, cast(Any, self.session), clock,
            self.turn, is_known=lambda tp: True,
        )  # fmt: skip
        self.replicas = self.parts.replicas
        self.parts.fetchers.stop()  # what is fetched, and when, is the story's to tell

    @property
    def partition(self) -> Any:
        return self.replicas.get(TP)

    def shown(self) -> str:
        held = self.logs.logs[TP]
        records = []
        if held.end_offset > held.start_offset:
            parts = held.read(held.start_offset, 1 << 20, held.end_offset, True, True).parts
            records = [(record.value or b"").decode() for part in parts for record in iterate(part)]
        leads = self.partition.leading
        role = "has no role" if self.partition.following is None else "follows"
        role = role if leads is None else f"leads epoch {leads.epoch}"
        watermark = self.partition.high_watermark
        return f"{self.name}: {' '.join(records) or 'empty'} | watermark {watermark} | {role}"


def asked(path: str) -> str:
    """What a leader reads before it writes."""
    if path.startswith("/brokers/ids/"):
        return f"asks ZooKeeper how {NAMES[int(path.rpartition('/')[2])]} is registered"
    return "asks ZooKeeper for the state"


def written(ops: Any) -> str:
    """A leader's write in words; what it depends on stands in its order."""
    state = json.loads(next(op.data for op in ops if op.path.startswith("/brokers/topics")))
    words = [f"writes the ISR {' '.join(NAMES[member] for member in state['isr'])}"]
    for op in ops:
        whose = op.path.rpartition("/")[2]
        if op.path.startswith("/brokers/topics"):
            words.append(f"if the state has version {op.version}")
        elif op.path.startswith("/brokers/ids"):
            words.append(f"{NAMES[int(whose)]} is registered")
        else:
            words.append(f"{NAMES[int(whose)]} is still in its start {op.version}")
    return f"{words[0]} {', '.join(words[1:])}"


def said(code: int) -> str:
    return ErrorCode(code).name.lower().replace("_", " ")

"""A stage for the transaction coordinator: a log in memory, commits, markers and the clock by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from strandline.base.types import TopicPartition
from strandline.broker.config.sections import TransactionsConfig
from strandline.broker.internal_topics.topic import InternalTopic, transaction_state_topic
from strandline.broker.metadata.cache import Picture
from strandline.broker.transactions.coordinator import TransactionCoordinator
from strandline.broker.transactions.markers import Errand
from strandline.broker.transactions.state import Answer, InitAsked, ProducerIdentity
from strandline.protocol.errors import ApiError, ErrorCode, NotLeaderOrFollower
from strandline.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from strandline.storage.disk import DiskError
from tests.broker.group_harness import Clock, MemoryLog

TP = TopicPartition("__transaction_state", 0)
X, Y = TopicPartition("x", 0), TopicPartition("y", 0)


class StateLog(MemoryLog):
    """The log of the only partition."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = TP


@dataclass
class Partition:
    """What `on_leading` is given."""

    log: StateLog
    leader_epoch: int = 1
    high_watermark: int | None = None  # None: all is committed
    may_be_replaced: bool = False
    changing: bool = False

    def mark(self) -> None:
        """The stage settles by hand."""

    def disk_failed(self, error: DiskError) -> None:
        raise AssertionError("this disk does not fail") from error


@dataclass
class Markers:
    """Keeps what is to be sent."""

    sent: list[Errand] = field(default_factory=list)
    homeless: int = 0

    def start(self) -> None:
        """Nothing runs."""

    async def stop(self) -> None:
        """Nothing runs."""

    def send(self, errand: Errand) -> None:
        self.sent.append(errand)


Waiting = tuple[Callable[[ErrorCode], None], Callable[[], None]]


@dataclass
class TransactionStage:
    """A coordinator that leads the only partition, with every write held back until `commit`."""

    config: TransactionsConfig = field(default_factory=lambda: TransactionsConfig(log_partitions=1))
    log: StateLog = field(default_factory=StateLog)
    clock: Clock = field(default_factory=Clock)
    waiting: list[Waiting] = field(default_factory=list)
    refuses: ApiError | None = None
    next_id: int = 7
    given_ids: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.picture = Picture()
        self.partition = Partition(self.log)
        self.markers = Markers()
        self.loads: list[tuple[int, Callable[[ErrorCode], None]]] = []
        self.given_ids.set()
        topic = InternalTopic(transaction_state_topic(self.config), lambda: self.picture, self._create)
        self.coordinator = TransactionCoordinator(
            lambda: self.config, self._append, self._when_committed, self.clock, self._take, topic,
            self.markers,  # type: ignore[arg-type]
        )  # fmt: skip

    async def _create(self, request: CreateTopicsRequest, timeout_ms: int) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[])

    async def _take(self) -> int:
        taken = self.next_id
        self.next_id += 1
        await self.given_ids.wait()
        return taken

    def _append(
        self,
        tp: TopicPartition,
        batch: bytearray,
        on_outcome: Callable[[ErrorCode], None],
        on_late: Callable[[], None],
        late_at: float,
    ) -> None:
        assert tp == TP and late_at > asyncio.get_running_loop().time()
        if self.refuses is not None:
            raise self.refuses
        self.log.append(batch)
        self.waiting.append((on_outcome, on_late))

    def _when_committed(self, tp: TopicPartition, offset: int, told: Callable[[ErrorCode], None]) -> None:
        assert tp == TP
        if self.partition.high_watermark is None or self.partition.high_watermark >= offset:
            told(ErrorCode.NONE)
        else:
            self.loads.append((offset, told))

    def commit(self, outcome: ErrorCode = ErrorCode.NONE) -> None:
        """Everything that waits is committed (or we lead no more), and what follows from it."""
        while self.waiting:
            waiting, self.waiting = self.waiting, []
            for on_outcome, _ in waiting:
                on_outcome(outcome)

    def late(self) -> None:
        """Everything that waits takes long."""
        for _, on_late in self.waiting:
            on_late()

    def deliver(self, sending: int = -1) -> None:
        """Every partition of one sending has its marker, and the end of the transaction is committed."""
        errand = self.markers.sent[sending]
        for tp in sorted(errand.marking.waiting):
            errand.heard(tp, ErrorCode.NONE)
        self.commit()

    def resign(self) -> None:
        """This broker leads no more; what waits hears so first."""
        self.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.refuses = NotLeaderOrFollower("moved")
        self.coordinator.on_resigned(TP)

    async def lead(self, loaded: bool = True) -> "TransactionStage":
        """Take the partition and load it."""
        self.coordinator.start()
        self.coordinator.on_leading(self.partition)
        while loaded and self.coordinator.is_loading:
            await asyncio.sleep(0)
        return self

    async def successor(self, high_watermark: int | None = None) -> "TransactionStage":
        """Another broker, with the same log."""
        next = TransactionStage(self.config, self.log, self.clock, next_id=self.next_id)
        next.partition = Partition(self.log, self.partition.leader_epoch + 1, high_watermark)
        return await next.lead(loaded=high_watermark is None)

    # A producer's questions; the answers appear in the list.

    async def ask_init(
        self, name: str = "t", claimed: ProducerIdentity | None = None, timeout_ms: int = 60_000
    ) -> list[Answer]:
        told: list[Answer] = []
        await self.coordinator.init(name, InitAsked(timeout_ms, claimed), told.append)
        return told

    async def init(self, name: str = "t") -> ProducerIdentity:
        """Begin, and be told the identity."""
        told = await self.ask_init(name)
        self.commit()
        assert told[0].error is ErrorCode.NONE
        return told[0].producer

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, name: str = "t") -> list[Answer]:
        told: list[Answer] = []
        self.coordinator.add_partitions(name, producer, frozenset(partitions), told.append)
        return told

    def end(self, producer: ProducerIdentity, committed: bool = True, name: str = "t") -> list[Answer]:
        told: list[Answer] = []
        self.coordinator.end(name, producer, committed, told.append)
        return told

    def state(self, name: str = "t") -> str:
        found = self.coordinator.find(name)
        return "unknown" if found is None or found.standing is None else str(found.standing.state)


def plays(story: Callable[[TransactionStage], Awaitable[None]]) -> Callable[[], None]:
    """Run a story on a stage of its own."""

    async def play() -> None:
        stage = await TransactionStage().lead()
        await story(stage)
        await stage.coordinator.stop()

    def test() -> None:
        asyncio.run(play())

    test.__name__, test.__doc__ = story.__name__, story.__doc__  # type: ignore[attr-defined]
    return test

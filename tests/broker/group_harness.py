"""A stage for the group coordinator: a log in memory, acknowledgements by hand, a clock that is set."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from random import Random

from strandline.base.types import Epoch, Offset, TopicPartition
from strandline.broker.config.groups import GroupSettings
from strandline.broker.config.sections import GroupsConfig
from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.state import JoinAsked, Joined, SyncAsked, Synced
from strandline.broker.internal_topics.topic import InternalTopic, offsets_topic
from strandline.broker.metadata.cache import Picture
from strandline.broker.replicas.verification_guards import Guard
from strandline.protocol.batches import headers, stamp
from strandline.protocol.errors import ErrorCode, NotLeaderOrFollower
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.primitives import Slices
from strandline.storage.disk import DiskError

TP = TopicPartition("__consumer_offsets", 0)
SIMPLE = ("", None, -1)  # who commits without being a member


class Clock:
    """Wall time as the test sets it."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.ms


class MemoryLog:
    """A log of whole batches."""

    def __init__(self) -> None:
        self.partition = TP
        self.start_offset = 0
        self.end_offset = 0
        self.batches: list[tuple[int, bytes]] = []
        self.asked_for: list[int] = []

    def append(self, batch: bytearray) -> int:
        (_, header), *_ = headers(batch)
        base = self.end_offset
        stamp(batch, 0, Offset(base), Epoch(1))
        self.batches.append((base, bytes(batch)))
        self.end_offset = base + header.record_count
        return base

    def cut_last(self) -> None:
        """The last batch was refused: it is in no log."""
        self.end_offset, _ = self.batches.pop()

    def read(self, offset: int, bytes_max: int, end: int) -> Slices:
        """One batch at a time, so that loading has many slices."""
        self.asked_for.append(bytes_max)
        return Slices([next((batch for base, batch in self.batches if base >= offset), b"")])


@dataclass
class Partition:
    """What `on_leading` is given."""

    log: MemoryLog
    guard: Guard | None = None  # of whoever begins a transaction
    may_be_replaced: bool = False

    def guard_for(self, producer_id: int, producer_epoch: int) -> Guard | None:
        return self.guard

    def mark(self) -> None:
        """The stage settles by hand."""

    def disk_failed(self, error: DiskError) -> None:
        raise AssertionError("this disk does not fail") from error


@dataclass
class Stage:
    """A coordinator that leads the only partition, with every write held back until `commit`."""

    config: GroupsConfig = field(
        default_factory=lambda: GroupsConfig(offsets_partitions=1, initial_rebalance_delay_ms=0)
    )
    log: MemoryLog = field(default_factory=MemoryLog)
    clock: Clock = field(default_factory=Clock)
    waiting: list[tuple[Callable[[ErrorCode, int], None], int]] = field(default_factory=list)
    markers: list[tuple[int, bool, int]] = field(default_factory=list)  # not committed yet
    late: list[Callable[[ErrorCode], None]] = field(default_factory=list)  # told so, and not committed yet
    created: list[CreateTopicsRequest] = field(default_factory=list)
    asked: list[tuple[str, int, int]] = field(default_factory=list)  # of the coordinator of transactions
    guards: list[Guard | None] = field(default_factory=list)  # of each append
    is_leader: bool = True
    seed: int = 1
    refuses: ErrorCode | None = None  # every append

    def __post_init__(self) -> None:
        self.picture = Picture()
        self.settings = GroupSettings(self.config)
        topic = InternalTopic(offsets_topic(self.config), lambda: self.picture, self._create)
        self.groups = GroupCoordinator(
            self.config,
            self._append,
            self._when_committed,
            self.clock,
            Random(self.seed),
            topic,
            self._ask,
            lambda: self.picture,
            self.settings,
        )
        self.settings.on_change.subscribe(self.groups.on_configured)

    def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        assert list(partitions) == [TP]
        self.asked.append((transactional_id, producer_id, producer_epoch))
        self.verdict = asyncio.get_running_loop().create_future()
        return self.verdict

    async def _create(self, request: CreateTopicsRequest, timeout_ms: int) -> CreateTopicsResponse:
        self.created.append(request)
        return CreateTopicsResponse(topics=[])

    def _append(
        self,
        tp: TopicPartition,
        batch: bytearray,
        on_committed: Callable[[ErrorCode, int], None],
        deadline: float,
        guard: Guard | None,
    ) -> None:
        assert tp == TP
        self.guards.append(guard)
        if not self.is_leader:
            raise NotLeaderOrFollower("moved")
        if self.refuses is not None:
            return on_committed(self.refuses, -1)
        return self.waiting.append((on_committed, self.log.append(batch)))

    def _when_committed(
        self, tp: TopicPartition, offset: int, on_outcome: Callable[[ErrorCode], None]
    ) -> None:
        assert tp == TP and offset <= self.log.end_offset
        if not self.is_leader:
            raise NotLeaderOrFollower("moved")
        self.late.append(on_outcome)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Acknowledge everything that waits, or refuse it; what timed out stands in the log all the same."""
        stands = error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        if error is ErrorCode.NONE:
            markers, self.markers = self.markers, []
            for producer_id, committed, offset in markers:
                self.groups.on_transaction_ended(TP, producer_id, committed, offset)
            while self.late:
                self.late.pop(0)(error)
        waiting, self.waiting = self.waiting, []
        for on_committed, base in waiting:
            on_committed(error, base if stands else -1)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Another coordinator writes its marker, which counts once it is committed."""
        marker = EndMarker(committed, coordinator_epoch=1)
        offset = self.log.append(marker_batch(producer_id, 0, marker, self.clock.ms))
        self.markers.append((producer_id, committed, offset))

    async def lead(self) -> "Stage":
        """Take the partition and load it."""
        self.groups.start()
        self.partition = Partition(self.log)
        self.groups.on_leading(self.partition)
        while self.groups.is_loading:
            await asyncio.sleep(0)
        return self

    async def successor(self) -> "Stage":
        """Another broker, with the same log."""
        return await Stage(self.config, self.log, self.clock).lead()

    def join(self, client: str, member_id: str = "", session_ms: int = 10_000) -> list[Joined]:
        """A v3 join; the answers appear in the list."""
        told: list[Joined] = []
        asked = JoinAsked(
            member_id,
            None,
            client,
            "/127.0.0.1",
            session_ms,
            30_000,
            "consumer",
            (("range", b"m"),),
            False,
            False,
        )
        self.groups.join("g", asked, told.append)
        return told

    def sync(self, member_id: str, generation: int, **given: bytes) -> list[Synced]:
        """A sync; the answers appear in the list."""
        told: list[Synced] = []
        assignments = tuple((name.replace("_", "-"), work) for name, work in given.items()) or (
            (member_id, b"p0"),
        )
        self.groups.sync("g", SyncAsked(member_id, None, generation, None, None, assignments), told.append)
        return told


def plays(story: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    """Run a story on a stage of its own."""

    async def play() -> None:
        stage = await Stage().lead()
        await story(stage)
        await stage.groups.stop()

    def test() -> None:
        asyncio.run(play())

    test.__name__, test.__doc__ = story.__name__, story.__doc__  # type: ignore[attr-defined]
    return test

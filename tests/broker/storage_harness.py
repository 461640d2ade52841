"""A broker's storage without the broker: real replicas and files in two directories of a disk that fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from strandline.base.clock import SystemClock
from strandline.base.types import Incarnation, TopicPartition
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.parts import ReplicaParts
from strandline.broker.turn import Turn
from strandline.broker.upkeep.disk_failures import DiskFailures
from strandline.protocol.messages.control import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.storage.directories.incarnation import INCARNATION, Incarnations
from strandline.storage.directories.intact import Intactness
from strandline.storage.directories.log_manager import Logs
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create
from tests.broker.replica_harness import TOPIC, TOPIC_ID, DirectRegistry, batch
from tests.storage.faulty_disk import FaultyDisk

ME = 1
EARLIER = 0  # an incarnation before this start, in which all logs were whole
RESERVE = 4096


def tp(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


class Box:
    """A broker's storage with two directories: partitions 0 and 2 lie in the first, 1 and 3 in the second."""

    def __init__(self, root: Path, disk: FaultyDisk, names: str = "xy") -> None:
        self.disk = disk
        self.dirs = [str(root / name) for name in names]
        self.config = BrokerConfig.model_validate(
            {
                "broker_id": ME,
                "log_dirs": ",".join(self.dirs),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "zookeeper": {"connect": "127.0.0.1:1"},
                "storage": {"room_reserve_bytes": RESERVE},
            }
        )
        self.failures: list[BaseException] = []
        self.zookeeper = SimZooKeeper()
        self.zk = cast(Any, DirectRegistry(self.zookeeper))
        self.epoch = 0
        self.registered: list[tuple[list[TopicPartition], list[str]]] = []  # again, and the doubts on disk
        self.incarnations = Incarnations.load(cast(Any, disk), self.dirs, "boot")

    async def start(self) -> None:
        clock = SystemClock()
        self.logs = Logs.open(
            self.dirs, cast(Any, self.disk), self.config.storage, clock, clean=False,
            before_loss=lambda *_: None, offline=self.incarnations.offline,
        )  # fmt: skip
        ids = iter(f"{n:032x}" for n in range(1, 9))
        self.incarnations.identify(ME, "cluster", lambda: UUID(next(ids)))
        self.incarnations.write(Intactness(1, 1), flush_mode=False)
        for path in (*documents.PERSISTENT_PATHS, documents.incarnation_path(ME)):
            await self.create(path)
        self.parts = ReplicaParts(
            self.config, Incarnation(1), self.logs, self.zk, clock, Turn(self.failures.append),
            is_known=lambda _: True, vouches=lambda _, joined: joined == EARLIER,
            on_failure=self.failures.append,
        )  # fmt: skip
        self.replicas = self.parts.replicas
        self.failing = DiskFailures(
            self.parts.shared, self.incarnations, self.logs, self.zk, self.replicas,
            self.parts.fetchers, self.register, self.failures.append,
        )  # fmt: skip

    async def register(self, doubts: Collection[TopicPartition]) -> None:
        self.registered.append((sorted(doubts), self.remembered(0)["doubts"]))

    async def create(self, path: str) -> None:
        if self.zookeeper.exists(path, self.zk.session_id, None) is None:
            await self.zk.multi([Create(path, b'{"incarnation":1}')])

    async def lead(
        self,
        *numbers: int,
        leader: int = ME,
        is_new: bool = True,
        joined: int = -1,
        unclean: bool = False,
        others: Sequence[int] = (),
        topic_id: UUID = TOPIC_ID,
    ) -> list[LeaderAndIsrPartitionError]:
        """A new epoch of these partitions, whose ISR is the leader and `others`; what the broker answered."""
        self.epoch += 1
        states = [
            LeaderAndIsrPartitionState(
                partition_index=number, controller_epoch=1, leader=leader, leader_epoch=self.epoch,
                isr=[leader, *others], isr_epochs=[joined] * (1 + len(others)), partition_epoch=1,
                replicas=[ME, 2], is_new=is_new,
                leader_recovery_state=int(unclean),
            )
            for number in numbers
        ]  # fmt: skip
        topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=states)
        answer = await self.parts.roles.obey_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=9, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_leaders=[]
            )
        )
        return list(answer.topics[0].partition_errors)

    def append(self, number: int, *values: bytes) -> int:
        base_offset: int = self.replicas.get(tp(number)).append(memoryview(bytearray(batch(*values))), 1)[0]
        return base_offset

    def events(self) -> list[Any]:
        nodes = self.zookeeper.nodes
        return [json.loads(n.data) for path, n in nodes.items() if documents.LOG_DIR_EVENT_PREFIX in path]

    def failed_dirs(self) -> list[str]:
        parent = documents.failed_dirs_path(ME) + "/"
        return [path.removeprefix(parent) for path in self.zookeeper.nodes if path.startswith(parent)]

    def names(self, part: str) -> list[str]:
        return [name for directory in self.dirs for name in self.disk.listdir(directory) if part in name]

    def remembered(self, place: int) -> Any:
        return json.loads(Path(self.dirs[place], INCARNATION).read_text())

    async def stop(self) -> None:
        await self.parts.stop()
        await self.failing.stop()
        self.logs.close(clean=False)
        self.incarnations.release()


@asynccontextmanager
async def box(root: Path, names: str = "xy", disk: FaultyDisk | None = None) -> AsyncIterator[Box]:
    made = Box(root, disk or FaultyDisk(), names)
    await made.start()
    try:
        yield made
    finally:
        made.disk.heal()
        await made.stop()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))

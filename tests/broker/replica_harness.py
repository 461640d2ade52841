"""A cluster in one process: real sockets, real logs, ZooKeeper in memory; the test is the controller."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from strandline.base.clock import SystemClock
from strandline.base.types import Incarnation, TopicPartition
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.config.live import LiveConfig
from strandline.broker.context import BrokerContext
from strandline.broker.handlers.table import HANDLERS
from strandline.broker.metadata.cache import MetadataCache
from strandline.broker.metadata.held_answers import HeldAnswers
from strandline.broker.network.metrics import Metrics
from strandline.broker.network.server import Server
from strandline.broker.parts import ReplicaParts
from strandline.broker.turn import Turn
from strandline.client.network.connection import Connection
from strandline.protocol.apis import Api
from strandline.protocol.messages.control import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.records import BatchBuilder
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create, SetData
from tests.patience import HANG_S

TOPIC, TOPIC_ID = "t", UUID(int=7)
TP = TopicPartition(TOPIC, 0)
VERSIONS = {
    Api.PRODUCE: 11, Api.FETCH: 16, Api.LIST_OFFSETS: 8, Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.LEADER_AND_ISR: 7, Api.STOP_REPLICA: 4, Api.UPDATE_METADATA: 8, Api.DELETE_RECORDS: 2,
    Api.METADATA: 12, Api.WRITE_TXN_MARKERS: 1, Api.DESCRIBE_PRODUCERS: 0,
}  # fmt: skip


class DirectRegistry:
    """A session with the ZooKeeper in memory that is never slow and never lost."""

    def __init__(self, zookeeper: SimZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.session_id = zookeeper.open(60.0, 0.0).id
        self.generation = 1
        self.connected = True

    def listen(self, listener: Any) -> Any:
        return lambda: None

    async def get(self, path: str, watch: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.zookeeper.get(path, self.session_id, None)

    async def get_many(self, paths: Any) -> Any:
        await asyncio.sleep(0)
        return self.zookeeper.get_many(paths)

    async def multi(self, ops: Any) -> Any:
        await asyncio.sleep(0)
        return self.zookeeper.multi(ops, self.session_id)


class Member:
    """One broker of the stage."""

    def __init__(self, cluster: "Cluster", id: int, directory: Path, **options: Any) -> None:
        self.cluster = cluster
        self.id = id
        self.incarnation = Incarnation(1)
        self.config = BrokerConfig.model_validate(
            {
                "broker_id": id,
                "log_dirs": str(directory),
                "listeners": "PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT",
                "zookeeper": {"connect": "127.0.0.1:1"},
                "replication": {"lag_time_max_ms": 1000, "fetch_wait_max_ms": 400},
                **options,
            }
        )
        self.disk = RealDisk()
        self.failures: list[BaseException] = []
        self.ports: dict[str, int] = {}

    async def start(self) -> None:
        clock, disk = SystemClock(), self.disk
        self.turn = Turn(self.failures.append)
        self.server = Server(self.config, Metrics(), HANDLERS, self.turn, self.failures.append)
        self.ports = await self.server.bind(self.config.endpoints)
        self.logs = Logs.open(
            list(self.config.directories), disk, self.config.storage, clock,
            clean=False, before_loss=lambda *_: None,
        )  # fmt: skip
        self.cache = MetadataCache(self.config.id)
        self.parts = parts = ReplicaParts(
            self.config, self.incarnation, self.logs, cast(Any, self.cluster.zk), clock,
            self.turn, is_known=lambda tp: tp.topic == TOPIC, is_elsewhere=self.cache.is_elsewhere,
            on_failure=self.failures.append,
        )  # fmt: skip
        self.replicas = parts.replicas
        nothing = cast(Any, None)
        self.deleted: list[TopicPartition] = []
        groups = cast(Any, SimpleNamespace(partitions_deleted=self.deleted.extend, metrics=dict))
        transactions = cast(Any, SimpleNamespace(metrics=dict))
        self.broker = BrokerContext(
            live=LiveConfig(self.config), clock=clock, cluster_id="c", cache=self.cache,
            metrics=self.server.admission.metrics, logs=self.logs, shared=parts.shared,
            replicas=parts.replicas, settings=parts.settings, isr=parts.isr, parked=parts.parked,
            sessions=parts.sessions, client_sessions=parts.client_sessions,
            fetchers=parts.fetchers, leader_throttle=parts.leader_throttle, deletions=parts.deletions,
            roles=parts.roles,
            groups=groups, transactions=transactions, controller=nothing, forwarder=nothing,
            producer_ids=nothing,
            verification=nothing, cleaning=nothing, moves=nothing,
            held=HeldAnswers(parts.shared, self.cache.current), refresh=nothing,
            group_settings=nothing, fail=self.failures.append,
        )  # fmt: skip
        self.parts.start()
        self.server.open(self.broker)
        await self.cluster.register(self)
        self.control = await self.connect("PLAINTEXT")

    async def connect(self, listener: str = "CLIENT") -> Connection:
        deadline = asyncio.get_running_loop().time() + HANG_S
        return await Connection.open(
            "127.0.0.1", self.ports[listener], deadline=deadline, versions=cast(Any, VERSIONS)
        )

    async def stop(self) -> None:
        await self.control.close()
        await self.server.stop()
        await self.parts.stop()
        self.logs.close(clean=False)
        assert not self.failures, self.failures

    @property
    def partition(self) -> Any:
        return self.replicas.get(TP)


class Cluster:
    """The stage: members by id, and what a controller would do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = SimZooKeeper()
        self.zk = DirectRegistry(self.zookeeper)
        self.members: dict[int, Member] = {}
        self.leaving: set[int] = set()  # brokers that have said that they are shutting down
        self.epoch = -1
        self.unclean = False  # whether leaders are elected uncleanly

    async def register(self, member: Member) -> None:
        for path in documents.PERSISTENT_PATHS:
            await self.create(path, b"")
        await self.create(documents.broker_path(member.id), b'{"incarnation":1}')
        await self.create(documents.incarnation_path(member.id), b"0")
        await self.zk.multi([SetData(documents.incarnation_path(member.id), b"1", 0)])

    async def create(self, path: str, data: bytes) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            each = "/" + "/".join(parts[:depth])
            if self.zookeeper.exists(each, self.zk.session_id, None) is None:
                await self.zk.multi([Create(each, data if depth == len(parts) else b"")])

    async def elect(self, leader: int, isr: Sequence[int], configs: Sequence[Any] = ()) -> None:
        """A new leader epoch: state first, then everybody is told."""
        self.epoch += 1
        epochs = dict.fromkeys(isr, 1)
        state = documents.StateDocument(
            leader=leader, leader_epoch=self.epoch, isr=list(isr), controller_epoch=1, isr_epochs=epochs
        )
        path = documents.state_path(TP)
        await self.create(path, b"")
        version = self.zookeeper.get(path, self.zk.session_id, None)[1].version
        await self.zk.multi([SetData(path, state.data(), version)])
        for member in self.members.values():
            await self.tell(member, leader, isr, version + 1, configs)

    async def silence(self, follower: int) -> None:
        """A broker follows nobody any more, and its last fetch is answered: it acknowledges nothing."""
        fetchers = self.members[follower].parts.fetchers
        fetchers.drop(self.members[follower].partition)
        await until(lambda: not list(fetchers.of()))

    async def tell(
        self, member: Member, leader: int, isr: Sequence[int], version: int, configs: Sequence[Any] = (),
        index: int = 0,
    ) -> Any:  # fmt: skip
        if index == 0:
            await ask(member.control, self.picture(leader, isr, version))
        answer = await ask(member.control, self.role(leader, isr, version, configs, index))
        assert answer.error_code == 0
        return answer.topics[0].partition_errors[0].error_code

    def role(
        self, leader: int, isr: Sequence[int], version: int, configs: Sequence[Any] = (), index: int = 0
    ) -> LeaderAndIsrRequest:
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index, controller_epoch=1, leader=leader, leader_epoch=self.epoch,
                isr=list(isr), partition_epoch=version, replicas=sorted(self.members),
                leader_recovery_state=int(self.unclean),
            )
        ]  # fmt: skip
        topic = LeaderAndIsrTopicState(
            topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states, configs=list(configs)
        )
        leaders = [
            LeaderAndIsrLiveLeader(broker_id=m.id, host_name="127.0.0.1", port=m.ports["PLAINTEXT"])
            for m in self.members.values()
        ]
        return LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_leaders=leaders
        )

    def picture(self, leader: int, isr: Sequence[int], version: int) -> UpdateMetadataRequest:
        brokers = [
            UpdateMetadataBroker(
                id=m.id,
                endpoints=[
                    UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener=name)
                    for name, port in m.ports.items()
                ],
                is_leaving=m.id in self.leaving,
            )
            for m in self.members.values()
        ]
        state = UpdateMetadataPartitionState(
            partition_index=0, controller_epoch=1, leader=leader, leader_epoch=self.epoch, isr=list(isr),
            zk_version=version, replicas=sorted(self.members),
        )  # fmt: skip
        topic = UpdateMetadataTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[state])
        return UpdateMetadataRequest(
            controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=brokers
        )

    def state(self) -> documents.StateDocument:
        data, _ = self.zookeeper.get(documents.state_path(TP), self.zk.session_id, None)
        return documents.parse(documents.StateDocument, data)


@asynccontextmanager
async def cluster(
    directory: Path, members: int, disk: Callable[[], RealDisk] = RealDisk, **options: Any
) -> AsyncIterator[Cluster]:
    """A cluster of so many brokers; partition t-0 has a replica on each, and no leader yet."""
    stage = Cluster(directory)
    for id in range(1, members + 1):
        member = Member(stage, id, directory / str(id), **options)
        member.disk = disk()
        await member.start()
        stage.members[id] = member
    try:
        yield stage
    finally:
        for member in list(stage.members.values()):
            await member.stop()


async def ask(connection: Connection, request: object, version: int | None = None) -> Any:
    deadline = asyncio.get_running_loop().time() + HANG_S
    return await connection.request(request, deadline=deadline, version=version)


def batch(
    *values: bytes, producer_id: int = -1, sequence: int = -1, transactional: bool = False, epoch: int = 0
) -> bytes:
    epoch = epoch if producer_id >= 0 else -1
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for value in values:
        builder.append(1000, b"k", value, [])
    return builder.build()


def produce(
    records: bytes | None, acks: int = -1, timeout_ms: int = 3000, topic: str = TOPIC, index: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def outcome(response: Any) -> tuple[int, int]:
    """Error code and base offset of the only partition."""
    only = response.responses[0].partition_responses[0]
    return only.error_code, only.base_offset


def fetch(offset: int, max_wait_ms: int = 0, min_bytes: int = 1, **options: Any) -> FetchRequest:
    names = {"partition", "fetch_offset", "current_leader_epoch", "last_fetched_epoch", "partition_max_bytes"}
    mine = {k: options.pop(k) for k in list(options) if k in names}
    asked = FetchPartition(**{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **mine})
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes,
        topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[asked])], **options,
    )  # fmt: skip


def list_offsets(timestamp: int, **options: Any) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])], **options)


def end_of_epoch(epoch: int, current: int = -1, **options: Any) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
    return OffsetForLeaderEpochRequest(topics=topics, **options)


def fetched(response: Any) -> Any:
    """The only partition of an answer."""
    return response.responses[0].partitions[0]


async def until(condition: Any, seconds: float = HANG_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)

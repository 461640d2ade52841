"""A cluster of brokers in the test's own event loop: just enough of Kafka to be a client's counterpart.

Brokers share one truth (`Double.topics`). They can be killed, revived, stopped (connections open, no
answers), and a hook may answer, delay or swallow any request. Groups are in group_harness.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from strandline.base.types import TopicPartition
from strandline.protocol.apis import APIS, Api
from strandline.protocol.batches import BatchHeader, crc_ok, headers, read_header, stamp
from strandline.protocol.connection import FrameSplitter, frame_response, parse_head
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    api_versions,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    producers,
    topics,
)
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.records import Record, iterate
from strandline.protocol.schema import decode
from tests.client.group_harness import Groups
from tests.client.transaction_harness import Coordinator, marker, visible_end

SPACE = UUID(int=7)
SWALLOW = object()  # a hook's way of saying: never answer
Hook = Callable[["Broker", int, Any], Any]


@dataclass
class Partition:
    """A partition's one log, whoever leads it."""

    leader: int
    epoch: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    start: int = 0
    producers: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # first offset of a producer's transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, marker's

    def append(self, data: bytes) -> tuple[int, int]:
        """(error code, base offset)"""
        batch = bytearray(data)
        ((_, header),) = headers(batch)
        assert crc_ok(batch, 0, header)
        if header.producer_id >= 0:
            known = self.producers.setdefault((header.producer_id, header.producer_epoch), [])
            for first, last, base in known[-5:]:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return 0, base
            if known and header.base_sequence != known[-1][1] + 1:  # a stranger begins where it likes
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((header.base_sequence, header.last_sequence, self.end))
        base = self.end
        if header.is_transactional:
            self.open.setdefault(header.producer_id, base)
        self._keep(batch, header.record_count)
        return 0, base

    def append_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        first = self.open.pop(producer_id, None)
        if first is not None and not committed:
            self.aborted.append((producer_id, first, self.end))
        self._keep(bytearray(marker(producer_id, epoch, committed)), 1)

    def _keep(self, batch: bytearray, count: int) -> None:
        stamp(batch, 0, self.end, self.epoch)
        self.batches.append((self.end, bytes(batch)))
        self.end += count

    def read(self, offset: int, most: int, end: int = 1 << 62) -> bytes:
        found = b""
        for _, batch in self.batches:
            ((_, header),) = headers(batch)
            if header.next_offset <= offset or header.base_offset >= end:
                continue
            if found and len(found) + len(batch) > most:
                break
            found += batch
        return found

    def end_of_epoch(self, epoch: int) -> int:
        """Where a reader whose last record is of `epoch` has left this log, at the earliest."""
        later = (h.base_offset for h in self.headers() if epoch >= 0 and h.leader_epoch > epoch)
        return min(later, default=self.end)

    def headers(self) -> list[BatchHeader]:
        return [header for _, batch in self.batches for _, header in headers(batch)]

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches for record in iterate(batch)]


class Broker:
    """One listening broker."""

    def __init__(self, double: "Double", node: int) -> None:
        self.double, self.node, self.port = double, node, 0
        self.server: asyncio.Server | None = None
        self.links: set[Link] = set()
        self.running = asyncio.Event()
        self.running.set()
        self.requests: list[tuple[int, Any]] = []

    @property
    def stopped(self) -> bool:
        return not self.running.is_set()

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self.running.clear() if value else self.running.set()

    @property
    def alive(self) -> bool:
        return self.server is not None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Link(self), "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def kill(self) -> None:
        assert self.server is not None
        self.server.close()
        self.server = None
        for link in list(self.links):
            link.transport.abort()


class Link(asyncio.Protocol):
    """One connection: frames are handled one after the other, answers keep their order."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.splitter = FrameSplitter(1 << 28)
        self.frames: asyncio.Queue[memoryview] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.links.add(self)
        self.task = asyncio.get_running_loop().create_task(self.serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.links.discard(self)
        self.task.cancel()

    def data_received(self, data: bytes) -> None:
        for frame in self.splitter.feed(data):
            self.frames.put_nowait(frame)

    async def serve(self) -> None:
        while True:
            frame = await self.frames.get()
            head = parse_head(frame)
            request, _ = decode(APIS[Api(head.api_key)].request, head.version, frame, head.body_at)
            self.broker.requests.append((head.api_key, request))
            await self.broker.running.wait()
            response = await self.broker.double.answer(self.broker, head.api_key, request)
            if response is SWALLOW or (isinstance(request, produce.ProduceRequest) and request.acks == 0):
                continue
            if response is None:
                self.transport.abort()
                return
            self.transport.writelines(
                frame_response(head.api_key, head.version, head.correlation_id, response)
            )


class Double:
    """The cluster: `async with Double(3) as double`."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = {node: Broker(self, node) for node in range(1, brokers + 1)}
        self.topics: dict[str, list[Partition]] = {}
        self.ids: dict[str, UUID] = {}
        self.copying: set[int] = set()  # brokers that have replicas of all partitions, for readers
        self.groups = Groups()
        self.transactions = Coordinator(self)
        self.hook: Hook = lambda broker, api, request: None
        self.producer_ids = 1000
        self.hidden: set[int] = set()  # brokers that metadata does not list

    async def __aenter__(self) -> "Double":
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        for broker in self.brokers.values():
            broker.stopped = False
            if broker.alive:
                broker.kill()
        await asyncio.sleep(0.01)

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{broker.port}" for broker in self.brokers.values()]

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        nodes = sorted(self.brokers)
        self.ids[name] = uuid5(self.ids.get(name, SPACE), name)  # made again, it has another one
        self.topics[name] = [Partition(nodes[index % len(nodes)]) for index in range(partitions)]
        return self.topics[name]

    def move(self, name: str, partition: int, leader: int) -> None:
        one = self.topics[name][partition]
        one.leader, one.epoch = leader, one.epoch + 1

    def kill(self, node: int) -> None:
        self.brokers[node].kill()

    async def revive(self, node: int) -> None:
        await self.brokers[node].start()

    async def answer(self, broker: Broker, api: int, request: Any) -> Any:
        """What the hook says, else what the table's handler says; None ends the connection."""
        said = self.hook(broker, api, request)
        if isinstance(said, Awaitable):
            said = await said
        if said is not None:
            return said
        handler = HANDLERS.get(api)
        if handler is None:
            return await self.groups.answer(api, request)
        result = handler(self, broker, request)
        return await result if isinstance(result, Awaitable) else result

    def refuses(self, data: bytes, partition: TopicPartition) -> int:
        """Why this batch may not be appended as part of a transaction, 0 if it may."""
        header = read_header(data)
        if not header.is_transactional:
            return 0
        return self.transactions.expects(header.producer_id, header.producer_epoch, partition)

    def named(self, topic_id: UUID) -> str:
        """The topic that has this id, if there is one."""
        return next((name for name, one in self.ids.items() if one == topic_id and name in self.topics), "")

    def find(self, broker: Broker, topic: str, index: int) -> Partition | int:
        """The partition if this broker leads it, otherwise the error code."""
        known = self.topics.get(topic, [])
        if index >= len(known):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return known[index] if known[index].leader == broker.node else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_versions(double: Double, broker: Broker, request: Any) -> Any:
    rows = []
    for api, entry in APIS.items():
        if entry.advertised is not None:
            offered = entry.advertised
            row = api_versions.ApiVersion(api_key=api, min_version=offered[0], max_version=offered[-1])
            rows.append(row)
    return api_versions.ApiVersionsResponse(api_keys=rows)


def on_metadata(double: Double, broker: Broker, request: metadata.MetadataRequest) -> Any:
    names = sorted(double.topics) if request.topics is None else [one.name or "" for one in request.topics]
    listed = [one for one in double.brokers.values() if one.alive and one.node not in double.hidden]
    told = []
    for name in names:
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=index,
                leader_id=one.leader,
                leader_epoch=one.epoch,
                replica_nodes=sorted(double.brokers),
                isr_nodes=[one.leader],
            )
            for index, one in enumerate(double.topics.get(name, ()))
        ]
        error = 0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        told.append(
            metadata.MetadataResponseTopic(
                error_code=error,
                name=name,
                topic_id=double.ids[name] if partitions else NO_UUID,
                partitions=partitions,
            )
        )
    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=one.node, host="127.0.0.1", port=one.port)
            for one in listed
        ],
        cluster_id="double",
        controller_id=listed[0].node if listed else -1,
        topics=told,
    )


def on_produce(double: Double, broker: Broker, request: produce.ProduceRequest) -> Any:
    answered = []
    for topic in request.topic_data:
        results = []
        for one in topic.partition_data:
            found = double.find(broker, topic.name, one.index)
            data = bytes(one.records)  # type: ignore[arg-type]
            if isinstance(found, int):
                code, base = found, -1
            elif code := double.refuses(data, TopicPartition(topic.name, one.index)):
                base = -1
            else:
                code, base = found.append(data)
            results.append(
                produce.PartitionProduceResponse(index=one.index, error_code=code, base_offset=base)
            )
        answered.append(produce.TopicProduceResponse(name=topic.name, partition_responses=results))
    return produce.ProduceResponse(responses=answered)


async def on_fetch(double: Double, broker: Broker, request: fetch.FetchRequest) -> Any:
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    while True:
        response, has_news = fetch_now(double, broker, request)
        left = deadline - asyncio.get_running_loop().time()
        if has_news or left <= 0:
            return response
        await asyncio.sleep(min(left, 0.003))


def fetch_now(double: Double, broker: Broker, request: fetch.FetchRequest) -> tuple[Any, bool]:
    answered, has_news = [], False
    for topic in request.topics:
        parts = []
        name = topic.topic or double.named(topic.topic_id)
        for one in topic.partitions:
            found = double.find(broker, name, one.partition) if name else ErrorCode.UNKNOWN_TOPIC_ID
            if found == ErrorCode.NOT_LEADER_OR_FOLLOWER and broker.node in double.copying:
                found = double.topics[name][one.partition]
            code, records, high, parting, aborted = 0, b"", -1, None, None
            if isinstance(found, int):
                code = found
            elif one.current_leader_epoch >= 0 and one.current_leader_epoch != found.epoch:
                older = one.current_leader_epoch < found.epoch
                code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            elif not found.start <= one.fetch_offset <= found.end:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif (end := found.end_of_epoch(one.last_fetched_epoch)) < one.fetch_offset:
                parting = fetch.FetchEpochEndOffset(epoch=one.last_fetched_epoch, end_offset=end)
            else:
                records, high = found.read(one.fetch_offset, one.partition_max_bytes), found.end
                if request.isolation_level:
                    records = found.read(one.fetch_offset, one.partition_max_bytes, visible_end(found))
                    aborted = [
                        fetch.AbortedTransaction(producer_id=producer, first_offset=first)
                        for producer, first, last in found.aborted
                        if last >= one.fetch_offset
                    ]
            has_news |= bool(code or records or parting)
            parts.append(
                fetch.PartitionData(
                    partition_index=one.partition,
                    error_code=code,
                    high_watermark=high,
                    last_stable_offset=-1 if isinstance(found, int) else visible_end(found),
                    aborted_transactions=aborted,
                    records=records,
                    diverging_epoch=parting,
                )
            )
        answered.append(
            fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
        )
    return fetch.FetchResponse(responses=answered), has_news


def on_offsets(double: Double, broker: Broker, request: offsets.ListOffsetsRequest) -> Any:
    answered = []
    for topic in request.topics:
        parts = []
        for one in topic.partitions:
            found = double.find(broker, topic.name, one.partition_index)
            if isinstance(found, int):
                parts.append(
                    offsets.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, error_code=found
                    )
                )
                continue
            offset, time = visible_end(found) if request.isolation_level else found.end, -1
            if one.timestamp == -2:
                offset = found.start
            elif one.timestamp >= 0:
                later = [record for record in found.records() if record.timestamp >= one.timestamp]
                offset, time = (later[0].offset, later[0].timestamp) if later else (-1, -1)
            parts.append(
                offsets.ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    offset=offset,
                    timestamp=time,
                    leader_epoch=found.epoch,
                )
            )
        answered.append(offsets.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    return offsets.ListOffsetsResponse(topics=answered)


def on_producer_id(double: Double, broker: Broker, request: Any) -> Any:
    if request.transactional_id is not None:
        return double.transactions.answer(Api.INIT_PRODUCER_ID, request)
    double.producer_ids += 1
    return producers.InitProducerIdResponse(producer_id=double.producer_ids, producer_epoch=0)


def on_find_coordinator(double: Double, broker: Broker, request: Any) -> Any:
    alive = [one for one in double.brokers.values() if one.alive and not one.stopped]
    return groups.FindCoordinatorResponse(node_id=alive[0].node, host="127.0.0.1", port=alive[0].port)


def on_create_topics(double: Double, broker: Broker, request: topics.CreateTopicsRequest) -> Any:
    results = []
    for one in request.topics:
        exists = one.name in double.topics
        if exists:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
            results.append(topics.CreatableTopicResult(name=one.name, error_code=code, configs=None))
            continue
        double.topic(one.name, max(one.num_partitions, 1))
        results.append(
            topics.CreatableTopicResult(
                name=one.name,
                topic_id=double.ids[one.name],
                num_partitions=len(double.topics[one.name]),
                replication_factor=1,
                configs=[topics.CreatableTopicConfigs(name="retention.ms", value="7", config_source=1)],
            )
        )
    return topics.CreateTopicsResponse(topics=results)


def on_delete_topics(double: Double, broker: Broker, request: topics.DeleteTopicsRequest) -> Any:
    results = []
    for name in request.topic_names:
        code = 0 if double.topics.pop(name, None) is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results.append(topics.DeletableTopicResult(name=name, error_code=code))
    return topics.DeleteTopicsResponse(responses=results)


HANDLERS: dict[int, Callable[[Double, Broker, Any], Any]] = {
    Api.API_VERSIONS: on_versions,
    Api.METADATA: on_metadata,
    Api.PRODUCE: on_produce,
    Api.FETCH: on_fetch,
    Api.LIST_OFFSETS: on_offsets,
    Api.INIT_PRODUCER_ID: on_producer_id,
    Api.FIND_COORDINATOR: on_find_coordinator,
    Api.ADD_PARTITIONS_TO_TXN: lambda double, _, request: double.transactions.answer(24, request),
    Api.ADD_OFFSETS_TO_TXN: lambda double, _, request: double.transactions.answer(25, request),
    Api.END_TXN: lambda double, _, request: double.transactions.answer(26, request),
    Api.TXN_OFFSET_COMMIT: lambda double, _, request: double.transactions.answer(28, request),
    Api.CREATE_TOPICS: on_create_topics,
    Api.DELETE_TOPICS: on_delete_topics,
}

__all__ = ["SWALLOW", "Broker", "Double", "Partition", "TopicPartition"]

"""A cluster of a few brokers in threads that serve ready-made batches, and that can die or change leaders.

It speaks the real codecs over real sockets and knows a few requests. What it has of a broker's rules are
those that a reader meets: whole batches from the one with the offset, nothing past the high watermark, errors
for a wrong leader, epoch or offset.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.client.spark import client
from strandline.client.spark.admission import HAS_ADMISSION_CONTROL
from strandline.client.spark.offline.reading import _TOLD
from strandline.client.spark.sink import produce
from strandline.client.spark.telling import NO_TRACEBACK
from strandline.protocol.apis import APIS, Api
from strandline.protocol.batches import read_header, stamp
from strandline.protocol.connection import frame_response, parse_head
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from strandline.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from strandline.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.groups import FindCoordinatorResponse
from strandline.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.messages.producers import InitProducerIdResponse
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.records import BatchBuilder, Header, iterate
from strandline.protocol.schema import decode
from tests.patience import HANG_S

Value = tuple[int, bytes | None, bytes | None, list[Header]]


@dataclass
class Log:
    """One partition, as all its replicas have it."""

    leader: int = 1
    epoch: int = 5
    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    high_watermark: int | None = None  # None: the end
    aborted: list[Any] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)  # where the later epochs begin
    follower: int | None = None  # the replica that racks are sent to
    message_bytes_max: int = 1 << 20
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  # sequence, end, offset

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    @property
    def committed(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    def add(self, values: list[Value], gap: int = 0, **builder_options: Any) -> None:
        builder = BatchBuilder(**builder_options)
        for timestamp, key, value, pairs in values:
            builder.append(timestamp, key, value, pairs)
        self.add_batch(builder.build(), gap)

    def add_batch(self, batch: bytes, gap: int = 0) -> None:
        stamped = bytearray(batch)
        stamp(stamped, 0, self.end + gap, self.epoch)
        self.batches.append(bytes(stamped))

    def produce(self, batch: bytes) -> tuple[int, int]:
        """An error code and the offset: as a broker does it that remembers five batches of a producer."""
        header = read_header(batch)
        if len(batch) > self.message_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        known = self.producers.get(header.producer_id, [])
        for sequence, end, offset in known[-5:]:
            if (header.base_sequence, header.base_sequence + header.record_count) == (sequence, end):
                return 0, offset
        if known and known[-1][1] != header.base_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = self.end
        if header.producer_id >= 0:
            end = header.base_sequence + header.record_count
            self.producers[header.producer_id] = [*known, (header.base_sequence, end, offset)]
        self.add_batch(batch)
        return 0, offset

    def values(self) -> list[bytes | None]:
        return [record.value for record in iterate(b"".join(self.batches))]

    def read(self, offset: int, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset < offset:
                continue
            if header.next_offset > self.committed or (
                parts and sum(map(len, parts)) + len(batch) > bytes_max
            ):
                break
            parts.append(batch)
        return b"".join(parts)

    def epoch_end(self, epoch: int) -> int:
        if epoch > self.epoch:
            return -1
        return min((start for later, start in self.epochs.items() if later > epoch), default=self.end)

    def since(self, ms: int) -> tuple[int, int]:
        """The offset asked for, and its record's timestamp if it was asked for by that."""
        if ms in (-1, -2):
            return self.committed if ms == -1 else self.start, -1
        newest = max((read_header(batch).max_timestamp for batch in self.batches), default=0)
        for batch in self.batches:
            header = read_header(batch)
            if header.max_timestamp >= (newest if ms == -3 else ms):
                return max(self.start, header.base_offset), header.max_timestamp
        return -1, -1


class Broker:
    """One listening socket and a thread for each connection."""

    def __init__(self, cluster: "Double", node: int, port: int = 0) -> None:
        self.cluster = cluster
        self.node = node
        self.connections: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def stop(self) -> None:
        for each in (self.listener, *self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(HANG_S)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections.append(connection)
                self.threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = memoryview(stream.read(int.from_bytes(size, "big")))
                head = parse_head(frame)
                request, _ = decode(APIS[Api(head.api_key)].request, head.version, frame, head.body_at)
                response = self.cluster.answer(self.node, Api(head.api_key), request)
                if response is Double.NOTHING:
                    continue
                if response is Double.GONE:
                    return
                parts = frame_response(head.api_key, head.version, head.correlation_id, response)
                connection.sendall(b"".join(parts))
                self.cluster.after_answer(self.node, Api(head.api_key))


class Double:
    """The cluster: logs, brokers, and a count of what was asked."""

    NOTHING = object()  # is answered
    GONE = object()  # is the connection, instead of an answer

    def __init__(self, brokers: int = 2) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, UUID] = {}
        self.asked: list[tuple[int, Api]] = []
        self.committed: dict[tuple[str, TopicPartition], int] = {}  # by group
        self.commits: list[list[TopicPartition]] = []  # what each request to commit was about
        self.refuse_commit: Callable[[TopicPartition], int] = lambda tp: 0  # an error code
        self.on_fetch: Callable[[int], None] = lambda count: None
        self.before_append: Callable[[int], int] = lambda count: 0  # an error code
        self.after_append: Callable[[int], Any] = lambda count: None  # NOTHING or GONE
        self.bad_records: list[int] = []  # in a batch that is refused
        self.producer_ids = 1000
        self.acks: set[int] = set()
        self.after_answer: Callable[[int, Api], None] = lambda node, api: None
        self.brokers = {node: Broker(self, node) for node in range(1, brokers + 1)}
        self.ports = {node: broker.port for node, broker in self.brokers.items()}
        self.advertised: dict[int, tuple[str, int]] = {}  # in the place of where they listen

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def log(self, topic: str, partition: int = 0, **facts: Any) -> Log:
        self.ids.setdefault(topic, UUID(int=len(self.ids) + 1))
        return self.logs.setdefault(TopicPartition(topic, partition), Log(**facts))

    def make_again(self, topic: str) -> Log:
        """Delete a topic, and make one of its name with one empty partition."""
        self.logs = {tp: log for tp, log in self.logs.items() if tp.topic != topic}
        self.ids[topic] = UUID(int=1000)
        return self.log(topic)

    def kill(self, node: int) -> None:
        self.brokers.pop(node).stop()

    def revive(self, node: int) -> None:
        self.brokers[node] = Broker(self, node, self.ports[node])

    def elect(self, node: int) -> None:
        for log in self.logs.values():
            log.leader, log.epoch = node, log.epoch + 1
            log.epochs = {epoch: min(at, log.end) for epoch, at in log.epochs.items()}
            log.epochs[log.epoch] = log.end

    def close(self) -> None:
        for node in list(self.brokers):
            self.kill(node)

    def answer(self, node: int, api: Api, request: Any) -> Any:
        self.asked.append((node, api))
        if api == Api.FETCH:
            self.on_fetch(sum(key == Api.FETCH for _, key in self.asked))
        answers = {
            Api.API_VERSIONS: self._versions,
            Api.METADATA: self._metadata,
            Api.LIST_OFFSETS: self._offsets,
            Api.FETCH: self._fetch,
            Api.OFFSET_FOR_LEADER_EPOCH: self._epoch_ends,
            Api.DESCRIBE_LOG_DIRS: self._log_dirs,
            Api.FIND_COORDINATOR: lambda node, request: FindCoordinatorResponse(
                node_id=node, host="127.0.0.1", port=self.ports[node]
            ),
            Api.OFFSET_COMMIT: self._commit,
            Api.PRODUCE: self._produce,
            Api.INIT_PRODUCER_ID: self._identify,
        }
        return answers[api](node, request)

    def _versions(self, node: int, request: Any) -> ApiVersionsResponse:
        served = (
            *(Api.FETCH, Api.LIST_OFFSETS, Api.METADATA, Api.API_VERSIONS, Api.OFFSET_FOR_LEADER_EPOCH),
            *(Api.DESCRIBE_LOG_DIRS, Api.FIND_COORDINATOR, Api.OFFSET_COMMIT),
            *(Api.PRODUCE, Api.INIT_PRODUCER_ID),
        )
        ranges = [(api, APIS[api].served) for api in served]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api, min_version=found[0], max_version=found[-1]) for api, found in ranges
            ]
        )

    def _metadata(self, node: int, request: Any) -> MetadataResponse:
        names = sorted({tp.topic for tp in self.logs})
        asked = names if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each, host=host, port=port)
                for each in self.brokers
                for host, port in [self.advertised.get(each, ("127.0.0.1", self.ports[each]))]
            ],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=self.ids.get(name, NO_UUID),
                    error_code=0 if name in names else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=tp.partition,
                            leader_id=log.leader,
                            leader_epoch=log.epoch,
                            replica_nodes=[1, 2],
                            isr_nodes=[1, 2],
                        )
                        for tp, log in self.logs.items()
                        if tp.topic == name
                    ],
                )
                for name in asked
            ],
        )

    def _error(self, node: int, tp: TopicPartition, epoch: int) -> ErrorCode:
        log = self.logs.get(tp)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if log.leader != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.FENCED_LEADER_EPOCH if -1 < epoch < log.epoch else ErrorCode.NONE

    def _offsets(self, node: int, request: Any) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            found = []
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                code = self._error(node, tp, part.current_leader_epoch)
                offset, timestamp = (-1, -1) if code else self.logs[tp].since(part.timestamp)
                epoch = -1 if code else self.logs[tp].epoch
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=tp.partition,
                        error_code=code,
                        timestamp=timestamp,
                        offset=offset,
                        leader_epoch=epoch,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, node: int, request: Any) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            found = []
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition)
                code = self._error(node, tp, part.current_leader_epoch)
                end = -1 if code else self.logs[tp].epoch_end(part.leader_epoch)
                found.append(EpochEndOffset(error_code=code, partition=tp.partition, end_offset=end))
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=found))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _log_dirs(self, node: int, request: Any) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=sum(map(len, self.logs[TopicPartition(topic.topic, number)].batches)),
                    )
                    for number in topic.partitions
                    if TopicPartition(topic.topic, number) in self.logs
                ],
            )
            for topic in request.topics
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])

    def _commit(self, node: int, request: Any) -> OffsetCommitResponse:
        topics = []
        self.commits.append([])
        for topic in request.topics:
            found = []
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                self.commits[-1].append(tp)
                code = self.refuse_commit(tp)
                if tp not in self.logs:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not code:
                    self.committed[request.group_id, tp] = part.committed_offset
                found.append(OffsetCommitResponsePartition(partition_index=tp.partition, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=found))
        return OffsetCommitResponse(topics=topics)

    def _identify(self, node: int, request: Any) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def _produce(self, node: int, request: Any) -> Any:
        count = sum(key == Api.PRODUCE for _, key in self.asked)
        refused = self.before_append(count)
        self.acks.add(request.acks)
        topics = []
        for topic in request.topic_data:
            found = []
            for part in topic.partition_data:
                tp = TopicPartition(topic.name, part.index)
                code, offset = refused or self._error(node, tp, -1), -1
                if not code:
                    code, offset = self.logs[tp].produce(bytes(part.records))
                bad = [BatchIndexAndErrorMessage(batch_index=at) for at in self.bad_records] if code else []
                result = PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
                result.record_errors = bad
                found.append(result)
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=found))
        instead = self.NOTHING if request.acks == 0 else self.after_append(count)
        return ProduceResponse(responses=topics) if instead is None else instead

    def _fetch(self, node: int, request: Any) -> FetchResponse:
        (topic,) = request.topics
        (part,) = topic.partitions
        names = {topic_id: name for name, topic_id in self.ids.items()}
        tp = TopicPartition(topic.topic or names.get(topic.topic_id, ""), part.partition)
        log = self.logs.get(tp, Log())
        follows = log.follower == node
        code = ErrorCode.NONE if follows else self._error(node, tp, part.current_leader_epoch)
        if not tp.topic:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        if not code and not log.start <= part.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        redirects = bool(request.rack_id) and log.follower is not None and not follows
        data = PartitionData(
            partition_index=tp.partition,
            error_code=code,
            high_watermark=log.committed,
            log_start_offset=log.start,
            preferred_read_replica=log.follower if redirects and log.follower is not None else -1,
            aborted_transactions=log.aborted if request.isolation_level else None,
            records=None if code or redirects else log.read(part.fetch_offset, part.partition_max_bytes),
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=tp.topic, topic_id=topic.topic_id, partitions=[data])]
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark 4.1 leaves it to the collector to close the sockets that its results came through."""
    if not HAS_ADMISSION_CONTROL:
        left = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
        for item in items:
            if item.nodeid.startswith("tests/client/spark/"):
                item.add_marker(pytest.mark.filterwarnings(left))


@pytest.fixture
def heard_anew() -> Iterator[None]:
    """What was told once is told again; and no error has switched tracebacks off for the next test."""
    _TOLD.clear()
    yield
    os.environ.pop(NO_TRACEBACK, None)


@pytest.fixture(autouse=True)
def nothing_stays_with_the_process() -> Iterator[None]:
    """What tasks leave to the next task of their process: a producer, and connections."""
    yield
    for producer in produce._PRODUCERS.values():
        producer.drop()
    produce._PRODUCERS.clear()
    for cluster in client._CLUSTERS.values():
        cluster.close()
    client._CLUSTERS.clear()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for every Arrow batch that is written, or nearly."""
    monkeypatch.setattr("strandline.client.spark.sink.task.BLOCK_BYTES_MIN", 1)


@pytest.fixture
def double() -> Iterator[Double]:
    """Two brokers without topics."""
    cluster = Double()
    yield cluster
    cluster.close()

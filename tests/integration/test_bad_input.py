"""Whatever is said on the wire, a broker answers it or closes the connection, and goes on serving.

One broker, looked at after every insult: it still takes and gives records, and its disk holds what it held.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import api_versions, control, fetch, metadata, topics
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.schema import spec_of
from tests.integration.support import UNCLOCKED, Wire, assert_no_traceback, produce_request, produced, tree

TOPIC = "insulted"


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    cluster: LocalCluster = start_cluster(1, UNCLOCKED)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, 1, 1)
    return cluster


@pytest.fixture
def port(cluster: LocalCluster) -> int:
    return cluster.brokers[1].port


@pytest.fixture(autouse=True)
def unmoved(cluster: LocalCluster, port: int) -> Iterator[None]:
    """Before and after: the same files, the same leader, and records go in."""
    data = cluster.brokers[1].directory / "data"
    before, led = tree(data), description(cluster)
    yield
    with Wire(port) as wire:
        error, _ = produced(wire.ask(produce_request(TOPIC, 0, b"still here"), 9))
    assert error == ErrorCode.NONE
    assert description(cluster) == led
    assert tree(data) == before
    assert_no_traceback(cluster)


def description(cluster: LocalCluster) -> Any:
    with Admin(cluster.bootstrap) as admin:
        return admin.list_topics(), admin.describe_topics([TOPIC])


def head(api: int, version: int, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhih", api, version, correlation_id, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


CLOSED = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f1010000ed0303") + bytes(240),
    "negative size": struct.pack(">i", -1) + b"x",
    "most negative size": struct.pack(">i", -(1 << 31)) + b"x",
    "huge size": struct.pack(">i", (1 << 31) - 1) + b"x",
    "one byte above 100 MiB": struct.pack(">i", (100 << 20) + 1) + b"x",
    "empty frame": struct.pack(">i", 0),
    "short header": framed(b"\x00\x12\x00"),
    "unknown api": framed(head(1234, 0)),
    "negative api": framed(head(-1, 0)),
    "unknown version": framed(head(Api.METADATA, 99)),
    "negative version": framed(head(Api.METADATA, -1)),
    "body cut short": framed(head(Api.PRODUCE, 7) + b"\xff\xff\xff"),
    "array of two thousand million": framed(head(Api.METADATA, 1) + struct.pack(">i", (1 << 31) - 1)),
    "bytes behind the body": framed(head(Api.METADATA, 1) + struct.pack(">i", 0) + b"more"),
    "name that is not UTF-8": framed(head(Api.METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
}


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED.keys())
def test_what_no_client_may_send_ends_the_connection(port: int, data: bytes) -> None:
    with Wire(port) as wire:
        wire.say(data)
        assert wire.is_closed()


@pytest.mark.parametrize("size", [1, 3, 4, 10, 60])
def test_a_frame_that_ends_too_early_is_forgotten(port: int, size: int) -> None:
    with Wire(port) as wire:
        whole = b"".join(map(bytes, wire.end.send(produce_request(TOPIC, 0, b"half a record"), 9)))
        wire.say(whole[:size])
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()


def test_api_versions_of_the_future_are_answered_in_the_oldest_form(port: int) -> None:
    with Wire(port) as wire:
        wire.say(framed(head(Api.API_VERSIONS, 99)))
        wire.end.send(api_versions.ApiVersionsRequest(), 0)  # what the answer is taken for
        answer = framed_answer(wire)
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
        listed = {
            key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
        }
        assert len(answer) == 10 + 6 * count
        assert listed[Api.API_VERSIONS][0] == 0
        assert not {Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN} & set(
            listed
        )
        newest = listed[Api.API_VERSIONS][1]
    with Wire(port) as wire:
        assert wire.ask(api_versions.ApiVersionsRequest(), newest).error_code == ErrorCode.NONE


def framed_answer(wire: Wire) -> bytes:
    (size,) = struct.unpack(">i", wire._exactly(4))
    return wire._exactly(size)


INTERNAL: list[Any] = [
    control.LeaderAndIsrRequest,
    control.StopReplicaRequest,
    control.UpdateMetadataRequest,
    control.ControlledShutdownRequest,
]


@pytest.mark.parametrize("api", INTERNAL, ids=lambda api: api.__name__)
def test_brokers_matters_are_not_discussed_with_clients(port: int, api: Any) -> None:
    spec = spec_of(api)
    with Wire(port) as wire:
        wire.say(framed(head(spec.key, spec.versions[-1]) + bytes(64)))
        assert wire.is_closed()


def test_a_client_cannot_pass_for_a_follower(port: int) -> None:
    """Version 11 names the replica: accepted, a fetch from the end would move the high watermark."""
    request = fetch.FetchRequest(
        replica_id=1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            fetch.FetchTopic(
                topic=TOPIC,
                partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
            )
        ],
    )
    with Wire(port) as wire:
        try:
            response = wire.ask(request, 11)
        except ConnectionError:
            return
        errors = {p.error_code for topic in response.responses for p in topic.partitions}
        assert response.error_code or errors - {ErrorCode.NONE}, "closed, or refused"


BAD_NAMES = ["", ".", "..", "a/b", "../../etc/passwd", "/tmp/x", "x" * 250, "a b", "a\x00b", "ä"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_bad_topic_names_touch_nothing(cluster: LocalCluster, port: int, name: str) -> None:
    creation = topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5000
    )
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    with Wire(port) as wire:
        (created,) = wire.ask(creation, 4).topics
        assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (told,) = wire.ask(asked, 8).topics
        assert told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        error, _ = produced(wire.ask(produce_request(name, 0, b"x"), 9))
        assert error in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with Admin(cluster.bootstrap) as admin:
        assert admin.list_topics() == [TOPIC]


@pytest.mark.parametrize("partition", [-1, 1, (1 << 31) - 1])
def test_partitions_that_are_not_are_unknown(port: int, partition: int) -> None:
    with Wire(port) as wire:
        error, _ = produced(wire.ask(produce_request(TOPIC, partition, b"x"), 9))
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_damaged_batches_are_refused_and_not_kept(cluster: LocalCluster, port: int) -> None:
    log = next((cluster.brokers[1].directory / "data" / f"{TOPIC}-0").glob("*.log"))
    size = log.stat().st_size
    for at, code in ((17, ErrorCode.CORRUPT_MESSAGE), (60, ErrorCode.CORRUPT_MESSAGE)):
        request = produce_request(TOPIC, 0, b"damaged on the way")
        records = bytearray(request.topic_data[0].partition_data[0].records)
        records[at] ^= 0xFF
        request.topic_data[0].partition_data[0] = type(request.topic_data[0].partition_data[0])(
            index=0, records=bytes(records)
        )
        with Wire(port) as wire:
            assert produced(wire.ask(request, 9))[0] == code
    assert log.stat().st_size == size


def with_records(records: bytes | None, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=records)
    data = [TopicProduceData(name=TOPIC, partition_data=[part])]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data)


BATCH = produce_request(TOPIC, 0, b"one").topic_data[0].partition_data[0].records
REFUSED = {
    "acks=2": (with_records(BATCH, acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
    "no records": (with_records(None), ErrorCode.INVALID_RECORD),
    "empty records": (with_records(b""), ErrorCode.INVALID_RECORD),
    "two batches": (with_records(BATCH + BATCH), ErrorCode.INVALID_RECORD),
    "batch cut short": (with_records(BATCH[:-4]), ErrorCode.CORRUPT_MESSAGE),
    "half a header": (with_records(BATCH[:30]), ErrorCode.CORRUPT_MESSAGE),
    "old magic": (with_records(BATCH[:16] + b"\1" + BATCH[17:]), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("request_", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_what_may_not_be_appended_is_refused(
    cluster: LocalCluster, port: int, request_: ProduceRequest, code: ErrorCode
) -> None:
    log = next((cluster.brokers[1].directory / "data" / f"{TOPIC}-0").glob("*.log"))
    before = log.read_bytes()
    with Wire(port) as wire:
        assert produced(wire.ask(request_, 9))[0] == code
    assert log.read_bytes() == before


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_offsets_that_are_not_there_are_out_of_range(port: int, offset: int) -> None:
    part = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    request = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[fetch.FetchTopic(topic=TOPIC, partitions=[part])]
    )
    with Wire(port) as wire:
        ((answer,),) = (topic.partitions for topic in wire.ask(request, 11).responses)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (1_000_000_000, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_topics_are_refused(port: int, partitions: int, factor: int, code: ErrorCode) -> None:
    wanted = topics.CreatableTopic(name="impossible", num_partitions=partitions, replication_factor=factor)
    with Wire(port) as wire:
        (created,) = wire.ask(topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 4).topics
    assert created.error_code == code


def test_many_requests_without_reading_answers_are_served_in_order(port: int) -> None:
    """More than is kept in memory: the broker stops reading, and goes on when the client reads."""
    count = 3000
    with Wire(port, 30) as wire:
        request = metadata.MetadataRequest(topics=None)
        sent = 0
        wire.socket.settimeout(0.5)
        try:
            for _ in range(count):
                wire.send(request, 8)
                sent += 1
        except TimeoutError:
            pytest.fail("the kernel's buffers should hold these small requests")
        wire.socket.settimeout(30)
        for _ in range(sent):
            assert wire.receive().topics

"""Admin and the blocking clients against the cluster double; connections by themselves."""

import asyncio
import socket
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from strandline.base.tasks import Tasks
from strandline.client import (
    Admin,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    NewTopic,
    TopicAlreadyExists,
    TopicPartition,
    UnknownTopicOrPartition,
)
from strandline.client.config import ClientConfig
from strandline.client.network.cluster import Cluster
from strandline.client.network.connection import Connection, ConnectionLost, RequestExpired
from strandline.client.sync import Admin as BlockingAdmin
from strandline.client.sync import Consumer, Producer
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, RequestTimedOut
from strandline.protocol.messages import topics
from strandline.protocol.messages.group_admin import ListGroupsResponse
from strandline.protocol.messages.log_dirs import DescribeLogDirsResponse
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.transactions import ListTransactionsResponse
from tests.client.broker_harness import SWALLOW, Double
from tests.patience import HANG_S


def test_the_blocking_faces_do_the_same_and_leave_no_thread(servers: list[str]) -> None:
    before = threading.active_count()
    with BlockingAdmin(servers) as admin:
        admin.create_topic("t", 2)
        assert admin.list_topics() == ["t"]
    with Producer(servers, serializer="str") as producer:
        futures = [producer.send("t", f"{n}", partition=0) for n in range(10)]
        assert [future.result(HANG_S).offset for future in futures] == list(range(10))
        assert len(producer.send_many("t", ["x"] * 100, partition=1)) == 100
    with Consumer(servers, topics=["t"], auto_offset_reset="earliest", deserializer="str") as consumer:
        seen = [next(consumer) for _ in range(110)]
        assert sorted(one.value for one in seen if one.partition == 0) == [str(n) for n in range(10)]
        assert consumer.position(TopicPartition("t", 0)) == 10
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        producer.flush()


def test_a_record_that_is_queued_cannot_be_called_back(servers: list[str], caplog: Any) -> None:
    with BlockingAdmin(servers) as admin:
        admin.create_topic("t")
    with Producer(servers, linger_ms=100) as producer:
        receipt = producer.send("t", b"1")
        assert not receipt.cancel()
        assert receipt.result(HANG_S).offset == 0
    assert "InvalidStateError" not in caplog.text


def test_who_waits_for_a_receipt_hears_of_it_when_it_is_called_off_inside(
    servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(servers) as producer:

        def called_off(*record: Any, **options: Any) -> Any:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            return future

        monkeypatch.setattr(producer._inner, "send", called_off)
        with pytest.raises(CancelledError):
            producer.send("t", b"1").result(HANG_S)


def test_an_interrupt_amid_close_leaves_no_connection(
    servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(servers)
    opened = [connection for _, connection in producer._inner._cluster.links.all()]

    async def interrupted() -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(producer._inner, "flush", interrupted)
    with pytest.raises(CancelledError):
        producer.close()
    assert opened and all(connection.closed.done() for connection in opened)


def test_admin_creates_describes_and_deletes(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:
            made = await admin.create_topics([NewTopic("t", 3), "u"])
            assert [(one.name, one.partitions) for one in made.values()] == [("t", 3), ("u", 1)]
            assert made["t"].topic_id == (await admin.describe_topics(["t"]))[0].topic_id
            assert made["t"].configs == (
                ConfigEntry("retention.ms", "7", False, ConfigSource.DYNAMIC_TOPIC_CONFIG, False),
            )
            with pytest.raises(TopicAlreadyExists):
                await admin.create_topic("t")
            assert await admin.list_topics() == ["t", "u"]
            (topic,) = await admin.describe_topics(["t"])
            assert [one.leader for one in topic.partitions] == [1, 2, 1]
            assert len((await admin.describe_cluster()).brokers) == 2
            await admin.alter_group_offsets("g", {TopicPartition("t", 1): 4})
            assert (await admin.list_group_offsets("g"))[TopicPartition("t", 1)].offset == 4
            assert (await admin.list_offsets({TopicPartition("t", 1): -1}))[
                TopicPartition("t", 1)
            ].offset == 0
            await admin.delete_group_offsets("g", [TopicPartition("t", 1)])
            assert await admin.list_group_offsets("g") == {}
            with pytest.raises(UnknownTopicOrPartition, match="t-1"):
                await admin.delete_group_offsets("g", [TopicPartition("t", 1)])
            await admin.delete_topics(["u"])
            with pytest.raises(UnknownTopicOrPartition):
                await admin.describe_topics(["u"])

    run(story())


@pytest.mark.parametrize("what", ["list_groups", "list_transactions", "describe_log_dirs"])
def test_who_leaves_while_every_broker_is_asked_is_waited_for_no_longer(run: Any, what: str) -> None:
    """A listing right after a kill waited for the dead broker until its time was up: for a minute."""
    asked = asyncio.Event()

    async def story() -> None:
        async with Double(2) as double:

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api not in LISTINGS:
                    return None
                if broker.node == 2:
                    asked.set()
                    return LISTINGS[Api(api)](error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return LISTINGS[Api(api)]()

            double.hook = hook
            async with Admin(double.servers[0]) as admin:
                listing = asyncio.ensure_future(getattr(admin, what)())
                await asyncio.wait_for(asked.wait(), HANG_S)
                double.hidden.add(2)
                await asyncio.wait_for(listing, HANG_S)

    run(story())


LISTINGS: dict[Api, Any] = {
    Api.LIST_GROUPS: ListGroupsResponse,
    Api.LIST_TRANSACTIONS: ListTransactionsResponse,
    Api.DESCRIBE_LOG_DIRS: lambda error_code=0: DescribeLogDirsResponse(error_code=error_code, results=[]),
}


def _deleted(double: Double, broker: Any, request: topics.DeleteRecordsRequest) -> Any:
    told = []
    for topic in request.topics:
        parts = []
        for one in topic.partitions:
            found = double.find(broker, topic.name, one.partition_index)
            if isinstance(found, int):
                result = topics.DeleteRecordsPartitionResult(
                    partition_index=one.partition_index, error_code=found
                )
            else:
                found.start = max(found.start, found.end if one.offset < 0 else one.offset)
                result = topics.DeleteRecordsPartitionResult(
                    partition_index=one.partition_index, low_watermark=found.start
                )
            parts.append(result)
        told.append(topics.DeleteRecordsTopicResult(name=topic.name, partitions=parts))
    return topics.DeleteRecordsResponse(topics=told)


def test_records_are_deleted_by_the_leaders_of_their_partitions(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:
            await admin.create_topics([NewTopic("t", 3)])
            asked: list[tuple[int, list[int]]] = []

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.DELETE_RECORDS:
                    asked.append((broker.node, [one.partition_index for one in request.topics[0].partitions]))
                    if len(asked) == 1:  # leadership moves while the question is under way
                        double.topics["t"][1].leader, double.topics["t"][1].epoch = 1, 1
                    return _deleted(double, broker, request)
                return None

            double.hook = hook
            before = {TopicPartition("t", index): index for index in range(3)}
            assert await admin.delete_records(before) == before
            assert {(node, *partitions) for node, partitions in asked} == {(1, 0, 2), (1, 1), (2, 1)}
            assert [one.start for one in double.topics["t"]] == [0, 1, 2]
            with pytest.raises(UnknownTopicOrPartition):
                await admin.delete_records({TopicPartition("nope", 0): 1}, timeout_ms=300)

    run(story())


def test_a_creation_whose_answer_was_lost_counts(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            calls = 0

            async def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal calls
                calls += api == Api.CREATE_TOPICS
                if api == Api.CREATE_TOPICS and calls == 1:
                    double.topic("t")
                    for link in list(broker.links):
                        link.transport.abort()
                    return SWALLOW
                return None

            double.hook = hook
            assert await admin.create_topic("t") == CreatedTopic("t", None, -1, -1, None)

    run(story())


@pytest.mark.parametrize("patience_ms", [200, 1000])
def test_what_takes_too_long_at_the_controller_is_not_taken_for_a_broken_network(
    run: Any, patience_ms: int
) -> None:
    """A broker is dead for good, so a deletion cannot end; the controller says so when its time is over."""

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers, request_timeout_ms=400) as admin:
            await admin.create_topic("t")
            given: list[int] = []

            async def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.DELETE_TOPICS:
                    return None
                given.append(request.timeout_ms)
                await asyncio.sleep(request.timeout_ms / 1000)
                code, why = ErrorCode.REQUEST_TIMED_OUT, "started, but not completed in time"
                told = topics.DeletableTopicResult(name="t", error_code=code, error_message=why)
                return topics.DeleteTopicsResponse(responses=[told])

            double.hook = hook
            with pytest.raises(RequestTimedOut, match="started, but not completed in time"):
                await admin.delete_topics(["t"], timeout_ms=patience_ms)
            assert given[0] < min(patience_ms, 400), "the answer must be here before we stop waiting for it"
            assert given == sorted(given, reverse=True)

    run(story())


def test_a_last_attempt_that_is_cut_short_does_not_hide_what_the_controller_said(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            calls = 0

            async def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal calls
                calls += api == Api.CREATE_TOPICS
                if api != Api.CREATE_TOPICS:
                    return None
                if calls > 1:
                    return SWALLOW
                told = topics.CreatableTopicResult(name="t", error_code=ErrorCode.REQUEST_TIMED_OUT)
                return topics.CreateTopicsResponse(topics=[told])

            double.hook = hook
            with pytest.raises(RequestTimedOut):
                await admin.create_topics(["t"], timeout_ms=1500)
            assert calls > 1

    run(story())


def test_who_asks_for_metadata_while_an_answer_is_under_way_gets_the_next_one(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("late", 1)
            asked, go_on = asyncio.Event(), asyncio.Event()

            async def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.METADATA and not asked.is_set():
                    asked.set()
                    await go_on.wait()
                return None

            double.hook = hook
            admin._cluster.refresh_soon()
            await asyncio.wait_for(asked.wait(), HANG_S)
            waiting = asyncio.ensure_future(admin.list_offsets({TopicPartition("late", 0): -1}))
            await asyncio.sleep(0)
            go_on.set()
            assert TopicPartition("late", 0) in await asyncio.wait_for(waiting, HANG_S)

    run(story())


def test_what_is_given_up_does_not_arrive_later(run: Any) -> None:
    """The connection is reset: what the system has not delivered yet is dropped with it."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        class Peer(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                ended.set_result(exc)

        server = await loop.create_server(Peer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened = await Connection.open("127.0.0.1", port, deadline=loop.time() + HANG_S, versions={})
        opened.give_up("another broker leads")
        assert isinstance(await asyncio.wait_for(ended, HANG_S), ConnectionResetError)
        opened.give_up("it has ended already")
        server.close()
        await server.wait_closed()

    run(story())


def test_no_request_is_left_hanging(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            loop = asyncio.get_running_loop()
            lost: list[Connection] = []
            port = double.brokers[1].port
            opened = await Connection.open(
                "127.0.0.1", port, deadline=loop.time() + HANG_S, on_lost=lost.append
            )
            double.brokers[1].stopped = True
            soon = opened.submit(MetadataRequest(), deadline=loop.time() + 0.1)
            late = opened.submit(MetadataRequest(), deadline=loop.time() + 60)
            for future in (soon, late):
                with pytest.raises(RequestExpired):
                    await asyncio.wait_for(future, 20)
            assert lost == [opened] and opened.is_lost
            with pytest.raises(ConnectionLost):
                await opened.request(MetadataRequest(), deadline=loop.time() + HANG_S)
            await opened.close()
            with pytest.raises(TimeoutError):
                await Connection.open("127.0.0.1", port, deadline=loop.time() + 0.1)
            double.kill(1)
            with pytest.raises(OSError):
                await Connection.open("127.0.0.1", port, deadline=loop.time() + HANG_S)

    run(story())


def test_a_host_that_vanishes_is_noticed_while_an_answer_may_take_long(run: Any) -> None:
    """The kernel asks after 10 s of silence, three times: a member that waits to join a group hears of it."""

    async def story() -> None:
        async with Double(1) as double:
            address = double.servers[0].partition(":")
            deadline = asyncio.get_running_loop().time() + HANG_S
            connection = await Connection.open(address[0], int(address[2]), deadline=deadline)
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, interval, count = (sock.getsockopt(socket.IPPROTO_TCP, each) for each in options)
            assert idle + interval * count <= 30
            await connection.close()

    run(story())


def test_tasks_raise_what_failed_when_they_stop(run: Any) -> None:
    async def story() -> None:
        seen: list[BaseException] = []
        tasks = Tasks("test", seen.append)

        async def fail() -> None:
            raise KeyError("x")

        tasks.spawn(fail(), "fail")
        waiting = tasks.spawn(asyncio.sleep(60), "wait")
        await asyncio.sleep(0.01)
        assert len(tasks) == 1 and isinstance(seen[0], KeyError)
        with pytest.raises(KeyError):
            await tasks.stop()
        assert waiting.cancelled()

    run(story())


def test_importing_the_client_is_light() -> None:
    code = "import sys, strandline.client.sync; print({'numpy', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_dial_under_way_does_not_outlive_the_client(run: Any) -> None:
    """While one connection takes its time to close, another must not come to be behind the client's back."""

    async def story() -> None:
        agreed = asyncio.Event()

        async def late(broker: Any) -> None:
            await agreed.wait()

        async with Double(2) as double:
            slow, dialled = double.brokers[1], double.brokers[2]
            double.hook = lambda broker, api, request: (
                late(broker) if broker is dialled and api == Api.API_VERSIONS else None
            )
            cluster = Cluster(ClientConfig(bootstrap_servers=double.servers[:1]))
            await cluster.start()
            cluster.links.dial(("127.0.0.1", dialled.port), "main")
            while not dialled.requests:
                await asyncio.sleep(0.001)
            (link,) = slow.links
            link.transport.pause_reading()
            connection = cluster.links.ready(("127.0.0.1", slow.port), "main")
            assert connection is not None
            connection.submit(unanswered(32 << 20), deadline=cluster.deadline())
            asyncio.get_running_loop().call_later(0.02, agreed.set)
            await cluster.stop()
            agreed.set()
            async with asyncio.timeout(20):
                while dialled.links:
                    await asyncio.sleep(0.001)

    run(story())


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_a_broker_does_not_take_keeps_no_connection_open(run: Any, cancelled: bool) -> None:
    """One that hangs reads nothing, and the system would go on trying for as long as its machine stands."""

    async def story() -> None:
        async with Double(1) as double, asyncio.timeout(HANG_S):
            (address,) = double.servers
            cluster = Cluster(ClientConfig(bootstrap_servers=[address]))
            await cluster.start()
            (link,) = double.brokers[1].links
            link.transport.pause_reading()
            ((_, connection),) = cluster.links.all()
            connection.submit(unanswered(32 << 20), deadline=cluster.deadline())
            closing = asyncio.ensure_future(cluster.stop())
            while cancelled and not connection.is_lost:
                await asyncio.sleep(0)
            if cancelled:
                closing.cancel()
            await asyncio.wait([closing])
            await connection.closed
            assert double.brokers[1].links == {link}, "it has not even noticed"

    run(story())


def unanswered(size: int) -> ProduceRequest:
    """A request with acks=0 that fills every buffer on its way."""
    data = PartitionProduceData(index=0, records=bytes(size))
    return ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )

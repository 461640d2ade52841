"""A whole broker against a real ZooKeeper: started, written to, stopped, started again."""

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.clock import SystemClock
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.errors import BrokenInvariant, StartFailed
from strandline.broker.node import Node, build
from strandline.broker.registration import disconnect
from strandline.broker.zookeeper_sessions import ZkSessions
from strandline.client.admin.admin import Admin
from strandline.client.consumer.consumer import Consumer
from strandline.client.producer.producer import Producer
from strandline.storage.directories.incarnation import CLEAN_MARKER
from strandline.storage.disk import RealDisk
from strandline.zookeeper.client import ZkClient
from tests.patience import HANG_S
from tests.sessions import end_session


@pytest.fixture
def chroot(zookeeper: str, request: pytest.FixtureRequest) -> str:
    """A corner of ZooKeeper for one test."""
    return f"{zookeeper}/{request.node.name}"


def config(chroot: str, directory: Path, broker_id: int = 1, **changes: Any) -> BrokerConfig:
    values = {
        "broker_id": broker_id,
        "log_dirs": str(directory / f"broker-{broker_id}"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "zookeeper": {"connect": chroot, "session_timeout_ms": 4000, "connection_timeout_ms": 5000},
        "groups": {"offsets_partitions": 2, "offsets_replication_factor": 1, "initial_rebalance_delay_ms": 0},
        "controlled_shutdown_retry_backoff_ms": 200,
    }
    return BrokerConfig.model_validate(values | changes)


def node(settings: BrokerConfig, boot_id: str = "boot") -> Node:
    return build(settings, RealDisk(), ZkSessions(settings).new, SystemClock(), Random(), boot_id)


@asynccontextmanager
async def running(settings: BrokerConfig, boot_id: str = "boot") -> AsyncIterator[Node]:
    made = node(settings, boot_id)
    await made.start()
    try:
        async with asyncio.timeout(HANG_S):
            while not made.is_ready:
                await asyncio.sleep(0.01)
        yield made
    finally:
        await made.stop()


def address(made: Node) -> str:
    return f"127.0.0.1:{made.ports['PLAINTEXT']}"


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 40))


def test_what_was_acknowledged_is_there_after_a_restart(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        settings = config(chroot, tmp_path)
        async with running(settings) as first, Producer(address(first)) as producer:
            receipt = await producer.send("events", b"one", key="k")
            assert receipt.offset == 0
        marker = tmp_path / "broker-1" / CLEAN_MARKER
        assert marker.exists()
        async with running(settings, boot_id="the machine rebooted") as second:
            assert not marker.exists()
            assert second.broker.incarnation == 2
            async with Producer(address(second)) as producer:
                assert (await producer.send("events", b"two", key="k")).offset == 1
            consumer = Consumer(address(second), topics=["events"], group="g", auto_offset_reset="earliest")
            async with consumer:
                read = [(await anext(aiter(consumer))).value for _ in range(2)]
            assert read == [b"one", b"two"]

    run(story())


def test_a_broker_that_stops_hands_its_leadership_over(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with running(config(chroot, tmp_path, 1)) as one, running(config(chroot, tmp_path, 2)) as two:
            async with Admin(f"{address(one)},{address(two)}") as admin:
                await admin.create_topic("t", partitions=4, replication_factor=2)
            async with asyncio.timeout(HANG_S):
                while not all("t" in n.broker.metadata.topics for n in (one, two)):
                    await asyncio.sleep(0.01)
            await two.stop()
            led = {p.leader for p in one.broker.metadata.topics["t"].partitions.values()}
            assert led == {1}
            async with Producer(address(one), acks="all") as producer:
                await producer.send("t", b"still", key="k")

    run(story())


def test_what_cannot_be_true_ends_the_broker_without_a_clean_marker(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        made = node(config(chroot, tmp_path))
        await made.start()
        waiting = asyncio.ensure_future(made.run_until(asyncio.Event()))
        made.fail(AssertionError("two leaders"))
        with pytest.raises(BrokenInvariant, match="AssertionError: two leaders"):
            await waiting
        await made.stop()
        assert not (tmp_path / "broker-1" / CLEAN_MARKER).exists()

    run(story())


def test_a_start_that_fails_leaves_nothing_behind(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = config(chroot, tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")
            with pytest.raises(StartFailed, match=f"127.0.0.1:{port} is in use"):
                await node(settings).start()
        async with running(settings) as made:
            assert made.broker.incarnation == 1

    run(story())


def test_after_its_session_has_ended_a_broker_is_back_one_incarnation_later(
    chroot: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with running(config(chroot, tmp_path)) as made, Producer(address(made)) as producer:
            await producer.send("events", b"before", key="k")
            session = made.incarnations.previous_session()  # what it has written down for its successor
            assert session is not None
            await asyncio.to_thread(end_session, chroot.partition("/")[0], session.client_id)
            async with asyncio.timeout(HANG_S):
                while made.broker.incarnation != 2 or not made.broker.controller.active:
                    await asyncio.sleep(0.02)
            assert (await producer.send("events", b"after", key="k")).offset == 1
            assert made.broker.incarnation == 2

    run(story())


def test_a_session_that_was_ended_is_forgotten_and_one_that_may_live_is_not(
    chroot: str, tmp_path: Path
) -> None:
    """A start that looks for a session first connects to ZooKeeper twice."""

    async def story() -> None:
        async with running(config(chroot, tmp_path)) as made:
            kept = made.incarnations
            assert kept.previous_session() is not None
        assert kept.previous_session() is None
        kept.save_session(7, b"secret")
        for connected in (False, True):
            closed: list[bool] = []

            async def close(closed: list[bool] = closed) -> None:
                closed.append(True)

            zk = cast(ZkClient, SimpleNamespace(connected=connected, close=close))
            await disconnect(zk, kept)
            assert closed and (kept.previous_session() is None) is connected

    run(story())


def test_a_reign_is_over_before_the_new_session_registers() -> None:
    """Damage found in a replica ends no controller term: only the loss of a session does."""
    said: list[object] = []

    async def over() -> None:
        await asyncio.sleep(0)
        said.append("over")

    async def register_again(doubts: Collection[str]) -> None:
        said.append(sorted(doubts))

    node: Any = SimpleNamespace(
        broker=SimpleNamespace(controller=SimpleNamespace(over=over)),
        _parts=SimpleNamespace(shared=SimpleNamespace(incarnation=1)),
        _registration=SimpleNamespace(register_again=register_again, incarnation=2),
    )
    asyncio.run(Node._register_again(node))
    assert said == ["over", []] and node._parts.shared.incarnation == 2
    said.clear()
    asyncio.run(Node._register_again(node, {"t-0"}))  # type: ignore[arg-type]
    assert said == [["t-0"]]

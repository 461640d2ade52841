"""How a broker claims its id, proves what it holds, and is refused in one sentence; with a real ZooKeeper."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.broker.config import BrokerConfig
from strandline.broker.registration import Registration, connect, lock_directories
from strandline.broker.registries import Registries
from strandline.broker.trouble import StartFailed
from strandline.client.clock import SystemClock
from strandline.controller import documents, znodes
from strandline.controller.registry import Registry
from strandline.storage.disk import RealDisk
from strandline.storage.incarnation import Incarnations

Check = Callable[["Started"], Awaitable[None]]


class Started:
    """A broker as far as its registration."""

    def __init__(self, config: BrokerConfig, incarnations: Incarnations, registry: Registry) -> None:
        self.config = config
        self.incarnations = incarnations
        self.registry = registry
        self.registration = Registration(config, incarnations, registry, SystemClock(), Random())

    async def registered(self) -> documents.Registration:
        data, _ = await self.registry.get(documents.broker_path(self.config.broker_id))
        return documents.parse(documents.Registration, data)


@pytest.fixture
def chroot(zookeeper: str, request: pytest.FixtureRequest) -> str:
    """A corner of ZooKeeper that does not exist yet."""
    return f"{zookeeper}/registration/{request.node.name}"


def config(chroot: str, directory: Path, broker_id: int = 1, **changes: Any) -> BrokerConfig:
    values = {
        "broker_id": broker_id,
        "log_dirs": f"{directory}/a,{directory}/b",
        "zookeeper": {"connect": chroot, "session_timeout_ms": 4000, "connection_timeout_ms": 3000},
    }
    return BrokerConfig.model_validate(values | changes)


async def start(settings: BrokerConfig, boot_id: str = "boot") -> Started:
    for directory in settings.directories:
        Path(directory).parent.mkdir(parents=True, exist_ok=True)
    incarnations = lock_directories(settings, RealDisk(), boot_id)
    try:
        registry = await connect(settings, Registries(settings).new, incarnations)
    except StartFailed:
        incarnations.release()
        raise
    try:
        started = Started(settings, incarnations, registry)
        await started.registration.identify()
        started.registration.open_logs(RealDisk(), SystemClock()).close()
        await started.registration.register(settings.advertised({"PLAINTEXT": 9092}))
    except StartFailed:
        await registry.close()
        incarnations.release()
        raise
    return started


async def end(started: Started, clean: bool = True) -> None:
    if clean:
        started.incarnations.mark_clean()
        await started.registry.close()
    started.incarnations.release()


def run(story: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story, 30)

    asyncio.run(bounded())


def test_each_start_is_an_incarnation(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path))
        found = await first.registered()
        assert (found.incarnation, found.intact_since) == (1, 1), "a first start has nothing to prove with"
        assert found.endpoints == ["PLAINTEXT://127.0.0.1:9092"]
        await end(first)
        second = await start(config(chroot, tmp_path), boot_id="another boot")
        found = await second.registered()
        assert (found.incarnation, found.intact_since) == (2, 1), "it was stopped cleanly"
        await end(second)

    run(story())


def test_a_killed_predecessor_is_followed_at_once(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        killed = await start(config(chroot, tmp_path))
        await end(killed, clean=False)  # its session stays behind, as after SIGKILL
        began = asyncio.get_running_loop().time()
        follower = await start(config(chroot, tmp_path))
        assert asyncio.get_running_loop().time() - began < 2, "the session was ended, not waited for"
        found = await follower.registered()
        assert (found.incarnation, found.intact_since) == (2, 1), "the same boot: the page cache holds all"
        await end(follower)
        await killed.registry.close()

    run(story())


def test_after_a_loss_of_power_nothing_is_claimed(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        killed = await start(config(chroot, tmp_path))
        await end(killed, clean=False)
        follower = await start(config(chroot, tmp_path), boot_id="another boot")
        found = await follower.registered()
        assert (found.incarnation, found.intact_since) == (2, 2)
        await end(follower)
        await killed.registry.close()

    run(story())


def test_a_second_broker_of_the_same_id_is_refused(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path / "first"))
        quick = {"connect": chroot, "session_timeout_ms": 500, "connection_timeout_ms": 3000}
        with pytest.raises(StartFailed, match=r"broker.id 1 is registered by another running broker; stop"):
            await start(config(chroot, tmp_path / "second", zookeeper=quick))
        assert (await first.registered()).incarnation == 1
        await end(first)

    run(story())


def test_a_directory_in_use_is_refused(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path))
        with pytest.raises(StartFailed, match="is locked by another running broker; stop that one"):
            await start(config(chroot, tmp_path, broker_id=2))
        await end(first)

    run(story())


def test_the_directory_of_another_broker_or_cluster_is_refused(
    chroot: str, tmp_path: Path, zookeeper: str
) -> None:
    async def story() -> None:
        await end(await start(config(chroot, tmp_path)))
        with pytest.raises(StartFailed, match=r"broker.id=1, this broker has 2; give this broker"):
            await start(config(chroot, tmp_path, broker_id=2))
        with pytest.raises(StartFailed, match=r"cluster.id="):
            await start(config(f"{chroot}-other", tmp_path))

    run(story())


def test_without_zookeeper_the_start_ends_with_the_remedy(tmp_path: Path) -> None:
    async def story() -> None:
        nowhere = {"connect": "127.0.0.1:9", "session_timeout_ms": 500, "connection_timeout_ms": 300}
        with pytest.raises(
            StartFailed, match=r"ZooKeeper at 127.0.0.1:9 did not answer; start it or correct"
        ):
            await start(config("", tmp_path, zookeeper=nowhere))

    run(story())


def test_a_new_session_is_a_new_incarnation_with_the_same_data(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        started = await start(config(chroot, tmp_path))
        await end(started)
        started = await start(config(chroot, tmp_path))
        await znodes.delete_if_present(started.registry, documents.broker_path(1))  # as the expiry does
        started.registry._generation += 1  # and so does this
        await asyncio.gather(started.registration.register_again(), started.registration.register_again())
        found = await started.registered()
        assert (found.incarnation, found.intact_since) == (3, 1)
        assert started.registration.incarnation == 3
        await end(started)

    run(story())

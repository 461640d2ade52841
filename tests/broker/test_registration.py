"""How a broker claims its id, proves what it holds, and is refused in one sentence; with a real ZooKeeper."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.base.clock import SystemClock
from strandline.base.types import TopicPartition
from strandline.broker.config.addresses import ListenerAddress
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.errors import StartFailed
from strandline.broker.registration import Registration, connect, lock_directories, patiently
from strandline.broker.zookeeper_sessions import ZkSessions
from strandline.storage.directories.incarnation import Incarnations
from strandline.storage.disk import RealDisk
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import SetData, Unknown, ZkClient, ZkError
from tests.patience import HANG_S
from tests.storage.faulty_disk import FaultyDisk

PARTITION = TopicPartition("t", 0)
Check = Callable[["Started"], Awaitable[None]]


class Started:
    """A broker as far as its registration."""

    def __init__(self, config: BrokerConfig, incarnations: Incarnations, zk: ZkClient) -> None:
        self.config = config
        self.incarnations = incarnations
        self.zk = zk
        self.begun = -1
        self.registration = Registration(config, incarnations, zk, SystemClock(), Random(), self.begin)

    async def begin(self, incarnation: int) -> None:
        self.begun = incarnation

    async def registered(self) -> documents.RegistrationDocument:
        data, _ = await self.zk.get(documents.broker_path(self.config.broker_id))
        return documents.parse(documents.RegistrationDocument, data)


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
        zk = await connect(settings, ZkSessions(settings).new, incarnations)
    except StartFailed:
        incarnations.release()
        raise
    try:
        started = Started(settings, incarnations, zk)
        await started.registration.identify()
        started.registration.open_logs(RealDisk(), SystemClock()).close()
        await started.registration.register(settings.advertised({"PLAINTEXT": 9092}))
    except StartFailed:
        await zk.close()
        incarnations.release()
        raise
    return started


async def end(started: Started, clean: bool = True) -> None:
    if clean:
        started.incarnations.mark_clean()
        await started.zk.close()
    started.incarnations.release()


def run(story: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story, 2 * HANG_S)

    asyncio.run(bounded())


def test_each_start_is_an_incarnation(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path))
        found = await first.registered()
        assert (found.incarnation, found.intact_since) == (1, 1), "a first start has nothing to prove with"
        assert found.endpoints == ["PLAINTEXT://127.0.0.1:9092"]
        await end(first)
        second = await start(config(chroot, tmp_path), boot_id="the machine rebooted")
        found = await second.registered()
        assert (found.incarnation, found.intact_since) == (2, 1), "it was stopped cleanly"
        await end(second)

    run(story())


def test_a_killed_predecessor_is_followed_at_once(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        lasting = {"connect": chroot, "session_timeout_ms": 40_000, "connection_timeout_ms": 30_000}
        killed = await start(config(chroot, tmp_path, zookeeper=lasting))
        await end(killed, clean=False)  # its session stays behind, as after SIGKILL
        began = asyncio.get_running_loop().time()
        follower = await start(config(chroot, tmp_path, zookeeper=lasting))
        assert asyncio.get_running_loop().time() - began < HANG_S, "the session was ended, not waited for"
        found = await follower.registered()
        assert (found.incarnation, found.intact_since) == (2, 1), "the same boot: the page cache holds all"
        await end(follower)
        await killed.zk.close()

    run(story())


def test_after_a_loss_of_power_nothing_is_claimed(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        killed = await start(config(chroot, tmp_path))
        await end(killed, clean=False)
        follower = await start(config(chroot, tmp_path), boot_id="the machine rebooted")
        found = await follower.registered()
        assert (found.incarnation, found.intact_since) == (2, 2)
        await end(follower)
        await killed.zk.close()

    run(story())


def test_a_second_broker_of_the_same_id_is_refused(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path / "first"))
        quick = {"connect": chroot, "session_timeout_ms": 500, "connection_timeout_ms": 3000}
        with pytest.raises(StartFailed, match=r"broker.id 1 is registered by another running broker: stop"):
            await start(config(chroot, tmp_path / "second", zookeeper=quick))
        assert (await first.registered()).incarnation == 1
        await end(first)

    run(story())


def test_only_what_joined_in_an_earlier_start_is_vouched_for(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path))
        assert not any(first.registration.vouches(PARTITION, joined) for joined in (-1, 0, 1))
        await end(first)
        again = await start(config(chroot, tmp_path))
        assert again.registration.vouches(PARTITION, 1)
        assert not again.registration.vouches(PARTITION, -1)
        assert not again.registration.vouches(PARTITION, 2), "it may have no log yet"
        again.incarnations.note_doubt(PARTITION)
        await end(again)
        doubtful = await start(config(chroot, tmp_path))
        assert not doubtful.registration.vouches(PARTITION, 1)
        assert doubtful.registration.vouches(TopicPartition("other", 0), 1)
        await end(doubtful)

    run(story())


def test_a_start_that_meets_a_failed_disk_leaves_nothing_to_vouch_for(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, log_dirs=f"{tmp_path}/a")

    async def story() -> None:
        first = await start(settings)
        await end(first)
        incarnations = lock_directories(settings, RealDisk(), "boot")
        zk = await connect(settings, ZkSessions(settings).new, incarnations)
        failing = Started(settings, incarnations, zk)
        await failing.registration.identify()
        disk = FaultyDisk()
        disk.fail("listdir", f"{tmp_path}/a")
        with pytest.raises(StartFailed, match=r"cannot open the logs: .*(Input/output|Errno 5)"):
            failing.registration.open_logs(disk, SystemClock())
        await zk.close()
        incarnations.release()
        again = await start(settings)
        assert (await again.registered()).intact_since == 2, "the disk may have given back other data"
        await end(again)

    run(story())


def test_a_directory_in_use_is_refused(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path))
        with pytest.raises(
            StartFailed,
            match=r"is locked by another running broker \(.*/\.lock is held by another process\): stop it",
        ):
            await start(config(chroot, tmp_path, broker_id=2))
        await end(first)

    run(story())


def test_the_directory_of_another_broker_or_cluster_is_refused(
    chroot: str, tmp_path: Path, zookeeper: str
) -> None:
    async def story() -> None:
        await end(await start(config(chroot, tmp_path)))
        with pytest.raises(StartFailed, match=r"broker.id=1, this broker has 2: give this broker"):
            await start(config(chroot, tmp_path, broker_id=2))
        with pytest.raises(StartFailed, match=r"cluster.id="):
            await start(config(f"{chroot}-other", tmp_path))

    run(story())


def test_without_zookeeper_the_start_ends_with_the_remedy(tmp_path: Path) -> None:
    async def story() -> None:
        nowhere = {"connect": "127.0.0.1:9", "session_timeout_ms": 500, "connection_timeout_ms": 300}
        with pytest.raises(
            StartFailed,
            match=r"ZooKeeper at 127.0.0.1:9 did not answer within zookeeper.connection.timeout.ms = 300",
        ):
            await start(config("", tmp_path, zookeeper=nowhere))

    run(story())


def test_a_start_asks_again_while_zookeeper_gives_no_answer(tmp_path: Path) -> None:
    """A short cut of the network in the middle of a start is no reason to give up."""
    settings = config("", tmp_path, zookeeper={"connect": "127.0.0.1:1", "connection_timeout_ms": 300})
    answers: list[ZkError | str] = [Unknown("no answer in time"), Unknown("no answer in time"), "there"]

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, ZkError):
            raise answer
        return answer

    async def story() -> None:
        assert await patiently(settings, ask) == "there"
        answers[:] = [ZkError("refused")]
        with pytest.raises(ZkError, match="refused"):
            await patiently(settings, ask)
        answers[:] = [Unknown("no answer in time")] * 1000
        with pytest.raises(Unknown):
            await patiently(settings, ask)
        assert 0 < len(answers) < 999

    run(story())


def test_a_new_session_is_a_new_incarnation_with_the_same_data(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        started = await start(config(chroot, tmp_path))
        await end(started)
        started = await start(config(chroot, tmp_path))
        await znodes.delete_if_present(started.zk, documents.broker_path(1))  # as the expiry does
        started.zk._generation += 1  # and so does this
        await asyncio.gather(started.registration.register_again(), started.registration.register_again())
        found = await started.registered()
        assert (found.incarnation, found.intact_since) == (3, 1)
        assert started.registration.incarnation == 3
        await end(started)

    run(story())


def test_damage_found_while_running_is_registered_one_incarnation_later(chroot: str, tmp_path: Path) -> None:
    """A controller that is elected later must not take the replica for what it was when it joined the ISR."""

    async def story() -> None:
        started = await start(config(chroot, tmp_path))
        started.incarnations.note_doubt(PARTITION)
        await started.registration.register_again({PARTITION})
        found = await started.registered()
        assert (found.incarnation, found.intact_since) == (2, 1), "all else is what it was"
        assert found.intact_since_of == {"t-0": 2}
        assert started.begun == 2
        await started.registration.register_again({TopicPartition("t", 1)})
        assert (await started.registered()).intact_since_of == {"t-0": 2, "t-1": 3}
        many = {TopicPartition("u", number) for number in range(99)}
        await started.registration.register_again(many)
        found = await started.registered()
        assert (found.incarnation, found.intact_since, found.intact_since_of) == (4, 4, {})
        await end(started)
        started = await start(config(chroot, tmp_path))
        found = await started.registered()
        assert found.intact_since_of.get("t-0", found.intact_since) >= 4
        await end(started)

    run(story())


ELSEWHERE = (ListenerAddress("PLAINTEXT", "kafka.example", 19092),)


def test_other_addresses_are_those_of_the_same_start(chroot: str, tmp_path: Path) -> None:
    """Its incarnation and what it vouches for stay. What is the same is not written again."""

    async def story() -> None:
        started = await start(config(chroot, tmp_path))
        registration, path = started.registration, documents.broker_path(1)
        before = await started.registered()
        await registration.move(started.config.advertised({"PLAINTEXT": 9092}))
        assert (await started.zk.get(path))[1].version == 0
        await asyncio.gather(registration.move(ELSEWHERE), registration.leave())
        found = await started.registered()
        assert (found.endpoints, found.host, found.port) == (
            ["PLAINTEXT://kafka.example:19092"], "kafka.example", 19092,
        )  # fmt: skip
        assert found == before.model_copy(
            update={
                "endpoints": found.endpoints, "host": found.host, "port": found.port, "leaving": True,
            }
        )  # fmt: skip
        assert registration.incarnation == started.begun == 1
        await end(started)

    run(story())


def test_addresses_that_change_between_two_sessions_are_in_the_next_registration(
    chroot: str, tmp_path: Path
) -> None:
    async def story() -> None:
        started = await start(config(chroot, tmp_path))
        await znodes.delete_if_present(started.zk, documents.broker_path(1))  # as the expiry does
        await started.registration.move(ELSEWHERE)  # before we know of that
        started.zk._generation += 1
        await started.registration.move(started.config.advertised({"PLAINTEXT": 9092}))  # and after it
        await started.registration.move(ELSEWHERE)
        await started.registration.register_again()
        found = await started.registered()
        assert (found.endpoints, found.incarnation) == (["PLAINTEXT://kafka.example:19092"], 2)
        await end(started)

    run(story())


UNDER_39 = {"semantics_profile": "3.9"}


def quickly(chroot: str) -> dict[str, Any]:
    """A session short enough for a test to wait for its end."""
    return {"zookeeper": {"connect": chroot, "session_timeout_ms": 1000, "connection_timeout_ms": 3000}}


async def agreed(started: Started) -> str | None:
    data, _ = await started.zk.get(documents.CLUSTER_ID)
    return documents.parse(documents.ClusterIdDocument, data).profile


def test_a_broker_under_another_profile_is_refused_and_changes_nothing(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path / "first"))
        said = (
            r"^strandline.semantics.profile = 3.9, but broker 1 runs under strandline, and all brokers of a "
            r"cluster must have the same profile: start this one with strandline, or stop all of them and"
        )
        second = config(chroot, tmp_path / "second", 2, **quickly(chroot), **UNDER_39)
        with pytest.raises(StartFailed, match=said):
            await start(second)
        assert not (tmp_path / "second" / "a" / "meta.properties").exists(), "nothing has been claimed"
        assert await agreed(first) == (await first.registered()).profile == "strandline"
        assert await first.zk.children(documents.BROKER_IDS) == ["1"]
        third = await start(config(chroot, tmp_path / "third", 3))
        await end(first)
        await end(third)

    run(story())


def test_a_stopped_cluster_may_change_its_profile(chroot: str, tmp_path: Path) -> None:
    """Killed brokers count as registered until their sessions end: that is waited for."""

    async def story() -> None:
        killed = await start(config(chroot, tmp_path / "first", **quickly(chroot)))
        killed.incarnations.release()
        ending = asyncio.ensure_future(asyncio.sleep(0.5))
        ending.add_done_callback(lambda _: asyncio.ensure_future(killed.zk.close()))
        second = await start(config(chroot, tmp_path / "second", 2, **quickly(chroot), **UNDER_39))
        assert ending.done() and await agreed(second) == "3.9"
        with pytest.raises(StartFailed, match=r"profile = strandline, but broker 2 runs under 3\.9"):
            await start(config(chroot, tmp_path / "first", **quickly(chroot)))
        first = await start(config(chroot, tmp_path / "first", **UNDER_39))
        assert first.registration.cluster_id == second.registration.cluster_id
        await end(first)
        await end(second)

    run(story())


def test_of_two_that_start_at_once_the_later_one_is_refused(chroot: str, tmp_path: Path) -> None:
    """The first has read which profile holds, and opens its logs; meanwhile another changes it."""

    async def story() -> None:
        settings = config(chroot, tmp_path / "first", **quickly(chroot))
        Path(settings.directories[0]).parent.mkdir(parents=True)
        incarnations = lock_directories(settings, RealDisk(), "boot")
        zk = await connect(settings, ZkSessions(settings).new, incarnations)
        slow = Started(settings, incarnations, zk)
        await slow.registration.identify()
        slow.registration.open_logs(RealDisk(), SystemClock()).close()
        quick = await start(config(chroot, tmp_path / "second", 2, **UNDER_39))
        with pytest.raises(StartFailed, match=r"profile = strandline, but broker 2 runs under 3\.9"):
            await slow.registration.register(settings.advertised({"PLAINTEXT": 9092}))
        assert await zk.children(documents.BROKER_IDS) == ["2"]
        await end(quick)
        await slow.registration.register(settings.advertised({"PLAINTEXT": 9092}))
        assert await agreed(slow) == (await slow.registered()).profile == "strandline"
        await end(slow)

    run(story())


def test_whoever_names_no_profile_is_not_held_to_one(chroot: str, tmp_path: Path) -> None:
    """A broker of an earlier version, in a cluster that it has made."""

    async def story() -> None:
        first = await start(config(chroot, tmp_path / "first"))
        for path, kind in (
            (documents.CLUSTER_ID, documents.ClusterIdDocument),
            (documents.broker_path(1), documents.RegistrationDocument),
        ):
            data, stat = await first.zk.get(path)
            without = documents.parse(kind, data).model_copy(update={"profile": None})
            await first.zk.multi([SetData(path, without.data(), stat.version)])
        second = await start(config(chroot, tmp_path / "second", 2, **UNDER_39))
        assert await agreed(second) == "3.9"
        await end(first)
        await end(second)

    run(story())


def test_a_new_session_holds_to_the_profile_too(chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        first = await start(config(chroot, tmp_path / "first", **quickly(chroot)))
        mine = documents.broker_path(1)
        await znodes.delete_if_present(first.zk, mine)  # as if its session had ended
        second = await start(config(chroot, tmp_path / "second", 2, **UNDER_39))
        first.registration._registered_in = -1
        with pytest.raises(StartFailed, match=r"but broker 2 runs under 3\.9"):
            await first.registration.register_again()
        await end(second)
        await first.registration.register_again()
        assert await agreed(first) == "strandline" and (await first.registered()).incarnation == 2
        await end(first)

    run(story())

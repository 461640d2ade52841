"""A real ZooKeeper behind `ZkClient`: results of a multi, watches, lost answers, lost sessions."""

import asyncio
import time
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionHandler
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from strandline.local.processes import machine_is_slower
from strandline.zookeeper.client import (
    TOGETHER_MAX,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotReached,
    SessionEvent,
    SessionState,
    SetData,
    Stat,
    Unknown,
    ZkUnreachable,
)
from strandline.zookeeper.kazoo_client import KazooZkClient
from tests.patience import HANG_S


async def test_a_multi_tells_every_result(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as zk:
        made = await zk.multi([Create("/a", b"1"), SetData("/a", b"2", 0), Create("/s-", b"", False, True)])
        assert made[0] == "/a"
        assert isinstance(made[1], Stat) and made[1].version == 1
        assert made[2] == "/s-0000000001"
        assert (await zk.get("/a"))[0] == b"2"
        with pytest.raises(MultiFailed) as failed:
            await zk.multi([Check("/a", 0), SetData("/a", b"3", 1)])
        assert [type(e) for e in failed.value.results] == [BadVersion, NotReached]
        with pytest.raises(MultiFailed) as failed:
            await zk.multi([SetData("/a", b"3", 1), Check("/none", -1), Create("/a", b"")])
        assert [type(e) for e in failed.value.results] == [NotReached, NoNode, NotReached]
        assert failed.value.culprit == 1
        with pytest.raises(MultiFailed) as failed:
            await zk.multi([Create("/a", b"")])
        assert isinstance(failed.value.results[0], NodeExists)
        assert await zk.multi([Delete("/a", 1), Check("/", -1)]) == [None, None]
        assert await zk.exists("/a") is None
        with pytest.raises(NoNode):
            await zk.get("/a")


async def test_many_nodes_are_read_in_one_answer(hosts: str, open_session: Any) -> None:
    async with open_session(hosts) as zk:
        await zk.multi([Create("/many", b"")])
        paths = [f"/many/{number}" for number in range(TOGETHER_MAX - 1)]
        await zk.multi([Create(path, path.encode()) for path in paths])
        await zk.multi([SetData("/many/3", "\u00fc".encode() * 700, 0), Delete("/many/5", 0)])
        await zk.multi([Create("/many/e", b"", True)])
        found = await zk.get_many([*paths, "/many/e"])
        assert found[5] is None
        for path, node in zip([*paths, "/many/e"], found, strict=True):
            assert path == "/many/5" or node == await zk.get(path)
        assert await zk.get_many([]) == []
        assert found[-1] is not None and found[-1][1].owner == zk.session_id
        with pytest.raises(AssertionError):
            await zk.get_many(["/many"] * (TOGETHER_MAX + 1))


async def test_a_node_tells_whether_everybody_may_change_it(hosts: str, open_session: Any) -> None:
    """As Kafka closes them: everybody may read, one user may do the rest. No node inherits it."""
    async with open_session(hosts) as zk:
        await zk.multi([Create("/closed", b""), Create("/closed/below", b"")])
        assert await zk.is_open("/") and await zk.is_open("/closed")
        rights = [make_digest_acl("kafka", "secret", all=True), *READ_ACL_UNSAFE]
        await asyncio.to_thread(zk._client.set_acls, "/closed", rights)
        assert not await zk.is_open("/closed") and await zk.is_open("/closed/below")
        with pytest.raises(NoNode):
            await zk.is_open("/none")


def test_a_write_without_a_version_is_refused() -> None:
    with pytest.raises(AssertionError):
        SetData("/a", b"", -1)


async def test_watches_fire_once_and_die_with_their_connection(
    zookeeper: str, chroot: str, open_session: Any, open_wire: Any
) -> None:
    async with open_wire(zookeeper) as (wire, address), open_session(address + chroot) as zk:
        await zk.multi([Create("/a", b"0")])
        fired: list[str] = []
        await zk.get("/a", fired.append)
        await zk.exists("/later", fired.append)
        await zk.children("/", fired.append)
        await zk.multi([SetData("/a", b"1", 0)])
        await zk.multi([SetData("/a", b"2", 1)])
        await zk.multi([Create("/later", b"")])
        await until(lambda: len(fired) == 3)
        assert sorted(fired) == ["/", "/a", "/later"]

        events: list[SessionEvent] = []
        zk.listen(events.append)
        await zk.get("/a", fired.append)
        session_id = zk.session_id
        wire.cut()
        await until(lambda: bool(events) and events[-1].state is SessionState.CONNECTED)
        assert [e.state for e in events] == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert zk.session_id == session_id and zk.generation == 1
        await zk.get("/a", fired.append)  # what the owner does on CONNECTED
        await zk.multi([SetData("/a", b"3", 2)])
        await until(lambda: len(fired) == 4)
        await asyncio.sleep(0.05)
        assert fired[3:] == ["/a"]  # the old watch has gone, the new one fired


async def test_a_lost_answer_is_unknown_and_the_write_stands(
    zookeeper: str, chroot: str, open_session: Any, open_wire: Any
) -> None:
    async with open_wire(zookeeper) as (wire, address), open_session(address + chroot) as zk:
        await zk.multi([Create("/a", b"0")])
        wire.deaf = True
        write = asyncio.ensure_future(zk.multi([SetData("/a", b"1", 0)]))
        await asyncio.sleep(0.1)
        wire.cut()
        with pytest.raises(Unknown):
            await write
        wire.deaf = False
        await until(lambda: zk.connected)
        assert (await zk.get("/a"))[0] == b"1"


async def test_a_write_whose_caller_gave_up_may_land_later(
    zookeeper: str, chroot: str, open_session: Any, open_wire: Any
) -> None:
    async with (
        open_wire(zookeeper) as (wire, address),
        open_session(address + chroot, request_timeout_s=0.2) as zk,
    ):
        await zk.multi([Create("/a", b"0")])
        wire.stalled.clear()
        with pytest.raises(Unknown):
            await zk.multi([SetData("/a", b"1", 0)])
        wire.stalled.set()
        await asyncio.sleep(0.1)
        assert (await zk.get("/a"))[0] == b"1"


async def test_a_silent_zookeeper_ends_the_session_by_our_own_clock(
    zookeeper: str, chroot: str, open_session: Any, open_wire: Any
) -> None:
    async with open_wire(zookeeper) as (wire, address), open_session(address + chroot, 2000) as zk:
        events: list[SessionState] = []
        zk.listen(lambda event: events.append(event.state))
        await zk.multi([Create("/mine", b"", ephemeral=True)])
        wire.deaf = True
        wire.stalled.clear()
        started = asyncio.get_running_loop().time()
        await until(lambda: SessionState.ASSUME_EXPIRED in events, HANG_S)
        assert 1.9 < asyncio.get_running_loop().time() - started < 3.2 * machine_is_slower()
        await asyncio.sleep(1.5)  # the server has ended the session by now
        wire.deaf = False
        wire.cut()
        wire.stalled.set()
        await until(lambda: events[-1] is SessionState.CONNECTED, HANG_S)
        assert SessionState.EXPIRED in events and zk.generation == 2


async def test_who_has_stood_still_finds_out_before_it_acts(hosts: str, open_session: Any) -> None:
    """No timer has run while the process slept: what it asks first must find the deadline passed."""

    async with open_session(hosts, 2000) as zk:
        events: list[SessionState] = []
        zk.listen(lambda event: events.append(event.state))
        await zk.multi([Create("/written", b"before")])
        time.sleep(2.2)  # noqa: ASYNC251 - the loop sleeps, as all of the process would
        with pytest.raises(Unknown, match="nothing was sent"):
            await zk.multi([SetData("/written", b"after", 0)])
        assert events == [SessionState.ASSUME_EXPIRED]
        await until(lambda: zk.connected)  # kazoo's thread has kept the session
        assert zk.generation == 1 and SessionState.EXPIRED not in events
        assert (await zk.get("/written"))[0] == b"before"


async def test_the_session_of_a_killed_predecessor_is_closed_at_once(
    hosts: str, open_session: Any, kill_session: Any
) -> None:
    async with open_session(hosts, 10_000) as witness:
        killed = KazooZkClient(hosts, 10_000)
        await killed.start()
        await killed.multi([Create("/brokers-1", b"", ephemeral=True)])
        credentials = killed.credentials
        await kill_session(killed)
        gone: list[str] = []
        assert await witness.exists("/brokers-1", gone.append) is not None
        started = asyncio.get_running_loop().time()
        async with open_session(hosts, 10_000, previous_session=credentials) as successor:
            assert asyncio.get_running_loop().time() - started < 5, "nobody waits for the end of its session"
            assert successor.session_id not in (0, credentials[0] if credentials else 0)
            assert await successor.exists("/brokers-1") is None
            await until(lambda: bool(gone))


async def test_the_session_of_a_killed_predecessor_may_expire_while_it_is_taken(
    hosts: str, open_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo has no session then, until it has another one."""
    monkeypatch.setattr(KazooClient, "client_id", None)
    async with open_session(hosts, 10_000, previous_session=(1, b"x" * 16)) as successor:
        assert successor.connected


async def test_an_unreachable_zookeeper_is_named() -> None:
    zk = KazooZkClient("127.0.0.1:1", 4000, connect_timeout_s=0.3)
    with pytest.raises(ZkUnreachable, match=r"no ZooKeeper session at 127\.0\.0\.1:1 within 0\.3 s"):
        await zk.start()


async def test_a_thread_of_kazoo_that_dies_before_any_session_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends in silence. Nobody waits for a session that nobody asks for any more."""
    monkeypatch.setattr(ConnectionHandler, "_connect_attempt", lambda *_: STOP_CONNECTING)
    zk = KazooZkClient("127.0.0.1:1", 4000, connect_timeout_s=600)
    with pytest.raises(ZkUnreachable, match="thread died"):
        await zk.start()


async def until(condition: Any, seconds: float = 20) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0.01)

"""Asks ZooKeeper: each server by a four-letter word, and the ensemble by a session that reads a few nodes.

Its address is the one that the brokers name, or --zookeeper. A session is tried only if a server was reached,
so that names without an answer cost nothing twice.
Left to others: what follows from it (checks_cluster.py).
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from ...zookeeper import documents
from ...zookeeper.client import NoNode, ZkError, ZkUnreachable
from ...zookeeper.documents import BadDocument
from ...zookeeper.kazoo_client import KazooZkClient
from .facts import Reach, ZkFacts, ZkServer
from .probe import Failed, Place, address_of, place_of, resolved

DEFAULT_PORT = 2181
SESSION_MS = 6_000
WORD = b"srvr"
ANSWER_BYTES_MAX = 16_384
NOT_ALLOWED = "not in the whitelist"


def servers_of(connect: str) -> tuple[list[Place], str]:
    """The servers and the chroot of a connect string `host:port,host:port/chroot`."""
    hosts, slash, chroot = connect.partition("/")
    places = []
    for text in filter(None, (part.strip() for part in hosts.split(","))):
        places.append(place_of(text) or (text.strip("[]"), DEFAULT_PORT))
    return places, slash + chroot


async def ask_zookeeper(connect: str, wait_s: float) -> ZkFacts:
    """All that is to be seen of ZooKeeper from here."""
    places, chroot = servers_of(connect)
    servers = tuple(await asyncio.gather(*(_server(place, wait_s) for place in places)))
    reached = [server for server in servers if server.reach is Reach.ANSWERS]
    if not reached:
        return ZkFacts(connect, servers, session="no server is reached")
    hosts = ",".join(server.address for server in reached) + chroot
    return await _session(connect, hosts, servers, wait_s)


async def _server(place: Place, wait_s: float) -> ZkServer:
    """One server: whether it is reached, and what `srvr` says."""
    address = address_of(*place)
    try:
        ips = await resolved(place[0], wait_s)
    except Failed as failure:
        return ZkServer(address, failure.reach, failure.detail)
    try:
        async with asyncio.timeout(wait_s):
            text = await _word(ips[0], place[1])
    except ConnectionRefusedError:
        return ZkServer(address, Reach.REFUSED)
    except TimeoutError:
        return ZkServer(address, Reach.TIMEOUT, f"no answer within {wait_s:g} s")
    except OverflowError:
        return ZkServer(address, Reach.UNREACHABLE, f"there is no port {place[1]}")
    except OSError as error:
        return ZkServer(address, Reach.UNREACHABLE, error.strerror or str(error))
    return read_srvr(address, text)


async def _word(ip: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(ip, port)
    try:
        writer.write(WORD)
        return (await reader.read(ANSWER_BYTES_MAX)).decode(errors="replace")
    finally:
        writer.close()


def read_srvr(address: str, text: str) -> ZkServer:
    """What the answer to `srvr` says; a server that refuses the word is there all the same."""
    if NOT_ALLOWED in text or not text.strip():
        return ZkServer(address, Reach.ANSWERS, words=False)
    if "not currently serving requests" in text:
        return ZkServer(address, Reach.SILENT, "it is not serving requests: no quorum, or still starting")

    def value(name: str) -> str | None:
        found = re.search(rf"^{name}: *(.+)$", text, re.MULTILINE)
        return found[1].strip() if found else None

    latencies = re.fullmatch(r"[\d.]+/[\d.]+/(\d+(?:\.\d+)?)", value("Latency min/avg/max") or "", re.ASCII)
    version = value("Zookeeper version")
    outstanding = value("Outstanding")
    return ZkServer(
        address,
        Reach.ANSWERS,
        words=True,
        version=version.partition("-")[0].partition(",")[0] if version else None,
        mode=value("Mode"),
        outstanding=int(outstanding) if outstanding and re.fullmatch(r"[0-9]{1,18}", outstanding) else None,
        latency_max_ms=float(latencies[1]) if latencies else None,
    )


async def _session(connect: str, hosts: str, servers: tuple[ZkServer, ...], wait_s: float) -> ZkFacts:
    loop = asyncio.get_running_loop()
    zk = KazooZkClient(hosts, SESSION_MS, connect_timeout_s=wait_s, request_timeout_s=wait_s)
    began = loop.time()
    try:
        await zk.start()
    except ZkUnreachable as error:
        return ZkFacts(connect, servers, session=str(error))
    session_s = loop.time() - began
    unreadable: dict[str, str] = {}

    async def read(path: str, ask: Callable[[str], Any]) -> Any:
        try:
            return await ask(path)
        except NoNode:
            unreadable[path] = "it does not exist"
        except (ZkError, TimeoutError) as error:
            unreadable[path] = str(error) or type(error).__name__
        return None

    try:
        cluster, ids = await asyncio.gather(
            read(documents.CLUSTER_ID, zk.get), read(documents.BROKER_IDS, zk.children)
        )
        controller = await _controller(zk)
        registered: dict[int, tuple[str, ...]] = {}
        for id in sorted(int(name) for name in ids or () if re.fullmatch(r"[0-9]{1,10}", name)):
            if (found := await read(documents.broker_path(id), zk.get)) is not None:
                registered[id] = _endpoints(found[0])
    finally:
        await zk.close()
    cluster_id = None
    if cluster is not None:
        try:
            cluster_id = documents.parse(documents.ClusterIdDocument, cluster[0]).id
        except BadDocument as bad:
            unreadable[documents.CLUSTER_ID] = str(bad)
    return ZkFacts(
        connect,
        servers,
        None,
        session_s,
        cluster_id,
        controller,
        None if ids is None else registered,
        unreadable,
    )


async def _controller(zk: KazooZkClient) -> int | None:
    """The broker in /controller; none while there is no controller."""
    try:
        data, _ = await zk.get(documents.CONTROLLER)
        return documents.parse(documents.ControllerDocument, data).brokerid
    except (ZkError, TimeoutError, BadDocument):
        return None


def _endpoints(data: bytes) -> tuple[str, ...]:
    try:
        return tuple(documents.parse(documents.RegistrationDocument, data).endpoints)
    except BadDocument:
        return ()

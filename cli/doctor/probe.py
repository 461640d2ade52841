"""Probe: a connection to one address, made step by step, so that what fails is known: name, TCP, protocol.

Every step has a deadline. A name is resolved in a thread that nobody waits for at the end: a resolver without
an answer may take half a minute, and cannot be cancelled.
Left to others: what is asked of a broker (ask_broker.py), the connection (client/network/connection.py).
"""

import asyncio
import errno
import socket
import threading
from collections.abc import Mapping
from typing import Any

from ...client.network.connection import Connection, ConnectionLost, RequestExpired, agree
from ...protocol.messages.api_versions import ApiVersionsRequest
from .facts import Dial, Reach

CLIENT_ID = "strandline-doctor"
DIGITS_MAX = 10  # of a port that a broker advertises: 32 bits
FIRST_VERSION = 0  # of ApiVersions: every broker answers it in a known format

Place = tuple[str, int]


class Failed(Exception):
    """An attempt ended before there was a broker; says where."""

    def __init__(self, reach: Reach, detail: str, ips: tuple[str, ...] = ()) -> None:
        super().__init__(f"{reach.value}: {detail}" if detail else reach.value)
        self.reach, self.detail, self.ips = reach, detail, ips

    def dial(self, address: str) -> Dial:
        """The attempt as a fact."""
        return Dial(address, self.reach, self.detail, self.ips)


class Probe:
    """An open connection, with the versions that the broker offers. Made by `opened`, ended by `close`."""

    def __init__(self, connection: Connection, ips: tuple[str, ...], took_s: float, wait_s: float) -> None:
        self.connection = connection
        self.ips = ips
        self.took_s = took_s
        self.apis: Mapping[int, tuple[int, int]] = {}
        self._wait_s = wait_s

    @classmethod
    async def opened(cls, place: Place, wait_s: float) -> "Probe":
        """Resolve, connect, and have ApiVersions answered, each within `wait_s`. Raises Failed."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ips = await resolved(place[0], wait_s)
        connection = await connected(ips, place[1], wait_s)
        probe = cls(connection, ips, loop.time() - began, wait_s)
        try:
            answer = await probe.ask(ApiVersionsRequest(), FIRST_VERSION)
        except RequestExpired:
            raise Failed(Reach.SILENT, f"no answer within {wait_s:g} s", ips) from None
        except ConnectionLost as error:
            raise Failed(Reach.FOREIGN, str(error), ips) from None
        probe.apis = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        connection.versions = agree(answer, {})
        probe.took_s = loop.time() - began
        return probe

    async def ask(self, message: Any, version: int | None = None) -> Any:
        """The answer. Raises OSError if none came in time, ApiError if the broker knows no such request."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        return await self.connection.request(message, deadline=deadline, version=version)

    async def close(self) -> None:
        """Disconnect."""
        await self.connection.close()


async def connected(ips: tuple[str, ...], port: int, wait_s: float) -> Connection:
    """A connection to the first of these addresses that accepts one. Raises Failed."""
    loop = asyncio.get_running_loop()
    failure = Failed(Reach.UNRESOLVED, "", ips)
    for ip in ips:
        try:
            return await Connection.open(
                ip, port, client_id=CLIENT_ID, deadline=loop.time() + wait_s, versions={}
            )
        except OSError as error:
            failure = _why(error, ip, port, ips)
    raise failure


def _why(error: OSError, ip: str, port: int, ips: tuple[str, ...]) -> Failed:
    where = f"{ip}:{port}"
    if isinstance(error, ConnectionRefusedError):
        return Failed(Reach.REFUSED, where, ips)
    if isinstance(error, TimeoutError):
        return Failed(Reach.TIMEOUT, where, ips)
    known = errno.errorcode.get(error.errno) if error.errno else None
    return Failed(Reach.UNREACHABLE, f"{where}: {known or error}", ips)


async def resolved(host: str, wait_s: float) -> tuple[str, ...]:
    """The addresses of a name, those that a client would try first in front. Raises Failed."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...] | OSError | UnicodeError] = loop.create_future()

    def tell(found: tuple[str, ...] | OSError | UnicodeError) -> None:
        if not answer.done():
            answer.set_result(found)

    def resolve() -> None:
        found: tuple[str, ...] | OSError | UnicodeError
        try:
            rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as error:
            found = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=resolve, name=f"resolve {host}", daemon=True).start()
    try:
        async with asyncio.timeout(wait_s):
            found = await answer
    except TimeoutError:
        raise Failed(Reach.UNRESOLVED, f"the resolver did not answer within {wait_s:g} s") from None
    if isinstance(found, UnicodeError):
        raise Failed(Reach.UNRESOLVED, f"not a host name: {found}")
    if isinstance(found, OSError):
        raise Failed(Reach.UNRESOLVED, found.strerror or str(found))
    return found


def place_of(address: str) -> Place | None:
    """Host and port of `host:port`, `[v6]:port` or `LISTENER://host:port`; None if it is not one."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= DIGITS_MAX
    return (host.strip("[]"), int(port)) if colon and host and is_port else None


def address_of(host: str, port: int) -> str:
    """`host:port`, with brackets where the host has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""Connections to brokers: one per broker and channel, dialled when wanted, dropped when lost.

Channels keep requests that may wait long (fetches, group joins) apart from those that may not (metadata,
produce). A broker that cannot be reached is dialled again after a growing pause.
Left to others: who is where (metadata.py), what a loss means (cluster.py).
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from ssl import SSLContext

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...protocol.apis import Api
from ...protocol.errors import ApiError
from .connection import Connection, ConnectionLost
from .metadata import Address

log = get_logger(__name__)

Key = tuple[Address, str]
CLOSING = "the client is closing"

# Above these the requests change format (several groups at once, topic ids) without a gain for a client.
HIGHEST: dict[int, int] = {
    Api.OFFSET_FETCH: 7,
    Api.FIND_COORDINATOR: 3,
    Api.DELETE_TOPICS: 5,
    Api.ADD_PARTITIONS_TO_TXN: 3,  # later ones are for brokers
}


def backoff(attempt: int, base: float, most: float, random: Random) -> float:
    """Seconds to wait before attempt `attempt` (from 0): doubling, bounded, 20 % of jitter each way."""
    return min(base * float(1 << min(attempt, 20)), most) * (0.8 + 0.4 * random.random())


class Links:
    """All connections of one client, by address and channel."""

    def __init__(
        self,
        tasks: Tasks,
        random: Random,
        *,
        client_id: str,
        ssl: SSLContext | None,
        connect_timeout: float,
        backoff_base: float,
        backoff_most: float,
    ) -> None:
        self._tasks = tasks
        self._random = random
        self._client_id = client_id
        self._ssl = ssl
        self._connect_timeout = connect_timeout
        self._backoff = (backoff_base, backoff_most)
        self._open: dict[Key, Connection] = {}
        self._dialling: dict[Key, asyncio.Future[Connection]] = {}
        self._down: dict[Address, tuple[int, float]] = {}  # failed attempts, and when to try again
        self.on_lost: Callable[[Address], None] = lambda address: None
        self.on_open: Callable[[Address], None] = lambda address: None

    def ready(self, address: Address, channel: str) -> Connection | None:
        """The open connection, if there is one."""
        return self._open.get((address, channel))

    def all(self) -> list[tuple[Address, Connection]]:
        """Every open connection."""
        return [(address, connection) for (address, _), connection in self._open.items()]

    def down_until(self, address: Address) -> float:
        """Loop time before which a broker is not dialled; 0 if the last attempt did not fail."""
        return self._down.get(address, (0, 0.0))[1]

    def failures(self, address: Address) -> int:
        """How often in a row the broker could not be reached."""
        return self._down.get(address, (0, 0.0))[0]

    def dial(self, address: Address, channel: str) -> asyncio.Future[Connection]:
        """The connection, opened if need be. Callers that want the same one share the attempt."""
        key = (address, channel)
        if key in self._dialling:
            return self._dialling[key]
        future: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        if key in self._open:
            future.set_result(self._open[key])
            return future
        self._tasks.spawn(self._connect(key, future), f"dial.{address[0]}:{address[1]}")  # not if it stops
        self._dialling[key] = future
        return future

    async def get(self, address: Address, channel: str, deadline: float) -> Connection:
        """An open connection before `deadline`; raises OSError."""
        loop = asyncio.get_running_loop()
        pause = min(self.down_until(address), deadline) - loop.time()
        if self.ready(address, channel) is None and pause > 0:
            await asyncio.sleep(pause)
        async with asyncio.timeout_at(deadline):
            return await asyncio.shield(self.dial(address, channel))

    def hush(self) -> None:
        """Stop reporting opened and lost connections: the owner is about to end."""
        self.on_lost = self.on_open = lambda address: None

    async def close(self) -> None:
        """Close every connection. The tasks that dial must have ended, some before they began."""
        for future in self._dialling.values():
            _refuse(future, ConnectionLost(CLOSING))
        self._dialling.clear()
        async with AsyncExitStack() as steps:  # each of them, also if this is cancelled meanwhile
            for connection in reversed(self._open.values()):
                steps.push_async_callback(connection.close)

    async def _connect(self, key: Key, future: asyncio.Future[Connection]) -> None:
        address, _ = key
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        try:
            connection = await Connection.open(
                *address,
                client_id=self._client_id,
                deadline=loop.time() + self._connect_timeout,
                ssl=self._ssl,
                highest=HIGHEST,
                on_lost=lambda _: self._lost(key),
            )
        except (OSError, ApiError) as trouble:
            failure = trouble
        except asyncio.CancelledError:
            _refuse(future, ConnectionLost(CLOSING))
            raise
        finally:
            self._dialling.pop(key, None)
        if failure is None:
            self._down.pop(address, None)
            self._open[key] = connection
            if not future.done():
                future.set_result(connection)
            self.on_open(address)
            return
        failures = self.failures(address)
        self._down[address] = (failures + 1, loop.time() + backoff(failures, *self._backoff, self._random))
        log.debug("broker_unreachable", address=address, reason=str(failure), attempt=failures + 1)
        _refuse(future, failure)
        self.on_lost(address)

    def _lost(self, key: Key) -> None:
        if self._open.pop(key, None) is not None:
            log.debug("connection_lost", address=key[0], channel=key[1])
            self.on_lost(key[0])


def _refuse(future: "asyncio.Future[Connection]", trouble: Exception) -> None:
    if not future.done():
        future.set_exception(trouble)
        future.exception()  # seen here: nobody may be waiting

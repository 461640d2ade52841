"""Which connections a broker has, and what ends them: their number, their deadlines, malformed requests.

When `max.connections` is reached a new client is turned away, but a broker gets in: the client that has been
silent for the longest is closed (KIP-402). Malformed requests are counted, and logged at most once a second.
Left to others: the memory of requests that arrive (request_memory.py), listeners (server.py).
"""

import asyncio
from typing import Protocol

import structlog

from ..config.broker import BrokerConfig
from .exchange import Listener
from .metrics import Metrics
from .request_memory import Claimant, Intake

logger = structlog.get_logger(__name__)

COMPLAINT_INTERVAL_S = 1.0


class Peer(Claimant, Protocol):
    """A connection, as seen from here."""

    listener: Listener
    closed: bool
    heard_at: float

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""

    def close(self) -> None:
        """Close it; answers that may leave still do."""

    def abort(self) -> None:
        """Close it without waiting for a peer that does not read."""

    def expire(self, now: float) -> None:
        """Check its deadlines."""


class Admission:
    """The connections of one broker, and the limits that all of them keep."""

    def __init__(self, config: BrokerConfig, metrics: Metrics) -> None:
        self.config = config
        self.metrics = metrics
        self.connections: dict[Peer, None] = {}
        self.intake = Intake(config.queued_max_request_bytes)
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time()  # to a second
        self._one_less = asyncio.Event()
        self._complained_at = 0.0
        self._complaints = 0

    def admit(self, connection: Peer) -> bool:
        """Whether one more connection fits `max.connections`, if need be because a client's was closed."""
        is_full = len(self.connections) >= self.config.max_connections
        if is_full and not self._makes_way(connection):
            return False
        self.connections[connection] = None
        self.metrics.connections_opened += 1
        return True

    def _makes_way(self, newcomer: Peer) -> bool:
        """A broker gets in all the same: the client that has been silent for the longest is closed (KIP-402).

        Not with a single listener, where brokers and clients cannot be told apart.
        """
        if not newcomer.listener.internal or len(self.config.endpoints) == 1:
            return False
        clients = [each for each in self.connections if not each.listener.internal and not each.closed]
        if clients:
            silent = min(clients, key=lambda each: each.heard_at)
            logger.info("connection_evicted", peer=silent.peer, listener=silent.listener.name)
            silent.close()
        return True

    def forget(self, connection: Peer) -> None:
        """The connection is gone."""
        self.intake.release(connection)
        if self.connections.pop(connection, self) is None:
            self.metrics.connections_closed += 1
            self._one_less.set()

    async def until_empty(self) -> None:
        """Return when no connection is left."""
        while self.connections:
            self._one_less.clear()
            await self._one_less.wait()

    def tick(self) -> None:
        """Check the deadlines of all connections; called about once a second."""
        self.now = self._loop.time()
        for connection in list(self.connections):
            connection.expire(self.now)

    def expired(self, connection: Peer, why: str) -> None:
        """A deadline of this connection has passed."""
        self.metrics.deadlines_passed += 1
        logger.info("connection_expired", peer=connection.peer, listener=connection.listener.name, why=why)
        connection.close()

    def complain(self, connection: Peer, why: str) -> None:
        """Count a malformed request; log it, but at most once per second."""
        self.metrics.malformed += 1
        self._complaints += 1
        now = self._loop.time()
        if (
            now - self._complained_at >= COMPLAINT_INTERVAL_S
            or self._complaints == self.metrics.malformed == 1
        ):
            logger.warning(
                "connection_refused", peer=connection.peer, listener=connection.listener.name, why=why,
                times=self._complaints,
            )  # fmt: skip
            self._complained_at, self._complaints = now, 0

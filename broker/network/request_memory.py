"""How much memory requests of clients may take that are still arriving (`queued.max.request.bytes`).

What is larger than a connection's first memory claims its size before it is read on; while the bound is
reached, whoever has a large request waits unread, in the order of asking. As in Kafka the last claim may
exceed the bound, or one large request could never be read. Brokers among themselves claim nothing: a flood of
clients must not hold up replication.
Left to others: the memory itself (receive_buffer.py), how long a request may take to arrive (connection.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Claimant(Protocol):
    """A connection, as seen from here."""

    def run(self) -> None:
        """Go on, for it may."""


class Intake:
    """The claims of all connections of a broker. `bytes_max` below 0: there is no bound."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._claims: dict[Claimant, int] = {}
        self._waiting: dict[Claimant, int] = {}
        self.bytes = 0

    @property
    def waiting(self) -> int:
        """Connections that are not read for want of memory."""
        return len(self._waiting)

    def claim(self, reader: Claimant, nbytes: int) -> bool:
        """Whether a request of this size may be read on now; if not, its reader is run when it may."""
        if self._bytes_max < 0 or reader in self._claims:
            return True
        if self.bytes >= self._bytes_max or (self._waiting and reader not in self._waiting):
            self._waiting.setdefault(reader, nbytes)
            return False
        self._grant(reader, nbytes)
        return True

    def release(self, reader: Claimant) -> None:
        """Its request is done, or it is gone."""
        self._waiting.pop(reader, None)
        self.bytes -= self._claims.pop(reader, 0)
        for each in self._next():
            each.run()

    def _next(self) -> Iterator[Claimant]:
        while self._waiting and self.bytes < self._bytes_max:
            reader, nbytes = next(iter(self._waiting.items()))
            self._grant(reader, nbytes)
            yield reader

    def _grant(self, reader: Claimant, nbytes: int) -> None:
        self._waiting.pop(reader, None)
        self._claims[reader] = nbytes
        self.bytes += nbytes

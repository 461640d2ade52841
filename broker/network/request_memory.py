"""Bounds the memory of client requests that are still arriving (`queued.max.request.bytes`).

A request that does not fit a connection's first buffer claims its size before more of it is read. While the
bound is reached, connections with a large request are not read, and continue in the order in which they
asked. As in Kafka, the last claim may exceed the bound: otherwise one large request could never be read.
Requests between brokers claim nothing, so a flood of clients cannot hold up replication.
Left to others: the memory itself (receive_buffer.py), how long a request may take to arrive (connection.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Claimant(Protocol):
    """A connection, as seen from here."""

    def run(self) -> None:
        """Go on: its claim was granted."""


class Intake:
    """The claims of all connections of a broker. `bytes_max` below 0: no bound."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._claims: dict[Claimant, int] = {}
        self._waiting: dict[Claimant, int] = {}
        self.bytes = 0

    @property
    def waiting(self) -> int:
        """How many connections are not read for lack of memory."""
        return len(self._waiting)

    def claim(self, reader: Claimant, nbytes: int) -> bool:
        """Whether a request of this size may be read now. If not, `reader.run` is called when it may."""
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

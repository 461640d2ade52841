"""What every client under test is asked to do, in one vocabulary, so that a test is written once for all.

A `Driver` wraps one unmodified client with its default settings. What a client has no call for
(kcat creates no topics and asks nothing about groups) is said by `can`: "admin" or not; what else it lacks
stands in `matrix/declared.py`. The kinds of `member` are ways to share partitions: "default" (what the client
does unasked), "quick" (the same, with heartbeats every half second: so soon does a member hear of others),
"range", "cooperative" (sticky, without stopping everybody) and "consumer" (KIP-848).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Row(NamedTuple):
    """A record as every client can express it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None  # to be sent with it; what was read has its own in `Read`


class Read(NamedTuple):
    """A record with the place it was read from."""

    partition: int
    offset: int
    row: Row
    timestamp_ms: int


class Member(Protocol):
    """A consumer in a group. `poll` waits a moment at most."""

    def poll(self) -> list[Read]: ...

    def assignment(self) -> set[int]: ...

    def commit(self) -> None: ...


class Sender(Protocol):
    """A producer with acks=all that tells of each acknowledgement."""

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None: ...

    def flush(self) -> None: ...


class Transactional(Protocol):
    """A producer with a transactional id. What it raises ends the transaction, or the producer."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Driver(Protocol):
    """One client."""

    name: str
    codecs: tuple[str, ...]
    can: frozenset[str]

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def topics(self) -> dict[str, int]: ...

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]: ...

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None: ...

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]: ...

    def ends(self, topic: str, partition: int) -> tuple[int, int]: ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int: ...

    def reader(self, topic: str, partitions: Iterable[int], level: str) -> AbstractContextManager[Member]: ...

    def member(self, topic: str, group: str, kind: str = "default") -> AbstractContextManager[Member]: ...

    def committed(self, topic: str, group: str, partition: int) -> int: ...

    def groups(self) -> set[str]: ...

    def group_state(self, group: str) -> str: ...

    def sender(self, topic: str, idempotent: bool = True) -> AbstractContextManager[Sender]: ...

    def transactional(self, name: str) -> AbstractContextManager[Transactional]: ...

    def set_config(self, topic: str, name: str, value: str) -> None: ...

    def config(self, topic: str, name: str) -> str: ...

    def delete_topic(self, topic: str) -> None: ...


def until(true: Callable[[], object], what: str, wait_s: float = 60) -> None:
    """Wait until `true()`; fail with `what` was waited for."""
    deadline = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < deadline, f"after {wait_s} s still not: {what}"
        time.sleep(0.02)

"""The real ZooKeeper client: kazoo behind `ZkClient`, with kazoo's threads kept away from the event loop.

It decides what kazoo leaves open. A request whose answer is lost is `Unknown`, never failed. The session has
its own deadline, because kazoo learns of an expiry only when it reconnects. A dead kazoo thread is fatal and
reported. The session of a killed predecessor is resumed and closed, so its ephemeral nodes go at once.
Watches that were lost with a connection are not set again: `CONNECTED` tells their owners to re-read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import structlog
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import Permissions

from ..base.tasks import Tasks
from .client import (
    TOGETHER_MAX,
    BadVersion,
    Check,
    Create,
    Delete,
    Listener,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    NotReached,
    Op,
    OpResult,
    SessionEvent,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Unknown,
    Watch,
    ZkError,
    ZkUnreachable,
)
from .multi_read import ReadMany

logger = structlog.get_logger(__name__)

IN_FLIGHT_MAX = 128  # more would fill the pipe that wakes kazoo
HEARTBEATS_PER_SESSION = 6
LOOK_S = 1.0  # so often the first connection is waited for without a look at kazoo's thread
THREAD_DIED = "kazoo's connection thread died"
RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 1.0}

LIVING = (SessionState.CONNECTED, SessionState.SUSPENDED)

ERRORS: dict[type[BaseException], type[ZkError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.RolledBackError: NotReached,
    exceptions.RuntimeInconsistency: NotReached,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.ConnectionLoss: Unknown,
    exceptions.ConnectionClosedError: Unknown,
    exceptions.OperationTimeoutError: Unknown,
}

Credentials = tuple[int, bytes]  # id and password of a session


class KazooZkClient:
    """A session with a real ZooKeeper. `hosts` may end in a chroot: "host:port,host:port/path"."""

    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        *,
        connect_timeout_s: float = 30.0,
        request_timeout_s: float | None = None,
        previous_session: Credentials | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._hosts = hosts
        self._session_timeout_s = session_timeout_ms / 1000
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s or self._session_timeout_s
        self._previous_session = previous_session
        self._on_fatal = on_fatal
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop
        self._tasks: Tasks
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._listeners: list[Listener] = []
        self._first_connection = asyncio.Event()
        self._session_id = 0
        self._generation = 0
        self._state = SessionState.SUSPENDED
        self._alive_at = 0.0  # when the last request that was answered was sent
        self._closing = False

    @property
    def session_id(self) -> int:
        """The owner of our ephemeral nodes."""
        return self._session_id

    @property
    def generation(self) -> int:
        """Counts our sessions."""
        return self._generation

    @property
    def connected(self) -> bool:
        """Whether a request would be sent now."""
        return self._state is SessionState.CONNECTED

    @property
    def credentials(self) -> Credentials | None:
        """What a successor needs to resume this session and close it; keep it secret."""
        return None if self._client is None else self._client.client_id

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with session events; the returned function ends that."""
        self._listeners.append(listener)

        def stop() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return stop

    async def start(self) -> None:
        """Close the predecessor's session, then open ours. Raises `ZkUnreachable`."""
        assert self._client is None, "a client is started once"
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("zookeeper", self._on_fatal)
        if self._previous_session is not None:
            await self._close_session(self._previous_session)
        self._client = self._new_client(None)
        self._client.add_listener(self._from_kazoo)
        logger.info("session_requested", hosts=self._hosts, within_s=self._connect_timeout_s)
        self._client.start_async()
        deadline = self._loop.time() + self._connect_timeout_s
        while not self._first_connection.is_set():
            is_late = self._loop.time() >= deadline
            if is_late or not self._is_thread_alive():
                await self.close()
                raise self._unreachable() if is_late else ZkUnreachable(THREAD_DIED)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(deadline, self._loop.time() + LOOK_S)):
                    await self._first_connection.wait()
        self._tasks.spawn(self._heartbeat(), "heartbeat")

    async def close(self) -> None:
        """End the session at once, and with it its ephemeral nodes."""
        self._closing = True
        self._state = SessionState.EXPIRED
        try:
            await self._tasks.stop()
        finally:
            await asyncio.to_thread(_stop, self._client)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """The data of a node; empty also where another client has stored null."""
        data, stat = await self._ask(lambda: self._client.get_async(path, watch=self._armed(path, watch)))
        return data or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The data of several nodes, in one request."""
        assert len(paths) <= TOGETHER_MAX, "too many nodes for one request"

        def send() -> Any:
            result = self._client.handler.async_result()
            self._client._call(ReadMany([_prefix_root(self._client.chroot, path) for path in paths]), result)
            return result

        found = await self._ask(send)
        return [None if one is None else (one[0], Stat(*one[1:])) for one in found]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The stat of a node, or None."""
        stat = await self._ask(lambda: self._client.exists_async(path, watch=self._armed(path, watch)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of the children, sorted."""
        names = await self._ask(lambda: self._client.get_children_async(path, watch=self._armed(path, watch)))
        return sorted(names)

    async def is_open(self, path: str) -> bool:
        """Whether everybody may do everything with a node, by its own ACL: none is inherited."""
        entries, _ = await self._ask(lambda: self._client.get_acls_async(path))
        return any(each.id.scheme == "world" and each.perms == Permissions.ALL for each in entries)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing."""
        assert ops, "a multi does something"

        def commit() -> Any:
            transaction = self._client.transaction()
            for op in ops:
                _add(transaction, op)
            return transaction.commit_async()

        results = await self._ask(commit)
        if any(isinstance(result, BaseException) for result in results):
            raise MultiFailed([_error(result) for result in results])
        return [_result(op, result) for op, result in zip(ops, results, strict=True)]

    # --- requests ----------------------------------------------------------------------------------

    async def _ask(self, send: Callable[[], Any]) -> Any:
        """Send now, in the order of the calls, and wait for the answer or the deadline."""
        self.look()
        if not self.connected:
            raise Unknown("not connected; nothing was sent")
        try:
            async with asyncio.timeout(self._request_timeout_s), self._slots:
                return await self._answer(send)
        except TimeoutError as error:
            raise Unknown(f"no answer within {self._request_timeout_s:g} s") from error

    async def _answer(self, send: Callable[[], Any]) -> Any:
        sent_at, generation = self._loop.time(), self._generation
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if generation == self._generation and (error is None or type(error) in (exceptions.NoNodeError,)):
                self._answered(sent_at)
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(_error(error))

        def from_kazoo(result: Any) -> None:
            self._on_loop(settle, result.value, result.exception)

        send().rawlink(from_kazoo)
        return await future

    def _armed(self, path: str, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        if watch is None:
            return None
        generation = self._generation

        def fire() -> None:
            if generation == self._generation and not self._closing:
                watch(path)

        def from_kazoo(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                self._on_loop(fire)

        return from_kazoo

    def _on_loop(self, callback: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed; nobody waits any more
            self._loop.call_soon_threadsafe(callback, *args)

    # --- the session -------------------------------------------------------------------------------

    def _from_kazoo(self, state: str) -> None:
        """In kazoo's thread: pass it to the event loop, and do not block."""
        credentials = self._client.client_id
        self._on_loop(self._session_changed, state, credentials[0] if credentials else 0)

    def _session_changed(self, state: str, session_id: int) -> None:
        if self._closing:
            return
        if state == KazooState.SUSPENDED:
            if self._state is not SessionState.ASSUME_EXPIRED:
                self._tell(SessionState.SUSPENDED)
        elif state == KazooState.LOST:
            self._session_id = 0
            self._tell(SessionState.EXPIRED)
        else:
            if session_id != self._session_id:
                self._session_id = session_id
                self._generation += 1
            self._alive_at = self._loop.time()
            self._first_connection.set()
            self._tell(SessionState.CONNECTED)

    def _tell(self, state: SessionState) -> None:
        logger.info("session_changed", state=state.value, generation=self._generation)
        self._state = state
        for listener in list(self._listeners):
            listener(SessionEvent(state, self._generation))

    def look(self) -> None:
        """Report ASSUME_EXPIRED at once if nothing was heard for a session timeout."""
        if self._state in LIVING and self._is_overdue() and not self._closing:
            self._tell(SessionState.ASSUME_EXPIRED)

    def _answered(self, sent_at: float) -> None:
        """The session was alive when this was sent. If we assumed its end, this process was suspended."""
        self._alive_at = max(self._alive_at, sent_at)
        if self._state is SessionState.ASSUME_EXPIRED and self._client.connected and not self._is_overdue():
            self._tell(SessionState.CONNECTED)

    async def _heartbeat(self) -> None:
        interval_s = self._session_timeout_s / HEARTBEATS_PER_SESSION
        while True:
            await asyncio.sleep(interval_s)
            self._supervise()
            self.look()
            if self._state is SessionState.CONNECTED or (
                self._state is SessionState.ASSUME_EXPIRED and self._client.connected
            ):
                self._tasks.spawn(self._ping(), "ping")

    async def _ping(self) -> None:
        """Send a cheap request; the answer proves that the session is alive."""
        try:
            async with asyncio.timeout(self._session_timeout_s):
                await self._answer(lambda: self._client.exists_async("/"))
        except (ZkError, TimeoutError):
            self.look()

    def _is_overdue(self) -> bool:
        return self._loop.time() >= self._alive_at + self._session_timeout_s

    def _supervise(self) -> None:
        """Check that kazoo's thread runs: an unexpected error ends it silently and for good."""
        if self._is_thread_alive():
            return
        failure = RuntimeError(THREAD_DIED)
        logger.error("zookeeper_thread_died")
        self._tell(SessionState.ASSUME_EXPIRED)
        raise failure  # ends the heartbeat task, so `on_fatal` is called

    def _is_thread_alive(self) -> bool:
        thread = self._client._connection._connection_routine
        return thread is not None and bool(thread.is_alive())

    # --- clients of kazoo --------------------------------------------------------------------------

    def _new_client(self, credentials: Credentials | None) -> Any:
        return KazooClient(
            hosts=self._hosts,
            timeout=self._session_timeout_s,
            client_id=credentials,
            connection_retry=dict(RECONNECT),
            logger=_quiet_logger(),
        )

    async def _close_session(self, credentials: Credentials) -> None:
        """Resume the session of a killed predecessor, and end it. It may already have expired."""
        client = self._new_client(credentials)
        connected = client.start_async()
        reached = await asyncio.to_thread(connected.wait, self._connect_timeout_s)
        found = client.client_id  # none if the session has expired since
        taken = reached and found is not None and found[0] == credentials[0]
        await asyncio.to_thread(_stop, client)
        if not reached:
            raise self._unreachable()
        logger.info("previous_session_closed", taken=taken)

    def _unreachable(self) -> ZkUnreachable:
        return ZkUnreachable(f"no ZooKeeper session at {self._hosts} within {self._connect_timeout_s:g} s")


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("strandline.kazoo")
    logger.setLevel(logging.CRITICAL)  # we log session events ourselves
    return logger


def _stop(client: Any) -> None:
    client.stop()
    client.close()


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.ephemeralOwner)


def _error(result: Any) -> ZkError:
    if isinstance(result, BaseException):
        kind = ERRORS.get(type(result))
        return kind(str(result)) if kind else ZkError(f"{type(result).__name__}: {result}")
    return NotReached()


def _add(transaction: Any, op: Op) -> None:
    match op:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
        case SetData(path, data, version):
            transaction.set_data(path, data, version=version)
        case Delete(path, version):
            transaction.delete(path, version=version)
        case Check(path, version):
            transaction.check(path, version)


def _result(op: Op, result: Any) -> OpResult:
    match op:
        case Create():
            return str(result)
        case SetData():
            return _stat(result)
        case _:
            return None

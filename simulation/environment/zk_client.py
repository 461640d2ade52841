"""One process's session with the simulated ZooKeeper, with the delays and losses of a real one.

Requests and answers keep their order, as on one connection. While the link is cut, no answer comes: a write
in flight may have been applied, and one that waits is applied when the link heals, even if its caller has
given up. So `Unknown` really means unknown. A connection may also be lost for a while, with or without the
requests in flight, and reads may come from a server that lags behind.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from ...zookeeper.client import (
    Listener,
    MultiFailed,
    Op,
    OpResult,
    SessionEvent,
    SessionState,
    Stat,
    Unknown,
    Watch,
    ZkError,
    ZkUnreachable,
)
from .host import CrashedHost, Host, current_host
from .loop import SimLoop
from .network import ORDER_S
from .zookeeper import LATENCY_S, REQUEST_BYTES_MAX, SimSession, SimZooKeeper

ADDRESS = "zookeeper"
BEATS_PER_SESSION = 6
RECONNECT_S = 0.05
CONNECT_S_MAX = 30.0


class SimZkClient:
    """`ZkClient` for one process."""

    def __init__(
        self,
        loop: SimLoop,
        server: SimZooKeeper,
        session_timeout_s: float,
        previous_session: tuple[int, bytes] | None = None,
    ) -> None:
        self._loop, self._server, self._timeout_s = loop, server, session_timeout_s
        self._previous = previous_session
        self._session: SimSession | None = None
        self._host: Host = current_host()
        self._context = contextvars.copy_context()  # watches run in this host, whichever host triggers them
        self._listeners: list[Listener] = []
        self._generation = 0
        self._state = SessionState.SUSPENDED
        self._sent = self._answered = 0.0
        self._heard_at = 0.0
        self._pending: dict[asyncio.Future[Any], None] = {}  # a dict, since a set's order differs by run
        self._closed = False
        self.lag_s = 0.0  # how far the server that this process reads from lags behind
        self._seen_zxid = 0  # reads never go back behind this
        self._down_until = 0.0
        self.hear: Callable[[str, Sequence[Op], object], None] | None = None
        self.on_send: Callable[[Sequence[Op]], None] | None = None  # called before a write is sent
        self._loses = False  # requests that arrive while the connection is down are lost

    @property
    def session_id(self) -> int:
        return self._session.id if self._session else 0

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def connected(self) -> bool:
        return self._state is SessionState.CONNECTED

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        return (self._session.id, self._session.password) if self._session else None

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def look(self) -> None:
        """Report ASSUME_EXPIRED at once if nothing was heard from ZooKeeper for the session timeout."""
        overdue = self._session is not None and self._loop.now - self._heard_at >= self._timeout_s
        if overdue and self._state in (SessionState.CONNECTED, SessionState.SUSPENDED) and not self._closed:
            self._tell(SessionState.ASSUME_EXPIRED)

    async def start(self) -> None:
        """Close the session of the previous process, and open a new one."""
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                while self.is_cut():
                    await asyncio.sleep(0.05)  # the link is tried, as kazoo tries it
                await asyncio.sleep(self._delay())
        except TimeoutError as error:
            raise ZkUnreachable(f"no session within {CONNECT_S_MAX:g} s") from error
        if self._closed:
            raise ZkUnreachable("closed before the session was established")
        if self._previous is not None:
            self._server.end(self._previous[0])
        self._open()
        self._loop.call_later(self._timeout_s / BEATS_PER_SESSION, self._beat)

    async def close(self) -> None:
        """End the session at once."""
        self._closed = True
        if self._session is not None and self._host.alive and not self.is_cut():
            self._server.end(self._session.id)
        self._fail_pending()

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        _check(path)
        answer: tuple[bytes, Stat] = await self._ask(
            lambda id: self._server.get(path, id, self._armed(watch), self._view())
        )
        return answer

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        _check(*paths)
        found: list[tuple[bytes, Stat] | None] = await self._ask(
            lambda _: self._server.get_many(paths, self._view())
        )
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        _check(path)
        stat: Stat | None = await self._ask(
            lambda id: self._server.exists(path, id, self._armed(watch), self._view())
        )
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        _check(path)
        names: list[str] = await self._ask(
            lambda id: self._server.children(path, id, self._armed(watch), self._view())
        )
        return names

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        _check(*(op.path for op in ops))
        if self.on_send is not None and self._host.alive:
            self.on_send(ops)
        results: list[OpResult] = await self._ask(lambda id: self._write(ops, id))
        return results

    def _write(self, ops: Sequence[Op], id: int) -> list[OpResult]:
        outcome: list[OpResult] | MultiFailed | None = None
        if sum(len(op.path) + len(getattr(op, "data", b"")) for op in ops) > REQUEST_BYTES_MAX:
            self.lose_connection(RECONNECT_S, loses=True)
            raise Unknown("the connection was lost")
        try:
            outcome = self._server.multi(ops, id)
            return outcome
        except MultiFailed as failed:
            outcome = failed
            raise
        finally:
            if self.hear is not None:
                self.hear(self._host.name, ops, outcome)

    # ------------------------------------------------------------ requests in flight

    async def _ask(self, apply: Callable[[int], Any]) -> Any:
        if not self._host.alive:
            raise CrashedHost("a dead process sends no requests")
        self.look()
        if not self.connected or self._session is None:
            raise Unknown("not connected; nothing was sent")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._pending[done] = None
        self._sent = max(self._sent + ORDER_S, self._loop.now + self._delay())
        self._loop.call_at(self._sent, self._arrive, apply, done, self._session)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await done
        except TimeoutError as error:
            raise Unknown("no answer in time") from error
        finally:
            self._pending.pop(done, None)

    def _arrive(self, apply: Callable[[int], Any], done: asyncio.Future[Any], session: SimSession) -> None:
        """At the server: the request is applied even if its caller has given up."""
        if self.is_cut():
            if not (self._loses and self._is_down()):
                self._loop.call_later(0.05, self._arrive, apply, done, session)
            return
        if session.id not in self._server.sessions:
            return
        session.heard_at = self._loop.now
        before = self._server.zxid
        outcome: Any
        try:
            outcome = apply(session.id)
        except ZkError as error:
            outcome = error
        if self._server.zxid != before:
            self._seen_zxid = self._server.zxid  # after a write, reads show at least that write
        self._in_order(self._answer, outcome, done)

    def _answer(self, outcome: Any, done: asyncio.Future[Any]) -> None:
        if self.is_cut() or done.done():
            return
        self._heard_at = self._loop.now
        if isinstance(outcome, ZkError):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    def _in_order(self, callback: Callable[..., None], *args: Any) -> None:
        self._answered = max(self._answered + ORDER_S, self._loop.now + self._delay())
        self._loop.call_at(self._answered, callback, *args, context=self._context)

    def _armed(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        generation = self._generation

        def fire(path: str) -> None:
            self._in_order(told, path, self._server.zxid)

        def told(path: str, zxid: int) -> None:
            self._seen_zxid = max(self._seen_zxid, zxid)
            if self._host.alive and generation == self._generation and self.connected:
                watch(path)

        return fire

    def _view(self) -> int | None:
        """The zxid up to which this process sees the history; None: all of it."""
        if self.lag_s == 0.0:
            return None
        self._seen_zxid = max(self._seen_zxid, self._server.zxid_before(self._loop.now - self.lag_s))
        return self._seen_zxid

    # ------------------------------------------------------------ the session

    def lose_connection(self, for_s: float, *, loses: bool) -> None:
        """Lose the connection for a while, and all answers; with `loses`, requests in flight too."""
        self._down_until, self._loses = self._loop.now + for_s, loses
        if self.connected and self._session is not None:
            self._server.forget_watches(self._session.id)
            self._fail_pending()
            self._context.run(self._tell, SessionState.SUSPENDED)

    def lose_session(self) -> None:
        """The server ends the session although the client is alive."""
        if self._session is not None:
            self._server.end(self._session.id)

    def _open(self) -> None:
        self._session = self._server.open(self._timeout_s, self._loop.now)
        self._generation += 1
        self._seen_zxid = max(self._seen_zxid, self._server.zxid)
        self._heard_at = self._loop.now
        self._tell(SessionState.CONNECTED)

    def _beat(self) -> None:
        """Stands for kazoo's pings and their answers, BEATS_PER_SESSION times per session timeout."""
        if self._closed or not self._host.alive or self._session is None:
            return
        now = self._loop.now
        if not self.is_cut():
            self._server.expire(now)
            if self._session.id in self._server.sessions:
                self._session.heard_at = self._heard_at = now
                if not self.connected:
                    self._server.forget_watches(self._session.id)
                    self._tell(SessionState.CONNECTED)
            else:
                self._fail_pending()
                self._tell(SessionState.EXPIRED)
                self._open()
        elif now - self._heard_at >= self._timeout_s and self._state is SessionState.SUSPENDED:
            self._tell(SessionState.ASSUME_EXPIRED)
        elif now - self._heard_at >= self._timeout_s / 3 and self.connected:
            self._fail_pending()
            self._tell(SessionState.SUSPENDED)
        self._loop.call_later(self._timeout_s / BEATS_PER_SESSION, self._beat)

    def _fail_pending(self) -> None:
        for done in list(self._pending):
            if not done.done():
                done.set_exception(Unknown("the connection was lost"))

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            listener(SessionEvent(state, self._generation))

    def is_troubled(self, now: float) -> bool:
        """Whether its connection is down, its reads lag behind, or ZooKeeper is slow."""
        is_slow = self._server.latency_s != LATENCY_S
        return now < self._down_until or self.lag_s > 0.0 or is_slow

    def is_cut(self) -> bool:
        """Whether nothing gets through to ZooKeeper; if that lasts, the session ends."""
        cuts = self._loop.network.cuts
        return self._is_down() or (self._host.name, ADDRESS) in cuts or (ADDRESS, self._host.name) in cuts

    def _is_down(self) -> bool:
        return self._loop.now < self._down_until

    def _delay(self) -> float:
        return self._loop.random.uniform(*self._server.latency_s)


def _check(*paths: str) -> None:
    """As kazoo does, before anything is sent."""
    for path in paths:
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise ValueError("relative paths not allowed")

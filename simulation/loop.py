"""An asyncio event loop in virtual time: nothing happens in it that the seed did not decide.

The programs under test are unchanged: they sleep, time out, serve and connect as ever, and this loop
answers instead of the kernel. To wait is to move the clock to the next timer. A *host* stands for one
process: what it starts is its own (a context variable says so), and when it crashes its timers never
fire again, its tasks end, and every door to the world is shut to it. A host that is stopped (as by
SIGSTOP) stands still: its timers, and what arrives for it, wait until it goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import posixpath
import random
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .network import Network

EXECUTOR_DELAY_S = (0.00005, 0.004)
"""How long a thread may take, drawn for each call."""


GRID_S = 1e-9
"""Timers fall on whole nanoseconds."""


def _not_before(when: float) -> float:
    ticks = math.ceil(when / GRID_S)
    return ticks * GRID_S if ticks * GRID_S >= when else (ticks + 1) * GRID_S


class Stuck(RuntimeError):
    """Every task waits and no timer is set: on a real loop this would hang for ever."""


class CrashedHost(ConnectionError):
    """Code of a crashed process reached for the world. It ends with its tasks."""


class Host:
    """One life of one process. A restart is a new Host with the same name."""

    def __init__(self, name: str) -> None:
        self.name, self.alive = name, True
        self.stopped = False
        self.held: list[tuple[Callable[[], None], contextvars.Context]] = []  # what it missed while stopped

    def __repr__(self) -> str:
        return f"{self.name}{'' if self.alive else ' (dead)'}"


OUTSIDE = Host("outside")
HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("HOST", default=OUTSIDE)


class _Jump:
    """Stands where the selector stands: waiting moves the clock to the next timer."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        loop = self.loop
        if timeout is None:
            raise Stuck(f"nothing can happen any more at t={loop.now:.6f}")
        if timeout > 0:
            loop.now = max(loop.now, loop._scheduled[0]._when)  # type: ignore[attr-defined]  # not now + timeout
        loop.turns += 1
        return []

    def close(self) -> None:
        """There is nothing to close."""


class SimTask(asyncio.Task[Any]):
    """A task that hashes by its birth: sets of tasks iterate alike in every process."""

    def __init__(self, coro: Any, *, loop: SimLoop, **more: Any) -> None:
        self.birth = next(loop.births)
        context = more.get("context") or contextvars.copy_context()
        self.host: Host = context.get(HOST, OUTSIDE)
        super().__init__(coro, loop=loop, **more)
        loop.keep(self)

    def __hash__(self) -> int:
        return self.birth


class SimLoop(asyncio.BaseEventLoop):
    """The loop, its clock, its random source and its network."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        from .network import Network

        self.random = random.Random(seed)
        self.now = 0.0
        self.turns = 0
        self.births = itertools.count()
        self.network: Network = Network(self)
        self.draining = False
        self._kept: list[SimTask] = []
        self._kept_max = 1000
        self.failures: list[str] = []  # a callback that raised fails the run
        self._selector = _Jump(self)
        self._clock_resolution = GRID_S / 10
        self.set_exception_handler(self._note)
        self.set_task_factory(lambda loop, coro, **more: SimTask(coro, loop=self, **more))

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, (asyncio.CancelledError, CrashedHost)):
            frames = traceback.extract_tb(error.__traceback__)
            way = " > ".join(f"{posixpath.basename(f.filename)}:{f.lineno}" for f in frames)
            self.failures.append(f"{context.get('message')}: {error!r} ({way})")

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As ever, but a dead process has no timers, and none fires a rounding error early.

        Real time moves while a program looks at the clock; here it would look at the same instant for ever.
        """
        when = _not_before(when)
        context = context or contextvars.copy_context()
        host = context.get(HOST, OUTSIDE)
        if host is OUTSIDE:
            return super().call_at(when, callback, *args, context=context)

        def fire() -> None:
            if handle.cancelled() or not (host.alive or self.draining):
                return
            if host.stopped and not self.draining:
                host.held.append((fire, context))
            else:
                callback(*args)

        handle = super().call_at(when, fire, context=context)
        return handle

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no events but timers."""

    def _write_to_self(self) -> None:
        """`call_soon_threadsafe` wakes nobody: there are no threads."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What a thread would do is done on the loop, after as long as a thread might take."""
        done: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except (OSError, ValueError, RuntimeError, LookupError, AssertionError) as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_later(self.random.uniform(*EXECUTOR_DELAY_S), work)
        return done

    def keep(self, task: SimTask) -> None:
        """Hold a task until it is done: collected half-way, it would end itself in another one's context."""
        self._kept.append(task)
        if len(self._kept) > self._kept_max:
            self._kept = [task for task in self._kept if not task.done()]
            self._kept_max = 2 * len(self._kept) + 1000

    def spawn(self, host: Host, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a program as the process `host`: whatever it starts, dials or serves is that host's."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        return self.create_task(coro, context=context)

    def crash(self, host: Host) -> None:
        """The process is gone: peers get a reset, its tasks end, nothing of it touches the world again."""
        host.alive = False
        self.network.crash(host)
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if isinstance(task, SimTask) and task.host is host:
                task.cancel()

    def resume(self, host: Host) -> None:
        """A stopped process goes on, with all that it missed, in order."""
        host.stopped = False
        held, host.held = host.held, []
        for fire, context in held:
            self.call_soon(fire, context=context)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return self.network.listen(HOST.get(), str(host), int(port), protocol_factory)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return await self.network.dial(HOST.get(), str(host), int(port), protocol_factory)

    def drain(self) -> None:
        """Cancel whatever is left and let it end, so that nothing outlives the world."""
        self.draining = True  # the world is over: the dead may finish, though no door opens to them
        for _ in range(20):
            left = [task for task in self._kept if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.call_later(1.0, self.stop)
            self.run_forever()
        self._kept.clear()


def current_host() -> Host:
    """The process whose code is running."""
    return HOST.get()

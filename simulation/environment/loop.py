"""An asyncio event loop in virtual time: the seed alone decides what happens.

The programs under test are unchanged: they sleep, time out, serve and connect as always, and this loop
answers instead of the kernel. Waiting moves the clock to the next timer. When a process crashes, its timers
never fire again and its tasks end; while it is stopped, they wait.
Left to others: what a process is (`host.py`), links (`network.py`), threads and their pauses (`threads.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
import itertools
import posixpath
import random
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from heapq import heappop, heappush
from math import ceil
from typing import Any

from ...broker.errors import StartFailed
from ...protocol.errors import ApiError
from ...storage.disk import DiskError
from .host import HOST, OUTSIDE, CrashedHost, Host
from .network import Network
from .threads import Worker, stand_in

EXECUTOR_DELAY_S = (0.00005, 0.004)
"""How long the work of a thread may take, drawn for each call."""
FILE_CALL_S = (0.0, 0.0006)
"""If threads interleave: how long a thread pauses before each call to a file."""
THREAD_ERRORS = (
    OSError, DiskError, StartFailed, ApiError, ValueError, RuntimeError, LookupError, AssertionError,
)  # fmt: skip
"""Errors that the caller of a thread gets; every other one fails the run."""
GRID_S = 1e-9
"""Timers fall on whole nanoseconds."""
CANCELLED_MAX = 500
"""Up to this number, cancelled timers are not removed from the heap."""


def _not_before(when: float) -> float:
    ticks = ceil(when / GRID_S)
    found = ticks * GRID_S
    return found if found >= when else (ticks + 1) * GRID_S


def _is_of_the_dead(error: BaseException | None) -> bool:
    """Whether this error comes from a crashed process, whose last callbacks may fail."""
    while error is not None and not isinstance(error, (asyncio.CancelledError, CrashedHost)):
        error = error.__cause__
    return error is not None


class Stuck(RuntimeError):
    """Every task waits and no timer is set: a real loop would hang forever."""


class SimHandle(asyncio.Handle):
    """A handle of `call_soon`."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: SimLoop, context: contextvars.Context
    ) -> None:
        self._callback, self._args = callback, args
        self._loop, self._context = loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None


class SimTimer(asyncio.TimerHandle):
    """A timer of one process: it never fires if the process is dead, and late if it was stopped."""

    __slots__ = ("host",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Any,
        loop: SimLoop,
        context: contextvars.Context,
        host: Host,
    ) -> None:
        # what the base classes do, without their checks of debug mode: thousands of timers a second
        self._callback, self._args = callback, args
        self._loop, self._context = loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True
        self.host = host

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop._timer_handle_cancelled(self)
            self._callback, self._args = None, ()  # type: ignore[assignment]


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks iterate in the same order in every run."""

    def __init__(self, coro: Any, *, loop: SimLoop, **more: Any) -> None:
        self.birth = next(loop.births)
        context = more.get("context") or copy_context()
        self.host: Host = context.get(HOST, OUTSIDE)
        super().__init__(coro, loop=loop, **more)
        loop.keep(self)

    def __hash__(self) -> int:
        return self.birth


class SimLoop(asyncio.BaseEventLoop):
    """The loop, its clock, its random source and its network."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.now = 0.0
        self.turns = 0
        self.executor_delay_s = EXECUTOR_DELAY_S
        self.interleaves = False  # threads stop at their calls to files
        self._workers: dict[Worker, tuple[Host, asyncio.Future[Any], list[Callable[[], None]]]] = {}
        self.slow: dict[str, tuple[float, float]] = {}  # hosts whose threads take longer now
        self.births = itertools.count()
        self.network = Network(self, self.random)
        self.draining = False
        self._kept: list[SimTask] = []
        self._kept_max = 1000
        self.failures: list[str] = []  # a callback that raised fails the run
        self._timers: list[tuple[float, int, SimTimer]] = []  # a heap: the order of birth decides a tie
        self._numbers = itertools.count()
        self._cancelled = 0
        self.set_exception_handler(self._note)
        self.set_task_factory(lambda loop, coro, **more: SimTask(coro, loop=self, **more))

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.failed(str(context.get("message")), error)

    def failed(self, what: str, error: BaseException) -> None:
        """Code of a living process raised an unexpected error: the run fails."""
        if not _is_of_the_dead(error):
            frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
            way = " > ".join(f"{posixpath.basename(f.filename)}:{f.lineno}" for f in frames)
            self.failures.append(f"{what}: {error!r} ({way})")

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As in asyncio, but for a dead process timers never fire, and none fires early by a rounding error.

        In real time a program that wakes too early just looks again. Here time stands still, and it would
        loop forever.
        """
        when = _not_before(when)
        context = copy_context() if context is None else context  # an empty one is false
        timer = SimTimer(when, callback, args, self, context, context.get(HOST, OUTSIDE))
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """As in asyncio, without debug mode."""
        context = copy_context() if context is None else context
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Most timers are deadlines that never come: remove cancelled ones before the heap fills up."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and 2 * self._cancelled > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Turn after turn, until the loop is stopped.

        A turn calls all handles that are ready. If none is, the clock first moves to the next timer.
        """
        ready: deque[Any] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while True:
            self.turns += 1
            if not ready and not self._stopping:  # type: ignore[attr-defined]
                self._jump()
            now = self.now
            while timers and timers[0][0] <= now:
                timer = heappop(timers)[2]
                if not timer._cancelled:
                    self._fire(timer, ready)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _fire(self, timer: SimTimer, ready: deque[Any]) -> None:
        host = timer.host
        if not (host.alive or self.draining):
            return
        if host.stopped and not self.draining:
            host.held.append(timer)
        else:
            ready.append(timer)

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Stuck(f"deadlock at t={self.now:.6f}: nothing is left to run")
        self.now = max(self.now, timers[0][0])

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing to do: there are no events but timers."""

    def _write_to_self(self) -> None:
        """Nothing to do: there are no threads that `call_soon_threadsafe` would have to wake."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a thread's work after the time that a thread might take: all at once on the loop or, if the
        world interleaves, in a simulated thread that pauses before each call to a file.
        """
        done: asyncio.Future[Any] = self.create_future()
        outcome: list[Callable[[], None]] = []

        def work() -> None:
            try:
                result = func(*args)
            except THREAD_ERRORS as error:
                outcome.append(functools.partial(done.set_exception, error))
            else:
                outcome.append(functools.partial(done.set_result, result))

        def begin() -> None:
            if done.cancelled():
                return
            if self.interleaves:
                self._work_on(Worker(work, self._paused), HOST.get(), done, outcome)
            else:
                stand_in(work)
                outcome[0]()

        takes_s = self.slow.get(HOST.get().name, self.executor_delay_s)
        self.call_later(self.random.uniform(*takes_s), begin)
        return done

    def _work_on(
        self, worker: Worker, host: Host, done: asyncio.Future[Any], outcome: list[Callable[[], None]]
    ) -> None:
        """Run a simulated thread up to its next pause. If it has ended, set its result."""
        self._workers[worker] = host, done, outcome
        worker.step()
        if worker.ended:
            del self._workers[worker]
            if not done.done():
                outcome[0]()

    def _paused(self, worker: Worker) -> None:
        """A thread has paused: it resumes after a random delay. In a dead process `_end_workers` ends it."""
        host, done, outcome = self._workers[worker]
        if host.alive and not self.draining:
            self.call_later(self.random.uniform(*FILE_CALL_S), self._work_on, worker, host, done, outcome)

    def _end_workers(self, host: Host | None) -> None:
        """The process is dead: run its threads to their ends, where file calls fail; drop their results."""
        for worker, (owner, done, _) in list(self._workers.items()):
            if host is None or owner is host:
                while not worker.ended:
                    worker.step()
                self._workers.pop(worker, None)
                done.cancel()

    def keep(self, task: SimTask) -> None:
        """Hold a task until it is done: garbage collected before that, it would end in another's context."""
        self._kept.append(task)
        if len(self._kept) > self._kept_max:
            self.let_go()

    def let_go(self) -> None:
        """Drop tasks that are done. If nobody retrieved the error of one, asyncio reports it now."""
        self._kept = [task for task in self._kept if not task.done()]
        self._kept_max = 2 * len(self._kept) + 1000

    def spawn(self, host: Host, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a program as the process `host`, which owns all tasks and connections that it starts."""
        context = copy_context()
        context.run(HOST.set, host)
        return self.create_task(coro, context=context)

    def crash(self, host: Host, *, vanishes: bool = False) -> None:
        """The process dies: its peers get a reset, its tasks end, and it can do nothing any more.

        If its machine `vanishes` with it, peers get no reset.
        """
        host.alive = False
        self._end_workers(host)
        self.network.crash(host, vanishes=vanishes)
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if isinstance(task, SimTask) and task.host is host:
                task.cancel()

    def resume(self, host: Host) -> None:
        """A stopped process resumes, and gets all that it missed, in order."""
        host.stopped = False
        held, host.held = host.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return self.network.listen(HOST.get(), str(host), int(port), protocol_factory)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return await self.network.dial(HOST.get(), str(host), int(port), protocol_factory)

    def drain(self) -> None:
        """Cancel all tasks that are left and let them end, so that nothing outlives the world."""
        self.draining = True  # the world is over: tasks of dead hosts may finish, but reach nothing
        self._end_workers(None)
        for _ in range(20):
            left = [task for task in self._kept if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.call_later(1.0, self.stop)
            self.run_forever()
        self._kept.clear()

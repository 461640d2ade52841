"""Background tasks with an owner: the owner spawns them here and must await `stop()`.

A task that fails is logged at once, and `stop()` raises its failure again (`on_failure` is for an owner that
must react earlier). Tasks that end well are forgotten. A sustained task is restarted after a failure instead:
its owner does without it for a moment, and its failures never end the owner.
Left to others: what to do about a failure; work that belongs to one function (use `asyncio.TaskGroup`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .logger import get_logger

log = get_logger(__name__)

FailureHook = Callable[[BaseException], None]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # before failed work is restarted


class Tasks:
    """Running tasks in the order in which they were spawned; `stop` goes in reverse order."""

    def __init__(self, owner: str, on_failure: FailureHook | None = None) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._running: dict[asyncio.Task[Any], None] = {}
        self._failures: list[BaseException] = []
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called: nothing more can be spawned."""
        return self._stopping

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` until it ends or `stop()` is called."""
        if self._stopping:
            work.close()
            raise RuntimeError(f"{self._owner} is stopping")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}.{name}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def sustain(
        self,
        work: Callable[[], Coroutine[Any, Any, Any]],
        name: str,
        on_trouble: FailureHook = lambda failure: None,
    ) -> asyncio.Task[Any]:
        """Run `work()` until it ends well or `stop()` is called. Failed work restarts after a growing pause.

        Each failure is logged at once and passed to `on_trouble`. For work that others do not depend on.
        """
        return self.spawn(self._sustained(work, name, on_trouble), name)

    async def _sustained(
        self, work: Callable[[], Coroutine[Any, Any, Any]], name: str, on_trouble: FailureHook
    ) -> None:
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            began = loop.time()
            task = loop.create_task(work(), name=f"{self._owner}.{name}.work")
            try:
                await asyncio.wait([task])
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
            failure = None if task.cancelled() else task.exception()
            if failure is None:
                return
            if loop.time() - began > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            log.error("task_failed", task=f"{self._owner}.{name}", retry_in_s=pause_s, exc_info=failure)
            on_trouble(failure)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def forgive(self, failure: BaseException) -> None:
        """The owner has handled this failure: `stop()` must not raise it."""
        self._failures = [each for each in self._failures if each is not failure]

    async def stop(self) -> None:
        """Cancel all tasks, wait for them, then raise the first failure that ever happened here."""
        self._stopping = True
        mine = asyncio.current_task()
        tasks = [task for task in reversed(self._running) if task is not mine]
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
        if self._failures:
            failure, self._failures = self._failures[0], []
            raise failure

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            return
        self._failures.append(failure)
        log.error("task_failed", task=task.get_name(), exc_info=failure)
        if self._on_failure is not None:
            self._on_failure(failure)

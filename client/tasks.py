"""Background tasks with an owner: who spawns them here also awaits `stop()`.

A task that fails is logged at once, remembered, and its failure raised again by `stop()` (and handed to
`on_failure` when the owner must react earlier). Tasks that end well are forgotten.
Left to others: what to do about a failure; work that belongs to one function (use `asyncio.TaskGroup`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .log import get_logger

log = get_logger(__name__)

FailureHook = Callable[[BaseException], None]


class Tasks:
    """A set of running tasks in order of birth; stops in the reverse order."""

    def __init__(self, owner: str, on_failure: FailureHook | None = None) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._running: dict[asyncio.Task[Any], None] = {}
        self._failures: list[BaseException] = []
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` until it ends or `stop()` is called."""
        if self._stopping:
            work.close()
            raise RuntimeError(f"{self._owner} is stopping")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}.{name}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Cancel what runs, wait for all of it, then raise the first failure that ever happened here."""
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

"""One timer for all groups: a heap of groups by deadline, and one task that waits for the first.

A group's entry is at or before its true deadline; waking too early does no harm. A heartbeat only postpones a
deadline, so it never touches the heap. Left to others: what is due (group.py, consumer/performing.py).
"""

import asyncio
import heapq
from collections.abc import Callable

from .shards import AnyGroup


class GroupTimer:
    """Calls `due(group, now)` for every group whose deadline has come, and `pass_due(now)` at intervals."""

    def __init__(
        self, due: Callable[[AnyGroup, float], None], pass_due: Callable[[float], None], pass_interval: float
    ) -> None:
        self._due = due
        self._pass_due = pass_due
        self._pass_interval = pass_interval
        self._pass_at: float | None = None
        self._heap: list[tuple[float, int, AnyGroup]] = []
        self._armed: dict[AnyGroup, float] = {}
        self._entries = 0
        self._sooner = asyncio.Event()

    def arm(self, group: AnyGroup) -> None:
        """Wake `group` at its `wake_at`, unless it is woken before that anyway."""
        planned = self._armed.get(group)
        if group.wake_at == float("inf") or (planned is not None and planned <= group.wake_at):
            return
        self._armed[group] = group.wake_at
        self._entries += 1  # breaks ties by age: groups cannot be compared
        heapq.heappush(self._heap, (group.wake_at, self._entries, group))
        if self._heap[0][2] is group:
            self._sooner.set()

    def forget(self, group: AnyGroup) -> None:
        """The group is gone; its entries in the heap are skipped."""
        self._armed.pop(group, None)

    def tick(self, now: float) -> None:
        """Wake every group whose deadline has come."""
        for group in self._take_due(now):
            self._due(group, now)
            self.arm(group)
        if self._pass_at is None:
            self._pass_at = now + self._pass_interval
        elif self._pass_at <= now:
            self._pass_at = now + self._pass_interval
            self._pass_due(now)

    def _take_due(self, now: float) -> list[AnyGroup]:
        found = []
        while self._heap and self._heap[0][0] <= now:
            when, _, group = heapq.heappop(self._heap)
            if self._armed.get(group) == when:  # else an older plan
                del self._armed[group]
                found.append(group)
        return found

    async def run(self) -> None:
        """Sleep until the next deadline, or until a sooner one is armed. Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            self._sooner.clear()
            self.tick(loop.time())
            planned = [self._heap[0][0]] if self._heap else []
            until = min([*planned, *([self._pass_at] if self._pass_at is not None else [])])
            try:
                async with asyncio.timeout_at(until):
                    await self._sooner.wait()
            except TimeoutError:
                continue

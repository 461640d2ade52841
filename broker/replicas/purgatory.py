"""The purgatory: produce requests that wait for acks=all, and whatever else waits for an offset or a time.

None of them has a future, a task or a timer of its own.

A produce with acks=all leaves one entry per partition in a queue ordered by the offset that it needs. When
the high watermark moves, the front of the queue is complete. All waiters stand in one timing wheel with a
single timer. Completing a waiter only answers it: nothing is appended or fetched from here.
Left to others: fetches, which wait here for their deadline only (fetch/parked.py), what is answered
(handlers/produce.py, handlers/fetch.py), when the watermark moves
(partition.py).
Why: docs/decisions/0013-no-task-per-request.md
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from ...protocol.errors import ErrorCode

SLOT_SECONDS = 0.005  # the precision of deadlines
WAITING_MAX = 200_000  # beyond it, a request is answered at once as if it had timed out


class Waiter:
    """Something with a deadline. `slot` is its place in the wheel, None when it is not waiting."""

    __slots__ = ("slot",)
    insists = False  # what it waits for counts only once as many replicas have it as acks=all promises

    def __init__(self) -> None:
        self.slot: int | None = None

    def expire(self) -> None:
        """The deadline has passed."""
        raise NotImplementedError

    def reached(self, place: int, code: ErrorCode) -> None:
        """What entry `place` of this waiter waits for has come (NONE) or cannot come any more (an error)."""
        raise NotImplementedError


class Deadlines:
    """A timing wheel: adding and removing cost a dictionary operation each, and one timer serves all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, dict[Waiter, None]] = {}
        self._order: list[int] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return self._count

    def add(self, waiting: Waiter, deadline: float) -> bool:
        """Call `waiting.expire()` soon after `deadline`. False if there is no room for more."""
        assert waiting.slot is None, "a request has one deadline"
        if self._count >= WAITING_MAX or self._stopped:
            return False
        slot = int(deadline / SLOT_SECONDS) + 1
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = {}
            heappush(self._order, slot)
            if self._order[0] == slot:
                self._arm()
        members[waiting] = None
        waiting.slot = slot
        self._count += 1
        return True

    def remove(self, waiting: Waiter) -> None:
        """It is done. Does nothing for one that is not waiting."""
        slot, waiting.slot = waiting.slot, None
        if slot is not None:
            del self._slots[slot][waiting]
            self._count -= 1

    def waiting(self) -> Iterator[Waiter]:
        """All that wait. They may come and go between two steps."""
        for members in list(self._slots.values()):
            yield from tuple(members)

    def stop(self) -> None:
        """Nothing expires any more, and nothing can be added."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._order[0] * SLOT_SECONDS, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time() + SLOT_SECONDS / 2
        try:
            while self._order and self._order[0] * SLOT_SECONDS <= now:
                self._expire_all(self._slots[self._order[0]])
                del self._slots[heappop(self._order)]
        finally:  # if one of them raises, the others still expire
            if self._order and self._timer is None and not self._stopped:
                self._arm()

    def _expire_all(self, members: dict[Waiter, None]) -> None:
        while members:  # a waiter may add itself to the same slot again
            for waiting in tuple(members):
                if waiting in members:
                    self.remove(waiting)
                    waiting.expire()


class AckQueue:
    """The waiters for the high watermark of one partition, by the offset that it must reach. `sparse` are
    those that it has reached, and that wait on because too few replicas are in sync.
    """

    __slots__ = ("_gone", "entries", "sparse")

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Waiter, int]] = deque()
        self.sparse: list[tuple[int, Waiter, int]] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, required: int, waiting: Waiter, place: int) -> None:
        """Complete entry `place` of `waiting` when the high watermark reaches `required`.

        A duplicate batch needs an offset below the last one, so it is inserted in order, near the end.
        """
        entries = self.entries
        if not entries or entries[-1][0] <= required:
            entries.append((required, waiting, place))
            return
        at = len(entries)
        while at and entries[at - 1][0] > required:
            at -= 1
        entries.insert(at, (required, waiting, place))

    def reach(self, high_watermark: int, code: ErrorCode) -> None:
        """Complete all that need no more than `high_watermark`, with `code`."""
        if self.sparse and code is ErrorCode.NONE:
            enough, self.sparse = self.sparse, []
            for _, waiting, place in enough:
                waiting.reached(place, code)
        entries = self.entries
        while entries and entries[0][0] <= high_watermark:
            entry = entries.popleft()
            _, waiting, place = entry
            if waiting.insists and code is not ErrorCode.NONE:
                self.sparse.append(entry)
            elif waiting.slot is not None:
                waiting.reached(place, code)

    def fail(self, code: ErrorCode) -> None:
        """Complete all with an error: this broker cannot serve them any more."""
        entries, self.entries = [*self.sparse, *self.entries], deque()
        self.sparse, self._gone = [], 0
        for _, waiting, place in entries:
            if waiting.slot is not None:
                waiting.reached(place, code)

    def one_expired(self) -> None:
        """An entry's deadline has passed. Expired entries are removed once they are half of the queue."""
        self._gone += 1
        if self._gone * 2 > len(self.entries):
            self.entries = deque(entry for entry in self.entries if entry[1].slot is not None)
            self._gone = 0

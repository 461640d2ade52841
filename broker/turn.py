"""The turn of the event loop: what requests change is settled once, at the end of the turn.

All complete frames of every readable connection are executed first. They mark partitions and connections
here. Then `end` runs once for all of them:
1. each partition that changed raises its high watermark and completes produce requests;
2. fetches whose partitions have news read again, once each;
3. what subscribed with `after_settling` runs (flushes begin);
4. each connection with answers writes them in one `writelines`.
So a busy turn costs one settling per partition and one write per connection, however many requests it has.
Left to others: what settling is (replicas/partition.py), what a fetch reads (fetch/parked.py), the order of
answers (network/connection.py).
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from ..base.tasks import FailureHook


class Marked(Protocol):
    """A partition that may have changed."""

    def settle(self, now: float) -> None:
        """Do once what all changes of this turn ask for."""


class Woken(Protocol):
    """A fetch that found too little. It retries when one of its partitions has news."""

    def look_again(self) -> None: ...


class Answered(Protocol):
    """A connection with answers that may leave."""

    def flush(self) -> None:
        """Write them."""


class FailStop:
    """Wraps whatever executes requests: an unexpected exception stops the node (style principle 8)."""

    __slots__ = ("_fail",)

    def __init__(self, fail: FailureHook) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)


class Turn:
    """What must happen at the end of this turn of the loop."""

    __slots__ = (
        "_after_settling", "_answered", "_loop", "_marked", "_woken", "before", "fail_stop", "is_awake",
        "is_open",
    )  # fmt: skip

    def __init__(self, fail: FailureHook) -> None:
        self.is_open = False  # requests are executed; not before the start is complete, not after a failure
        self.is_awake = False  # something was executed in this turn, and `end` is scheduled
        self.before: Callable[[], None] = _nothing  # called when bytes have come, before they are executed
        self.fail_stop = FailStop(fail)
        self._loop = asyncio.get_running_loop()
        self._marked: list[Marked] = []
        self._woken: dict[Woken, None] = {}
        self._answered: list[Answered] = []
        self._after_settling: list[Callable[[], None]] = []

    def after_settling(self, work: Callable[[], None]) -> None:
        """Also run `work` whenever a turn has settled."""
        self._after_settling.append(work)

    def wake(self) -> None:
        """Something was executed: schedule the end of this turn. Cheap, idempotent."""
        if not self.is_awake:
            self.is_awake = True
            self._loop.call_soon(self.end)

    def mark(self, partition: Marked) -> None:
        """Settle `partition` at the end of the turn. It calls this once a turn; requests wake the turn."""
        self._marked.append(partition)

    def notify(self, fetch: Woken) -> None:
        """A partition of `fetch` has news: it reads again at the end of the turn, once."""
        self._woken[fetch] = None

    def forget(self, fetch: Woken) -> None:
        """`fetch` has been answered."""
        self._woken.pop(fetch, None)

    def answered(self, connection: Answered) -> None:
        """`connection` has answers, which leave at the end of the turn. It calls this once a turn."""
        self._answered.append(connection)
        self.wake()

    def end(self) -> None:
        """The end of the turn: settle what changed, then let answers leave."""
        with self.fail_stop:
            if self.is_open:
                self.settle()
            self.is_awake = False
            answered, self._answered = self._answered, []
            for connection in answered:
                connection.flush()

    def settle(self) -> None:
        """Settle partitions that changed and let fetches with news read again, until nothing is left."""
        now = self._loop.time()
        while self._marked or self._woken:
            marked, self._marked = self._marked, []
            for partition in marked:
                partition.settle(now)
            woken, self._woken = self._woken, {}
            for fetch in woken:
                fetch.look_again()
        for work in self._after_settling:
            work()


def _nothing() -> None:
    """The default for `before`."""

"""ColdReads: threads for what cannot be read without waiting for the medium.

A fetch that meets such records is parked like one that found too little; a thread brings them into memory,
and then it reads again, with every check made again. Few threads read at once, a bounded number of reads
waits for them, and who wants the same shares one. Beyond the bound a fetch ends at its deadline and comes
again. Questions about times are asked here too.
Left to others: what is cold (storage/cold.py, apart.py and segment.py there), the wait (parked_fetch.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..client.tasks import FailureHook
from ..storage.apart import ReadApart
from ..storage.cold import Cold

if TYPE_CHECKING:
    from .partition import Partition

THREADS = 4
QUEUE_MAX = 1000

Job = tuple[Hashable, Callable[[], None], Callable[[], None]]  # what it is, in a thread, then on the loop


class ColdReads:
    """The reads of one broker that wait for a medium."""

    __slots__ = ("_executor", "_free", "_known", "_loop", "_on_failure", "_queue", "_under_way", "_wake")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None], on_failure: FailureHook | None
    ) -> None:
        self._loop = loop
        self._wake = wake
        self._on_failure = on_failure
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="cold-read")
        self._free = THREADS
        self._queue: deque[Job] = deque()
        self._known: set[Hashable] = set()
        self._under_way: dict[asyncio.Future[None], Job] = {}

    def bring(self, partition: "Partition", cold: Cold | ReadApart) -> bool:
        """Bring it into memory; then all who wait at `partition` look again. False if there is no room."""
        if cold.key in self._known:
            return True
        return self.run(cold.key, cold.warm, lambda: self._brought(partition, cold))

    def run(self, key: Hashable, work: Callable[[], None], then: Callable[[], None]) -> bool:
        """Do `work`, which raises nothing, in a thread, and `then` on the loop. False if there is no room."""
        if len(self._queue) >= QUEUE_MAX:
            return False
        self._known.add(key)
        self._queue.append((key, work, then))
        self._start()
        return True

    def _start(self) -> None:
        while self._queue and self._free:
            job = self._queue.popleft()
            self._free -= 1
            read = self._loop.run_in_executor(self._executor, job[1])
            self._under_way[read] = job
            read.add_done_callback(self._ended)

    def _ended(self, read: asyncio.Future[None]) -> None:
        key, _, then = self._under_way.pop(read)
        self._free += 1
        self._known.discard(key)
        if not read.cancelled():
            trouble = read.exception()
            if trouble is None:
                then()
            elif self._on_failure is not None:
                self._on_failure(trouble)
        self._start()

    def _brought(self, partition: "Partition", cold: Cold | ReadApart) -> None:
        cold.settle()
        if cold.error is not None and partition.offline is None and not partition.log.closed:
            partition.disk_failed(cold.error)
        partition.stir()
        self._wake()

    async def stop(self) -> None:
        """Begin no more, and wait for what is under way."""
        self._queue.clear()
        if self._under_way:
            await asyncio.wait(list(self._under_way))
        self._executor.shutdown(wait=False)

"""ColdReads: threads that read records which are not in memory, so the event loop never waits for a disk.

A fetch that meets such records is parked, like one that found too little. A thread brings the records into
memory; then the fetch reads again, with every check repeated. Each log directory has few threads and a
bounded queue, and fetches for the same records share one read. Beyond the bound a fetch ends at its deadline
and the client asks again. A disk that hangs blocks only its own threads. Look-ups by timestamp run here too.
Left to others: what is cold (storage/segment/not_resident.py, storage/log/uncached_read.py), the wait
(fetch/parked.py).
Why: docs/decisions/0018-cold-reads.md
"""

import asyncio
import posixpath
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ...base.tasks import FailureHook
from ...storage.disk import DiskError
from ...storage.log.log import Log
from ...storage.log.uncached_read import ReadApart
from ...storage.segment.not_resident import Cold
from ..turn import Turn

THREADS = 4  # in each log directory
QUEUE_MAX = 1000  # waiting reads in each log directory

Job = tuple[Hashable, Callable[[], None], Callable[[], None]]  # key, work in a thread, then on the loop


class ColdReplica(Protocol):
    """The replica whose records are brought, as seen from here."""

    log: Log
    offline: str | None

    def disk_failed(self, error: DiskError) -> object:
        """A file call failed."""

    def stir(self) -> None:
        """Every parked fetch retries."""


class DirectoryReads:
    """The reads of one log directory."""

    __slots__ = ("free", "queue")

    def __init__(self) -> None:
        self.free = THREADS
        self.queue: deque[Job] = deque()


class ColdReads:
    """The reads of one broker that have to wait for a disk."""

    __slots__ = ("_executor", "_known", "_lanes", "_loop", "_on_failure", "_turn", "_under_way")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        on_failure: FailureHook | None,
        directories: int,
    ) -> None:
        """`directories`: how many log directories there are."""
        self._loop = loop
        self._turn = turn
        self._on_failure = on_failure
        self._executor = ThreadPoolExecutor(directories * THREADS, thread_name_prefix="cold-read")
        self._lanes: defaultdict[str, DirectoryReads] = defaultdict(DirectoryReads)  # by log directory
        self._known: set[Hashable] = set()
        self._under_way: dict[asyncio.Future[None], tuple[DirectoryReads, Job]] = {}

    def bring(self, partition: ColdReplica, cold: Cold | ReadApart) -> bool:
        """Bring it into memory, then wake the fetches parked at `partition`. False if the queue is full."""
        if cold.key in self._known:
            return True
        return self.run(partition.log, cold.key, cold.warm, lambda: self._brought(partition, cold))

    def run(self, log: Log, key: Hashable, work: Callable[[], None], then: Callable[[], None]) -> bool:
        """Run `work`, which reads `log` and must not raise, in a thread, then `then` on the loop. False if
        the queue is full.
        """
        lane = self._lanes[posixpath.dirname(log.directory)]
        if len(lane.queue) >= QUEUE_MAX:
            return False
        self._known.add(key)
        lane.queue.append((key, work, then))
        self._start(lane)
        return True

    def _start(self, lane: DirectoryReads) -> None:
        while lane.queue and lane.free:
            job = lane.queue.popleft()
            lane.free -= 1
            read = self._loop.run_in_executor(self._executor, job[1])
            self._under_way[read] = lane, job
            read.add_done_callback(self._ended)

    def _ended(self, read: asyncio.Future[None]) -> None:
        lane, (key, _, then) = self._under_way.pop(read)
        lane.free += 1
        self._known.discard(key)
        if not read.cancelled():
            trouble = read.exception()
            if trouble is None:
                then()
            elif self._on_failure is not None:
                self._on_failure(trouble)
        self._start(lane)

    def _brought(self, partition: ColdReplica, cold: Cold | ReadApart) -> None:
        cold.settle()
        if cold.error is not None and partition.offline is None and not partition.log.closed:
            partition.disk_failed(cold.error)
        partition.stir()
        self._turn.wake()

    async def stop(self) -> None:
        """Begin no more reads, and wait for those under way."""
        for lane in self._lanes.values():
            lane.queue.clear()
        if self._under_way:
            await asyncio.wait(list(self._under_way))
        self._executor.shutdown(wait=False)

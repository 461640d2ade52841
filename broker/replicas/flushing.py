"""Flushes logs in threads, with group commit: records appended during a flush are covered by the next one.

A log is queued when a replica may not acknowledge more before a flush, or when the periodic pass finds it due
by flush.ms or finds an unflushed closed segment. Each thread runs one lane at a time: a share of the queued
logs. A log is in at most one lane. The event loop decides what a thread does and records the result; nothing
waits with a future or a task of its own.
Left to others: what one flush is (storage/log/flush.py), who may not acknowledge what (partition.py,
replication/follower.py), writing recovery points down (upkeep/passes.py).
Why: docs/decisions/0026-flushed-before-acknowledged.md
"""

import asyncio
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import structlog

from ...base.event import Event
from ...base.tasks import FailureHook, Tasks
from ...storage.config import INT64_MAX, StorageConfig
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError, NoDescriptor
from ...storage.log.flush import Flush
from ...storage.log.log import Log
from ..network.timings import Timings
from ..turn import Turn

logger = structlog.get_logger(__name__)

Job = tuple[Log, Flush]

PASS_SECONDS_MAX = 1.0  # a closed segment's flush begins within this time
PASS_SECONDS_MIN = 0.01
LOGS_PER_TURN = 500  # checked between two yields to the event loop
RETRY_SECONDS = 0.1  # after running out of file descriptors
SHARE_MAX = 32  # logs in one lane: none is acknowledged before all are flushed


class Flushing:
    """All flushes of one broker."""

    def __init__(
        self,
        logs: Logs,
        config: StorageConfig,
        turn: Turn,
        on_failure: FailureHook | None = None,
    ) -> None:
        self.flushed: Event[Log] = Event()  # its flush has ended; the subscriber may want it again
        self.failed: Event[Log, DiskError] = Event()
        self._logs = logs
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._free = config.flush_threads
        self._executor = ThreadPoolExecutor(config.flush_threads, thread_name_prefix="flush")
        self._wanted: dict[Log, bool] = {}  # whether only its closed segments are wanted
        self._lanes: dict[asyncio.Future[None], tuple[str, Sequence[Job], int]] = {}  # begun when, in ns
        self._in: Counter[str] = Counter()  # lanes in each directory
        self._lanes_max = max(config.flush_threads - 1, 1)  # for one directory, if there are several
        self._busy: dict[Log, None] = {}
        self._turn = asyncio.Event()  # set when the next lane ends, then replaced
        self._stopped = False
        self.timings: Timings | None = None  # count there how long flushes take
        self._tasks = Tasks("flushing", on_failure)
        self._scheduler_s = config.flush_scheduler_interval_ms / 1000
        self._by_default = config.flush_scheduler_interval_ms == INT64_MAX
        self._unflushed_since: dict[Log, float] = {}  # when a pass first saw unflushed records under flush.ms
        self._look_at_times_at = 0.0
        turn.after_settling(self.start)

    # Wanting.

    def want(self, each: Log, sealed_only: bool = False) -> None:
        """Queue this log for a flush, which `start` begins. Does nothing if it is in a lane."""
        if each not in self._busy:
            self._wanted[each] = sealed_only and self._wanted.get(each, True)

    async def until_flushed(self, logs: Iterable[Log]) -> None:
        """Return when everything these logs hold now is flushed, or never can be."""
        left = {each: (each.generation, each.end_offset) for each in logs}
        while not self._stopped:
            left = {each: aim for each, aim in left.items() if _is_missing(each, *aim)}
            if not left:
                return
            for each in left:
                self.want(each)
            self.start()
            if self._lanes:
                await self._turn.wait()
            else:
                await asyncio.sleep(RETRY_SECONDS)

    # Lanes.

    def start(self) -> None:
        """Begin flushes of queued logs, as far as lanes are free."""
        while self._wanted and self._free and not self._stopped:
            directory, share = self._next_share(min(-(-len(self._wanted) // self._free), SHARE_MAX))
            if not share:
                return
            jobs = self._begin(share)
            if jobs:
                self._free -= 1
                self._in[directory] += 1
                lane = self._loop.run_in_executor(self._executor, _run, jobs)
                self._lanes[lane] = directory, jobs, self._ticks_ns()
                lane.add_done_callback(self._ended)

    def _ticks_ns(self) -> int:
        return 0 if self.timings is None else self.timings.ticks_ns()

    def _next_share(self, count: int) -> tuple[str, list[Log]]:
        """The next queued logs of one directory, and its name: one that hangs must not take all lanes."""
        if len(self._logs.places.configured) == 1:
            return "", list(islice(self._wanted, count))
        for each in self._wanted:
            directory = posixpath.dirname(each.directory)
            if self._in[directory] < self._lanes_max:
                same = (other for other in self._wanted if posixpath.dirname(other.directory) == directory)
                return directory, list(islice(same, count))
        return "", []

    def _begin(self, share: Iterable[Log]) -> list[Job]:
        jobs = []
        for each in share:
            sealed_only = self._wanted.pop(each)
            if each.failed or each.closed:
                continue
            self._busy[each] = None
            try:
                jobs.append((each, each.begin_flush(sealed_only)))
            except DiskError as error:
                self._loop.call_soon(self._trouble, each, error)
        return jobs

    def _ended(self, lane: asyncio.Future[None]) -> None:
        directory, jobs, began_ns = self._lanes.pop(lane)
        if self.timings is not None:
            self.timings.flushes.add(self._ticks_ns() - began_ns)
        self._free += 1
        self._in[directory] -= 1
        for each, _ in jobs:
            del self._busy[each]
        if lane.cancelled():
            return
        if (trouble := lane.exception()) is None:
            self._believe(jobs)
        elif self._on_failure is not None:
            self._on_failure(trouble)
        self.start()
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    def _believe(self, jobs: Sequence[Job]) -> None:
        for each, flush in jobs:
            self._unflushed_since.pop(each, None)
            try:
                each.end_flush(flush)
            except DiskError as error:
                self._trouble(each, error)
            else:
                self.flushed(each)

    def _trouble(self, each: Log, error: DiskError) -> None:
        if isinstance(error, NoDescriptor):  # this passes
            logger.warning("flush_delayed", partition=str(each.partition), reason=str(error))
            self._busy[each] = None
            self._loop.call_later(RETRY_SECONDS, self._try_again, each)
        else:
            self._busy.pop(each, None)
            self.failed(each, error)

    def _try_again(self, each: Log) -> None:
        self._busy.pop(each, None)
        self.want(each)
        self.start()

    # Periodic passes.

    def begin_passes(self) -> None:
        """Start the periodic pass over flush.ms and closed segments."""
        self._tasks.spawn(self._run_passes(), "passes")

    async def stop(self) -> None:
        """Begin no more flushes, and wait for those under way."""
        self._stopped = True
        await self._tasks.stop()
        if self._lanes:
            await asyncio.wait(list(self._lanes))
        self._turn.set()
        self._executor.shutdown(wait=False)

    async def _run_passes(self) -> None:
        pause_s = PASS_SECONDS_MAX
        while True:
            await asyncio.sleep(pause_s)
            pause_s = await self._pass()

    async def _pass(self) -> float:
        """Queue what is due. Returns the seconds until the next pass."""
        now, shortest_ms = self._loop.time(), INT64_MAX
        by_time = now >= self._look_at_times_at
        for place, each in enumerate(list(self._logs.logs.values()), 1):
            flush_ms = each.config.flush_ms
            if flush_ms < INT64_MAX and each.flushed_offset < each.end_offset:
                since = self._unflushed_since.setdefault(each, now)
                if by_time and now - since >= flush_ms / 1000:
                    self.want(each)
            shortest_ms = min(shortest_ms, flush_ms)
            if not each.sealed_is_flushed:
                self.want(each, sealed_only=True)
            if not place % LOGS_PER_TURN:
                await asyncio.sleep(0)
        self.start()
        between_s = shortest_ms / 1000 if self._by_default else self._scheduler_s
        if by_time:
            self._look_at_times_at = now + (0.0 if self._by_default else between_s)
            self._forget_the_gone()
        return min(max(between_s, PASS_SECONDS_MIN), PASS_SECONDS_MAX)

    def _forget_the_gone(self) -> None:
        gone = [each for each in self._unflushed_since if each.closed or each.failed]
        for each in gone:
            del self._unflushed_since[each]


def _is_missing(each: Log, generation: int, end: int) -> bool:
    """Whether records before `end` are still in the log and not flushed yet."""
    usable = not (each.failed or each.closed) and each.generation == generation
    return usable and each.flushed_offset < end


def _run(jobs: Sequence[Job]) -> None:
    for _, flush in jobs:
        flush.run()

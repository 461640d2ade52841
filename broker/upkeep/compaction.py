"""Log compaction (Kafka's LogCleaner): each cleaner takes one log at a time, the dirtiest first.

The cleaners (cleaner_processes.py) read segments that nobody changes and write new ones, which are swapped in
here, one per loop turn. If the log is truncated or deleted meanwhile, the cleaning is given up, its files are
removed, and the log is considered again later. The same after a cleaning that failed. But a log with
unreadable records is not tried again before the next start or its next truncation. A transaction without an
end marker, as a log taken over from Kafka may have, holds compaction back at its first record.
Left to others: what is due (storage/cleaning/plan.py), how files are swapped
(storage/segment/segment_swap.py).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import Clock, TopicPartition
from ...base.values import dataclass
from ...storage.cleaning.job import Cleaned, Done, Failed, Job
from ...storage.cleaning.plan import Dirt, LogFacts, dirt, is_due
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError, disk_error
from ...storage.log.log import Log
from ...storage.log.retention import with_ends
from ...storage.segment.segment_swap import discard, make_room
from ..replicas.replicas import Replicas
from .cleaner_processes import Cleaners, closing, ended

logger = structlog.get_logger(__name__)

REST_S_MIN = 0.05
RETRY_S = 60.0  # after a failed cleaning
SECRET_BYTES = 16
HELD_S = 900.0  # until a log that an unfinished transaction held back is read again


@dataclass(slots=True)
class Counts:
    """Gauges and counters of compaction, for status and metrics."""

    cleanings: int = 0
    given_up: int = 0
    failures: int = 0
    bytes_freed: int = 0
    uncleanable: int = 0


class _Held(NamedTuple):
    """The offset where an unfinished transaction begins, and until when to assume so (the loop's time)."""

    at: int
    until: float


class Compactor:
    """The compaction of a broker's logs. `uncleanable` holds the logs it gave up, and why."""

    def __init__(
        self,
        logs: Logs,
        replicas: Replicas,
        clock: Clock,
        cleaners: Cleaners,
        secret: Callable[[int], bytes],
        on_disk_failed: Callable[[None, DiskError], None],
        on_failure: FailureHook,
    ) -> None:
        """`on_disk_failed` is told of a failed call at a log that no replica has."""
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._cleaners = cleaners
        self._secret = secret
        self._on_disk_failed = on_disk_failed
        self._tasks = Tasks("cleaning", on_failure)
        self._loop = asyncio.get_running_loop()
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._retry_at: dict[TopicPartition, float] = {}
        self._held: dict[TopicPartition, _Held] = {}
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        self._counts = Counts()
        logs.cleaned.on_cut = self._on_cut

    def start(self) -> None:
        """Start the cleaners, if compaction is enabled. Called again after a config change."""
        if self._logs.config.cleaner_enable:
            for number in range(self._logs.config.cleaner_threads):
                if number not in self._lanes or self._lanes[number].done():
                    self._lanes[number] = self._tasks.spawn(self._work(number), f"cleaner-{number}")

    async def stop(self) -> None:
        """Give up running cleanings and end the helper processes."""
        try:
            await self._tasks.stop()
        finally:
            await self._cleaners.stop()

    def counts(self) -> Counts:
        """The gauges and counters."""
        self._counts.uncleanable = len(self.uncleanable)
        return self._counts

    async def _work(self, number: int) -> None:
        while number < self._logs.config.cleaner_threads:
            if not await self.clean_filthiest():
                await asyncio.sleep(max(self._logs.config.cleaner_backoff_ms / 1000, REST_S_MIN))

    async def clean_filthiest(self) -> bool:
        """Clean the dirtiest log. False if none is due."""
        found = self._filthiest()
        if found is None:
            return False
        each, planned = found
        partition = each.partition
        cleaning = self._clean(each, planned, each.start_offset)
        task = self._running[partition] = self._tasks.spawn(cleaning, str(partition))
        try:
            await asyncio.wait([task])
        finally:
            del self._running[partition]
        return True

    def _on_cut(self, partition: TopicPartition) -> None:
        """A log is about to be truncated, or is gone: give up its cleaning."""
        task = self._running.get(partition)
        if task is not None and not task.cancelling():
            task.cancel()
            self._counts.given_up += 1
            logger.info("cleaning_aborted", partition=str(partition))
        self.uncleanable.pop(partition, None)
        self._retry_at.pop(partition, None)
        self._held.pop(partition, None)

    # -- which

    def _filthiest(self) -> tuple[Log, Dirt] | None:
        now_ms, now = self._clock.wall_ms(), self._loop.time()
        due, troubled = [], []
        for partition, each in self._logs.logs.items():
            if (
                each.config.compacted
                and len(each.segments) > 1
                and not (each.failed or each.closed)
                and partition not in self._running
                and partition not in self.uncleanable
                and self._retry_at.get(partition, now) <= now
            ):
                try:
                    found = dirt(self._facts(each), now_ms)
                except OSError as error:  # of one log: still clean the others
                    troubled.append((each, disk_error(each.directory, error)))
                    continue
                if is_due(found, each.config):
                    due.append((each, found))
        for each, trouble in troubled:
            self._disk_failed(each, trouble)
        return max(due, key=lambda pair: pair[1].ratio, default=None)

    def _facts(self, each: Log) -> LogFacts:
        held = self._held.get(each.partition)
        return LogFacts(
            each.segments,
            each.start_offset,
            each.end_offset,
            each.last_stable_offset(self._committed(each)),
            self._logs.cleaned.get(each.partition),
            each.config,
            held.at if held is not None and self._loop.time() < held.until else None,
        )

    def _committed(self, each: Log) -> int:
        hosted = self._replicas.find(each.partition)
        if hosted is None:
            return self._logs.high_watermarks.get(each.partition, 0)
        return hosted.high_watermark

    # -- how

    async def _clean(self, each: Log, found: Dirt, start_offset: int) -> None:
        """Clean one log. `start_offset` is its log start when this was planned."""
        cuts, began = self._logs.cleaned.cuts(each.partition), self._loop.time()
        size, is_torn_off = each.size, False
        try:
            if self._logs.cleaned.get(each.partition) is None:
                await self._note(each, found.first_dirty, cuts)  # first: it says that there may be gaps
            await self._make_room(each)
            if _has_changed(each, start_offset) or not await self._settle(each, found.upper):
                return
            if _has_changed(each, start_offset):  # while it was flushed: there may be nothing left to read
                return
            async with closing(self._cleaners.clean(self._job(each, found))) as reports:
                async for report in reports:
                    if _has_changed(each, start_offset):
                        break
                    if isinstance(report, Cleaned):
                        await self._swap(each, report, start_offset)
                    elif isinstance(report, Failed):
                        self._failed(each, report.reason, report.damaged)
                    elif await self._note(each, report.end_offset, cuts):
                        self._done(each, report, size, self._loop.time() - began)
        except DiskError as error:
            self._disk_failed(each, error)
        except GeneratorExit:
            is_torn_off = True  # no loop runs any more: nothing can be awaited
            raise
        finally:
            if not is_torn_off:
                await self._discard(each)

    async def _discard(self, each: Log) -> None:
        step = self._loop.run_in_executor(None, discard, self._logs.disk, each.directory)
        await ended(step)  # else the thread might remove what the next cleaning writes
        with suppress(OSError):  # the next start removes what is left
            step.result()

    async def _make_room(self, each: Log) -> None:
        run, first = self._loop.run_in_executor, each.segments[0].base_offset
        try:
            await run(None, make_room, self._logs.disk, each.directory, first)
        except FileNotFoundError:
            pass  # the log has been deleted
        except OSError as error:
            raise disk_error(each.directory, error) from error

    async def _settle(self, each: Log, upper: int) -> bool:
        """Flush what will be read, and checkpoint that: so recovery can tell a gap left by a power loss from
        the cleaner's. False if the log was truncated meanwhile.
        """
        if each.flushed_offset < upper:
            await self._flush(each)
        return await self._loop.run_in_executor(None, self._logs.promise_flushed, each, upper)

    async def _flush(self, each: Log) -> None:
        """Flush, and report the result to the log even if this task is cancelled: after a failed sync the
        next one would succeed although the pages are lost.
        """
        flush = each.begin_flush(sealed_only=True)
        step = self._loop.run_in_executor(None, flush.run)
        try:
            await ended(step)
        finally:
            if step.done():
                step.result()
                each.end_flush(flush)

    def _job(self, each: Log, found: Dirt) -> Job:
        config, broker = each.config, self._logs.config
        segments = list(with_ends(each.segments, each.end_offset))
        return Job(
            directory=each.directory,
            sources=[
                (segment.base_offset, segment.size)
                for segment, after in segments
                if segment.base_offset < found.upper and after > each.start_offset  # else retention takes it
            ],
            later=[(s.base_offset, s.size) for s, _ in segments if s.base_offset >= found.upper],
            first_dirty=found.first_dirty,
            upper=found.upper,
            committed=self._committed(each),
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_bytes_max=config.index_bytes_max,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=broker.cleaner_dedupe_buffer_bytes // broker.cleaner_threads,
            load_factor=broker.cleaner_load_factor,
            bytes_per_second=broker.cleaner_bytes_per_second_max / broker.cleaner_threads,
            producers=each.producers.last_batches(),
            aborted=list(each.aborts.entries(found.upper)),
            secret=self._secret(SECRET_BYTES).hex(),
        )

    async def _note(self, each: Log, offset: int, cuts: int) -> bool:
        return await self._loop.run_in_executor(None, self._logs.cleaned.note, each.partition, offset, cuts)

    async def _swap(self, each: Log, report: Cleaned, start_offset: int) -> None:
        """Swap in a new segment, unless the log has changed meanwhile."""
        run, disk = self._loop.run_in_executor, self._logs.disk
        try:
            if not _has_changed(each, start_offset):
                gone = each.replace(report.bases)
                self._logs.condemned.add(gone, each.config.file_delete_delay_ms)
                await run(None, disk.sync_dir, each.directory)
        except FileNotFoundError:
            pass  # the log has been deleted
        except OSError as error:
            raise disk_error(each.directory, error) from error

    def _done(self, each: Log, report: Done, size: int, seconds: float) -> None:
        self._retry_at.pop(each.partition, None)
        self._hold(each, report)
        self._counts.cleanings += 1
        self._counts.bytes_freed += max(size - each.size, 0)
        logger.info(
            "log_cleaned",
            partition=str(each.partition),
            end_offset=report.end_offset,
            keys=report.keys,
            bytes_read=report.bytes_read,
            bytes_written=report.bytes_written,
            size_before=size,
            size=each.size,
            seconds=round(seconds, 3),
        )

    def _hold(self, each: Log, report: Done) -> None:
        """Remember an unfinished transaction, so that the log is not read again and again."""
        known = self._held.pop(each.partition, None)
        if report.undecided_from < 0:
            return
        self._held[each.partition] = _Held(report.undecided_from, self._loop.time() + HELD_S)
        if known is None or known.at != report.undecided_from:
            logger.warning(
                "cleaning_blocked",
                partition=str(each.partition),
                offset=report.undecided_from,
                producer_id=report.undecided_producer,
                reason="a transaction has neither a commit nor an abort marker",
            )

    def _failed(self, each: Log, reason: str, damaged: bool) -> None:
        self._counts.failures += 1
        if damaged:
            self.uncleanable[each.partition] = reason
        else:
            self._retry_at[each.partition] = self._loop.time() + RETRY_S
        logger.error("cleaning_failed", partition=str(each.partition), reason=reason, uncleanable=damaged)

    def _disk_failed(self, each: Log, error: DiskError) -> None:
        self._failed(each, str(error), damaged=False)
        hosted = self._replicas.find(each.partition)
        if hosted is not None and hosted.log is each:
            hosted.disk_failed(error)
        elif each is self._logs.get(each.partition):  # else it has been deleted meanwhile
            self._on_disk_failed(None, error)


def _has_changed(each: Log, start_offset: int) -> bool:
    """Whether retention has moved the log start, or the log is gone; then it is planned again."""
    return each.start_offset != start_offset or each.failed or each.closed

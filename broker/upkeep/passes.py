"""Periodic work on all logs: recovery points, log start checkpoints, retention, file deletion, aside bounds.

Each pass decides on the event loop and does what blocks in a thread, on copies. A pass over ten thousand logs
or segments runs in small slices, and yields to the event loop between them.
Left to others: high watermarks (replicas/watermark_checkpoints.py), which segments are old
(storage/log/retention.py), what a failed disk means (disk_failures.py).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import Clock, TopicPartition
from ...storage.directories.log_manager import Logs, parse_directory
from ...storage.disk import DiskError, disk_error
from ...storage.log.log import Log
from ...storage.log.pending_deletion import Deletion
from ...storage.quarantine import tidy
from ..metadata.cache import Picture
from ..replicas.flushing import Flushing
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared

logger = structlog.get_logger(__name__)

CLOCK_JUMP_MS_MAX = 3_600_000
LOGS_PER_SLICE = 50
SEGMENTS_PER_SLICE = 8  # each is renamed with its three companion files
START_OFFSETS_INTERVAL_MS = 1_000  # between checks whether log starts have moved
PURGE_INTERVAL_S = 1.0
REST_S_MIN = 0.005  # between deletion steps; the pause is otherwise as long as the step

Work = Callable[[], Awaitable[None]]


class Upkeep:
    """Periodic work on all logs of a broker."""

    def __init__(
        self,
        logs: Logs,
        shared: ReplicaShared,
        replicas: Replicas,
        flushing: Flushing,
        clock: Clock,
        on_failure: FailureHook,
        picture: Callable[[], Picture],
        are_read: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        """`picture`: the cluster metadata, which says who is in sync. `are_read`: a topic's settings are."""
        self._picture = picture
        self._are_read = are_read
        self._logs = logs
        self._shared = shared
        self._replicas = replicas
        self._flushing = flushing
        self._clock = clock
        self._tasks = Tasks("upkeep", on_failure)
        self._loop = asyncio.get_running_loop()
        self._last_pass = (self._loop.time(), clock.wall_ms())

    def start(self) -> None:
        """Start the periodic tasks."""
        config = self._logs.config
        for directory in self._logs.places.configured:  # one task each: a disk may hang
            points, starts = partial(self.checkpoint, directory), partial(self.checkpoint_starts, directory)
            self._tasks.spawn(self._every(config.flush_checkpoint_interval_ms, points), "recovery-points")
            self._tasks.spawn(self._every(START_OFFSETS_INTERVAL_MS, starts), "log-starts")
        self._tasks.spawn(self._every(config.retention_check_interval_ms, self.retain), "retention")
        self._tasks.spawn(self._purge(), "purge")

    async def stop(self) -> None:
        """Stop the periodic tasks."""
        await self._tasks.stop()

    async def _every(self, interval_ms: int, work: Work) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except DiskError as error:
                self._shared.on_disk_failed(None, error)
            except OSError as error:
                logger.error("upkeep_failed", reason=str(error))

    async def checkpoint(self, directory: str) -> None:
        """Flush all logs of a directory and checkpoint their recovery points."""
        logs = self._logs
        held = [each for partition, each in logs.logs.items() if logs.directory_of(partition) == directory]
        await self._flushing.until_flushed(held)
        if directory not in logs.places.offline:
            await self._loop.run_in_executor(None, logs.checkpoint_recovery_points, directory)

    async def checkpoint_starts(self, directory: str) -> None:
        """Checkpoint log starts soon after one has moved, so that deleted records stay deleted."""
        if directory in self._logs.starts_moved and directory not in self._logs.places.offline:
            await self._loop.run_in_executor(None, self._logs.checkpoint_start_offsets, directory)

    async def retain(self) -> None:
        """Retire expired segments and expire idle producers' state."""
        if self._clock_has_jumped():
            return
        for place, (partition, each) in enumerate(list(self._logs.logs.items()), 1):
            if self._logs.get(partition) is each:  # else it was removed in an earlier slice
                if self._is_known(partition):
                    await self._retire(each)
                self._logs.expire_producers(each)
            if place % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)
        await self._tidy_aside()

    def _is_known(self, partition: TopicPartition) -> bool:
        """Whether a controller has named the log, and its topic's settings are known. Until then the log may
        have the broker's defaults, as one that Kafka has left, and the topic may keep its records for ever.
        """
        return self._replicas.find(partition) is not None and self._are_read(partition.topic)

    async def _tidy_aside(self) -> None:
        """Delete the oldest of what was set aside from logs, by its own bounds of age and size."""
        config, logs = self._logs.config, self._logs
        bounds = (self._clock.wall_ms(), config.aside_retention_ms, config.aside_bytes_max)
        dirs = list(logs.places.usable)
        await self._loop.run_in_executor(None, tidy, logs.disk, dirs, *bounds, self._is_named_elsewhere)

    def _is_named_elsewhere(self, name: str) -> bool:
        partition = parse_directory(name)
        me = self._shared.me
        return partition is not None and self._picture().is_in_sync_elsewhere(me, partition)

    async def _retire(self, each: Log) -> None:
        """Retire a log's expired segments, a few at a time. In between, anything may change."""
        total = 0
        try:
            while not (each.failed or each.closed):
                count = self._logs.retire(each, self._watermark_of(each), SEGMENTS_PER_SLICE)
                total += count
                if count < SEGMENTS_PER_SLICE:
                    break
                await asyncio.sleep(0)
        except DiskError as error:
            self._disk_failed(each, error)
        except OSError as error:  # a segment's age may have to be read from its file
            self._disk_failed(each, disk_error(each.directory, error))
        if total:
            logger.info(
                "segments_deleted", partition=str(each.partition), count=total, start_offset=each.start_offset
            )

    def _disk_failed(self, each: Log, error: DiskError) -> None:
        hosted = self._replicas.find(each.partition)
        if hosted is not None and hosted.log is each:
            hosted.disk_failed(error)
        else:
            self._shared.on_disk_failed(None, error)

    def _watermark_of(self, each: Log) -> int:
        hosted = self._replicas.find(each.partition)  # it may have been removed meanwhile
        return 0 if hosted is None else hosted.high_watermark

    def _clock_has_jumped(self) -> bool:
        """Whether the wall clock was set since the last pass. This pass is then skipped: the jump could make
        a week of records expire at once.
        """
        (then_s, then_ms), now_s, now_ms = self._last_pass, self._loop.time(), self._clock.wall_ms()
        self._last_pass = (now_s, now_ms)
        jump_ms = (now_ms - then_ms) - (now_s - then_s) * 1000
        if abs(jump_ms) <= CLOCK_JUMP_MS_MAX:
            return False
        logger.warning("retention_skipped", clock_jumped_ms=round(jump_ms))
        return True

    async def _purge(self) -> None:
        """Delete files whose delay is over, with pauses, so that the disk can serve others too."""
        while True:
            await asyncio.sleep(PURGE_INTERVAL_S)
            deletion = Deletion(self._logs.disk, self._logs.condemned.due(self._loop.time()))
            while deletion:
                began = self._loop.time()
                try:
                    await self._loop.run_in_executor(None, deletion.step, self._loop.time)
                except OSError as error:
                    logger.error("file_deletion_failed", reason=str(error))
                await asyncio.sleep(max(self._loop.time() - began, REST_S_MIN))

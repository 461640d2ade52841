"""What a broker does to its logs from time to time: recovery points, retention, deletion of what has been
removed.

Each pass decides on the loop and does what blocks in a thread, over copies. Left to others: high watermarks
(replicas.py), which segments are old (storage/retention.py), what a failed disk means (node.py).
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from ..client.tasks import FailureHook, Tasks
from ..protocol.kinds import Clock
from ..storage.disk import DiskError
from ..storage.logs import Logs
from .replicas import Replicas, flush_all

log = structlog.get_logger(__name__)

CLOCK_JUMP_MS_MAX = 3_600_000
PURGE_INTERVAL_S_MIN = 1.0

Work = Callable[[], Awaitable[None]]


class Upkeep:
    """Periodic work on all logs of a broker."""

    def __init__(self, logs: Logs, replicas: Replicas, clock: Clock, on_failure: FailureHook) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._tasks = Tasks("upkeep", on_failure)
        self._loop = asyncio.get_running_loop()
        self._last_pass = (self._loop.time(), clock.wall_ms())

    def start(self) -> None:
        """Begin."""
        config = self._logs.config
        self._tasks.spawn(
            self._every(config.flush_checkpoint_interval_ms, self.checkpoint), "recovery-points"
        )
        self._tasks.spawn(self._every(config.retention_check_interval_ms, self.retain), "retention")
        self._tasks.spawn(self._purge(), "purge")

    async def stop(self) -> None:
        """End what is going on."""
        await self._tasks.stop()

    async def _every(self, interval_ms: int, work: Work) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except (DiskError, OSError) as error:
                log.error("upkeep_failed", reason=str(error))

    async def checkpoint(self) -> None:
        """Bring all logs to the medium and write down up to where they are there."""
        unflushed = [each for each in self._logs.logs.values() if each.flushed_offset < each.end_offset]
        failures = await self._loop.run_in_executor(None, flush_all, unflushed)
        for partition, error in failures.items():
            hosted = self._replicas.find(partition)
            if hosted is not None:
                hosted.disk_failed(error)
        await self._loop.run_in_executor(None, self._logs.checkpoint_recovery_points)

    async def retain(self) -> None:
        """Take old segments out of their logs, and forget producers that are gone."""
        if self._clock_has_jumped():
            return
        self._logs.retention_pass(self._replicas.high_watermarks())
        self._logs.expire_producers()

    def _clock_has_jumped(self) -> bool:
        """A clock that was set must not make a week of records old at once: such a pass is left out."""
        (then_s, then_ms), now_s, now_ms = self._last_pass, self._loop.time(), self._clock.wall_ms()
        self._last_pass = (now_s, now_ms)
        jump_ms = (now_ms - then_ms) - (now_s - then_s) * 1000
        if abs(jump_ms) <= CLOCK_JUMP_MS_MAX:
            return False
        log.warning("retention_skipped", clock_jumped_ms=round(jump_ms))
        return True

    async def _purge(self) -> None:
        """Delete what has been out of use for the whole delay; a gigabyte may take a quarter of a second."""
        delay_s = max(self._logs.config.file_delete_delay_ms / 1000, PURGE_INTERVAL_S_MIN)
        seen: list[str] = []
        while True:
            await asyncio.sleep(delay_s)
            due = [path for path in seen if path in self._logs.condemned]
            try:
                await self._loop.run_in_executor(None, self._logs.purge, due)
            except OSError as error:
                log.error("purge_failed", reason=str(error))
            seen = list(self._logs.condemned)

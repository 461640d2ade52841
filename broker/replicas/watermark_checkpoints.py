"""Checkpoints the high watermarks of all replicas, each log directory at its own pace.

They only save a round of fetches after a restart: logs are not truncated to them, except under profiles of
old versions.
Left to others: the files (storage/directories/offset_checkpoints.py), recovery points and log starts
(upkeep/passes.py).
"""

import asyncio

from ...base.tasks import Tasks
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError
from .replicas import Replicas
from .shared import ReplicaShared


class WatermarkCheckpoints:
    """The checkpoints of high watermarks of one broker."""

    def __init__(
        self, shared: ReplicaShared, logs: Logs, replicas: Replicas, interval_ms: int, tasks: Tasks
    ) -> None:
        self._shared = shared
        self._logs = logs
        self._replicas = replicas
        self._interval_s = interval_ms / 1000
        self._tasks = tasks

    def start(self) -> None:
        """Begin to write them."""
        for directory in self._logs.places.configured:  # one task each: a disk may hang
            self._tasks.spawn(self._run(directory), "watermarks")

    async def _run(self, directory: str) -> None:
        while directory not in self._logs.places.offline:
            await asyncio.sleep(self._interval_s)
            await self.write(directory)

    async def write(self, only: str | None = None) -> None:
        """Write them now, in all directories or one."""
        checkpoint = self._logs.checkpoint_high_watermarks
        try:
            await self._shared.loop.run_in_executor(None, checkpoint, self._replicas.high_watermarks, only)
        except DiskError as error:
            self._shared.on_disk_failed(None, error)

"""Full log directories: appends there are refused, reads go on, and the state clears when there is room.

An append that found no room was cut back, so the log is intact. All replicas of the directory refuse records:
leaders answer 56 (KAFKA_STORAGE_ERROR), and the controller is notified, because a member with room should
lead. A follower without room stops fetching and in time leaves its ISR. Once a second the directory is
probed: it has room again when the reserve (strandline.log.dir.room.reserve.bytes) is free, so that it does
not flap, and a test file can be written, because a quota or a lack of inodes does not show in the free bytes.
Logs that could not be opened for lack of room are retried until they open: they may need more than the
reserve, or room beside the directory for what recovery sets aside. All others go on without them.
Left to others: directories that fail (disk_failures.py), who is elected (controller/).
Why: docs/decisions/0024-a-full-disk-keeps-its-rights.md
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from ...base.tasks import Tasks
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError, DiskFailed, DiskFull, disk_error
from ...storage.quarantine import ASIDE
from ..follower.fetcher import Fetchers
from ..replicas.partition import Partition
from ..replicas.replicas import Replicas
from ..replicas.shared import Role

logger = structlog.get_logger(__name__)

LOOK_S = 1.0
OPEN_AGAIN_S = (1.0, 30.0)  # between tries to open logs that lacked room: the first pause, the longest
PROBE = ".strandline-room"
PROBE_BYTES_MAX = 1 << 20


class FullDisks:
    """The full log directories of one broker."""

    def __init__(
        self,
        logs: Logs,
        replicas: Replicas,
        fetchers: Fetchers,
        tasks: Tasks,
        changed: Callable[[], None],
        failed: Callable[[DiskError], None],
    ) -> None:
        """`changed`: leadership may have to move. `failed`: the probe has met a failed disk."""
        self._logs = logs
        self._replicas = replicas
        self._fetchers = fetchers
        self._tasks = tasks
        self._changed = changed
        self._failed = failed
        self._looking: set[str] = set()
        self._tries: dict[str, tuple[float, float]] = {}  # directory: next try, pause after it

    def ran_out(self, directory: str, error: DiskFull) -> None:
        """A write in this directory failed for lack of room."""
        places = self._logs.places
        if directory in places.full or directory in places.offline:
            return
        places.full[directory] = str(error)
        logger.warning("log_dir_full", directory=directory, reason=str(error))
        for partition in self._replicas.in_directory(directory):
            partition.full = str(error)
        self._changed()
        if directory not in self._looking:
            self._looking.add(directory)
            self._tasks.spawn(self._look(directory), "room")

    def pause(self, partition: Partition) -> None:
        """Stop a follower from fetching: it could not write the records."""
        if partition.following is not None:
            self._fetchers.drop(partition)

    async def _look(self, directory: str) -> None:
        """One task per directory: a disk may hang."""
        loop = asyncio.get_running_loop()
        try:
            while self._is_waiting(directory):
                await asyncio.sleep(LOOK_S)
                trouble = await loop.run_in_executor(None, self._probe, directory)
                if trouble is None and directory not in self._logs.places.offline:
                    opened = await self._open_again(directory)
                    self._room_again(directory, opened)
                elif isinstance(trouble, DiskFailed):
                    self._failed(trouble)
        finally:
            self._looking.discard(directory)

    def _is_waiting(self, directory: str) -> bool:
        """Whether it is full or has unopened logs, and is not offline."""
        places = self._logs.places
        has_closed = any(self._logs.directory_of(tp) == directory for tp in self._logs.closed)
        return (directory in places.full or has_closed) and directory not in places.offline

    def begin(self) -> None:
        """Start waiting for logs that could not be opened for lack of room."""
        for directory in sorted({self._logs.directory_of(tp) for tp in self._logs.closed}):
            self.ran_out(
                directory, DiskFull(directory, OSError("logs in it wait for free space for their recovery"))
            )

    async def _open_again(self, directory: str) -> bool:
        """Try to open waiting logs; whether any opened. It may take long, so the pauses grow."""
        logs, loop = self._logs, asyncio.get_running_loop()
        waiting = sum(logs.directory_of(tp) == directory for tp in logs.closed)
        due, pause = self._tries.get(directory, (0.0, OPEN_AGAIN_S[0]))
        if not waiting or loop.time() < due or not await self._has_room_beside(directory):
            return False
        found = await loop.run_in_executor(None, logs.open_again, directory)
        self._tries[directory] = (loop.time() + pause, min(2 * pause, OPEN_AGAIN_S[1]))
        if directory in logs.places.offline:
            return False
        try:
            logs.take_again(found)
        except OSError as error:
            self._failed(disk_error(directory, error))
        except DiskError as error:
            self._failed(error)
        left = sum(logs.directory_of(tp) == directory for tp in logs.closed)
        if not left:
            self._tries.pop(directory, None)
        return left < waiting

    async def _has_room_beside(self, directory: str) -> bool:
        """Whether there is room beside the directory for what recovery takes off a log."""
        loop, beside = asyncio.get_running_loop(), f"{directory}{ASIDE}"
        if not await loop.run_in_executor(None, self._logs.disk.exists, beside):
            return True
        trouble = await loop.run_in_executor(None, self._probe, beside)
        if isinstance(trouble, DiskFailed):
            self._failed(trouble)
        return trouble is None

    def _probe(self, directory: str) -> DiskError | None:
        """Why there is no room, or None. Blocking."""
        disk, reserve = self._logs.disk, self._logs.config.room_reserve_bytes
        path = f"{directory}/{PROBE}"
        try:
            free = disk.free_bytes(directory)
            if free < reserve:
                return DiskFull(directory, OSError(f"{free} bytes are free, {reserve} are needed"))
            disk.replace(path, bytes(min(reserve, PROBE_BYTES_MAX)), sync=False)
        except OSError as error:
            return disk_error(path, error)
        finally:
            with suppress(OSError):
                disk.unlink(path)
        return None

    def _room_again(self, directory: str, opened: bool) -> None:
        """There is room: write files that had to wait, because appends rely on them, then allow appends."""
        hosted = self._replicas.in_directory(directory)
        try:
            for partition in hosted:
                partition.log.save_what_waits()
        except DiskFull:
            return
        except DiskError as error:
            self._failed(error)
            return
        had_none = self._logs.places.full.pop(directory, None) is not None
        if not had_none and not opened:
            return  # it has failed meanwhile, or logs are still waiting
        logger.info("log_dir_writable", directory=directory)
        for partition in hosted:
            partition.full = None
            if had_none and partition.role is Role.FOLLOWING:
                self._fetchers.follow(partition)
        self._changed()

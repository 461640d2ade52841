"""Full log directories: nothing is appended there, reads go on, and it passes by itself.

An append that found no room was cut back, so nothing is wrong with the log. All replicas of the directory
take no more records; leaders answer 56, and the controller is told, for a member with room should lead. A
follower that found no room stops asking for more; by time it leaves its ISR. Once a second the directory
is looked at: it has room again when the reserve is free and a file of some size can be written, for a quota
or a lack of inodes does not show in the free bytes. The reserve is why it does not flap. Logs that could not
be opened for want of room are tried until they are open, for the reserve may be less than they need, and
where they want it, beside the directory, there may be none: all others go on without them.
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
from ..replicas.partition import Partition
from ..replicas.replicas import Replicas
from ..replicas.shared import Role

logger = structlog.get_logger(__name__)

LOOK_S = 1.0
OPEN_AGAIN_S = (1.0, 30.0)  # between two tries to open logs that found too little room, at first and at most
PROBE = ".strandline-room"
PROBE_BYTES_MAX = 1 << 20


class FullDisks:
    """The directories without any."""

    def __init__(
        self,
        logs: Logs,
        replicas: Callable[[], Replicas],
        tasks: Tasks,
        changed: Callable[[], None],
        failed: Callable[[DiskError], None],
    ) -> None:
        """`changed`: leadership should perhaps move; `failed`: the probe has met a failed disk."""
        self._logs = logs
        self._replicas = replicas
        self._tasks = tasks
        self._changed = changed
        self._failed = failed
        self._looking: set[str] = set()
        self._tries: dict[str, tuple[float, float]] = {}  # directory -> when next, and the pause after that

    def ran_out(self, directory: str, error: DiskFull) -> None:
        """Something could not be written for lack of room."""
        places = self._logs.places
        if directory in places.full or directory in places.offline:
            return
        places.full[directory] = str(error)
        logger.warning("log_dir_full", directory=directory, reason=str(error))
        for partition in self._replicas().in_directory(directory):
            partition.full = str(error)
        self._changed()
        if directory not in self._looking:
            self._looking.add(directory)
            self._tasks.spawn(self._look(directory), "room")

    def pause(self, partition: Partition) -> None:
        """A follower that cannot write what it fetches need not fetch."""
        if partition.following is not None:
            self._replicas().fetchers.drop(partition)

    async def _look(self, directory: str) -> None:
        """Each directory by itself: one may hang."""
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
        """Whether it is full, or has logs that are not open yet."""
        places = self._logs.places
        has_closed = any(self._logs.directory_of(tp) == directory for tp in self._logs.closed)
        return (directory in places.full or has_closed) and directory not in places.offline

    def begin(self) -> None:
        """Logs that could not be opened for want of room wait for it."""
        for directory in sorted({self._logs.directory_of(tp) for tp in self._logs.closed}):
            self.ran_out(directory, DiskFull(directory, OSError("logs there wait for room to be mended")))

    async def _open_again(self, directory: str) -> bool:
        """Whether logs were opened that had waited. It may take long, so the pauses between tries grow."""
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
        """Whether what is taken off a log when it is mended finds a place."""
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
                return DiskFull(directory, OSError(f"{free} bytes are free, {reserve} are wanted"))
            disk.replace(path, bytes(min(reserve, PROBE_BYTES_MAX)), sync=False)
        except OSError as error:
            return disk_error(path, error)
        finally:
            with suppress(OSError):
                disk.unlink(path)
        return None

    def _room_again(self, directory: str, opened: bool) -> None:
        """First what had to wait is written, for appends rest upon it; then they begin again."""
        hosted = self._replicas().in_directory(directory)
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
            return  # it has failed meanwhile, or logs wait on
        logger.info("log_dir_has_room", directory=directory)
        for partition in hosted:
            partition.full = None
            if had_none and partition.role is Role.FOLLOWING:
                self._replicas().fetchers.follow(partition)
        self._changed()

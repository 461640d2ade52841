"""LogDirMoves: replicas of this broker move to other log directories of it, as AlterReplicaLogDirs asks.

One at a time: a thread copies, and the event loop puts the copy in the log's place when little is left to be
copied. Leaders lead on and followers follow on, for only the files change. A move that fails is given up; one
that the end of the process interrupts begins again with the next.
Left to others: the copy (storage/log/relocation.py), what a crash leaves (storage/directories), the request
(handlers/log_dirs.py). Why: docs/decisions/0054-a-log-moves-under-its-replica.md
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import TopicPartition
from ...protocol.errors import (
    InvalidRequest,
    KafkaStorageError,
    LogDirNotFound,
    NotLeaderOrFollower,
    ReplicaNotAvailable,
)
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError, DiskFailed, LeftBehind
from ...storage.log.log import Log
from ...storage.log.relocation import Relocation
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared
from ..topic_names import is_legal
from .cleaner_processes import ended

logger = structlog.get_logger(__name__)

T = TypeVar("T")
PREFERRED_MAX = 10_000
WANTED_MAX = 100_000
LOOK_S = 0.5  # for replicas of interrupted moves, which are not here yet
AGAIN_S = 0.02  # before the next try to put a copy in its place
LEAVE_AGAIN_S = 5.0  # before the next try to remove old files


@dataclass(frozen=True, slots=True)
class Left:
    """The old files of a log that has moved."""

    tp: TopicPartition
    source: str  # directory
    name: UUID  # they get
    delay_ms: int  # from then until they are deleted


class LogDirMoves:
    """The moves of one broker, in the order in which they were asked for."""

    def __init__(
        self, logs: Logs, replicas: Replicas, shared: ReplicaShared, on_failure: FailureHook
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._shared = shared
        self._wanted: dict[TopicPartition, str] = {}
        self._copy: Relocation | None = None  # under way
        self._left: dict[TopicPartition, Left] = {}  # old files that could not be removed
        self._leaving = asyncio.Event()
        self._news = asyncio.Event()
        self._names = 0
        self._tasks = Tasks("log-dir-moves", on_failure)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="log-dir-moves")

    def start(self) -> None:
        """Start the task that moves, and the one that cleans up after it if that has failed."""
        self._tasks.spawn(self._run(), "moves")
        self._tasks.spawn(self._leave_again(), "leavings")

    async def stop(self) -> None:
        """Move nothing any more. What is being copied is copied afresh by the next process."""
        await self._tasks.stop()
        self._executor.shutdown(wait=False)

    def want(self, tp: TopicPartition, directory: str) -> None:
        """The replica shall be in this directory; one that comes later is made there. Raises ApiError."""
        places = self._logs.places
        if directory not in places.configured:
            raise LogDirNotFound(f"{directory} is none of {', '.join(places.configured)}")
        if directory in places.offline:
            raise KafkaStorageError(f"{directory} is offline")
        try:
            partition = self._replicas.get(tp)
        except NotLeaderOrFollower:
            if tp.partition < 0 or not is_legal(tp.topic):
                raise ReplicaNotAvailable(f"{tp} cannot be on any broker") from None
            if tp not in self._logs.preferred and len(self._logs.preferred) >= PREFERRED_MAX:
                raise InvalidRequest(f"{PREFERRED_MAX} replicas that are not here have a directory") from None
            self._logs.preferred[tp] = directory
            raise ReplicaNotAvailable(f"{tp} is not on this broker yet") from None
        if partition.offline is not None:
            raise KafkaStorageError(partition.offline)
        self._logs.interrupted.pop(tp, None)
        if self._logs.directory_of(tp) == directory:
            self._wanted.pop(tp, None)
        elif tp in self._left:
            raise KafkaStorageError(
                f"{self._left[tp].source}/{tp} is what the replica left when it moved, and could not be "
                "removed yet (log_left_behind in the broker's log says why); ask again when it is gone"
            )
        elif tp not in self._wanted and len(self._wanted) >= WANTED_MAX:
            raise InvalidRequest(f"{WANTED_MAX} replicas are waiting to be moved")
        else:
            self._wanted[tp] = directory
            self._news.set()

    def coming(self) -> Iterator[tuple[TopicPartition, str, int, int]]:
        """Replicas on their way: the directory they go to, bytes there, offsets that they lack."""
        for tp, directory in self._wanted.items():
            held, copy = self._logs.get(tp), self._copy
            if held is None:
                continue
            if copy is not None and copy.held is held:
                yield tp, directory, copy.nbytes, held.end_offset - copy.end_offset
            else:
                yield tp, directory, 0, held.end_offset - held.start_offset

    # -- moving

    async def _run(self) -> None:
        while True:
            self._resume()
            tp = next(iter(self._wanted), None)
            if tp is not None:
                directory = self._wanted[tp]
                await self._move(tp, directory)
                if self._wanted.get(tp) == directory:
                    del self._wanted[tp]
                continue
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._logs.interrupted else None):
                    await self._news.wait()

    def _resume(self) -> None:
        """Moves that the end of the last process has interrupted begin when the replica is here."""
        for tp, directory in list(self._logs.interrupted.items()):
            partition = self._replicas.find(tp)
            if partition is not None and partition.offline is None:
                del self._logs.interrupted[tp]
                if self._is_elsewhere(tp, directory):
                    self._wanted.setdefault(tp, directory)

    def _is_elsewhere(self, tp: TopicPartition, directory: str) -> bool:
        return directory not in self._logs.places.offline and self._logs.directory_of(tp) != directory

    async def _move(self, tp: TopicPartition, directory: str) -> None:
        held = self._logs.get(tp)
        if held is None or not self._is_elsewhere(tp, directory):
            return None
        began = self._shared.loop.time()
        try:
            self._copy = copy = self._logs.relocation(tp, directory, self._name())
        except LeftBehind as error:
            return self._failed(tp, directory, held, error)
        try:
            source = await self._copied(copy, tp, directory)
            if source is None:
                return await self._give_up(copy)
            logger.info(
                "log_moved",
                partition=str(tp),
                source=source,
                target=directory,
                size=held.size,
                seconds=round(self._shared.loop.time() - began, 3),
            )
            await self._leave(Left(tp, source, self._name(), held.config.file_delete_delay_ms))
        except DiskError as error:
            self._failed(tp, directory, held, error)
            if held.directory != f"{directory}/{tp}":
                await self._give_up(copy)
        finally:
            self._copy = None

    async def _copied(self, copy: Relocation, tp: TopicPartition, directory: str) -> str | None:
        """Copy until the copy has taken over; then where the log was. None if nobody wants it any more."""
        while self._is_wanted(copy.held, tp, directory):
            step = copy.next_step()
            if step is not None:
                await self._in_thread(step.run)
                copy.copied(step)
                if step.missing:
                    await asyncio.sleep(AGAIN_S)
            elif self._may_take_over(tp):
                return self._take_over(copy, tp, directory)
            else:
                await asyncio.sleep(AGAIN_S)
        return None

    def _is_wanted(self, held: Log, tp: TopicPartition, directory: str) -> bool:
        """Whether it is still to be moved there; nobody has removed the log, and neither disk has failed."""
        return (
            self._wanted.get(tp) == directory
            and self._logs.get(tp) is held
            and not held.failed
            and directory not in self._logs.places.offline
        )

    def _may_take_over(self, tp: TopicPartition) -> bool:
        """Not while a change of roles, or a truncation, is writing to the log's small files in a thread."""
        partition = self._replicas.find(tp)
        is_changing = partition is not None and (partition.changing or partition.incomplete)
        return not is_changing and self._logs.may_take_over(tp)

    def _take_over(self, copy: Relocation, tp: TopicPartition, directory: str) -> str:
        partition = self._replicas.find(tp)
        watermark = self._logs.high_watermarks.get(tp, 0) if partition is None else partition.high_watermark
        source = self._logs.take_over(copy, directory, watermark)
        if partition is not None:
            partition.full = self._logs.places.full.get(directory)
            partition.mark()
            partition.stir()  # whoever waits for a read of the old files reads again
        return source

    async def _give_up(self, copy: Relocation) -> None:
        self._logs.condemned.add([await self._in_thread(lambda: self._logs.give_copy_up(copy.path))])

    async def _leave(self, left: Left) -> None:
        """Remove the old files. If that fails the next start knows which ones are old, but may come when the
        other disk has failed, so it is tried again.
        """
        try:
            gone = await self._in_thread(lambda: self._logs.left_behind(left.tp, left.source, left.name))
        except DiskError as error:
            logger.error("log_left_behind", partition=str(left.tp), directory=left.source, reason=str(error))
            self._left[left.tp] = left
            self._leaving.set()
            if isinstance(error, DiskFailed):
                self._shared.on_disk_failed(None, error)
        else:
            self._left.pop(left.tp, None)
            self._logs.condemned.add([gone], left.delay_ms)

    async def _leave_again(self) -> None:
        while True:
            await self._leaving.wait()
            await asyncio.sleep(LEAVE_AGAIN_S)
            for left in list(self._left.values()):
                if left.source in self._logs.places.offline:  # for as long as this process lives
                    del self._left[left.tp]
                else:
                    await self._leave(left)
            if not self._left:
                self._leaving.clear()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        step = self._shared.loop.run_in_executor(self._executor, work)
        await ended(step)
        return step.result()

    def _failed(self, tp: TopicPartition, directory: str, held: Log, error: DiskError) -> None:
        logger.error("log_move_failed", partition=str(tp), target=directory, reason=str(error))
        partition = self._replicas.find(tp)
        if partition is not None and held.directory == f"{directory}/{tp}":
            partition.disk_failed(error)  # it was there already
        elif isinstance(error, DiskFailed):
            self._shared.on_disk_failed(None, error)

    def _name(self) -> UUID:
        """No other log is renamed to it in the same millisecond: names of removed ones count from 0."""
        self._names += 1
        return UUID(int=(self._shared.clock.wall_ms() << 64) | (1 << 63) | self._names)

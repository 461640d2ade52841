"""The flight recorder: keeps decisions of this broker, and of the controller if it is here, for `why`.

Noting a decision takes a few microseconds on the event loop; a thread writes the file soon after. Many at
once (a controller that moves ten thousand partitions) come as an iterator, which is consumed in small steps
between other work. Without a file, as in the simulator, everything stays in memory.
If the file cannot be written, only its content is lost; it is started again later.
Left to others: rings and their file (storage/decision_log.py), what is noted (roles/leader_and_isr.py,
replicas/isr_writer.py, replicas/truncation.py, controller/planning/decision_notes.py), who reads it
(handlers/inspect.py).
Why: docs/decisions/0038-decisions-are-recorded-where-they-are-made.md
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any

import structlog

from ..base.tasks import FailureHook, Tasks
from ..base.types import Clock
from ..storage.decision_log import Decision, DecisionLog, Note, RingFile
from ..storage.disk import Disk

logger = structlog.get_logger(__name__)

RING_BYTES_MAX = 16 << 10  # per partition: some hundred decisions
GATHER_S = 0.02  # the pause after a write, to gather the next one
RETRY_S = 10.0  # after a failed write
STEP = 100  # decisions of a long series in one loop turn
SERIES_MAX = 1_000


class Recorder:
    """Keeps decisions; with a file, also for the next start."""

    def __init__(self, clock: Clock, bytes_max: int, rings: DecisionLog | None = None) -> None:
        self.rings = rings or DecisionLog(max(bytes_max, 1), RING_BYTES_MAX)
        self._clock = clock
        self._is_on = bytes_max > 0
        self._file: RingFile | None = None
        self._tasks: Tasks | None = None
        self._frames: list[bytes] = []
        self._series: deque[tuple[int, Iterator[Note]]] = deque()
        self._due = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._retry_at = 0.0
        self._stopped = False

    def note(self, ring: str, what: str, **values: Any) -> None:
        """Keep one decision."""
        if self._is_on:
            self._keep(Note(ring, what, values))

    def series(self, notes: Iterator[Note]) -> None:
        """Keep the iterator's decisions, step by step. It must only read data that does not change."""
        if not self._is_on:
            return
        if self._file is None:
            for note in notes:
                self._keep(note)
        elif len(self._series) < SERIES_MAX:
            self._series.append((self._clock.wall_ms(), notes))
            self._due.set()

    def of(self, ring: str) -> list[Decision]:
        """The decisions of a ring, oldest first."""
        return self.rings.of(ring)

    def _keep(self, note: Note, at_ms: int | None = None) -> None:
        frame = self.rings.add(note, self._clock.wall_ms() if at_ms is None else at_ms)
        if frame is not None and self._file is not None:
            self._frames.append(frame)
            self._due.set()

    # The file.

    def open(self, file: RingFile, on_failure: FailureHook | None) -> None:
        """Write to this file from now on."""
        self._file = file
        self._tasks = Tasks("recorder", on_failure)
        self._tasks.spawn(self._write(file), "flight-recorder")

    async def stop(self) -> None:
        """Stop, after writing what is not written yet."""
        self._stopped = True
        self._due.set()
        file, tasks = self._file, self._tasks
        if file is not None and tasks is not None:
            await tasks.stop()
            if self._writing is not None:  # a thread cannot be cancelled
                await asyncio.wait([self._writing])
                if self._writing.exception() is not None:
                    file.failed()
            while self._step():
                continue
            self._retry_at = 0.0
            await self._write_frames(file)
            self._file = None
            file.close()

    async def _write(self, file: RingFile) -> None:
        while not self._stopped:
            await self._due.wait()
            self._due.clear()
            more = self._step()
            retry_s = await self._write_frames(file)
            if more or self._frames:
                self._due.set()
            await asyncio.sleep(GATHER_S if more else max(retry_s, GATHER_S))

    def _step(self) -> bool:
        """Keep the next decisions of the first series; whether any series has more."""
        if self._series:
            at_ms, notes = self._series[0]
            some = list(islice(notes, STEP))
            for note in some:
                self._keep(note, at_ms)
            if len(some) < STEP:
                self._series.popleft()
        return bool(self._series)

    async def _write_frames(self, file: RingFile) -> float:
        """Write what is not written yet. Returns the seconds until a failed write may be retried."""
        loop = asyncio.get_running_loop()
        if not self._frames or loop.time() < self._retry_at:
            return self._retry_at - loop.time()
        frames, self._frames = self._frames, []
        anew = not file.size or file.size + sum(map(len, frames)) > 2 * self.rings.bytes_max
        if anew:
            frames = list(self.rings.frames())
        try:
            self._writing = loop.run_in_executor(None, file.begin if anew else file.append, frames)
            await asyncio.shield(self._writing)
        except OSError as error:
            logger.warning("flight_recorder_not_written", path=file.path, reason=str(error))
            file.failed()
            self._frames += frames[-1:]  # so that the next write starts a new file, with everything
            self._retry_at = loop.time() + RETRY_S
            return RETRY_S
        return 0.0


MakeRecorder = Callable[[Disk, Clock, int, str, FailureHook | None], Awaitable[Recorder]]


async def in_memory(
    disk: Disk, clock: Clock, bytes_max: int, log_dir: str, on_failure: FailureHook | None
) -> Recorder:
    """A recorder in memory only."""
    return Recorder(clock, bytes_max)


async def on_disk(
    disk: Disk, clock: Clock, bytes_max: int, log_dir: str, on_failure: FailureHook | None
) -> Recorder:
    """A recorder that continues the file that the last process left in this log directory."""
    recorder = Recorder(clock, bytes_max)
    if bytes_max > 0:
        file = RingFile(disk, log_dir)
        try:
            await asyncio.get_running_loop().run_in_executor(None, file.read, recorder.rings)
        except OSError as error:
            logger.warning("flight_recorder_unreadable", path=file.path, reason=str(error))
        recorder.open(file, on_failure)
    return recorder

"""Runs cleanings in helper processes, or in a thread where there can be none.

A helper is started when there is work and does one job after the other. It ends after some idle time, when
its job is given up, or with the broker: it stops at the end of its pipe, however the broker ended. It sends a
report for each new segment; its death counts as a failed cleaning.
Left to others: what to clean and what to do with the reports (compaction.py), the work (storage/cleaning/).
Why: docs/decisions/0020-cleaners-are-processes.md
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Protocol

import structlog

from ...base.tasks import FailureHook, Tasks
from ...storage.cleaning.job import Failed, Job, Report, dump_job, is_last, load_report
from ...storage.disk import Disk

logger = structlog.get_logger(__name__)

MODULE = "strandline.storage.cleaning.process"
IDLE_S = 60.0
REPORT_BYTES_MAX = 1 << 26  # a report names all segments merged into one: maybe millions
END_S = 5.0  # then a helper that has not ended is killed


class Cleaners(Protocol):
    """Runs jobs, also several at once."""

    def clean(self, job: Job) -> AsyncGenerator[Report, None]:
        """The reports of a job. Closing the iterator early gives the job up and waits for its end."""
        ...

    async def stop(self) -> None: ...


class ThreadCleaners:
    """Cleans in the loop's executor, where there are no processes (the simulator). It holds the GIL."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def clean(self, job: Job) -> AsyncGenerator[Report, None]:
        from ...storage.cleaning.clean import (  # numpy is not needed before there is something to clean
            clean,
        )

        loop = asyncio.get_running_loop()
        reports = clean(self._disk, job, _unthrottled)
        while True:
            step = loop.run_in_executor(None, next, reports, None)
            try:
                report = await asyncio.shield(step)
            except asyncio.CancelledError:
                await ended(step)
                raise
            if report is None:
                return
            yield report

    async def stop(self) -> None:
        """Nothing to do: a closed iterator leaves nothing running."""


async def ended(step: asyncio.Future[Any]) -> None:
    """Wait for a thread, which cannot be stopped, however often this is cancelled meanwhile.

    Then raises CancelledError, if it was cancelled. Does not look at the result of `step`.
    """
    cancelled: asyncio.CancelledError | None = None
    while not step.done():
        try:
            await asyncio.wait([step])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class closing(aclosing[AsyncGenerator[Report, None]]):
    """Closes the reports of a job after its block, but not on GeneratorExit: then no loop could run that."""

    async def __aexit__(self, *exc_info: object) -> None:
        if exc_info[0] is not GeneratorExit:
            await super().__aexit__(*exc_info)


def _unthrottled(_nbytes: int) -> None:
    """No limit on the cleaner's disk throughput."""


class HelperProcesses:
    """Cleans in separate processes."""

    def __init__(self, on_failure: FailureHook) -> None:
        self._tasks = Tasks("cleaners", on_failure)
        self.idle: list[Process] = []

    async def clean(self, job: Job) -> AsyncGenerator[Report, None]:
        try:
            helper = self.idle.pop() if self.idle else await self._start()
        except OSError as error:  # no process, or no descriptor for its pipe
            yield Failed(f"cannot start a cleaner process: {error}", damaged=False)
            return
        done = False
        try:
            async for report in self._reports(helper, job):
                done = is_last(report)
                yield report
        finally:
            if done and helper.returncode is None:
                self._rest(helper)
            else:
                await _kill(helper)

    async def _start(self) -> Process:
        helper = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, stdin=PIPE, stdout=PIPE, limit=REPORT_BYTES_MAX
        )
        logger.info("cleaner_started", process=helper.pid)
        return helper

    async def _reports(self, helper: Process, job: Job) -> AsyncGenerator[Report, None]:
        assert helper.stdin is not None and helper.stdout is not None
        try:
            helper.stdin.write(dump_job(job))
            await helper.stdin.drain()
            while (line := await helper.stdout.readline()).endswith(b"\n"):  # else it ended within one
                report = load_report(line)
                yield report
                if is_last(report):
                    return
        except (BrokenPipeError, ConnectionResetError):
            pass  # reported below, like the end of its output
        yield Failed(f"the cleaner process {helper.pid} has ended", damaged=False)

    def _rest(self, helper: Process) -> None:
        self.idle.append(helper)
        self._tasks.spawn(self._dismiss(helper), "idle")

    async def _dismiss(self, helper: Process) -> None:
        await asyncio.sleep(IDLE_S)
        if helper in self.idle:
            self.idle.remove(helper)
            await _end(helper)

    async def stop(self) -> None:
        """End all helpers. All jobs must have been given up before."""
        await self._tasks.stop()
        idle, self.idle = self.idle, []
        for helper in idle:
            await _end(helper)


async def _end(helper: Process) -> None:
    assert helper.stdin is not None
    helper.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await helper.wait()
    except TimeoutError:
        await _kill(helper)


async def _kill(helper: Process) -> None:
    if helper.returncode is None:
        with suppress(ProcessLookupError):
            helper.kill()
    await helper.wait()

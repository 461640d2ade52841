"""What a start reports about the logs that it opens: its progress, and what was wrong with each.

Left to others: the opening itself (open_logs.py).
"""

from collections.abc import Sequence
from threading import Lock

import structlog

from ...base.types import Clock
from ..log.log import Log
from ..recovery.recover_log import Recovered
from ..recovery.survey import Survey

PROGRESS_MS = 1_000

logger = structlog.get_logger(__name__)


class RecoveryProgress:
    """Progress of a directory's recovery. Logged once a second, and at the end if anything was scanned."""

    def __init__(self, directory: str, clock: Clock, surveys: Sequence[Survey]) -> None:
        self.directory = directory
        self.clock = clock
        self.logs_total = len(surveys)
        self.segments_total = sum(len(survey.to_scan) for survey in surveys)
        self.bytes_total = sum(survey.scan_bytes for survey in surveys)
        self.logs = self.segments = self.bytes = 0
        self._began_ms = self._told_ms = clock.wall_ms()
        self._turn = Lock()

    def advance(self, nbytes: int) -> None:
        """So many more bytes have been scanned."""
        with self._turn:
            self.bytes += nbytes
            now_ms = self.clock.wall_ms()
            if abs(now_ms - self._told_ms) >= PROGRESS_MS:  # the clock may have been set
                self._told_ms = now_ms
                self._tell("recovery_progress")

    def opened(self, segments: int) -> None:
        """One more log is open; `segments` of it were scanned."""
        with self._turn:
            self.logs += 1
            self.segments += segments

    def end(self) -> None:
        """All logs of the directory are open."""
        if self.bytes_total:
            self._tell("recovery_finished")

    def _tell(self, event: str) -> None:
        logger.info(
            event,
            directory=self.directory,
            logs=f"{self.logs}/{self.logs_total}",
            segments=f"{self.segments}/{self.segments_total}",
            bytes=f"{self.bytes}/{self.bytes_total}",
            elapsed_ms=self.clock.wall_ms() - self._began_ms,
        )


def tell(opened: Log, cost: Recovered) -> None:
    """Log one line if something was wrong with a log."""
    if cost.torn_bytes or cost.lost or cost.repairs:
        report = logger.warning if cost.torn_bytes or cost.lost else logger.info
        report(
            "log_recovered",
            partition=str(opened.partition),
            torn_bytes=cost.torn_bytes,
            losses=list(cost.losses),
            repairs=list(cost.repairs),
            end_offset=opened.end_offset,
            aside=cost.aside,
        )

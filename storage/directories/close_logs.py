"""A clean stop of many logs: their syncs run in parallel, since each is mostly waiting.

A log costs half a dozen syncs. Thousands of logs, one after the other, take minutes, and a supervisor kills
the broker after a few seconds. One thread writes what must be synced, because the logs share their open files
(segment/open_files.py); then many threads wait for the disk, which serves them together.
Left to others: what a log writes when it is closed (log/log.py), whether it was a clean stop
(log_manager.py).
"""

from collections.abc import Sequence

import structlog

from ..disk import DiskError
from ..log.flush import Flush
from ..log.log import Log
from .workers import Crew

LANES = 32  # threads, which do nothing but wait for syncs
SHARE = 256  # logs at a time: each holds a second descriptor

logger = structlog.get_logger(__name__)


def close_all(logs: Sequence[Log], crew: Crew) -> bool:
    """Close these logs; True if each one is completely synced, or already known as damaged. Blocking."""
    good = True
    for first in range(0, len(logs), SHARE):
        good = _close_some(logs[first : first + SHARE], crew) and good
    return good


def _close_some(logs: Sequence[Log], crew: Crew) -> bool:
    begun: list[tuple[Log, Flush | None]] = []
    good = True
    for each in logs:
        try:
            begun.append((each, each.begin_close()))
        except DiskError as error:
            good = _not_closed(each, error)
            each.abandon()
    flushes = [flush for _, flush in begun if flush is not None]
    crew([flush.run for flush in flushes], LANES)
    for each, flush in begun:
        try:
            if flush is not None:
                each.end_flush(flush)
            good = good and (each.damaged or not each.failed)
        except DiskError as error:
            good = _not_closed(each, error)
        finally:
            each.abandon()
    return good


def _not_closed(each: Log, error: DiskError) -> bool:
    logger.error("log_not_closed", partition=str(each.partition), reason=str(error))
    return False

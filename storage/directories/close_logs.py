"""A clean stop of many logs: their syncs side by side, for each is mostly waiting.

A log costs half a dozen syncs; thousands of logs, one after the other, take minutes, and whoever has asked
for the stop kills the broker after a few seconds. What is to be synced is written by one thread, for the logs
share their open files (segment/open_files.py); then many threads wait for the medium, and it serves them
together. Left to others: what a log writes when it is closed (log/log_files.py), whether it was a clean stop
(log_manager.py).
"""

from collections.abc import Sequence

import structlog

from ..disk import DiskError
from ..log.flush import Flush
from ..log.log import Log
from .workers import Crew

LANES = 32  # threads, which do nothing but wait for syncs
SHARE = 256  # logs of which a second descriptor is held at once

logger = structlog.get_logger(__name__)


def close_all(logs: Sequence[Log], crew: Crew) -> bool:
    """Close these logs; whether all of them are whole on the medium, or known not to be. Blocking."""
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

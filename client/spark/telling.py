"""How users hear of trouble: one sentence instead of a traceback, and notes.

Spark shows what a Python process sends back when it fails: a traceback of forty lines, the sentence last.
What the user can mend is its sentence alone.

Nobody configures logging in these processes, so what is below a warning is not written. Nor should it be
unasked: their standard error passes by Spark's own log levels, and `read_planned` may be a long line.
"""

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from ...base.logger import get_logger
from ...protocol.column_arrow import TimestampOutOfRange
from ...protocol.errors import ApiError
from ...protocol.primitives import Malformed
from .options import OptionError
from .plan import DataLoss, PlanError
from .sink.trouble import NotWritten

log = get_logger(__name__)

LOG_LEVEL = "SPARK_STRANDLINE_LOG"  # in the environment: `info` writes what was planned and written, too
NO_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # read by Spark's workers as they fail

if os.environ.get(LOG_LEVEL, "").lower() == "info":
    logging.getLogger(__name__.rpartition(".")[0]).setLevel(logging.INFO)
    if logging.lastResort is not None:  # it writes to standard error, where logging is not configured
        logging.lastResort.setLevel(logging.INFO)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Within this, trouble that is no defect reaches the user as its sentence.

    A Python process of Spark's ends with the error that it sends, so nothing later is hidden.
    """
    try:
        yield
    except (OptionError, PlanError, DataLoss, NotWritten, TimestampOutOfRange, Malformed, OSError, ApiError):
        os.environ[NO_TRACEBACK] = "1"
        raise


def tell(notes: Collection[str]) -> frozenset[str]:
    """Tell what has no effect, or less than elsewhere; returns what was told."""
    for note in sorted(notes):
        log.warning("option_without_effect", note=note)
    return frozenset(notes)

"""What is wrong with one log is no reason to do without the others: whom an error at its opening concerns.

A disk that fails concerns its whole log directory. What passes, as a full disk, is tried again. All
else is this log's alone: a file that nobody may read, a directory in a file's place, bytes without sense.
Left to others: what becomes of the log then (directories/log_manager.py), who tries again
(broker/upkeep/full_disks.py).
"""

import errno
import struct
from collections.abc import Callable
from typing import TypeVar

from ..disk import FULL, NO_DESCRIPTOR, DiskError
from ..segment.batch_walk import CorruptBatch
from .old_formats import OldFormat

T = TypeVar("T")

DISK_FAILS = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN, errno.ETIMEDOUT}
)


class Obstructed(Exception):
    """Something stands where a log or a file of one is to be, and it is not ours to take away."""


class Waits(Exception):
    """The log cannot be opened now; the reason passes."""


class Spoilt(Exception):
    """The log cannot be opened until somebody has mended it; the message says what is wrong."""


# What reading a file that holds anything at all may raise. None of it may end a start.
SENSELESS = (
    ArithmeticError, AssertionError, CorruptBatch, LookupError, MemoryError, Obstructed, OldFormat,
    RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip


def contained(work: Callable[[], T]) -> T:
    """Do the work of one log. Raises Waits or Spoilt, and OSError if the disk has failed."""
    try:
        return work()
    except DiskError as error:
        raise _sorted(error.error) from error
    except OSError as error:
        raise _sorted(error) from error
    except SENSELESS as error:
        raise Spoilt(f"{type(error).__name__}: {error}") from error


def _sorted(error: OSError) -> Exception:
    if error.errno in FULL | NO_DESCRIPTOR:
        return Waits(str(error))
    return error if error.errno in DISK_FAILS else Spoilt(str(error))

"""What an error at the opening of a log affects: one damaged log must not keep the others from starting.

A disk that fails takes its log directory offline. What passes, as a full disk, is retried. Anything
else affects this log alone: a file without read permission, a directory in a file's place, bytes without
sense.
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
    """Something else is where a log or its file should be, and it is not ours to remove."""


class Waits(Exception):
    """The log cannot be opened now; the reason passes."""


class Spoilt(Exception):
    """The log cannot be opened until an operator has repaired it; the message says what is wrong."""


# What reading a file with arbitrary content may raise. None of it may make the broker's start fail.
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

"""The kind of a file system, where it decides whether a read may wait.

NFS and FUSE do not know RWF_NOWAIT: they cannot say whether bytes are in memory, and a read may wait for as
long as the server likes. tmpfs does not know it either, but it reads from memory only.
Left to others: reading (disk.py), who reads where one must not wait (segment/not_resident.py,
log/uncached_read.py).
"""

import ctypes
import os
import sys

TMPFS, RAMFS = 0x01021994, 0x858458F6  # f_type, from linux/magic.h
STATFS_BYTES = 512  # more than struct statfs has anywhere; f_type is a long, and the first of it

_fstatfs = getattr(ctypes.CDLL(None, use_errno=True), "fstatfs", None) if sys.platform == "linux" else None
_known: dict[int, bool] = {}  # by device


def lies_in_memory(fd: int) -> bool:
    """Whether the file system of an open file keeps its data in memory only; False if unknown."""
    device = os.fstat(fd).st_dev
    if device not in _known:
        _known[device] = _type_of(fd) in (TMPFS, RAMFS)
    return _known[device]


def _type_of(fd: int) -> int:
    told = ctypes.create_string_buffer(STATFS_BYTES)
    if _fstatfs is None or _fstatfs(fd, told) != 0:
        return 0
    width = ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(told.raw[:width], sys.byteorder) & 0xFFFFFFFF

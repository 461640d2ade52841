"""Cleaned segments take the place of old ones, and what a crash left of that is finished or undone.

The order is all there is to it. A cleaned segment's files are renamed to `.swap`, the indexes first, the
log last: with `.log.swap` in place the swap counts. Then the old files become `.deleted`, then the `.swap`
files get their names, again the log last. Whatever stood before the crash is found by its names.
Left to others: the segments in memory (log/segments.py), the deletion of `.deleted` files
(log/pending_deletion.py).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ...protocol.batches import HEADER_SIZE, MAGIC, read_header
from ..disk import Disk
from .file_names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name, is_segment_file

__all__ = [
    "CLEANED", "INDEX", "LOG", "SWAP", "TIME_INDEX", "clear", "discard", "file_name", "finish_swaps",
    "make_room", "swap",
]  # fmt: skip

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
LOG_LAST = (INDEX, TIME_INDEX, LOG)
REPLACED = (TRANSACTION_INDEX, *LOG_LAST)  # Kafka's index tells of aborted records: cleaning leaves none
MARKABLE = (*REPLACED, ".snapshot")
BLOCK_BYTES = 1 << 16


def swap(disk: Disk, directory: str, bases: Sequence[int]) -> list[str]:
    """Put the cleaned segment at `bases[0]` in place of the old ones at `bases`; the `.deleted` files.

    No step waits for the disk. Most file systems bring renames to it in their order; where one does not, what
    a loss of power left is undone (`_undo`), as long as the new log has not got its last name.
    """
    names = [file_name(bases[0], suffix) for suffix in LOG_LAST]
    for name in names:
        disk.rename(f"{directory}/{name}{CLEANED}", f"{directory}/{name}{SWAP}")
    gone = []
    for base in bases:
        for suffix in REPLACED:
            path = f"{directory}/{file_name(base, suffix)}"
            if disk.exists(path):
                disk.rename(path, f"{path}{DELETED}")
                gone.append(f"{path}{DELETED}")
    for name in names:
        disk.rename(f"{directory}/{name}{SWAP}", f"{directory}/{name}")
    return gone


def make_room(disk: Disk, directory: str, bases: Sequence[int]) -> None:
    """Delete what earlier swaps have left under the names that the next one needs, and behind them. Blocking.

    Else its renames would delete it, and a large file takes its time; and whoever undoes this swap would take
    it for what this one has replaced.
    """
    names = disk.listdir(directory)
    _unlink(disk, directory, (n for n in names if _is_marked(n, DELETED) and int(n[:20]) >= bases[0]))


def discard(disk: Disk, directory: str) -> None:
    """Delete what a cleaning has written that came to nothing. Blocking."""
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        return  # the log has been deleted meanwhile
    _unlink(disk, directory, (name for name in names if name.endswith(CLEANED)))


def finish_swaps(disk: Disk, directory: str) -> None:
    """Bring a log's directory to the state before or after each swap that was under way. Blocking.

    May itself be cut short at any step and run again.
    """
    names = disk.listdir(directory)
    unfinished, swapped, deleted = (
        {name for name in names if _is_marked(name, mark)} for mark in (CLEANED, SWAP, DELETED)
    )
    leftovers = unfinished | swapped | deleted
    for name in sorted(swapped):
        if name.endswith(f"{LOG}{SWAP}") and not any(each[:20] == name[:20] for each in unfinished):
            _complete(disk, directory, int(name[:20]), names)
            leftovers -= {f"{name[:20]}{suffix}{SWAP}" for suffix in LOG_LAST}
    # without its log a swap did not count yet, or a broker that renames indexes last has left one
    logs = {name for name in leftovers - deleted if name[20:] in (f"{LOG}{CLEANED}", f"{LOG}{SWAP}")}
    if logs and deleted:
        leftovers -= _undo(disk, directory, min(int(name[:20]) for name in logs))
    for name in sorted(leftovers):
        clear(disk, f"{directory}/{name}")
    if unfinished or swapped or deleted:
        disk.sync_dir(directory)


def _undo(disk: Disk, directory: str, first: int) -> set[str]:
    """Give the old segments from `first` on their names back: which names they have now.

    The swap does not count, and yet old segments have lost their names: the medium has got the renames in
    another order. What an earlier swap had replaced is covered by the segment that it made.
    """
    names, restored, end = set(disk.listdir(directory)), set[str](), first
    for base in sorted({int(name[:20]) for name in names if name[20:] in (LOG, f"{LOG}{DELETED}")}):
        path = f"{directory}/{file_name(base, LOG)}"
        if base >= first:
            if file_name(base, LOG) in names:
                end = max(end, _end_offset(disk, path, base))
            elif base >= end:
                end = max(end, _end_offset(disk, f"{path}{DELETED}", base))
                restored |= _give_back(disk, directory, base, names)
    if restored:
        disk.sync_dir(directory)  # before what tells of the swap goes: a start that dies here does this again
    return restored


def _give_back(disk: Disk, directory: str, base: int, names: set[str]) -> set[str]:
    """The log last: with it the segment is there."""
    given = [file_name(base, suffix) for suffix in REPLACED if f"{file_name(base, suffix)}{DELETED}" in names]
    for name in given:
        disk.rename(f"{directory}/{name}{DELETED}", f"{directory}/{name}")
    return {f"{name}{DELETED}" for name in given}


def _complete(disk: Disk, directory: str, base: int, names: Iterable[str]) -> None:
    """What `swap` does after its first step."""
    end = _end_offset(disk, f"{directory}/{file_name(base, LOG)}{SWAP}", base)
    replaced = [
        name
        for name in names
        if any(is_segment_file(name, suffix) for suffix in REPLACED) and base < int(name[:20]) < end
    ]
    replaced.append(file_name(base, TRANSACTION_INDEX))
    _unlink(disk, directory, replaced)
    for suffix in LOG_LAST:
        path = f"{directory}/{file_name(base, suffix)}"
        if disk.exists(f"{path}{SWAP}"):
            disk.rename(f"{path}{SWAP}", path)


def _end_offset(disk: Disk, path: str, base: int) -> int:
    """The offset behind the last batch of a segment's file."""
    file = disk.open(path)
    try:
        end, position, size = base, 0, file.size()
        while position + HEADER_SIZE <= size:
            block, skip = file.pread(position, BLOCK_BYTES), 0
            while len(block) - skip >= HEADER_SIZE:
                header = read_header(block, skip)
                if header.magic != MAGIC or header.size < HEADER_SIZE:
                    return end  # recovery will look at it
                end, skip = header.next_offset, skip + header.size
            position += skip
        return end
    finally:
        file.close()


def _is_marked(name: str, mark: str) -> bool:
    """Whether it is the name of a segment's file with `mark` behind it; other names are not ours."""
    stem = name.removesuffix(mark)
    return stem != name and any(is_segment_file(stem, suffix) for suffix in MARKABLE)


def clear(disk: Disk, path: str) -> None:
    """Delete a leftover; if it is a directory that somebody has put there, it stays."""
    with suppress(IsADirectoryError, PermissionError):
        disk.unlink(path)


def _unlink(disk: Disk, directory: str, names: Iterable[str]) -> None:
    for name in names:
        disk.unlink(f"{directory}/{name}")

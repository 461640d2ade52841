"""Swapping cleaned segments in for old ones; after a crash a swap is finished or undone.

The order matters. A cleaned segment's files are renamed to `.swap`, the indexes first, the .log last: once
`.log.swap` exists the swap counts. Then the old files become `.deleted`, then the `.swap` files get their
final names, again the .log last. After a crash the names tell how far it came.
Left to others: the segments in memory (log/segments.py), the deletion of `.deleted` files
(log/pending_deletion.py).
"""

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from ..disk import Disk
from .batch_walk import walk
from .file_names import (
    CLEANED,
    DELETED,
    GONE,
    INDEX,
    LOG,
    LOG_LAST,
    REPLACED,
    SNAPSHOT,
    SWAP,
    TRANSACTION_INDEX,
    file_name,
    is_segment_file,
)

MARKABLE = (*REPLACED, SNAPSHOT)


def swap(disk: Disk, directory: str, bases: Sequence[int]) -> list[str]:
    """Put the cleaned segment at `bases[0]` in place of those at `bases`; returns the `.deleted` files.

    No step waits for the disk. Most file systems persist renames in order. Where one does not, a power loss
    is undone (`_undo`), unless the new .log already has its final name.
    """
    assert list(bases) == sorted(set(bases)), "a segment takes the place of neighbours"
    names = [file_name(bases[0], suffix) for suffix in LOG_LAST]
    aborts = file_name(bases[0], TRANSACTION_INDEX)
    if disk.exists(f"{directory}/{aborts}{CLEANED}"):
        names.insert(0, aborts)
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


def make_room(disk: Disk, directory: str, first: int) -> None:
    """Delete `.deleted` files of earlier swaps from offset `first` on: a cleaning begins there. Blocking.

    Otherwise its swaps' renames would delete them, which is slow for a large file, and an undo would take
    them for files that it has replaced, though the segment that took their place may have been cut since.
    So does what an earlier cleaning has written and could not `discard`: it would be taken for this one's.
    """
    names = disk.listdir(directory)
    stale = [n for n in names if (_is_marked(n, DELETED) and int(n[:20]) >= first) or n.endswith(CLEANED)]
    _unlink(disk, directory, stale)
    if stale:
        disk.sync_dir(directory)  # no power loss brings them back beside what the swaps will have renamed


def discard(disk: Disk, directory: str) -> None:
    """Delete what an unfinished cleaning has written. Blocking."""
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        return  # the log has been deleted meanwhile
    _unlink(disk, directory, (name for name in names if name.endswith(CLEANED)))


def finish_swaps(disk: Disk, directory: str) -> None:
    """Finish or undo each swap that was under way in a log's directory. Blocking.

    A crash in here does no harm: run it again.
    """
    names = disk.listdir(directory)
    unfinished, swapped, deleted, gone = (
        {name for name in names if _is_marked(name, mark)}
        for mark in (CLEANED, SWAP, DELETED, f"{GONE}{DELETED}")
    )
    leftovers = unfinished | swapped | deleted | gone
    for name in sorted(swapped):
        if name.endswith(f"{LOG}{SWAP}") and not any(each[:20] == name[:20] for each in unfinished):
            _complete(disk, directory, int(name[:20]), names)
            leftovers -= {f"{name[:20]}{suffix}{SWAP}" for suffix in REPLACED}
    # a swap without its .log did not count yet, or is from a broker that renames indexes last
    logs = {name for name in leftovers - deleted if name[20:] in (f"{LOG}{CLEANED}", f"{LOG}{SWAP}")}
    if logs and deleted:
        leftovers -= _undo(disk, directory, {int(name[:20]) for name in logs})
    for name in sorted(leftovers):
        clear(disk, f"{directory}/{name}")
    if unfinished or swapped or deleted or gone:
        disk.sync_dir(directory)


def _undo(disk: Disk, directory: str, begun: set[int]) -> set[str]:
    """Give the old segments of swaps that `begun` at these offsets, and do not count, their names back;
    returns the `.deleted` names that are gone.

    Old segments were renamed all the same: the file system persisted the renames in another order. Others
    stay away, which a Kafka that died may have left, too:
    - what the segment before it covers. That one may begin before the first of `begun`, where a cleaning
      that failed could not discard what it had written;
    - what an earlier swap replaced, though what it kept may end long before: the segment at its place is
      there and `.deleted`. Of a swap that does not count it is one of them (`make_room`);
    - what was cut or retired, before or during the cleaning: it may be another history's. Ours says so
      (GONE); of Kafka's it is told by its place behind the last segment, which is never cleaned.
    """
    first, names, restored, end = min(begun), set(disk.listdir(directory)), set[str](), min(begun)
    if before := [int(name[:20]) for name in names if name[20:] == LOG and int(name[:20]) < first]:
        end = max(end, _end_offset(disk, f"{directory}/{file_name(max(before), LOG)}", max(before)))
    known = {int(name[:20]) for name in names if name[20:] in (LOG, f"{LOG}{GONE}{DELETED}")}
    last, is_replaced = max(known, default=first), False
    for base in sorted({int(name[:20]) for name in names if name[20:] in (LOG, f"{LOG}{DELETED}")}):
        path, is_away = f"{directory}/{file_name(base, LOG)}", f"{file_name(base, LOG)}{DELETED}" in names
        if base < first:
            continue
        if file_name(base, LOG) in names:
            end, is_replaced = max(end, _end_offset(disk, path, base)), is_away
        elif base >= end and base < last and (base in begun or not is_replaced):
            is_replaced = False
            end = max(end, _end_offset(disk, f"{path}{DELETED}", base))
            restored |= _give_back(disk, directory, base, names)
    if restored:
        disk.sync_dir(directory)  # before the traces of the swap go: a start that dies here does this again
    for stem in {name[:20] for name in restored}:
        disk.unlink(f"{directory}/{stem}{INDEX}{DELETED}")
    return restored


def _give_back(disk: Disk, directory: str, base: int, names: set[str]) -> set[str]:
    """Rename back, the .log last: with it the segment is there.

    A .txnindex that was not renamed may be the old one or the cleaned segment's. Without its .index the
    segment is scanned, and both are made anew.
    """
    given = [file_name(base, suffix) for suffix in REPLACED if f"{file_name(base, suffix)}{DELETED}" in names]
    aborts = file_name(base, TRANSACTION_INDEX)
    if aborts in names and aborts not in given:
        index = file_name(base, INDEX)
        given = [name for name in given if name != index]
        if index in names:
            disk.rename(f"{directory}/{index}", f"{directory}/{index}{DELETED}")
    for name in given:
        disk.rename(f"{directory}/{name}{DELETED}", f"{directory}/{name}")
    return {f"{name}{DELETED}" for name in given}


def _complete(disk: Disk, directory: str, base: int, names: Iterable[str]) -> None:
    """What `swap` does after its first step.

    Of the segment at `base` the old .log goes last: while it is there, the .txnindex is the old one, too.
    """
    end = _end_offset(disk, f"{directory}/{file_name(base, LOG)}{SWAP}", base)
    replaced = [
        name
        for name in names
        if any(is_segment_file(name, suffix) for suffix in REPLACED) and base < int(name[:20]) < end
    ]
    if file_name(base, LOG) in names:
        replaced += [file_name(base, suffix) for suffix in REPLACED]
    _unlink(disk, directory, replaced)
    for suffix in REPLACED:
        path = f"{directory}/{file_name(base, suffix)}"
        if disk.exists(f"{path}{SWAP}"):
            disk.rename(f"{path}{SWAP}", path)


def _end_offset(disk: Disk, path: str, base: int) -> int:
    """The end offset (exclusive) of a segment's file, as far as there are batches: recovery will check it."""
    end = base
    with closing(disk.open(path)) as file:
        for _, header in walk(file.pread, 0, file.size()):
            end = header.next_offset
    return end


def _is_marked(name: str, mark: str) -> bool:
    """Whether it is a segment file's name with the suffix `mark`; other names are not ours."""
    stem = name.removesuffix(mark)
    return stem != name and any(is_segment_file(stem, suffix) for suffix in MARKABLE)


def clear(disk: Disk, path: str) -> None:
    """Delete a leftover file; a directory stays."""
    with suppress(IsADirectoryError, PermissionError):
        disk.unlink(path)


def _unlink(disk: Disk, directory: str, names: Iterable[str]) -> None:
    for name in names:
        disk.unlink(f"{directory}/{name}")

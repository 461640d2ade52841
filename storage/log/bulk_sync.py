"""What many logs need of the disk at once: the files of new logs, the epochs of new leaders.

A file and its directory cost two syncs, some milliseconds each. A topic may be created with thousands of
partitions; for so many, one sync of the whole file system is cheaper.
Everything here blocks and belongs in a thread.
Why: docs/decisions/0040-thousands-of-partitions-in-one-breath.md, and for what is not synced
docs/decisions/0065-a-failover-waits-for-no-sync.md
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence

from ..disk import Disk, DiskError, disk_error
from . import checkpoints
from .log import Log

MANY = 16  # from here on one sync of the file system is cheaper than a sync for each file

Failures = list[tuple[Log, DiskError]]


def save_epochs(logs: Iterable[Log]) -> Failures:
    """Write the epoch files of these logs, for their next flush to sync; returns the failures.

    A file that is lost with the power before that is made again from the batches. An epoch without a batch
    is then forgotten, and no replica asks for one.
    """
    return _each(logs, lambda each: each.save_epochs(sync=False))


def settle_new(disk: Disk, logs: Sequence[Log]) -> Failures:
    """Sync new, empty logs: their files, their directories, their names; returns the failures."""
    if len(logs) >= MANY:
        return _sync_all(disk, logs)
    failures = _each(logs, lambda each: _sync_files(disk, each))
    return failures + _by_directory(disk.sync_dir, _others(logs, failures))


def _others(logs: Iterable[Log], failures: Failures) -> list[Log]:
    failed = {id(each) for each, _ in failures}
    return [each for each in logs if id(each) not in failed]


def settle_restarted(disk: Disk, logs: Sequence[Log]) -> Failures:
    """Make the restart of logs durable (`Log.restart_at`); returns the failures."""
    if len(logs) >= MANY:
        return _sync_all(disk, logs)
    return _each(logs, lambda each: disk.sync_dir(each.directory))


def _sync_files(disk: Disk, new: Log) -> None:
    for name in (checkpoints.PARTITION_METADATA, checkpoints.TOPIC_CONFIG):
        path = f"{new.directory}/{name}"
        if disk.exists(path):
            file = disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
    disk.sync_dir(new.directory)


def _sync_all(disk: Disk, logs: Iterable[Log]) -> Failures:
    return _by_directory(disk.sync_all, logs)


def _by_directory(sync: Callable[[str], None], logs: Iterable[Log]) -> Failures:
    """One call per log directory; if it fails, it fails for all logs there."""
    among: dict[str, list[Log]] = {}
    for each in logs:
        among.setdefault(posixpath.dirname(each.directory), []).append(each)
    failures: Failures = []
    for directory, held in among.items():
        try:
            sync(directory)
        except OSError as error:
            failures += [(each, disk_error(each.directory, error)) for each in held]
    return failures


def _each(logs: Iterable[Log], act: Callable[[Log], None]) -> Failures:
    failures: Failures = []
    for each in logs:
        try:
            act(each)
        except DiskError as error:
            failures.append((each, error))
        except OSError as error:
            failures.append((each, disk_error(each.directory, error)))
    return failures

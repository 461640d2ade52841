"""Killed at any file call in the middle of what brings records into a log or takes them out, or replaces its
segments: the next start finds nothing lost, nothing wrong, and nothing that a client had deleted.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from strandline.protocol.batches import headers
from strandline.protocol.records import iterate
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.directories.offset_checkpoints import Bounds
from strandline.storage.log.log import Log
from strandline.storage.log.pending_deletion import Deletion
from tests.storage.compaction_harness import compact
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch, put
from tests.storage.faulty_disk import FaultyDisk

CONFIG = StorageConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
COUNT, START, COMMITTED = 24, 9, 20
ROOT, STEPS_MAX = "/data", 200
CHANGES = ("create", "append", "pwrite", "truncate", "replace", "rename", "unlink", "mkdir")
Act = Callable[[Logs], None]


class Killed(BaseException):
    """The process is gone."""


class Dying(FaultyDisk):
    """Lets so many changes of files through."""

    left = 1 << 30

    def struck(self, call: str, path: str) -> Any:
        if call in CHANGES:
            if not self.left:
                raise Killed
            self.left -= 1
        return super().struck(call, path)


def opened(disk: Any, lost: list[str], policy: str = "delete") -> Logs:
    config = CONFIG.model_copy(update={"cleanup_policy": policy})
    return Logs.open(
        [ROOT], disk, config, FixedClock(), clean=False,
        before_loss=lambda partition, why: lost.append(why),
    )  # fmt: skip


def filled(policy: str) -> SimDisk:
    """A log in many segments, all of it on the medium, of which a client has deleted the beginning."""
    disk = SimDisk()
    logs = opened(disk, [], policy)
    log = logs.create(T0, UUID(int=5), TopicConfig.of(logs.config))
    for number in range(COUNT):
        put(log, b"%d" % number * 40)
    log.flush()
    log.move_start(START)
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks(lambda: {T0: COMMITTED})
    logs.close(clean=False)
    return disk


def copy_of(disk: SimDisk) -> SimDisk:
    made = SimDisk()
    for folder in sorted(disk.folders):
        made.mkdir(folder)
    for path, content in disk.files.items():
        made.replace(path, bytes(content.data))
    return made


def append(logs: Logs) -> None:
    """As leader, over two segments and into another epoch."""
    log = logs.logs[T0]
    for number in range(COUNT, COUNT + 6):
        put(log, b"%d" % number * 40, epoch=number // (COUNT + 3))


def replicate(logs: Logs) -> None:
    """As follower, in one run."""
    run = bytearray()
    for number in range(COUNT, COUNT + 6):
        run += make_batch(b"%d" % number * 40, base=number, epoch=number // (COUNT + 3))
    logs.logs[T0].append_replicated(memoryview(run), now_ms=START_MS)


def compact_all(logs: Logs) -> None:
    compact(logs)
    logs.cleaned.note(T0, logs.logs[T0].segments[-1].base_offset, logs.cleaned.cuts(T0))


def retire(logs: Logs) -> None:
    logs.retire(logs.logs[T0], COMMITTED, 3)
    deletion = Deletion(logs.disk, logs.condemned.due(0.0))
    while deletion:
        deletion.step(lambda: 0.0)


def delete_records(logs: Logs) -> None:
    logs.logs[T0].move_start(15)
    logs.checkpoint_start_offsets()
    retire(logs)


def delete_all(logs: Logs) -> None:
    logs.logs[T0].move_start(COUNT)
    logs.checkpoint_start_offsets()
    logs.retire(logs.logs[T0], COUNT, 100)


def cut(logs: Logs) -> None:
    logs.logs[T0].truncate_to(12)


def cut_all(logs: Logs) -> None:
    logs.logs[T0].truncate_to(0)


def restart(logs: Logs) -> None:
    logs.logs[T0].restart_at(1000, START_MS)


def restart_with_others(logs: Logs) -> None:
    logs.lower({T0: Bounds(0, 1000)})
    logs.logs[T0].restart_at(1000, START_MS, sync=False)


def restart_lower(logs: Logs) -> None:
    logs.logs[T0].restart_at(3, START_MS)


def remove(logs: Logs) -> None:
    logs.remove(T0, UUID(int=9))
    logs.create(T0, UUID(int=6), TopicConfig.of(CONFIG))


GROWING = (append, replicate)
SHORTENING = (cut, cut_all, restart, restart_with_others, restart_lower, remove)


def values(log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = log.start_offset
    while data := bytes(log.read(at, 1 << 20, log.end_offset)):
        found |= {record.offset: record.value or b"" for record in iterate(data)}
        *_, (_, last) = headers(data)
        at = last.next_offset
    return found


def judge(log: Log, act: Act) -> None:
    found, written = values(log), {number: b"%d" % number * 40 for number in range(COUNT + 6)}
    assert found.items() <= written.items(), "nothing else than was written"
    if act is compact_all:
        assert log.gaps_allowed and {*range(log.segments[-1].base_offset, COUNT)} <= found.keys()
    else:
        assert list(found) == list(range(log.start_offset, log.end_offset)), "no gap"
    assert act in (restart_lower, remove) or log.start_offset >= START, "what was deleted stays deleted"
    assert act in SHORTENING or log.end_offset == COUNT or (act in GROWING and log.end_offset > COUNT)
    assert log.find_timestamp(0, log.end_offset) is None or found
    batch = make_batch(b"more")
    assert log.append_replicated(stamped(batch, log), now_ms=START_MS) == len(batch)


def stamped(batch: bytearray, log: Log) -> memoryview:
    batch[:8] = log.end_offset.to_bytes(8, "big")
    batch[12:16] = max(log.epochs.latest, 0).to_bytes(4, "big")
    return memoryview(batch)


@pytest.mark.parametrize(
    "act",
    [*GROWING, compact_all, retire, delete_records, delete_all, *SHORTENING],
    ids=lambda act: act.__name__,
)
def test_killed_at_any_step(act: Act) -> None:
    policy = "compact" if act is compact_all else "delete"
    before = filled(policy)
    for step in range(STEPS_MAX):
        disk, lost = Dying(copy_of(before)), list[str]()
        logs = opened(disk, lost, policy)
        disk.left, finished = step, False
        try:
            act(logs)
            finished = True
        except Killed:
            pass
        disk.left = 1 << 30
        logs.close(clean=False)
        again = opened(disk.inner, lost, policy)
        assert not lost, f"after {disk.calls[-1:]}"
        if T0 in again.logs:
            judge(again.logs[T0], act)
        else:
            assert act is remove
        if finished:
            return
    raise AssertionError("it takes too many steps")

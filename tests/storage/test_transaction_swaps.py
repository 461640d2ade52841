"""A cleaned segment takes its place with its index of aborted transactions, wherever the process ends."""

from struct import Struct
from typing import cast

import pytest

from strandline.protocol.batches import stamp
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Job
from strandline.storage.disk import Disk
from strandline.storage.segment.file_names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from strandline.storage.segment.segment_swap import finish_swaps, swap
from tests.storage.conftest import START_MS, make_batch
from tests.storage.memory_disk import Died, MemoryDisk
from tests.storage.transactions import data_batch

DIRECTORY = "/log"
ONE, OTHER = 7, 8
ABORTED = [(ONE, 0, 1, 2), (OTHER, 2, 3, 4)]  # the second one begins in the first segment
_entry = Struct(">hqqqq").pack


def marker(producer: int, base: int) -> bytearray:
    batch = marker_batch(producer, 0, EndMarker(False, 0), START_MS)
    stamp(batch, 0, base, 0)
    return batch


SEGMENTS = {
    0: [data_batch(ONE, 0, key=b"a"), marker(ONE, 1), data_batch(OTHER, 0, key=b"b", base=2)],
    3: [marker(OTHER, 3), make_batch(b"x", base=4)],
}
OLD = {0: _entry(0, *ABORTED[0]), 3: _entry(0, *ABORTED[1])}


def name(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{file_name(base, suffix)}"


def old_log() -> MemoryDisk:
    disk = MemoryDisk()
    for base, batches in SEGMENTS.items():
        disk.files[name(base, LOG)] = bytearray(b"".join(batches))
        disk.files[name(base, INDEX)] = bytearray()
        disk.files[name(base, TIME_INDEX)] = bytearray(12)
        disk.files[name(base, TRANSACTION_INDEX)] = bytearray(OLD[base])
    return disk


def clean_and_swap(disk: MemoryDisk) -> None:
    """The producers' last batches stay, without records, and so their markers and the entries."""
    job = Job(
        directory=DIRECTORY, sources=[(base, len(disk.files[name(base, LOG)])) for base in SEGMENTS],
        later=[], first_dirty=0, upper=5, committed=5, now_ms=START_MS, delete_retention_ms=0,
        segment_bytes=1 << 20, index_bytes_max=1 << 20, index_interval_bytes=50, map_bytes=1 << 12,
        load_factor=0.9, bytes_per_second=1e300, producers=[(ONE, 0, 0), (OTHER, 2, 0)], secret="00" * 16,
        aborted=ABORTED,
    )  # fmt: skip
    for report in clean(cast(Disk, disk), job, lambda nbytes: None):
        if isinstance(report, Cleaned):
            assert report.bases == [0, 3]
            swap(cast(Disk, disk), DIRECTORY, report.bases)


def changes_of_everything() -> int:
    disk = old_log()
    clean_and_swap(disk)
    return disk.changes


def check(disk: MemoryDisk) -> bool:
    """Each segment has its own index; whether it is the cleaned one."""
    found = {file: bytes(data) for file, data in disk.files.items() if TRANSACTION_INDEX in file}
    if name(3, LOG) in disk.files:
        assert found == {name(base, TRANSACTION_INDEX): data for base, data in OLD.items()}
        assert disk.files[name(0, LOG)] == b"".join(SEGMENTS[0])
        return False
    assert found == {name(0, TRANSACTION_INDEX): OLD[0] + OLD[3]}
    return True


@pytest.mark.parametrize("step", range(changes_of_everything()))
def test_a_crash_at_any_step_leaves_each_segment_its_index(step: int) -> None:
    dead = old_log().copy(changes_max=step)
    with pytest.raises(Died):
        clean_and_swap(dead)
    again = 0
    while again >= 0:  # the start after the crash dies, too, one step later each time
        disk = dead.copy(changes_max=again)
        try:
            finish_swaps(cast(Disk, disk), DIRECTORY)
        except Died:
            disk.changes_max = 1 << 60
            finish_swaps(cast(Disk, disk), DIRECTORY)
            again += 1
        else:
            again = -1
        check(disk)


def test_without_a_crash_the_new_index_is_in_place() -> None:
    disk = old_log()
    clean_and_swap(disk)
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert check(disk)

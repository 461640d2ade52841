"""A cleaned segment takes its place in one step, wherever the process ends."""

from typing import cast

import pytest

from strandline.protocol.records import Record
from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Job
from strandline.storage.disk import Disk
from strandline.storage.segment.file_names import (
    CLEANED,
    DELETED,
    GONE,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from strandline.storage.segment.segment_swap import discard, finish_swaps, make_room, swap
from tests.storage.cleaner_model import Batch, decode, encode
from tests.storage.memory_disk import Died, MemoryDisk

NOW_MS = 1_700_000_000_000
DIRECTORY = "/log"


def segment(base: int, keys: bytes) -> list[Batch]:
    """A batch for each key; every value tells its offset."""
    return [
        Batch(
            offset,
            offset,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS,
            records=[Record(offset, NOW_MS, bytes([key]), b"%d" % offset, ())],
        )
        for offset, key in enumerate(keys, base)
    ]


SEGMENTS = [segment(0, b"aabc"), segment(4, b"xxaa"), segment(8, b"bbbb"), segment(12, b"zbqx")]
UPPER = 16


def old_log() -> MemoryDisk:
    disk = MemoryDisk()
    for batches in SEGMENTS:
        stem = f"{DIRECTORY}/{batches[0].base_offset:020d}"
        disk.files[stem + LOG] = bytearray(b"".join(map(encode, batches)))
        disk.files[stem + INDEX] = bytearray()
        disk.files[stem + TIME_INDEX] = bytearray(12)
        disk.files[stem + TRANSACTION_INDEX] = bytearray(b"of aborted records")
    return disk


def old_transaction_indexes(disk: MemoryDisk) -> set[str]:
    """Kafka's indexes of aborted records that lie beside a segment that has none, for it was cleaned."""
    before = old_log().files
    logs = {name.removesuffix(LOG) for name, data in before.items() if disk.files.get(name) == data}
    found = {name.removesuffix(TRANSACTION_INDEX) for name in disk.files if name.endswith(TRANSACTION_INDEX)}
    return found - logs


def job(disk: MemoryDisk) -> Job:
    sizes = [
        (s[0].base_offset, len(disk.files[f"{DIRECTORY}/{file_name(s[0].base_offset, LOG)}"]))
        for s in SEGMENTS
    ]
    return Job(
        DIRECTORY,
        sizes,
        [],
        0,
        UPPER,
        UPPER,
        NOW_MS,
        1000,
        2 * sizes[0][1],
        1 << 20,
        50,
        1 << 12,
        0.9,
        1e300,
        [],
        "00" * 16,
    )


def clean_and_swap(disk: MemoryDisk) -> None:
    for report in clean(cast(Disk, disk), job(disk), lambda nbytes: None):
        if isinstance(report, Cleaned):
            swap(cast(Disk, disk), DIRECTORY, report.bases)


def batches_of(disk: MemoryDisk) -> list[Batch]:
    """All of the log, which must be in order."""
    logs = [name for name in disk.listdir(DIRECTORY) if name.endswith(LOG)]
    found = [batch for name in logs for batch in decode(bytes(disk.files[f"{DIRECTORY}/{name}"]))]
    ends = [-1, *(batch.last_offset for batch in found)]
    assert all(batch.base_offset > end for batch, end in zip(found, ends, strict=False)), (
        "records stand twice"
    )
    for name in logs:
        inside = decode(bytes(disk.files[f"{DIRECTORY}/{name}"]))
        assert not inside or inside[0].base_offset >= int(name[:20])
    return found


def newest(batches: list[Batch]) -> dict[bytes, bytes]:
    return {record.key or b"": record.value or b"" for batch in batches for record in batch.records}


def changes_of_everything() -> int:
    disk = old_log()
    clean_and_swap(disk)
    return disk.changes


def test_without_a_crash_the_last_of_each_key_is_left() -> None:
    disk = old_log()
    clean_and_swap(disk)
    finish_swaps(cast(Disk, disk), DIRECTORY)
    offsets = [record.offset for batch in batches_of(disk) for record in batch.records]
    assert offsets == [3, 7, 12, 13, 14, 15]
    names = {name[20:] for name in disk.listdir(DIRECTORY)}
    assert names == {LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX}
    assert not old_transaction_indexes(disk)


@pytest.mark.parametrize("step", range(changes_of_everything()))
def test_a_crash_at_any_step_leaves_the_old_or_the_new(step: int) -> None:
    dead = old_log().copy(changes_max=step)
    with pytest.raises(Died):
        clean_and_swap(dead)
    whole = newest([batch for batches in SEGMENTS for batch in batches])
    again = 0
    while True:  # the start after the crash dies, too, one step later each time
        disk = dead.copy(changes_max=again)
        try:
            finish_swaps(cast(Disk, disk), DIRECTORY)
        except Died:
            disk.changes_max = 1 << 60
            finish_swaps(cast(Disk, disk), DIRECTORY)
            again += 1
        else:
            again = -1
        found = batches_of(disk)
        assert newest(found) == whole
        known = {batch.base_offset: batch for batches in SEGMENTS for batch in batches}
        assert all(batch == known[batch.base_offset] or not batch.records for batch in found)
        names = {name[20:] for name in disk.listdir(DIRECTORY)}
        assert names <= {LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX}
        assert not old_transaction_indexes(disk)
        if again < 0:
            return


def renames_of_a_swap() -> tuple[MemoryDisk, list[tuple[str, str]]]:
    """A log whose cleaned segment stands ready, and what the first swap renames."""
    disk = old_log()
    report = next(iter(clean(cast(Disk, disk), job(disk), lambda nbytes: None)))
    assert isinstance(report, Cleaned)
    ready, made = disk.copy(), list[tuple[str, str]]()
    rename = disk.rename

    def noted(source: str, target: str) -> None:
        made.append((source, target))
        rename(source, target)

    disk.rename = noted  # type: ignore[method-assign]
    swap(cast(Disk, disk), DIRECTORY, report.bases)
    return ready, made


def test_renames_that_reach_the_medium_in_any_order_lose_nothing() -> None:
    """Each of them may be there or not, as long as the new log has not got its last name.

    With it the old segments are gone as well on every file system that keeps the order of two renames.
    """
    ready, made = renames_of_a_swap()
    whole = newest([batch for batches in SEGMENTS for batch in batches])
    last = made.pop()
    assert last[1].endswith(LOG)
    assert len(made) > 8
    for kept in range(1 << len(made)):
        disk = ready.copy()
        for number, (source, target) in enumerate(made):
            if kept >> number & 1 and source in disk.files:
                disk.rename(source, target)
        finish_swaps(cast(Disk, disk), DIRECTORY)
        assert newest(batches_of(disk)) == whole
        names = {name[20:] for name in disk.listdir(DIRECTORY)}
        assert names <= {LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX}


def test_old_names_are_on_the_medium_before_what_tells_of_the_swap_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a second loss of power could leave neither."""
    disk, calls = renames_of_a_swap()[0], list[str]()
    log = f"{DIRECTORY}/{file_name(0, LOG)}"
    disk.rename(log, f"{log}.deleted")
    unlink = disk.unlink
    monkeypatch.setattr(disk, "sync_dir", lambda path: calls.append("sync" if disk.exists(log) else "early"))
    monkeypatch.setattr(disk, "unlink", lambda path: (calls.append("unlink"), unlink(path)))
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert calls[0] == "sync" and "unlink" in calls


def test_what_an_earlier_swap_replaced_is_not_taken_for_what_this_one_has() -> None:
    disk = old_log()
    before = batches_of(disk)
    stale = f"{DIRECTORY}/{file_name(2, LOG)}.deleted"
    disk.files[stale] = bytearray(encode(SEGMENTS[0][2]))
    disk.files[f"{DIRECTORY}/{file_name(0, LOG)}{CLEANED}"] = bytearray()
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == before, "the segment at 0 covers it"
    assert not disk.exists(stale)


def test_what_this_swap_replaced_is_not_given_back_for_what_an_earlier_cleaning_left() -> None:
    """A cleaning failed, and what it had written could not be deleted; the next one formed other groups."""
    disk = old_log()
    disk.files[f"{DIRECTORY}/{file_name(4, LOG)}{CLEANED}"] = bytearray(encode(SEGMENTS[1][3]))
    report = next(iter(clean(cast(Disk, disk), job(disk), lambda nbytes: None)))
    assert isinstance(report, Cleaned) and report.bases == [0, 4]
    swap(cast(Disk, disk), DIRECTORY, report.bases)
    swapped = batches_of(disk)
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == swapped, "the segment at 0 covers the one at 4"
    assert not any(name.endswith((CLEANED, DELETED)) for name in disk.listdir(DIRECTORY))


@pytest.mark.parametrize("ready", [True, False])
def test_what_was_cut_while_a_cleaning_ran_is_not_given_back(ready: bool) -> None:
    """A cleaned segment may stand ready, or be half written."""
    disk = old_log()
    reports = clean(cast(Disk, disk), job(disk), lambda nbytes: None)
    next(reports)
    if not ready:
        del disk.files[f"{DIRECTORY}/{file_name(0, INDEX)}{CLEANED}"]
    for base in (8, 12):
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = f"{DIRECTORY}/{file_name(base, suffix)}"
            disk.rename(path, f"{path}{GONE}{DELETED}")
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == [*SEGMENTS[0], *SEGMENTS[1]]
    assert {name[20:] for name in disk.listdir(DIRECTORY)} == {LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX}


def test_a_swap_counts_from_the_moment_its_log_has_the_name() -> None:
    """As it stands after the first of three steps: all `.swap` files are there, and all old ones."""
    disk = old_log()
    reports = clean(cast(Disk, disk), job(disk), lambda nbytes: None)
    first = next(reports)
    assert isinstance(first, Cleaned)
    assert first.bases == [0, 4]
    for suffix in (INDEX, TIME_INDEX, LOG):
        path = f"{DIRECTORY}/{file_name(0, suffix)}"
        disk.rename(path + CLEANED, path + SWAP)
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert [batch.base_offset for batch in batches_of(disk)][:2] == [3, 7]
    assert not disk.exists(f"{DIRECTORY}/{file_name(4, LOG)}")


def test_a_kafka_that_died_between_two_renames_is_understood() -> None:
    """Kafka renames the log first: with an index still `.cleaned` the old segments are all there."""
    disk = old_log()
    before = batches_of(disk)
    disk.files[f"{DIRECTORY}/{file_name(0, LOG)}{SWAP}"] = bytearray(encode(SEGMENTS[0][3]))
    disk.files[f"{DIRECTORY}/{file_name(0, INDEX)}{CLEANED}"] = bytearray()
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == before


def test_what_a_cleaning_has_written_can_be_thrown_away() -> None:
    disk = old_log()
    names = disk.listdir(DIRECTORY)
    list(clean(cast(Disk, disk), job(disk), lambda nbytes: None))
    assert disk.listdir(DIRECTORY) != names
    discard(cast(Disk, disk), DIRECTORY)
    assert disk.listdir(DIRECTORY) == names


def test_names_that_the_next_swap_needs_are_free() -> None:
    disk = old_log()
    kept = disk.listdir(DIRECTORY)
    for base in (0, 4):
        disk.files[f"{DIRECTORY}/{file_name(base, LOG)}.deleted"] = bytearray(b"of an earlier swap")
        for suffix in (LOG, TRANSACTION_INDEX):
            disk.files[f"{DIRECTORY}/{file_name(base, suffix)}{CLEANED}"] = bytearray(
                b"of a cleaning that failed"
            )
    make_room(cast(Disk, disk), DIRECTORY, 0)
    assert disk.listdir(DIRECTORY) == kept


# --- what Kafka leaves ------------------------------------------------------------------------------


def kafka_swapped(disk: MemoryDisk, bases: list[int], kept: list[Batch]) -> None:
    """Kafka has put `kept` in place of these segments, as we do; their files go a minute later."""
    for base in bases:
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = f"{DIRECTORY}/{file_name(base, suffix)}"
            disk.rename(path, f"{path}{DELETED}")
    for suffix in (INDEX, TIME_INDEX):
        disk.files[f"{DIRECTORY}/{file_name(bases[0], suffix)}"] = bytearray()
    disk.files[f"{DIRECTORY}/{file_name(bases[0], LOG)}"] = bytearray(b"".join(map(encode, kept)))


@pytest.mark.parametrize("at", [0, 8])
def test_what_a_swap_of_kafka_replaced_stays_away_though_it_died_in_the_next_cleaning(at: int) -> None:
    """What was kept ends long before the segments that it replaced do."""
    disk = old_log()
    kafka_swapped(disk, [0, 4], [SEGMENTS[0][2]])
    kafka_swapped(disk, [8], [SEGMENTS[2][3]])
    before = batches_of(disk)
    disk.files[f"{DIRECTORY}/{file_name(at, LOG)}{CLEANED}"] = bytearray(encode(SEGMENTS[0][2]))
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == before
    assert not any(name.endswith((CLEANED, DELETED)) for name in disk.listdir(DIRECTORY))


def test_a_tail_that_kafka_has_cut_stays_away_though_it_died_in_a_cleaning() -> None:
    """Its records are of a history that others have replaced; the active segment is never cleaned."""
    disk = old_log()
    for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
        path = f"{DIRECTORY}/{file_name(12, suffix)}"
        disk.rename(path, f"{path}{DELETED}")
    before = batches_of(disk)
    disk.files[f"{DIRECTORY}/{file_name(0, LOG)}{CLEANED}"] = bytearray()
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == before


def test_of_several_swaps_each_is_undone_by_itself() -> None:
    """Power was lost: nothing of the first has reached the medium, the second has, and of the third what was
    renamed away.
    """
    disk = old_log()
    kafka_swapped(disk, [4], [SEGMENTS[1][2]])
    path = f"{DIRECTORY}/{file_name(8, LOG)}"
    disk.rename(path, f"{path}{DELETED}")
    for base in (0, 8):
        disk.files[f"{DIRECTORY}/{file_name(base, LOG)}{CLEANED}"] = bytearray()
    finish_swaps(cast(Disk, disk), DIRECTORY)
    assert batches_of(disk) == [*SEGMENTS[0], SEGMENTS[1][2], *SEGMENTS[2], *SEGMENTS[3]]


def test_room_is_made_for_good_before_a_cleaning_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a loss of power could bring those files back beside the next swap's."""
    disk, calls = old_log(), list[bool]()
    stale = f"{DIRECTORY}/{file_name(0, LOG)}{DELETED}"
    monkeypatch.setattr(disk, "sync_dir", lambda path: calls.append(disk.exists(stale)))
    make_room(cast(Disk, disk), DIRECTORY, 0)
    assert calls == [], "nothing was there"
    disk.files[stale] = bytearray(b"of an earlier swap")
    make_room(cast(Disk, disk), DIRECTORY, 0)
    assert calls == [False]

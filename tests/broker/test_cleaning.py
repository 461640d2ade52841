"""Compaction in a running broker: what is swapped in, what is given up, what is remembered."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from strandline.base.types import TopicPartition
from strandline.broker.upkeep.cleaner_processes import ThreadCleaners
from strandline.protocol.batches import read_header
from strandline.protocol.records import Record
from strandline.storage.cleaning.job import Cleaned, Job, Report
from strandline.storage.config import TopicConfig
from strandline.storage.disk import Disk, DiskFailed, LogDamaged, NoDescriptor, RealDisk
from strandline.storage.log.checkpoints import RECOVERY_POINTS, read_offsets
from strandline.storage.log.log import Log
from strandline.storage.segment.segment_swap import discard
from tests.broker.cleaning_harness import START_MS, T0, WAIT_S, Stage, cleaning, in_loop
from tests.storage.cleaner_model import TRANSACTIONAL, Batch, encode
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.transactions import abort


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@in_loop
async def test_a_dirty_log_is_cleaned_and_that_is_remembered(stage: Stage) -> None:
    stage.put(100, keys=5)
    active = stage.log.segments[-1].base_offset
    before = stage.records()
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
        assert not await part.clean_filthiest(), "what is clean is left alone"
        assert part.counts().cleanings == 1
    after = stage.records()
    assert set(after) < set(before)
    assert [offset for offset, _, _ in after if offset < active] == list(range(active - 5, active))
    assert [r for r in after if r[0] >= active] == [r for r in before if r[0] >= active]
    assert [segment.size > 0 for segment in stage.log.segments] == [False, True, True]
    assert stage.checkpoint() == {T0: active}


@in_loop
async def test_what_is_cleaned_is_on_the_medium_and_known_to_be_before_the_first_swap(stage: Stage) -> None:
    """Else a hole that a power loss leaves there would pass for the cleaner's."""
    stage.put(100, keys=5)
    active, path = stage.log.segments[-1].base_offset, f"{stage.root}/{RECOVERY_POINTS}"
    known: list[int] = []
    replace = stage.log.replace
    stage.log.replace = lambda bases: (  # type: ignore[method-assign]
        known.append(read_offsets(stage.logs.disk, path)[T0]) or replace(bases)
    )
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
    assert known == [active] * len(known) != []


@pytest.mark.parametrize("clean", [True, False])
@in_loop
async def test_a_cleaned_log_is_the_same_after_a_start(stage: Stage, clean: bool) -> None:
    stage.put(60, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    kept = stage.records()
    stage.logs.disk.replace(f"{stage.root}/t-0/topic-config.json", b"")  # as a power loss may leave it
    stage.start_again(clean)
    assert stage.records() == kept
    assert not stage.logs.recovered[0].losses
    assert not [repair for repair in stage.logs.recovered[0].repairs if "index" in repair]
    stage.log.configure(TopicConfig.of(stage.config))
    async with cleaning(stage) as part:
        assert not await part.clean_filthiest()
        stage.put(200, keys=5)
        assert await part.clean_filthiest()


@in_loop
async def test_only_what_is_committed_is_cleaned(stage: Stage) -> None:
    stage.put(100, keys=5)
    segments = [segment.base_offset for segment in stage.log.segments]
    stage.logs.high_watermarks[T0] = segments[2] + 1
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    assert stage.checkpoint() == {T0: segments[2]}
    assert [offset for offset, _, _ in stage.records()] == list(range(segments[2] - 5, 100))


class Interrupted:
    """Cleaners that let something happen before the first report comes."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens
        self._inner = ThreadCleaners(RealDisk())

    async def clean(self, job: Job) -> AsyncGenerator[Report, None]:
        async for report in self._inner.clean(job):
            if isinstance(report, Cleaned):
                self._happens()
                await asyncio.sleep(0)
            yield report

    async def stop(self) -> None:
        pass


@in_loop
async def test_a_cut_gives_the_cleaning_up(stage: Stage) -> None:
    stage.put(100, keys=5)
    expected = [record for record in stage.records() if record[0] < 40]
    async with cleaning(stage, Interrupted(lambda: stage.log.truncate_to(40))) as part:
        await part.clean_filthiest()
        assert part.counts().given_up == 1
    assert stage.records() == expected
    assert stage.checkpoint() == {T0: 0}
    assert not [name for name in stage.names() if "cleaned" in name or "swap" in name]


@in_loop
async def test_a_cut_after_a_cleaning_makes_what_comes_there_dirty(stage: Stage) -> None:
    stage.put(100, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    stage.log.truncate_to(50)
    assert stage.checkpoint() == {T0: 50}
    assert stage.logs.cleaned.get(T0) == 50


@in_loop
async def test_a_cleaned_log_that_is_cut_to_its_start_is_still_there_after_a_kill(stage: Stage) -> None:
    """Nothing is left between the base of the first segment and the start: no scan could tell the end."""
    stage.put(100, keys=1)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    stage.log.move_start(50)
    stage.logs.checkpoint_recovery_points()
    stage.log.truncate_to(50)
    assert (stage.log.start_offset, stage.log.end_offset) == (50, 50)
    stage.start_again(clean=False)
    assert (stage.log.start_offset, stage.log.end_offset) == (50, 50)
    assert not stage.logs.recovered[0].losses


@in_loop
async def test_a_cut_while_the_end_is_written_down_wins(stage: Stage) -> None:
    stage.put(10, keys=5)
    cuts = stage.logs.cleaned.cuts(T0)
    stage.log.truncate_to(4)
    assert not stage.logs.cleaned.note(T0, 9, cuts)
    assert stage.logs.cleaned.get(T0) is None


@in_loop
async def test_a_deletion_gives_the_cleaning_up(stage: Stage) -> None:
    stage.put(100, keys=5)
    async with cleaning(stage, Interrupted(lambda: delete(stage))) as part:
        await part.clean_filthiest()
        assert part.counts().given_up == 1
        assert not part.uncleanable
    assert T0 not in stage.logs.logs
    assert stage.logs.cleaned.get(T0) is None


def delete(stage: Stage) -> None:
    stage.logs.remove(T0, UUID(int=1))


@in_loop
async def test_a_new_log_start_gives_the_cleaning_up(stage: Stage) -> None:
    stage.put(100, keys=5)
    count = len(stage.log.segments)
    async with cleaning(stage, Interrupted(lambda: move_start(stage.log))) as part:
        await part.clean_filthiest()
    assert len(stage.log.segments) == count
    assert not [name for name in stage.names() if "cleaned" in name]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def move_start(log: Log) -> None:
    log.move_start(30)


@in_loop
async def test_a_damaged_log_is_not_tried_again_and_stays_as_it_is(stage: Stage) -> None:
    stage.put(100, keys=5)
    flip(Path(stage.root, "t-0", "00000000000000000000.log"), 80)
    names = stage.names()
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
        assert "CRC" in part.uncleanable[T0]
        assert part.counts().uncleanable == 1
        assert not await part.clean_filthiest()
        assert stage.names() == names
        stage.log.truncate_to(0)  # its leader will send it again
        assert not part.uncleanable


@in_loop
async def test_the_filthiest_log_comes_first(stage: Stage) -> None:
    other = stage.logs.create(TopicPartition("u", 0), None, TopicConfig.of(stage.config))
    stage.put(60, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
        stage.put(60, keys=5)
        stage.log, other = other, stage.log
        stage.put(60, keys=5)
        stage.logs.high_watermarks[other.partition] = other.end_offset
        stage.logs.high_watermarks[stage.log.partition] = stage.log.end_offset
        await part.clean_filthiest()
        assert stage.logs.cleaned.get(stage.log.partition) is not None


@in_loop
async def test_tombstones_go_after_their_retention(tmp_path: Path) -> None:
    stage = Stage(tmp_path, delete_retention_ms=1000)
    stage.put(5, keys=5)
    stage.put(5, keys=5, value=None)
    stage.log.roll(START_MS)
    stage.put(1, keys=1)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
        assert [(offset, value) for offset, _, value in stage.records()][:-1] == [
            (o, b"") for o in range(5, 10)
        ]
        for passed in (999, 1000):
            stage.clock.now = START_MS + passed
            stage.put(60, keys=7, name=b"others")
            stage.log.roll(stage.clock.now)
            stage.put(1, keys=1)
            assert await part.clean_filthiest()
            deleted = [offset for offset, _, value in stage.records() if not value]
            assert bool(deleted) == (passed == 999)


@in_loop
async def test_tombstones_may_be_kept_for_ever(tmp_path: Path) -> None:
    """With the largest number there is: together with now it is more than a time can be."""
    stage = Stage(tmp_path, delete_retention_ms=(1 << 63) - 1)
    stage.put(5, keys=5)
    stage.put(5, keys=5, value=None)
    stage.log.roll(START_MS)
    stage.put(1, keys=1)
    async with cleaning(stage) as part:
        for _ in range(2):
            assert await part.clean_filthiest()
            deleted = {offset for offset, _, value in stage.records() if not value}
            assert {6, 7, 8, 9} <= deleted, "of 5 the key is written again"
            stage.clock.now += 1 << 40
            stage.put(60, keys=7, name=b"others")
            stage.log.roll(stage.clock.now)
            stage.put(1, keys=1)


@in_loop
async def test_segments_that_retention_takes_meanwhile_give_the_cleaning_up(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cleanup_policy="compact,delete", retention_ms=1 << 40)
    stage.put(100, keys=5)
    third = stage.log.segments[2].base_offset
    stage.log.move_start(third)  # what a client had deleted is still there, for no pass has come by since
    expected = stage.records()

    def retire() -> None:
        stage.logs.retire(stage.log, stage.log.end_offset, 8)

    async with cleaning(stage, Interrupted(retire)) as part:
        await part.clean_filthiest()
        assert stage.log.start_offset == third, "which did not move"
        assert part.counts().failures == 0
    assert stage.log.segments[0].base_offset == third
    assert set(stage.records()) < set(expected)
    assert not [name for name in stage.names() if "cleaned" in name or "swap" in name]


@in_loop
async def test_a_log_start_that_moves_before_the_work_begins_gives_it_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put(100, keys=5)
    note = stage.logs.cleaned.note

    def moved(*told: Any) -> bool:
        stage.log.move_start(stage.log.segments[-1].base_offset)
        return note(*told)

    monkeypatch.setattr(stage.logs.cleaned, "note", moved)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
        assert part.counts().cleanings == part.counts().failures == 0


@in_loop
async def test_a_log_start_that_moves_while_it_is_flushed_gives_the_cleaning_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put(100, keys=5)
    promise_flushed = stage.logs.promise_flushed

    def moved(*told: Any) -> bool:
        stage.log.move_start(stage.log.segments[-1].base_offset)  # no segment is left to be read
        return promise_flushed(*told)

    monkeypatch.setattr(stage.logs, "promise_flushed", moved)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
        assert part.counts().cleanings == part.counts().failures == 0


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EIO])
@in_loop
async def test_a_swap_that_stops_halfway_fails_the_directory_only_if_the_disk_has(
    tmp_path: Path, error: int
) -> None:
    stage, disk = Stage(tmp_path), FaultyDisk()
    stage.put(60, keys=5)
    latest = {key: value for _, key, value in stage.records()}
    stage.start_again(clean=True, disk=disk)
    stage.logs.high_watermarks[T0] = stage.log.end_offset
    disk.fail("rename", "*.log.swap", error)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    (told,) = stage.replicas.disk_errors
    assert isinstance(told, DiskFailed if error == errno.EIO else LogDamaged)
    assert stage.log.failed
    disk.heal()
    stage.start_again(clean=False, disk=disk)
    assert {key: value for _, key, value in stage.records()} == latest
    assert not stage.logs.recovered[0].losses


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
@in_loop
async def test_a_log_whose_times_cannot_be_read_spares_the_others(tmp_path: Path, error: int) -> None:
    stage, disk = Stage(tmp_path, min_compaction_lag_ms=1000), FaultyDisk()
    other = stage.logs.create(TopicPartition("u", 0), None, TopicConfig.of(stage.config))
    stage.put(60, keys=5)
    stage.start_again(clean=True, disk=disk)  # so that times are in files only
    stage.log = stage.logs.logs[other.partition]
    stage.put(60, keys=5)
    stage.logs.high_watermarks[other.partition] = stage.log.end_offset
    stage.clock.now += 2000
    disk.fail("open", "*/t-0/*.timeindex", error)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
        assert stage.logs.cleaned.get(other.partition) is not None
    (told,) = stage.replicas.disk_errors
    assert isinstance(told, NoDescriptor if error == errno.EMFILE else DiskFailed)


@in_loop
async def test_a_thread_that_still_removes_takes_nothing_from_the_next_cleaning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut comes when a cleaning is over but for its remains, which are looked for and removed late."""
    removing, go_on, removed = Event(), Event(), Event()

    def slow(disk: Disk, directory: str) -> None:
        removing.set()
        assert go_on.wait(WAIT_S)
        discard(disk, directory)
        removed.set()

    def swap_follows() -> None:
        if removing.is_set():
            go_on.set()
            removed.wait(WAIT_S)

    monkeypatch.setattr("strandline.broker.upkeep.compaction.discard", slow)
    stage.put(100, keys=5)
    async with cleaning(stage, Interrupted(swap_follows)) as part:
        first = asyncio.ensure_future(part.clean_filthiest())
        while not removing.is_set():
            await asyncio.sleep(0)
        stage.log.truncate_to(50)
        stage.put(100, keys=5)
        for _ in range(10):  # a task that minds being cancelled would end now
            await asyncio.sleep(0)
        second = await part.clean_filthiest()
        go_on.set()
        await first
        assert second or await part.clean_filthiest()
    assert stage.replicas.disk_errors == []
    assert len(stage.log.segments) == 3


@in_loop
async def test_what_a_cleaning_replaced_and_a_cut_removed_is_gone_before_the_next_cleaning(
    tmp_path: Path,
) -> None:
    """Else a kill -9 in the middle of that would bring it back: nothing that is left covers it."""
    stage, seen = Stage(tmp_path, file_delete_delay_ms=60_000), list[str]()
    stage.put(100, keys=5)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
    stage.log.truncate_to(10)
    stage.put(40, keys=5)

    def could_come_back(names: list[str]) -> list[str]:
        old = [name for name in names if name[20:] == ".log.deleted"]
        return [name for name in old if int(name[:20]) >= stage.log.end_offset]

    assert could_come_back(stage.names())
    async with cleaning(stage, Interrupted(lambda: seen.extend(stage.names()))) as part:
        assert await part.clean_filthiest()
    assert [name for name in seen if name.endswith(".log.cleaned")] and not could_come_back(seen)


def put_open_transaction(stage: Stage) -> int:
    """The first of a producer's; returns its offset."""
    at = stage.log.end_offset
    open_batch = Batch(
        at, at, TRANSACTIONAL, START_MS, START_MS, producer=7, epoch=0, sequence=0,
        records=[Record(at, START_MS, b"key-0", b"undecided", ())],
    )  # fmt: skip
    data = bytearray(encode(open_batch))
    return stage.log.append(memoryview(data), read_header(data), 0, START_MS)


@in_loop
async def test_nothing_is_cleaned_from_the_last_stable_offset_on(stage: Stage) -> None:
    stage.put(40, keys=5)
    held = put_open_transaction(stage)
    stage.put(60, keys=5)
    segments = [segment.base_offset for segment in stage.log.segments]
    stable = max(base for base in segments if base <= held)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
        assert stage.checkpoint() == {T0: stable}
        assert not await part.clean_filthiest()
        marker = abort(stage.log, 7)
        stage.logs.high_watermarks[T0] = marker
        assert not await part.clean_filthiest(), "the marker is not committed"
        stage.commit()
        assert await part.clean_filthiest()
    assert stage.checkpoint() == {T0: segments[-1]}
    assert held not in [offset for offset, _, _ in stage.records()]


@in_loop
async def test_an_aborted_transaction_is_told_of_as_long_as_its_marker_is_needed(stage: Stage) -> None:
    """Its last batch stays without records, for the producer's sequence, and the marker with it."""
    held = put_open_transaction(stage)
    stage.put(20, keys=5)
    marker = abort(stage.log, 7)
    stage.put(60, keys=5)
    (index,) = stage.log.aborts.entries(stage.log.end_offset)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
    assert held not in [offset for offset, _, _ in stage.records()]
    assert stage.log.aborts.entries(stage.log.end_offset) == [index]
    assert (index.first_offset, index.last_offset) == (held, marker)
    stage.start_again(clean=True)
    assert stage.log.aborted(0, 1) == [(7, held)]
    stage.log.producers.clear()
    stage.put(60, keys=5)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
        assert stage.log.aborts.entries(stage.log.end_offset) == [index]
        stage.put(60, keys=5)
        assert await part.clean_filthiest()
    assert stage.log.aborts.entries(stage.log.end_offset) == []
    assert not [name for name in stage.names() if name.endswith(".txnindex")]


@in_loop
async def test_a_transaction_that_only_the_batches_know_holds_a_cleaning_back_and_is_told_once(
    stage: Stage,
) -> None:
    """The log is not read again and again for its sake."""
    stage.put(40, keys=5)
    held = put_open_transaction(stage)
    stage.log.producers.clear()
    stage.put(60, keys=5)
    with capture_logs() as told:
        async with cleaning(stage) as part:
            assert await part.clean_filthiest()
            assert not await part.clean_filthiest(), "what is held back is left alone"
    told = [entry for entry in told if entry["event"] == "cleaning_blocked"]
    assert [(entry["offset"], entry["producer_id"]) for entry in told] == [(held, 7)]
    segment = max(s.base_offset for s in stage.log.segments if s.base_offset <= held)
    assert stage.checkpoint() == {T0: segment}
    kept = [offset for offset, _, _ in stage.records()]
    assert kept == [*range(segment - 5, segment), *range(segment, stage.log.end_offset)]


@in_loop
async def test_a_cleaning_makes_segments_without_timestamps_no_younger(stage: Stage) -> None:
    stage.clock.now = -1
    stage.put(100, keys=5)
    stage.clock.now = START_MS
    stage.written_now()
    count = len(stage.log.segments)
    async with cleaning(stage) as part:
        assert await part.clean_filthiest()
    assert len(stage.log.segments) < count
    stage.start_again(clean=True)  # what is known of them now stands in their files
    assert {segment.age_from_ms for segment in stage.log.segments[:-1]} == {START_MS}

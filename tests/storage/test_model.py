"""A log against plain lists: whatever is done to both, they answer the same.

Crashes included: kill -9 loses nothing that was appended, a power loss nothing that was flushed.
"""

import shutil
import tempfile
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from strandline.protocol.batches import headers, read_header
from strandline.protocol.compression import Codec
from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Done
from strandline.storage.cleaning.plan import LogFacts, dirt
from strandline.storage.disk import DiskFailed, DiskFull
from strandline.storage.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from strandline.storage.segment.file_names import LOG
from strandline.storage.segment.segment_swap import make_room
from tests.storage.cleaner_model import compacted, decode
from tests.storage.conftest import START_MS, T0
from tests.storage.log_harness import KEYS, LogRig, Spec, batches, offsets
from tests.storage.log_model import Entry, entries_of, facts_of, read_all


class LogMachine(LogRig):
    """One log of a broker that has no other."""

    @initialize(
        real=st.sampled_from([False, False, True]),
        tail=st.booleans(),
        interval=st.sampled_from([0, 100, 1000]),
        compact=st.booleans(),
    )
    def begin(self, real: bool, tail: bool, interval: int, compact: bool) -> None:
        if real:
            memory = Path("/dev/shm")
            self.directory = tempfile.mkdtemp(prefix="model-", dir=memory if memory.is_dir() else None)
        self.set_up(tail, interval, compact)

    # -- records come

    @rule(spec=batches)
    def append(self, spec: Spec) -> None:
        batch, epoch = self.next_batch(spec)
        header = read_header(batch)
        assert self.log.producers.check(header) is None
        assert self.log.append(memoryview(bytearray(batch)), header, epoch, START_MS) == self.model.end
        self.model.append(bytes(batch))

    @rule(specs=st.lists(batches, min_size=1, max_size=6), gap=st.sampled_from([0, 0, 3]))
    def replicate(self, specs: list[Spec], gap: int) -> None:
        run = bytearray()
        for place, spec in enumerate(specs):
            if place == 1 and self.log.gaps_allowed:
                self.model.end += gap
            batch, _ = self.next_batch(spec)
            self.model.append(bytes(batch))
            run += batch
        assert self.log.append_replicated(memoryview(run + b"torn")) == len(run)

    @rule(spec=batches, keep=st.integers(0, 200))
    def append_on_a_full_disk(self, spec: Spec, keep: int) -> None:
        batch, epoch = self.next_batch({**spec, "step": not self.model.epochs})
        if not self.model.epochs:
            self.model.begin_epoch(epoch, self.model.end)  # noted before the first record
        self.model.ever |= facts_of(entries_of(bytes(batch)))  # a power loss may bring it back
        fault = self.disk.fail("append", "*.log", ENOSPC, keep=keep)
        with pytest.raises(DiskFull):
            self.log.append(memoryview(batch), read_header(batch), epoch, START_MS)
        self.disk.heal(fault)

    # -- and are read

    @precondition(lambda self: self.model.served)
    @rule(
        at=offsets, upto=offsets, bytes_max=st.sampled_from([0, 1, 100, 300, 1000, 10000]), one=st.booleans()
    )
    def read(self, at: float, upto: float, bytes_max: int, one: bool) -> None:
        offset, end = self.offset(at), self.offset(upto) + 1
        slices = self.log.read(offset, bytes_max, end, one)
        got = bytes(slices)
        wanted = self.between(self.model.served, offset, end)
        uncleaned = self.between(self.model.lineage, offset, end)  # as the tail in memory still has them
        assert any(b"".join(e.data for e in each).startswith(got) for each in (wanted, uncleaned))
        assert sum(h.size for _, h in headers(got)) == len(got), "whole batches only"
        if wanted and one:
            assert got, "what is there is given"
        assert len(got) <= max(bytes_max, entries_of(got)[0].header.size if one and got else 0)
        self.views.append((got, slices))

    @staticmethod
    def between(entries: list[Entry], offset: int, end: int) -> list[Entry]:
        return [e for e in entries if e.next > offset and e.base < end] if offset < end else []

    @rule(late=st.integers(-60, 60), upto=offsets)
    def find_timestamp(self, late: int, upto: float) -> None:
        ms, end = START_MS + late, self.offset(upto)
        found = self.log.find_timestamp(ms, end)
        wanted = next((r for r in self.model.records if r.timestamp >= ms and r.offset < end), None)
        assert (found and found[:2]) == (wanted and (wanted.timestamp, wanted.offset))
        newest = self.log.latest_timestamp(self.model.end)
        times = [r.timestamp for r in self.model.records]
        if newest is not None:
            assert newest[0] == max(times)
        else:  # the newest may lie before the start, its segment still here, or have been compacted away
            assert not times or self.model.start > self.log.segments[0].base_offset or self.compact

    # -- records go

    @rule(at=offsets)
    def truncate(self, at: float) -> None:
        generation = self.log.generation
        offset = self.model.behind_a_batch(self.offset(at * 1.1))
        self.log.truncate_to(offset)
        self.model.cut(offset)
        assert self.log.generation == generation + 1

    @rule(at=st.floats(0, 2))
    def restart(self, at: float) -> None:
        if at > 1.7:
            offset = self.offset(at)
            self.log.restart_at(offset)
            self.model.restart(offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(START_MS)

    @rule(at=offsets)
    def move_start(self, at: float) -> None:
        self.log.move_start(self.offset(at))
        self.model.move_start(self.offset(at))

    @rule(count=st.integers(1, 4), at_once=st.booleans())
    def retire(self, count: int, at_once: bool) -> None:
        gone = self.log.retire(min(count, len(self.log.segments)), START_MS)
        for path in gone if at_once else ():
            self.disk.unlink(path)
        self.forget_retired()

    def forget_retired(self) -> None:
        first = self.log.segments[0].base_offset
        self.model.move_start(first)
        self.model.entries = [entry for entry in self.model.entries if entry.base >= first]

    # -- compaction

    @precondition(lambda self: self.compact and len(self.log.segments) > 1)
    @rule(swaps_max=st.sampled_from([0, 1, 99, 99]), synced=st.booleans())
    def clean(self, swaps_max: int, synced: bool) -> None:
        log, cleaned = self.log, self.logs.cleaned
        facts = LogFacts(
            log.segments, log.start_offset, log.end_offset, log.end_offset, cleaned.get(T0), log.config
        )
        found, cuts = dirt(facts, START_MS), cleaned.cuts(T0)
        if not found.dirty_bytes:
            return
        if cleaned.get(T0) is None:
            cleaned.note(T0, found.first_dirty, cuts)
        self.flush()
        if not self.logs.promise_flushed(log, found.upper):  # a cut holds whoever writes next: he comes again
            assert self.logs.promise_flushed(log, found.upper)
        make_room(self.disk, log.directory, log.segments[0].base_offset)
        job = self.job(found.first_dirty, found.upper)
        kept, end = compacted(self.task(job))
        for number, report in enumerate(clean(self.disk, job, lambda nbytes: None)):
            if number >= swaps_max:
                return
            if isinstance(report, Cleaned):
                after = [
                    *(s.base_offset for s in log.segments if s.base_offset > report.bases[-1]),
                    job.upper,
                ][0]
                self.disk_forget(log.replace(report.bases))
                if synced:
                    self.disk.sync_dir(log.directory)
                self.adopt_cleaned(kept, report.bases[0], after)
            else:
                assert isinstance(report, Done) and report.end_offset == end
                cleaned.note(T0, end, cuts)

    def disk_forget(self, paths: list[str]) -> None:
        for path in paths:
            self.disk.unlink(path)

    def adopt_cleaned(self, kept: list[Any], low: int, high: int) -> None:
        """What stands now between these offsets must be what the model of the cleaner keeps."""
        segments = [s for s in self.log.segments if low <= s.base_offset < high]
        data = b"".join(self.disk.read(segment.path(LOG)) for segment in segments)
        assert decode(data) == [batch for batch in kept if low <= batch.base_offset < high]
        before = [e for e in self.model.entries if e.base < low]
        stood = [e for e in self.model.entries if low <= e.base < high]
        self.model.gaps |= {at for e in stood for at in range(e.base, e.next)}
        self.model.entries = [*before, *entries_of(data), *(e for e in self.model.entries if e.base >= high)]
        self.model.certain = False  # a snapshot goes with its segment, and so may a batch

    # -- what lasts

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.model.flushed = self.model.end
        assert self.log.flushed_offset == self.model.end

    @rule(sealed=st.booleans())
    def begin_flush(self, sealed: bool) -> None:
        self.flushing.append((self.log.begin_flush(sealed), self.log.generation))

    @precondition(lambda self: self.flushing)
    @rule()
    def end_flush(self) -> None:
        flush, generation = self.flushing.pop(0)
        flush.run()
        self.log.end_flush(flush)
        if generation == self.log.generation:
            self.model.flushed = max(self.model.flushed, flush.end)
        assert self.log.flushed_offset == self.model.flushed

    @rule(at=offsets)
    def checkpoint(self, at: float) -> None:
        self.logs.checkpoint_recovery_points()
        self.logs.checkpoint_high_watermarks(lambda: {T0: self.offset(at)})

    @rule()
    def a_sync_fails(self) -> None:
        with pytest.raises(DiskFailed):
            fault = self.disk.fail("sync", "*.log")
            self.log.flush()
        self.disk.heal(fault)
        with pytest.raises(DiskFailed):
            self.append_anything()
        self.die(torn=0)

    # -- and ends

    @rule(torn=st.integers(0, 200))
    def die(self, torn: int) -> None:
        """kill -9, in the middle of a write."""
        self.logs.close(clean=False)
        if torn and self.model.epochs:
            spec = {"keys": KEYS, "size": 300, "late": 0, "codec": Codec.NONE, "producer": -1, "step": False}
            batch, _ = self.next_batch(spec)
            self.disk.inner.open(self.log.segments[-1].path(LOG)).append([batch[:torn]])
        self.open(clean=False)
        self.opened_whole()

    @rule(power=st.booleans())
    def stop_and_start(self, power: bool) -> None:
        assert self.logs.close()
        if power and self.directory is None:
            self.simulated.lose_power(0.0, Random(1))
            self.model.certain = False  # snapshots are not synced
        self.open(clean=True)
        self.opened_whole()

    def opened_whole(self) -> None:
        """Nothing is lost, and nobody says so."""
        assert self.doubts == []
        (cost,) = self.logs.recovered
        assert not cost.lost and not cost.aside
        self.forgot = self.forgot or self.log.start_offset < self.model.start
        if self.forgot or self.model.start == self.model.end:
            # where the log begins had not been written down; its epochs since then may be known or not
            self.model.start, self.model.epochs = self.log.start_offset, list(self.log.epochs.entries)
        else:
            self.model.epochs = [entry for entry in self.model.epochs if entry[1] < self.model.end]
        self.model.flushed = self.model.end
        self.the_same()
        self.model.take_producers(self.log)
        found = read_all(self.log)
        assert facts_of(found) == facts_of(self.model.served)
        self.model.check_epochs(self.log, found)
        self.indexes_tell_of_batches()

    @precondition(lambda self: self.directory is None)
    @rule(keep=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 1 << 16))
    def lose_power(self, keep: float, seed: int) -> None:
        self.simulated.lose_power(keep, Random(seed))
        self.open(clean=False, same_boot=False)
        self.views.clear()
        self.forgot = self.forgot or self.log.start_offset < self.model.start
        self.model.adopt(self.log, told=bool(self.doubts))
        self.indexes_tell_of_batches()
        watermark = read_offsets(self.disk, f"{self.root}/{HIGH_WATERMARKS}").get(T0, 0)  # type: ignore[arg-type]
        assert watermark <= self.log.end_offset or self.doubts, (
            "committed records are gone, and nobody says so"
        )
        self.logs.checkpoint_high_watermarks(dict)

    @rule()
    def indexes_tell_of_batches(self) -> None:
        for segment in self.log.segments:
            base, at = segment.base_offset, dict(segment.headers())
            for relative, position in zip(segment.index.offsets, segment.index.positions, strict=True):
                assert at[position].last_offset == base + relative
            for relative, time in zip(segment.times.offsets, segment.times.times, strict=True):
                (header,) = (h for h in at.values() if h.base_offset <= base + relative <= h.last_offset)
                assert header.max_timestamp == time

    # -- always

    @invariant()
    def the_same(self) -> None:
        if hasattr(self, "logs"):
            log, model = self.log, self.model
            assert (log.start_offset, log.end_offset) == (model.start, model.end)
            assert log.epochs.entries == model.epochs
            assert log.flushed_offset == model.flushed
            model.check_producers(log)

    @invariant()
    def checkpoints_promise_nothing_that_is_not_there(self) -> None:
        if hasattr(self, "logs"):
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
                path = f"{self.root}/{name}"
                assert read_offsets(self.disk, path).get(T0, 0) <= self.log.end_offset  # type: ignore[arg-type]

    @invariant()
    def what_was_read_never_changes(self) -> None:
        for copy, slices in self.views:
            assert bytes(slices) == copy  # type: ignore[call-overload]

    def teardown(self) -> None:
        if hasattr(self, "logs"):
            self.logs.close(clean=False)
        if self.directory is not None:
            shutil.rmtree(self.directory)


A_RECORD: Spec = {
    "keys": KEYS[:1], "size": 1, "late": 0, "codec": Codec.NONE, "producer": 2, "step": False,
}  # fmt: skip


@pytest.fixture
def compact() -> bool:
    return False


@pytest.fixture
def machine(compact: bool) -> Iterator[LogMachine]:
    made = LogMachine()
    made.begin(real=False, tail=False, interval=0, compact=compact)
    yield made
    made.teardown()


def test_what_was_deleted_before_it_was_flushed_is_no_hole(machine: LogMachine) -> None:
    machine.append(spec=A_RECORD)
    machine.move_start(at=1.0)
    machine.checkpoint(at=1.0)
    machine.replicate(gap=0, specs=[A_RECORD])
    machine.lose_power(keep=0.0, seed=1)


def test_a_cut_may_leave_a_producer_fewer_batches_than_the_log_has(machine: LogMachine) -> None:
    """They are taken back from its last five; those before were acknowledged before the fifth was sent."""
    machine.replicate(gap=0, specs=[A_RECORD] * 3)
    machine.retire(at_once=False, count=1)
    machine.replicate(gap=0, specs=[A_RECORD] * 3)
    machine.truncate(at=0.0)
    machine.the_same()
    assert [batch.base_sequence for batch in machine.log.producers.get(2).batches] == [1, 2]


@pytest.mark.parametrize("compact", [True])
@pytest.mark.parametrize("end", ["cut", "restart", "retire"])
def test_what_is_taken_away_while_a_cleaned_segment_stands_ready_is_not_back_after_kill_9(
    machine: LogMachine, end: str
) -> None:
    """A start gives back only what a swap replaced."""
    machine.replicate(gap=0, specs=[A_RECORD] * 2)
    machine.roll()
    machine.clean(swaps_max=0, synced=True)
    if end == "retire":
        machine.retire(count=1, at_once=False)
    elif end == "restart":
        machine.restart(at=1.9)
    else:
        machine.truncate(at=0.0)
    machine.die(torn=0)
    machine.the_same()


@pytest.mark.parametrize("compact", [True])
def test_what_was_cut_may_be_back_with_the_gaps_that_it_had(machine: LogMachine) -> None:
    machine.replicate(gap=0, specs=[A_RECORD] * 2)
    machine.roll()
    machine.clean(swaps_max=1, synced=True)
    machine.truncate(at=0.0)
    machine.append(spec=A_RECORD)
    machine.lose_power(keep=0.0, seed=1)
    assert machine.log.end_offset == 2


def test_after_a_power_loss_no_batch_has_an_older_epoch_than_one_before_the_start(
    machine: LogMachine,
) -> None:
    """It still lies in the first segment, and a scan begins there."""
    machine.append(spec={**A_RECORD, "step": True})
    machine.move_start(at=1.0)
    machine.stop_and_start(power=False)
    machine.lose_power(keep=0.0, seed=1)
    machine.truncate(at=0.0)
    machine.append(spec=A_RECORD)
    machine.flush()
    machine.lose_power(keep=0.0, seed=1)


@pytest.mark.parametrize("compact", [True])
def test_after_a_power_loss_a_cleaning_finds_what_lies_before_the_start(machine: LogMachine) -> None:
    machine.replicate(gap=0, specs=[{**A_RECORD, "keys": KEYS[1:2]}, A_RECORD, A_RECORD])
    machine.roll()
    machine.append(spec=A_RECORD)
    machine.move_start(at=0.4)
    machine.stop_and_start(power=False)
    machine.lose_power(keep=0.0, seed=1)
    machine.clean(swaps_max=99, synced=True)


def test_a_start_that_a_power_loss_brought_back_may_bring_its_epochs_later(machine: LogMachine) -> None:
    for _ in range(3):
        machine.append(spec=A_RECORD)
        machine.roll()
    machine.stop_and_start(power=False)
    machine.move_start(at=1.0)
    machine.lose_power(keep=0.0, seed=0)
    machine.stop_and_start(power=False)


@pytest.mark.parametrize("compact", [True])
def test_an_end_that_only_a_segments_name_told_may_be_lost_but_not_in_silence(machine: LogMachine) -> None:
    """A cut made that segment, for nothing is left before it, and waited for no sync."""
    machine.replicate(gap=0, specs=[A_RECORD] * 3)
    machine.roll()
    machine.clean(swaps_max=1, synced=True)
    machine.move_start(at=0.6)
    machine.truncate(at=0.0)
    assert machine.log.end_offset == 2 and not machine.log.size
    machine.disk.unlink(machine.log.segments[-1].path(LOG))
    machine.open(clean=False, same_boot=False)
    machine.model.adopt(machine.log, told=bool(machine.doubts))
    assert (machine.log.end_offset, len(machine.doubts)) == (0, 1)


def run(**how: Any) -> None:
    profile = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), **how)
    run_state_machine_as_test(LogMachine, settings=profile)


@pytest.mark.slow
def test_a_log_is_what_the_model_says() -> None:
    run(max_examples=200, stateful_step_count=40)


@pytest.mark.long
def test_so_it_is_for_a_long_time() -> None:
    run(max_examples=5000, stateful_step_count=80, derandomize=False)

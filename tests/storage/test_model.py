"""A log against a plain list: whatever is done to both, they answer the same. kill -9 included."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.protocol.batches import headers, read_header
from strandline.protocol.records import iterate

from .conftest import START_MS, Place, make_batch, put

Entry = tuple[int, int, int, bytes]  # base offset, next offset, newest timestamp, bytes


class LogMachine(RuleBasedStateMachine):
    """The model is the list of batches that the log should hold."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(
            tempfile.mkdtemp(prefix="strandline-model-", dir=memory if memory.is_dir() else None)
        )
        self.batches: list[Entry] = []
        self.views: list[tuple[bytes, object]] = []
        self.epoch = 0

    @initialize(tail=st.booleans(), interval=st.sampled_from([0, 100, 1000]))
    def begin(self, tail: bool, interval: int) -> None:
        self.tail = tail
        self.place = Place(self.root / "d", segment_bytes=700, index_interval_bytes=interval)
        self.log.keep_tail = tail

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.place.log

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.log.start_offset

    @rule(count=st.integers(1, 4), size=st.integers(0, 120), late=st.integers(-50, 50), step=st.booleans())
    def append(self, count: int, size: int, late: int, step: bool) -> None:
        self.epoch += step
        at = START_MS + late
        base = put(self.log, *[b"v" * size] * count, at=at, epoch=self.epoch)
        assert base == self.end
        stored = bytes(make_batch(*[b"v" * size] * count, at=at, base=base, epoch=self.epoch))
        self.batches.append((base, base + count, at + count - 1, stored))

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=6), size=st.integers(0, 300))
    def replicate(self, counts: list[int], size: int) -> None:
        run = bytearray()
        for count in counts:
            base = self.end
            batch = make_batch(*[b"r" * size] * count, base=base, epoch=self.epoch)
            self.batches.append((base, base + count, START_MS + count - 1, bytes(batch)))
            run += batch
        assert self.log.append_replicated(memoryview(run + b"torn")) == len(run)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), bytes_max=st.sampled_from([0, 1, 100, 300, 1000, 10000]), one=st.booleans())
    def read(self, data: st.DataObject, bytes_max: int, one: bool) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.end))
        end = data.draw(st.integers(self.log.start_offset, self.end + 1))
        slices = self.log.read(offset, bytes_max, end, one)
        got = bytes(slices)
        wanted = [b for b in self.batches if b[1] > offset and b[0] < end] if offset < end else []
        whole = b"".join(b[3] for b in wanted)
        assert whole.startswith(got)
        assert sum(h.size for _, h in headers(got)) == len(got), "whole batches only"
        if wanted and (one or len(wanted[0][3]) <= bytes_max):
            assert got, "what is there is given"
        assert len(got) <= max(bytes_max, len(wanted[0][3]) if wanted and one else 0)
        self.views.append((got, slices))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        ms = START_MS + data.draw(st.integers(-60, 60))
        end = data.draw(st.integers(self.log.start_offset, self.end))
        records = [r for b in self.batches for r in iterate(b[3])]
        found = self.log.find_timestamp(ms, end)
        wanted = next((r for r in records if r.timestamp >= ms and r.offset < end), None)
        assert (found and found[:2]) == (wanted and (wanted.timestamp, wanted.offset))
        newest = self.log.latest_timestamp(self.end)
        assert newest is not None
        assert newest[0] == max(r.timestamp for r in records)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.end + 2))
        generation = self.log.generation
        self.log.truncate_to(offset)
        self.batches = [b for b in self.batches if b[1] <= offset]
        assert self.log.generation == generation + 1

    @rule()
    def roll(self) -> None:
        self.log.roll(START_MS)

    @rule(torn=st.integers(0, 200))
    def die_while_writing(self, torn: int) -> None:
        self.place.die()
        batch = make_batch(b"never acknowledged" * 20, base=self.end, epoch=self.epoch)
        path = Path(self.log.segments[-1].path(".log"))
        path.write_bytes(path.read_bytes() + batch[: min(torn, len(batch) - 1)])
        self.place.start().keep_tail = self.tail
        assert self.place.doubts == []

    @rule(flush=st.booleans())
    def stop_and_start(self, flush: bool) -> None:
        if flush:
            self.log.flush()
            assert self.log.flushed_offset == self.end
        self.place.stop()
        self.place.start(clean=True).keep_tail = self.tail
        assert self.place.doubts == []

    @invariant()
    def same_end(self) -> None:
        if hasattr(self, "place"):
            assert self.log.end_offset == self.end

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if not hasattr(self, "place"):
            return
        wanted: list[tuple[int, int]] = []
        for base, _, _, stored in self.batches:
            epoch = read_header(stored).leader_epoch
            if not wanted or wanted[-1][0] != epoch:
                wanted.append((epoch, base))
        assert self.log.epochs.entries == wanted

    @invariant()
    def what_was_read_never_changes(self) -> None:
        for copy, slices in self.views:
            assert bytes(slices) == copy  # type: ignore[call-overload]

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.die()
        shutil.rmtree(self.root)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, database=None)

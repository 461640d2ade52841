"""Any history of a log with transactions: after each step a reader of committed records sees what it should.

Producers begin, commit and abort, and are fenced; the log is rolled, cut, cut again, cleaned, shortened from
the front; the broker stops, dies between two changes of files, and loses its power. What readers may see is
found by brute force from all batches that were ever in the log.
"""

from random import Random

import pytest

from strandline.protocol.batches import BatchHeader, headers, read_header, stamp
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.records import BatchBuilder
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.cleaning.clean import clean
from strandline.storage.cleaning.job import Cleaned, Done, Job
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.log.log import Log
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch
from tests.storage.test_killed_at_any_step import Dying, Killed
from tests.storage.transactions import Truth, data_batch, raw, seen_by_a_reader

ROOT, KEYS = "/data", (b"a", b"b", b"c")
PRODUCERS = (1, 2, 3)
STEPS = 60


class History:
    """A log, and every batch that was in it, up to its end."""

    def __init__(self, seed: int, compacted: bool) -> None:
        self.random = Random(seed)
        self.compacted = compacted
        self.simulated = SimDisk(ordered=seed % 2 == 0)
        self.disk = Dying(self.simulated)
        self.config = StorageConfig(
            segment_bytes=500, index_interval_bytes=80, file_delete_delay_ms=0,
            cleanup_policy="compact" if compacted else "delete",
        )  # fmt: skip
        self.clock = FixedClock()
        self.lineage: list[bytes] = []
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.cleaned_to = 0
        self.markers = 0  # each has a time of its own
        self.same_boot = True
        self.open(clean=False)
        self.logs.create(T0, None, TopicConfig.of(self.config))
        self.simulated.sync_all(ROOT)

    @property
    def log(self) -> Log:
        return self.logs.logs[T0]

    def open(self, clean: bool) -> None:
        self.logs = Logs.open(
            [ROOT], self.disk, self.config, self.clock, clean=clean, same_boot=self.same_boot,
            before_loss=lambda partition, why: None,
        )  # fmt: skip
        self.same_boot = True  # a start that dies does not count

    # -- what happens

    def append(self, batch: bytearray) -> None:
        stamp(batch, 0, self.log.end_offset, 0)
        self.lineage.append(bytes(batch))  # first: whoever dies may have written it
        self.log.append(memoryview(batch), read_header(batch), 0, START_MS)

    def produce(self) -> None:
        pid, key = self.random.choice(PRODUCERS), self.random.choice(KEYS)
        known = self.log.producers.get(pid)
        is_open = known is not None and known.transaction_first_offset >= 0
        kind = self.random.random()
        if kind < 0.15:
            builder = BatchBuilder()
            builder.append(START_MS, key, b"plain", ())
            self.append(bytearray(builder.build()))
        elif is_open and kind < 0.55:
            if self.random.random() < 0.2:
                self.epochs[pid] += 1
            marker = EndMarker(self.random.random() < 0.4, 0)
            self.markers += 1
            self.append(marker_batch(pid, self.epochs[pid], marker, START_MS + self.markers))
        else:
            last = -1
            if known is not None and known.epoch == self.epochs[pid]:
                last = known.last_sequence
            self.append(
                data_batch(
                    pid, last + 1, producer_epoch=self.epochs[pid], records=self.random.randint(1, 2), key=key
                )
            )

    def cut(self) -> None:
        low = max(self.log.start_offset, self.cleaned_to)
        self.log.truncate_to(self.random.randint(low, self.log.end_offset))

    def delete_records(self) -> None:
        log = self.log
        log.move_start(self.random.randint(log.start_offset, log.last_stable_offset(log.end_offset)))
        count = sum(s.base_offset <= log.start_offset for s in log.segments) - 1
        if count > 0:
            self.logs.condemned.add(log.retire(count, START_MS))
            self.disk.sync_dir(log.directory)  # else the loss of power may leave a segment without its index

    def flush(self) -> None:
        self.log.flush()
        self.logs.checkpoint_recovery_points()
        self.logs.checkpoint_start_offsets()

    def clean(self) -> None:
        log = self.log
        stable = log.last_stable_offset(log.end_offset)
        upper = max((s.base_offset for s in log.segments if s.base_offset <= stable), default=0)
        first_dirty = max(self.cleaned_to, log.start_offset)
        sizes = [(s.base_offset, s.size) for s in log.segments]
        if not self.compacted or upper <= first_dirty:
            return
        self.logs.cleaned.note(T0, first_dirty, self.logs.cleaned.cuts(T0))
        self.flush()
        job = Job(
            directory=log.directory, sources=[size for size in sizes if size[0] < upper],
            later=[size for size in sizes if size[0] >= upper], committed=log.end_offset,
            first_dirty=first_dirty, upper=upper, now_ms=START_MS,
            delete_retention_ms=self.random.choice([0, 1000]), segment_bytes=500, index_bytes_max=1 << 20,
            index_interval_bytes=80, map_bytes=1 << 14, load_factor=0.9, bytes_per_second=1e9,
            producers=log.producers.last_batches(), secret="00" * 16,
            aborted=list(log.aborts.entries(upper)),
        )  # fmt: skip
        for report in clean(self.disk, job, lambda nbytes: None):
            if isinstance(report, Cleaned):
                self.logs.condemned.add(log.replace(report.bases))
                self.disk.sync_dir(log.directory)
            elif isinstance(report, Done):
                self.cleaned_to = report.end_offset
                self.logs.cleaned.note(T0, report.end_offset, self.logs.cleaned.cuts(T0))

    def restart(self) -> None:
        self.logs.close()
        self.open(clean=True)

    def die(self) -> None:
        self.logs.close(clean=False)
        self.open(clean=False)

    def lose_power(self) -> None:
        self.logs.close(clean=False)
        self.simulated.lose_power(self.random.random(), self.random)
        self.same_boot = False
        self.open(clean=False)

    def step(self) -> None:
        acts = [self.produce] * 30 + [
            self.cut, self.delete_records, self.flush, self.flush, self.clean, self.clean, self.restart,
            self.die, self.lose_power, lambda: self.log.roll(START_MS),
        ]  # fmt: skip
        if self.random.random() < 0.1:
            self.disk.left = self.random.randint(0, 6)
        try:
            for _ in range(10):
                self.random.choice(acts)()
                self.catch_up()
            self.disk.left = 1 << 30
        except Killed:
            self.disk.left = 1 << 30
            self.die()
            self.catch_up()
        self.check()

    def catch_up(self) -> None:
        """What was cut is forgotten; after a power loss some of it may be back in the place of others."""
        data = raw(self.log)
        here = {header.base_offset: (at, header) for at, header in headers(data)}
        places = {offset: header for _, header in here.values() for offset in _range(header)}
        kept = []
        for batch in self.lineage:
            header = read_header(batch)
            now = {places[offset] for offset in _range(header) if offset in places}
            if header.next_offset <= self.log.end_offset and all(_is_same(each, header) for each in now):
                kept.append(batch)
        known = {read_header(batch).base_offset for batch in kept}
        back = [data[at : at + header.size] for base, (at, header) in here.items() if base not in known]
        self.lineage = sorted([*kept, *back], key=lambda batch: read_header(batch).base_offset)
        for pid, state in self.log.producers.items():
            self.epochs[pid] = state.epoch
        self.cleaned_to = min(self.cleaned_to, self.log.end_offset)

    # -- what readers see

    def check(self) -> None:
        log = self.log
        here, truth = raw(log), Truth(b"".join(self.lineage))
        stable = log.last_stable_offset(log.end_offset)
        not_yet = [
            header.base_offset
            for _, header in headers(here)
            if header.is_transactional and not header.is_control and header.record_count
            and truth.open.get(header.producer_id, 1 << 62) <= header.base_offset
        ]  # fmt: skip
        assert truth.last_stable(log.end_offset, log.start_offset) <= stable
        assert stable <= max(log.start_offset, min([log.end_offset, *not_yet])), "an open transaction is read"
        wanted = {
            offset
            for _, header in headers(here)
            if not header.is_control and header.record_count
            for offset in range(header.base_offset, header.next_offset)
            if log.start_offset <= offset < stable and offset not in truth.aborted_offsets
        }
        assert self.read(stable) == wanted

    def read(self, stable: int) -> set[int]:
        """As consumers do, from any offset on, a few batches at a time."""
        log, seen = self.log, set[int]()
        offset = log.start_offset
        while data := bytes(log.read(offset, self.random.choice([1, 200, 5000]), stable)):
            bound = log.upper_bound(offset, len(data))
            seen |= seen_by_a_reader(data, log.aborted(offset, bound), offset)
            offset = [header.next_offset for _, header in headers(data)][-1]
        return seen


def _range(header: BatchHeader) -> range:
    return range(header.base_offset, header.next_offset)


def _is_same(one: BatchHeader, other: BatchHeader) -> bool:
    """Whether both are the same batch, perhaps cleaned."""
    told = [
        (h.base_offset, h.last_offset_delta, h.producer_id, h.producer_epoch, h.base_sequence)
        for h in (one, other)
    ]
    times = one.is_control and one.record_count and one.max_timestamp != other.max_timestamp
    return told[0] == told[1] and not times


@pytest.mark.parametrize("compacted", [False, True], ids=["deleted", "compacted"])
@pytest.mark.parametrize("seed", range(6))
def test_readers_see_what_was_committed_and_nothing_else(seed: int, compacted: bool) -> None:
    history = History(seed, compacted)
    for _ in range(STEPS):
        history.step()
    history.logs.close(clean=False)


def test_the_oracle_tells_aborted_from_committed() -> None:
    history = History(0, compacted=False)
    batches = [make_batch(b"plain"), data_batch(1, 0), data_batch(2, 0, records=2)]
    for batch in [
        *batches,
        marker_batch(2, 0, EndMarker(False, 0), 0),
        marker_batch(1, 0, EndMarker(True, 0), 0),
    ]:
        history.append(batch)
    data, truth = raw(history.log), Truth(b"".join(history.lineage))
    assert truth.aborted_offsets == {2, 3}
    assert seen_by_a_reader(data, [(2, 2)], 0) == {0, 1}
    assert seen_by_a_reader(data, [], 0) == {0, 1, 2, 3}
    history.logs.close(clean=False)

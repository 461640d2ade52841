"""What a cut takes back of producers is what a rebuild from the batches that stay would say."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.batches import read_header
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.records import BatchBuilder
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.log import producer_cuts, producer_snapshots
from strandline.storage.log.log import Log
from strandline.storage.log.producer_state import BATCHES_KEPT, ProducerStates
from strandline.storage.segment.file_names import LOG
from tests.storage.bare_log import BareLog
from tests.storage.conftest import START_MS
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.test_quick_cuts import put


class Writers:
    """Producers of one log: of no id, idempotent, and in transactions."""

    def __init__(self) -> None:
        self.log = BareLog(Path("/log/t-0"), disk=SimDisk()).log
        self.ends = [0]
        self._next: dict[int, tuple[int, int, bool]] = {}  # epoch, sequence, in a transaction

    def act(self, pid: int, what: str) -> None:
        epoch, sequence, open = self._next.get(pid, (0, 0, False))
        if what == "mark":
            if not open:
                return
            batch = bytearray(
                marker_batch(pid, epoch, EndMarker(committed=True, coordinator_epoch=1), START_MS)
            )
            open = False
        else:
            if what == "fence" and not open:
                epoch, sequence = epoch + 1, 0
            open = open or what == "transact"
            batch = self._batch(pid, epoch, sequence, open)
            sequence += 1
        self.log.append(memoryview(batch), read_header(batch), 0, START_MS)
        self._next[pid] = epoch, sequence, open
        self.ends.append(self.log.end_offset)

    def _batch(self, pid: int, epoch: int, sequence: int, transactional: bool) -> bytearray:
        if pid < 0:
            epoch = sequence = -1
        builder = BatchBuilder(
            producer_id=pid, producer_epoch=epoch, base_sequence=sequence,
            transactional=transactional and pid >= 0,
        )  # fmt: skip
        builder.append(START_MS + len(self.ends), None, b"x", ())
        return bytearray(builder.build())


def rebuilt(log: Log, end: int) -> ProducerStates:
    found = ProducerStates(log.producers.producers_max)
    producer_snapshots.rebuild(log.disk, log.directory, found, list(log.segments), end, apart=True)
    return found


def told(states: ProducerStates) -> dict[int, Any]:
    return {
        id: (one.epoch, list(one.batches)[-1:], one.last_timestamp, one.transaction_first_offset)
        for id, one in states.items()
    }


acts = st.lists(
    st.tuples(st.integers(-1, 3), st.sampled_from(["write"] * 6 + ["fence", "transact", "mark"])), min_size=1
)


@settings(max_examples=300, deadline=None)
@given(acts=acts, back=st.integers(1, 8))
def test_a_cut_leaves_what_a_rebuild_finds(acts: list[tuple[int, str]], back: int) -> None:
    writers = Writers()
    for pid, what in acts:
        writers.act(pid, what if pid >= 0 else "write")
    log, end = writers.log, writers.ends[max(len(writers.ends) - 1 - back, 0)]
    if end == log.end_offset:
        return
    wanted = rebuilt(log, end)
    known = log.producers_as_of(end)
    log.truncate_to(end, known)
    assert told(log.producers) == told(wanted)
    assert list(log.producers.open_transactions()) == list(wanted.open_transactions())
    for pid, one in wanted.items():
        found = log.producers.get(pid)
        assert found is not None
        least = min(len(one.batches), BATCHES_KEPT - (back if known.producers is None else 0))
        assert list(one.batches)[-len(found.batches) :] == list(found.batches) and len(found.batches) >= least


def test_a_cut_of_the_last_moments_reads_no_more_than_those(tmp_path: Path) -> None:
    """Though each producer has written to all of a large segment."""
    disk = FaultyDisk()
    log = BareLog(tmp_path / "t-0", disk=disk).log
    for n in range(3000):
        put(log, START_MS, pid=n % 3, seq=n // 3)
    disk.calls.clear()
    known = log.producers_as_of(2996)
    assert known.producers is None and set(known.concerned) == {0, 1, 2}
    assert disk.asked("pread") <= 100, "from the index entry before it on"
    log.truncate_to(2996, known)
    assert [log.producers.get(pid).last_sequence for pid in range(3)] == [998, 998, 997]  # type: ignore[union-attr]


def test_a_long_way_back_is_rebuilt(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(producer_cuts, "BATCHES_MAX", 3)
    log = BareLog(tmp_path / "t-0").log
    for n in range(20):
        put(log, START_MS, pid=1, seq=n)
    assert log.producers_as_of(17).producers is None
    assert log.producers_as_of(16).producers is not None


@pytest.mark.parametrize("field", [8, 16], ids=["length", "magic"])
def test_damage_in_what_goes_does_not_keep_a_log_from_its_cut(tmp_path: Path, field: int) -> None:
    """Nobody needs those batches any more, and the leader has better ones."""
    log, sizes = BareLog(tmp_path / "t-0").log, []
    for n in range(10):
        sizes.append(log.size)
        put(log, START_MS, pid=1, seq=n)
    with open(log.segments[0].path(LOG), "r+b") as file:
        file.seek(sizes[8] + field)
        file.write(b"\xff\xff\xff")
    assert log.truncate_to(6) == 6 and not log.failed
    assert [batch.base_offset for batch in log.producers.get(1).batches] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]

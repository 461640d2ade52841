"""A cut of a large segment reads a few batches of it: the loop does nothing else meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.batches import read_header
from strandline.simulation.environment.disk import SimDisk
from strandline.storage.log.log import Log
from tests.storage.bare_log import BareLog
from tests.storage.conftest import START_MS, make_batch
from tests.storage.faulty_disk import FaultyDisk

TIMES = {
    "all the same": lambda n: START_MS,
    "rising": lambda n: START_MS + n,
    "the first one the newest": lambda n: START_MS + 10**8 * (n == 0),
    "the last one the newest": lambda n: START_MS + 10**8 * (n == 1999),
    "falling": lambda n: START_MS - n,
}


def put(log: Log, at: int, pid: int = -1, seq: int = -1) -> None:
    batch = make_batch(b"x" * 100, at=at, pid=pid, seq=seq)
    log.append(memoryview(batch), read_header(batch), 0, at)


@pytest.mark.parametrize("times", TIMES)
def test_a_cut_reads_near_where_it_cuts(tmp_path: Path, times: str) -> None:
    disk = FaultyDisk()
    log = BareLog(tmp_path / "t-0", disk=disk).log
    for n in range(2000):
        put(log, TIMES[times](n))
    for end in (1999, 1000, 999):
        disk.calls.clear()
        log.truncate_to(end)
        assert disk.asked("pread") <= 12
        assert newest(log) == max(TIMES[times](n) for n in range(end))


def newest(log: Log) -> int:
    return log.segments[-1].newest[0]


def test_producers_are_not_looked_for_on_the_loop(tmp_path: Path) -> None:
    """A segment must be read to know them: whoever cuts lets a thread do that before."""
    disk = FaultyDisk()
    log = BareLog(tmp_path / "t-0", disk=disk).log
    for n in range(2000):
        put(log, START_MS, pid=n % 3, seq=n // 3)
    known = log.producers_as_of(1500)
    disk.calls.clear()
    log.truncate_to(1500, known)
    assert disk.asked("pread") <= 12
    for pid in range(3):
        found = log.producers.get(pid)
        assert found is not None
        assert [batch.base_offset for batch in found.batches] == [1485 + pid + 3 * k for k in range(5)]


def test_producers_of_another_end_do_not_count(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "t-0").log
    for n in range(20):
        put(log, START_MS, pid=1, seq=n)
    log.truncate_to(10, log.producers_as_of(12))
    found = log.producers.get(1)
    assert found is not None and found.batches[-1].last_offset == 9


moves = st.lists(
    st.one_of(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.floats(0, 1)), min_size=1, max_size=8
)


@settings(max_examples=150, deadline=None)
@given(moves=moves, interval=st.sampled_from([0, 150, 400, 4096]))
def test_the_newest_time_is_that_of_what_is_left(moves: list[Any], interval: int) -> None:
    """Whatever the times, and however often a log is cut and written again."""
    log = BareLog(Path("/log/t-0"), disk=SimDisk(), index_interval_bytes=interval).log
    times: list[int] = []
    for move in moves:
        if isinstance(move, list):
            for at in move:
                put(log, START_MS + at)
            times += move
        else:
            del times[int(move * len(times)) :]
            log.truncate_to(len(times))
        segment = log.segments[-1]
        assert segment.newest[0] == (START_MS + max(times) if times else -1)
        last = segment.index.positions[-1] if len(segment.index) else 0
        assert segment.unindexed == segment.size - last

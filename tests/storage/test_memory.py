"""One budget in bytes for the tails of all logs and the indexes of closed segments."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.batches import headers
from strandline.storage.segment.memory_budget import MemoryBudget
from strandline.storage.segment.open_files import OpenSegments
from strandline.storage.segment.tail_cache import CHUNK_BYTES
from tests.storage.bare_log import BareLog

MIB = 1 << 20


class Held:
    """Something that keeps memory."""

    def __init__(self) -> None:
        self.was_read = False
        self.nbytes = 0

    def let_go(self) -> None:
        self.nbytes = 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 150), st.booleans()), max_size=60))
def test_no_more_is_held_than_may_be(moves: list[tuple[int, int, bool]]) -> None:
    budget, keepers = MemoryBudget(100), [Held() for _ in range(6)]
    for who, nbytes, reads in moves:
        keeper = keepers[who]
        keeper.nbytes = nbytes
        keeper.was_read = keeper.was_read or reads
        budget.holds(keeper, nbytes)
        assert budget.nbytes == sum(each.nbytes for each in keepers) <= 100
    for keeper in keepers:
        budget.forget(keeper)
    assert budget.nbytes == 0


def test_what_is_read_stays() -> None:
    budget = MemoryBudget(100)
    busy, *idle = [Held() for _ in range(30)]
    for keeper in (busy, *idle):
        busy.was_read = True
        keeper.nbytes = 20
        budget.holds(keeper, 20)
    assert busy.nbytes == 20 and [each.nbytes for each in idle] == [0] * 25 + [20] * 4


def many(root: Path, bytes_max: int, count: int) -> tuple[MemoryBudget, list[BareLog]]:
    budget = MemoryBudget(bytes_max)
    opened = OpenSegments(1000, memory=budget)
    logs = [BareLog(root / f"t-{n}", opened) for n in range(count)]
    for bare in logs:
        bare.log.keep_tail = True
    return budget, logs


def held(bare: BareLog) -> int:
    return sum(len(chunk.view) for chunk in bare.log._tail._chunks)


def test_the_ends_of_many_logs_stay_within_the_budget(tmp_path: Path) -> None:
    """A broker that leads them all, and whose followers are far behind but for one."""
    budget, (read, *others) = many(tmp_path, 3 * MIB, 12)
    for turn in range(8):
        for bare in (read, *others):
            bare.fill(2, CHUNK_BYTES // 3)
            assert budget.nbytes == sum(map(held, (read, *others))) <= 3 * MIB
            assert read.log.read(2 * turn, MIB, read.log.end_offset)
    assert held(read) >= MIB // 2
    for bare in (read, *others):  # and what is not in memory is in the files
        data = b"".join(bytes(bare.log.read(at, MIB, 16)) for at in range(16))
        assert {header.base_offset for _, header in headers(data)} == set(range(16))


def test_a_log_that_is_closed_or_cut_holds_nothing(tmp_path: Path) -> None:
    budget, logs = many(tmp_path, 30 * MIB, 3)
    for bare in logs:
        bare.fill(5, 1000)
    assert budget.nbytes > 0
    logs[0].log.close()
    logs[1].log.truncate_to(2)
    logs[2].log.forget_tail()
    assert budget.nbytes == 0


def test_without_a_budget_everything_is_read_from_files(tmp_path: Path) -> None:
    budget, (bare,) = many(tmp_path, 0, 1)
    bare.fill(20, 1000)
    bare.fill(1, 2 * CHUNK_BYTES)
    bare.fill(20, 1000)
    assert budget.nbytes == held(bare) == 0
    assert len(list(headers(bytes(bare.log.read(0, 10 * MIB, 41))))) == 41


def test_indexes_of_closed_segments_count_by_their_bytes(tmp_path: Path) -> None:
    """A few hundred small ones, or a few large ones: their number says nothing."""
    budget = MemoryBudget(20_000)
    bare = BareLog(
        tmp_path / "t-0", OpenSegments(1000, memory=budget), segment_bytes=20_000, index_interval_bytes=0
    )
    bare.fill(3000, 50)
    closed = bare.log.segments[:-1]
    assert len(closed) > 15
    for offset in range(0, 3000, 40):
        assert next(headers(bytes(bare.log.read(offset, 1, 3000))))[1].base_offset == offset
        assert budget.nbytes == sum(s.index_bytes for s in closed if s.indexes.held) <= 20_000
    assert sum(segment.indexes.held for segment in closed) >= 2

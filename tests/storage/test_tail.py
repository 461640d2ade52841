"""The newest records in memory: little for a partition that has few."""

from strandline.storage.segment.memory_budget import MemoryBudget
from strandline.storage.segment.tail_cache import CHUNK_BYTES, FIRST_BYTES, Tail


def held(tail: Tail) -> int:
    return sum(len(chunk.view) for chunk in tail._chunks)


def test_a_partition_with_one_small_record_costs_little() -> None:
    tail = Tail(1 << 20, MemoryBudget(1 << 30))
    tail.add(0, 1, bytes(100), 0, 100)
    assert held(tail) == FIRST_BYTES


def test_chunks_grow_with_what_comes_and_are_bounded() -> None:
    tail = Tail(1 << 20, MemoryBudget(1 << 30))
    for offset in range(3000):
        tail.add(offset, offset + 1, bytes(1000), 0, 1000)
    sizes = [len(chunk.view) for chunk in tail._chunks]
    assert max(sizes) == CHUNK_BYTES and sizes == sorted(sizes)
    assert (1 << 20) - CHUNK_BYTES <= held(tail) <= 1 << 20
    tail.add(3000, 3001, bytes(9 * FIRST_BYTES), 0, 9 * FIRST_BYTES)
    tail.clear()
    tail.add(3001, 3002, bytes(9 * FIRST_BYTES), 0, 9 * FIRST_BYTES)
    assert held(tail) == 9 * FIRST_BYTES, "a batch larger than the first chunk has room"

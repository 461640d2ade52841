"""Runs the compiled kernel on damaged batches in memory whose neighbours may not be touched.

`python -m tests.protocol.guard_pages 3000`: so many runs. What the kernel reads, and what it writes, ends
right before a page without rights, or begins right behind one. A wrong access is the end of this process;
`trespass` shows that it would be. Another kernel is named by the path of its library.
"""

import ctypes
import mmap
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.protocol import kernel
from strandline.protocol.batches import HEADER_SIZE, headers
from tests.protocol import damaged

PAGE = mmap.PAGESIZE
ROOM = 64 * PAGE


class Guarded:
    """Memory between two pages that nobody may touch."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, ROOM + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (address, address + PAGE + ROOM):
            assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        self.bytes = np.frombuffer(self._map, np.uint8)

    def array(self, shape: tuple[int, ...], kind: Any, at_end: bool) -> npt.NDArray[Any]:
        """An array at either end."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        assert size <= ROOM
        start = PAGE + ROOM - size if at_end else PAGE
        return self.bytes[start : start + size].view(kind).reshape(shape)

    def holding(self, given: npt.NDArray[Any], at_end: bool) -> npt.NDArray[Any]:
        """A copy of an array at either end."""
        place = self.array(given.shape, given.dtype, at_end)
        place[...] = given
        return place


def run(tested: Any, source: Random, memory: list[Guarded]) -> int:
    """One damaged batch through all functions of the kernel; how many of them accepted."""
    at_end = source.random() < 0.7
    data = damaged.batch(source)
    ((_, header),) = headers(data)
    section = np.frombuffer(data, np.uint8)[HEADER_SIZE:]
    array = memory[0].holding(section, at_end)
    count = header.record_count
    table = np.array([[0, len(section), count, 7, 0, 0, 0, header.last_offset_delta]], np.int64)
    if source.random() < 0.2:
        table[0, source.choice([0, 1, 2, 7])] = source.choice(
            [-1, 0, 1, len(section), len(section) + 1, 2**62]
        )
    rows = memory[1].array((10, count), np.int64, at_end)
    done = tested.fields(array, memory[2].holding(table, at_end), rows)
    lists(tested, memory[3].holding(np.append(table[0], 0), at_end), array, done)
    if done != count:
        return 0
    given = [memory[2 + nth].holding(rows[row].copy(), at_end) for nth, row in enumerate((7, 9))]
    if source.random() < 0.2 and count:
        given[source.randrange(2)][source.randrange(count)] += source.choice([-1, 1, 2, 2**40, -(2**40)])
    first = memory[4].array((count + 1,), np.int64, at_end)
    total = tested.header_counts(array, *given, first)
    if total >= 0:
        room = max(total + source.choice([0, 0, 0, -1]), 0)
        tested.header_places(array, *given, first, memory[5].array((4, room), np.int64, at_end))
    return 1 + gather(tested, source, memory, array, rows.copy())


def lists(tested: Any, batch: Any, array: Any, done: int) -> None:
    """The same batch as records: they are refused where the columns are, or where the headers are wrong."""
    out: list[Any] = []
    made = tested.tuples(array, batch, 1 << 40, tuple, ("t", 0, 0, 0, None, None), out)
    assert made == -1 or made <= done, (made, done)


def gather(tested: Any, source: Random, memory: list[Guarded], array: Any, rows: Any) -> int:
    """The values of the batch, some of their places or lengths changed; whether they were accepted."""
    at_end = source.random() < 0.7
    starts, lengths = (memory[1 + nth].holding(rows[row], at_end) for nth, row in enumerate((5, 6)))
    if source.random() < 0.3 and len(starts):
        source.choice([starts, lengths])[source.randrange(len(starts))] += source.choice([-1, 1, 2**33])
    offsets = memory[3].array((len(starts) + 1,), np.int32, at_end)
    valid = memory[4].array(((len(starts) + 7) // 8,), np.uint8, at_end)
    valid[:] = 0
    total = tested.offsets_of(starts, lengths, len(array), offsets, valid)
    found: list[Any] = []
    assert (tested.slices(array, starts, lengths, found) < 0) == (total < 0)
    views = memory[5].array((max(len(starts) + source.choice([0, 0, 0, -1]), 0), 4), np.int32, at_end)
    none = memory[4].array(((len(starts) + 7) // 8,), np.uint8, at_end)
    views[:], none[:] = 0, 0
    assert (tested.viewed(array, starts, lengths, views, none) < 0) == (total < 0 or len(views) < len(starts))
    if total < 0:
        return 0
    if source.random() < 0.2 and len(starts):
        offsets[source.randrange(len(offsets))] += source.choice([-1, 1, 1000])
    room = max(total + source.choice([0, 0, 0, -1]), 0)
    return int(tested.gathered(array, starts, offsets, memory[5].array((room,), np.uint8, at_end)) >= 0)


def library(path: str) -> Any:
    """A kernel from a file."""
    spec = spec_from_loader("record_kernel", ExtensionFileLoader("record_kernel", path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(turns: str, path: str = "") -> None:
    """Trespass, or run as often as is said."""
    memory = [Guarded() for _ in range(6)]
    if turns == "trespass":
        ctypes.string_at(int(memory[0].array((1,), np.uint8, True).ctypes.data) + 1, 1)
    tested = library(path) if path else kernel.built().kernel
    accepted = sum(run(tested, Random(turn), memory) for turn in range(int(turns)))
    sys.stdout.write(f"{turns} runs, {accepted} accepted\n")
    assert accepted > int(turns) // 2


if __name__ == "__main__":
    main(*sys.argv[1:])

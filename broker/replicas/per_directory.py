"""Runs work in each log directory separately: a disk that hangs delays only what waits for that disk.

Left to others: what is done there (truncation.py, roles/leader_and_isr.py).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 6  # for work outside of any log directory
THREADS_OF_ONE = 8  # that may wait for one directory: checkpoints, roles, cuts, copies, deletions, cleaners


def threads_for(directories: int) -> int:
    """How many threads the loop's executor needs, so that a disk that hangs does not use them all.

    Threads that are not needed are never started.
    """
    return THREADS + THREADS_OF_ONE * directories


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run them all concurrently. Returns the results in order; raises the first error when all have ended."""
    waiting = list(works)
    if len(waiting) == 1:
        return [await waiting[0]]  # with one directory the order of execution stays
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    given: list[T] = []
    for each in ended:
        if isinstance(each, BaseException):
            raise each
        given.append(each)
    return given


class Turns:
    """One lock per directory: waiting for a disk that hangs then takes no thread."""

    def __init__(self) -> None:
        self._of: dict[str, asyncio.Lock] = {}

    def __getitem__(self, directory: str) -> asyncio.Lock:
        return self._of.setdefault(directory, asyncio.Lock())


def by_directory(directories: Mapping[T, str]) -> dict[str, list[T]]:
    """Items grouped by log directory, in the given order."""
    found: dict[str, list[T]] = {}
    for each, directory in directories.items():
        found.setdefault(directory, []).append(each)
    return found

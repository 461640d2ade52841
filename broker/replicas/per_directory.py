"""What is done in each log directory by itself: one that hangs delays whoever waits for it, and nobody else.

Left to others: what is done there (truncation.py, leader_and_isr.py), how many threads may wait
(`threads_for`).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 6  # for what belongs to no directory
THREADS_OF_ONE = (
    8  # may wait for one directory: checkpoints, roles, cuts, copies kept aside, deletions, cleaners
)


def threads_for(directories: int) -> int:
    """How many threads the loop's executor needs, so that one that hangs does not use them all up.

    A thread that nobody needs is never begun.
    """
    return THREADS + THREADS_OF_ONE * directories


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do them all at once; what they gave, in their order. A failure is raised when all have ended."""
    waiting = list(works)
    if len(waiting) == 1:
        return [await waiting[0]]  # with one directory nothing changes places
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    given: list[T] = []
    for each in ended:
        if isinstance(each, BaseException):
            raise each
        given.append(each)
    return given


class Turns:
    """One at a time in each directory: who waits for one that hangs needs no thread for that."""

    def __init__(self) -> None:
        self._of: dict[str, asyncio.Lock] = {}

    def __getitem__(self, directory: str) -> asyncio.Lock:
        return self._of.setdefault(directory, asyncio.Lock())


def by_directory(directories: Mapping[T, str]) -> dict[str, list[T]]:
    """What lies where, in the order in which it is given."""
    found: dict[str, list[T]] = {}
    for each, directory in directories.items():
        found.setdefault(directory, []).append(each)
    return found

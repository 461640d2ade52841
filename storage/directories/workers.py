"""Crew: runs several blocking functions at once, or one after the other where there are no threads.

Left to others: what is done (open_logs.py, close_logs.py).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Crew(Protocol):
    """Runs several functions, and returns their results in order."""

    def __call__(self, works: Sequence[Callable[[], T]], threads: int) -> list[T]: ...


def one_by_one(works: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """In the calling thread."""
    return [work() for work in works]


def in_threads(works: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """`threads` at a time; the first failure, in the order of `works`, is raised once all have ended."""
    if min(threads, len(works)) <= 1:
        return one_by_one(works, 1)
    with ThreadPoolExecutor(threads, "logs") as pool:
        return [future.result() for future in [pool.submit(work) for work in works]]

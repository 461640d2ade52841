"""Waiting for what must come, with a bound: tests and `strandline verify` never wait for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], within_s: float, what: str, every_s: float = 0.03) -> T:
    """Wait until `condition` gives something true, and return it.

    Asked every `every_s` seconds, at least once. Raises AssertionError, which names `what`, after `within_s`.
    """
    deadline = time.monotonic() + within_s
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        time.sleep(every_s)

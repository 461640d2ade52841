"""Waiting for what must come, with a bound: tests and `strandline verify` never wait for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

from ..local.processes import machine_is_slower

T = TypeVar("T")


def until(condition: Callable[[], T], within_s: float, what: str, every_s: float = 0.03) -> T:
    """Wait until `condition` gives something true, and return it.

    Asked every `every_s` seconds, at least once. Raises AssertionError, which names `what`, after `within_s`
    seconds, or as many times longer as the machine is slower by then.
    """
    began_s, limit_s = time.monotonic(), within_s
    while True:
        if found := condition():
            return found
        if time.monotonic() > began_s + limit_s:
            limit_s = within_s * machine_is_slower()
            assert time.monotonic() < began_s + limit_s, f"{what}: not within {limit_s:.3g} s"
        time.sleep(every_s)

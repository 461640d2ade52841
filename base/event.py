"""An event that several parts want to hear of: they subscribe when they are made, after the part that tells.

So a part below knows nobody above it, and is complete before they are built.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

What = ParamSpec("What")


class Event(Generic[What]):
    """Call it when it happens: all subscribers hear of it, in the order of their subscription."""

    __slots__ = ("_hearers",)

    def __init__(self) -> None:
        self._hearers: list[Callable[What, None]] = []

    def subscribe(self, hear: Callable[What, None]) -> None:
        """Call `hear` each time from now on."""
        self._hearers.append(hear)

    @property
    def is_heard(self) -> bool:
        """Whether anybody has subscribed."""
        return bool(self._hearers)

    def __call__(self, *what: What.args, **named: What.kwargs) -> None:
        for hear in self._hearers:
            hear(*what, **named)

"""What a run shows while it goes on: the phase, its time, what clients were answered, the faults.

On a terminal one line moves and faults stay above it; elsewhere phases and faults are lines with their time.
"""

import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.status import Status

from ..console import counted, err

SHOWN = ("records acknowledged", "transactions committed", "polls with records")


class Live:
    """Prints to standard error; use it with `with`."""

    def __init__(self) -> None:
        self._status: Status | None = err.status("") if err.is_terminal else None
        self._phase, self._since_s, self._begun_s = "", time.monotonic(), time.monotonic()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def phase(self, what: str) -> None:
        """A line of its own, where nothing moves."""
        self._phase, self._since_s = what, time.monotonic()
        self.tick(Counter(), 0)
        if self._status is None:
            self._line(what)

    def fault(self, what: str) -> None:
        """A line that stays."""
        self._line(f"fault: {what}")

    def tick(self, answered: Counter[str], faults: int) -> None:
        """The line that moves."""
        if self._status is None:
            return
        parts = [self._phase, f"{time.monotonic() - self._since_s:.0f} s"]
        parts += [f"{answered[what]:,} {what}" for what in SHOWN if answered[what]]
        parts += [counted(faults, "fault")] if faults else []
        self._status.update(" · ".join(parts))

    def _line(self, what: str) -> None:
        at_s = time.monotonic() - self._begun_s
        err.print(f"{at_s:7.1f} s  {what}", markup=False, soft_wrap=True)

"""The writes of a group that are not acknowledged, and who waits for them.

A log acknowledges in its order, so what is acknowledged vouches for all that was written before it.
Left to others: writing (performing.py).
"""

from collections.abc import Callable
from typing import TypeAlias

from ....protocol.errors import ErrorCode

Done: TypeAlias = Callable[[ErrorCode], None]
Write: TypeAlias = list[Done]


class GroupWrites:
    """Writes in flight, oldest first. `is_unsure`: one failed after it was appended, so it may be committed
    or not, and nobody has vouched for it since.
    """

    def __init__(self) -> None:
        self.is_unsure = False
        self._in_flight: list[Write] = []

    def begin(self, done: Done) -> Write:
        """A write is about to begin; `done` hears of its end."""
        write = [done]
        self._in_flight.append(write)
        return write

    def join(self, done: Done) -> None:
        """Hear of the end of the newest write; at once if there is none."""
        if self._in_flight:
            self._in_flight[-1].append(done)
        else:
            done(ErrorCode.NONE)

    def end(self, write: Write, code: ErrorCode) -> None:
        """It is committed, or nobody knows."""
        self._in_flight = [each for each in self._in_flight if each is not write]
        self.is_unsure = code is not ErrorCode.NONE
        for done in write:
            done(code)

    def cancel(self, write: Write) -> None:
        """It never got into the log."""
        self._in_flight = [each for each in self._in_flight if each is not write]

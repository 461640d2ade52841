"""A connection whose requests are timed. Without an HTTP server there is none.

Of a request that is not in the sample it costs a few comparisons; of one that is, five readings of the clock
and six counts (timings.py). Left to others: all that a connection does (connection.py).
"""

from collections.abc import Callable

from ..turn import Turn
from .admission import Admission
from .connection import ServerConnection
from .exchange import Listener
from .routes import Service
from .timings import Times, Timings


class TimedConnection(ServerConnection):
    """One connection, which gives the exchanges of some reads their times."""

    __slots__ = ("arrived_ns", "timings", "weight")

    def __init__(
        self, turn: Turn, admission: Admission, service: Service, listener: Listener, timings: Timings
    ) -> None:
        super().__init__(turn, admission, service, listener)
        self.timings = timings
        self.weight = 0  # of the requests in the last read; 0: they are not timed
        self.arrived_ns = 0  # when that was; nothing is read while a request waits for its turn

    def buffer_updated(self, nbytes: int) -> None:
        timings = self.timings
        timings.until_next -= 1
        if timings.until_next:
            self.weight = 0
        else:
            self.weight = timings.every
            timings.draw()
            self.arrived_ns = timings.ticks_ns()
        ServerConnection.buffer_updated(self, nbytes)

    def _run(self, execute: Callable[[memoryview], None]) -> bool:
        return ServerConnection._run(self, self._execute_timed if self.weight else execute)

    def _execute_timed(self, frame: memoryview) -> None:
        times = Times(self.timings, self.weight, self.arrived_ns)
        self._execute(frame)
        if self.exchanges:  # the connection has not been closed
            times.executed()
            self.exchanges[-1].times = times

"""A connection whose requests are timed. Without an HTTP server there is none, so nothing is paid for it.

Of a request that is not in the sample it costs a few comparisons; of one that is, five readings of the clock
and six counts (timings.py). Left to others: all that a connection does (connection.py).
"""

from ..turn import Turn
from .admission import Admission
from .connection import ServerConnection
from .exchange import Exchange, Listener
from .routes import Service
from .timings import Timings


class TimedConnection(ServerConnection):
    """One connection, with the times at which its requests enter each phase."""

    __slots__ = ("arrived_ns", "timed", "timings", "weight")

    def __init__(
        self, turn: Turn, admission: Admission, service: Service, listener: Listener, timings: Timings
    ) -> None:
        super().__init__(turn, admission, service, listener)
        self.timings = timings
        self.timed: dict[Exchange, None] = {}  # whose answers have not left
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

    def _execute(self, frame: memoryview) -> None:
        if not self.weight:
            ServerConnection._execute(self, frame)
            return
        ticks_ns = self.timings.ticks_ns
        began_ns = ticks_ns()
        ServerConnection._execute(self, frame)
        if self.exchanges:  # the connection has not been closed
            exchange = self.exchanges[-1]
            exchange.arrived_ns, exchange.began_ns, exchange.weight = self.arrived_ns, began_ns, self.weight
            exchange.executed_ns = exchange.answered_ns = ticks_ns()
            self.timed[exchange] = None

    def answered(self, exchange: Exchange) -> None:
        """An exchange has its answer."""
        if self.timed and exchange in self.timed:
            exchange.answered_ns = self.timings.ticks_ns()
        ServerConnection.answered(self, exchange)

    def _write_answered(self) -> None:
        if self.timed and self.writable and not self.closed:
            now_ns = self.timings.ticks_ns()
            for exchange in self.exchanges:
                if exchange.parts is None:
                    break
                if exchange in self.timed:
                    del self.timed[exchange]
                    self.timings.left(exchange, now_ns)
        ServerConnection._write_answered(self)

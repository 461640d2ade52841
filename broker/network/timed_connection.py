"""A connection whose requests are timed. Without an HTTP server there is none, so nothing is paid for it.

Four readings of the clock per request, and no object of its own; the arrays they are counted in are in
timings.py. Left to others: all that a connection does (connection.py).
"""

from ..turn import Turn
from .admission import Admission
from .connection import ServerConnection
from .exchange import Exchange, Listener
from .routes import Service
from .timings import Timings


class TimedConnection(ServerConnection):
    """One connection, with the times at which its requests enter each phase."""

    __slots__ = ("arrived_ns", "timings")

    def __init__(
        self, turn: Turn, admission: Admission, service: Service, listener: Listener, timings: Timings
    ) -> None:
        super().__init__(turn, admission, service, listener)
        self.timings = timings
        self.arrived_ns = 0  # when the last bytes came; nothing is read while a request waits for its turn

    def buffer_updated(self, nbytes: int) -> None:
        self.arrived_ns = self.timings.ticks_ns()
        ServerConnection.buffer_updated(self, nbytes)

    def _execute(self, frame: memoryview) -> None:
        ticks_ns = self.timings.ticks_ns
        began_ns = ticks_ns()
        ServerConnection._execute(self, frame)
        if self.exchanges:  # the connection has not been closed
            exchange = self.exchanges[-1]
            exchange.arrived_ns, exchange.began_ns = self.arrived_ns, began_ns
            exchange.executed_ns = exchange.answered_ns if exchange.parts is not None else ticks_ns()

    def answered(self, exchange: Exchange) -> None:
        """An exchange has its answer."""
        exchange.answered_ns = self.timings.ticks_ns()
        ServerConnection.answered(self, exchange)

    def _write_answered(self) -> None:
        if self.writable and not self.closed and self.exchanges:
            timings = self.timings
            now_ns = timings.ticks_ns()
            for exchange in self.exchanges:
                if exchange.parts is None:
                    break
                timings.left(exchange, now_ns)
        ServerConnection._write_answered(self)

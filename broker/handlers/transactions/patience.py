"""A producer's question that comes while its last transaction is still being ended waits for that, briefly.

EndTxn is answered once the outcome is decided. Its markers, and the record that all are written, take some
milliseconds more, and most producers begin their next transaction at once. Kafka answers
CONCURRENT_TRANSACTIONS, upon which clients wait for 20 ms or more. Here the question is asked again when the
transactional id has moved on. So is InitProducerId, whose answer some clients (sarama) take for final. The
question ends with its connection: what nobody waits for any more begins nothing.
Left to others: the answer (transactions/transaction.py), the wheel of deadlines (replicas/purgatory.py).
Why: docs/decisions/0053-the-next-transaction-waits-for-the-last.md
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....protocol.errors import ApiError, ErrorCode
from ...network.exchange import Exchange
from ...replicas.purgatory import Waiter
from ...transactions.state import Answer, Reply

if TYPE_CHECKING:
    from ...context import BrokerContext

PATIENCE_S = 0.1  # beyond it something is in the way, and clients ask again by themselves
BEGIN_PATIENCE_S = 1.0
"""Of InitProducerId. Some clients take the answer for final, so it covers the time until a dead leader has a
successor, who can be given the marker.
"""


class Patient(Waiter):
    """One question about a transactional id. `ask` asks the coordinator, `reply` takes the last answer."""

    __slots__ = ("_ask", "_deadline", "_exchange", "_reply", "_shared", "_transactional_id", "_transactions")

    def __init__(
        self,
        broker: "BrokerContext",
        exchange: Exchange,
        transactional_id: str,
        ask: Callable[[Reply], None],
        reply: Reply,
        seconds: float | None = None,
    ) -> None:
        super().__init__()
        self._shared = broker.shared
        self._transactions = broker.transactions
        self._exchange = exchange
        self._transactional_id = transactional_id
        self._ask = ask
        self._reply = reply
        self._deadline = self._shared.loop.time() + (PATIENCE_S if seconds is None else seconds)

    def begin(self) -> None:
        """Ask. Raises ApiError if this broker does not coordinate."""
        self._ask(self.answered)

    def answered(self, answer: Answer) -> None:
        """What the coordinator says: reply, or wait until there is something else to say."""
        if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS and self._waits():
            self._transactions.when_moved(self._transactional_id, self._moved)
        else:
            self._reply(answer)

    def _waits(self) -> bool:
        is_late = self._shared.loop.time() >= self._deadline
        return not is_late and self._shared.deadlines.add(self, self._deadline)

    def _moved(self) -> None:
        self._shared.deadlines.remove(self)
        if not self._exchange.is_heard:
            return
        try:
            self.begin()
        except ApiError as error:
            self._reply(Answer(error.code))

    def expire(self) -> None:
        self._transactions.forget(self._transactional_id, self._moved)
        self._reply(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))

"""Metrics of the transaction coordinator: gauges of now, counts since the start.

Kafka: `kafka.coordinator.transaction:type=TransactionMarkerChannelManager` and
`transaction-coordinator-metrics`. Kafka has no numbers of transactions by state; these are named like those
of groups.
"""

from collections import Counter
from collections.abc import Iterable

from ...base.values import dataclass
from .state import PREPARED, TransactionState
from .transaction import Transaction


@dataclass(slots=True)
class TransactionCounts:
    """Counts since the start of this process."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    expired: int = 0
    load_ms_max: int = 0


def transaction_metrics(
    transactions: Iterable[Transaction], homeless_markers: int, counts: TransactionCounts
) -> dict[str, int]:
    """All metrics by name. `homeless_markers`: that wait because nobody could be told."""
    states: Counter[TransactionState] = Counter()
    unmarked = unknown = 0
    for transaction in transactions:
        standing = transaction.standing
        if standing is None:
            unknown += 1
            continue
        states[standing.state] += 1
        unmarked += len(transaction.unmarked) if standing.state in PREPARED else 0
    return {
        "NumTransactionalIds": states.total() + unknown,
        "NumTransactionsOngoing": states[TransactionState.ONGOING],
        "NumTransactionsPreparing": sum(states[state] for state in PREPARED),
        "PendingMarkers": unmarked,
        "UnknownDestinationQueueSize": homeless_markers,
        "transaction-commit-count": counts.committed,
        "transaction-abort-count": counts.aborted,
        "transaction-timeout-count": counts.timed_out,
        "transactional-id-expiration-count": counts.expired,
        "partition-load-time-max": counts.load_ms_max,
    }

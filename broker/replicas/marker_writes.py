"""Writes a transaction marker to a partition that this broker leads, as a produce with acks=all.

The coordinator calls this for its own partitions, WriteTxnMarkers for those of other coordinators. A write
that is not committed in time may be committed later: whoever asked must ask again. A second marker of a
transaction that has ended does nothing.
Left to others: whether the marker may be written (storage/log/producer_state.py), what follows once it is
committed (ReplicaShared.on_transaction_ended).
"""

from collections.abc import Callable

from ...base.types import TopicPartition
from ...protocol.errors import ErrorCode
from ...protocol.markers import EndMarker
from .local_appends import LocalAppend
from .partition import Partition

WRITE_SECONDS_MAX = 5.0  # for a marker; whoever asked asks again, and it is not written twice meanwhile


def write_marker(
    find: Callable[[TopicPartition], Partition],
    tp: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    marker: EndMarker,
    done: Callable[[ErrorCode], None],
    deadline: float,
) -> None:
    """End the producer's transaction in `tp`. `done` gets the result once, perhaps at once, by `deadline`."""

    def append(partition: Partition) -> int:
        end = partition.append_marker(producer_id, producer_epoch, marker)
        partition.mark()  # a coordinator's write is in no request, so no request's end would sweep it
        return end

    LocalAppend(lambda code, _: done(code)).begin(find, tp, append, deadline)

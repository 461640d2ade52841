"""InitProducerId 0-5: an id and an epoch for an idempotent or transactional producer.

v2 flexible · v3 the producer names the id and epoch it has · v4 may answer PRODUCER_FENCED
v5 may answer TRANSACTION_ABORTABLE
"""

from ..schema import Int16, Int32, Int64, String, message, since


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdRequest:
    """Without a transactional id the producer is idempotent only."""

    transactional_id: String | None = None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    """An id that no other producer has, or had, with this epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0

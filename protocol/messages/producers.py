"""InitProducerId 0-5: an id and an epoch for an idempotent or transactional producer.

v2 flexible · v3 the producer names the id and epoch it has · v4 may answer PRODUCER_FENCED
v5 may answer TRANSACTION_ABORTABLE
AllocateProducerIds 0 comes from brokers of Apache Kafka only, which take blocks of ids from the controller
(KIP-730); our own take theirs from ZooKeeper.
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


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    """The broker that needs ids."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    """The first id of the block, and how many there are."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0

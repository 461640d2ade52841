"""The records of `__transaction_state`: Kafka's format for the state of a transactional id.

A null value deletes. We write what Kafka 3.9 writes (key v0, value v0) and read v1 too, the flexible one.
Left to others: versions in front of keys and values (internal_topics/stored.py), what the newest record of
each key means (loading.py), batches (protocol/records.py).
"""

from itertools import groupby

from ...base.types import TopicPartition
from ...protocol.primitives import Buffer, Malformed
from ...protocol.schema import Int8, Int16, Int32, Int64, String, message, struct
from ..internal_topics.stored import NEVER_FLEXIBLE, STORED, pack, unpack
from .state import STATE_IDS, ProducerIdentity, Standing, TransactionState

KEY_VERSION = 0
VALUE_VERSION = 0

_STATES = {number: state for state, number in STATE_IDS.items()}
_NEVER_STORED = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


@message(key=STORED, versions=(0, 0), flexible=NEVER_FLEXIBLE)
class TransactionLogKey:
    """Whose state the record has."""

    transactional_id: String


@struct
class PartitionsSchema:
    """Partitions of one topic."""

    topic: String
    partition_ids: list[Int32]


@message(key=STORED, versions=(0, 1), flexible=1)
class TransactionLogValue:
    """The state of a transactional id. Its partitions are null if no transaction has been begun."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64


def transaction_key(transactional_id: str) -> bytes:
    return pack(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_value(standing: Standing) -> bytes:
    partitions = None
    if standing.state is not TransactionState.EMPTY:
        by_topic = groupby(sorted(standing.partitions), key=lambda tp: tp.topic)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=[tp.partition for tp in found])
            for topic, found in by_topic
        ]
    value = TransactionLogValue(
        producer_id=standing.producer.id,
        producer_epoch=standing.producer.epoch,
        transaction_timeout_ms=standing.timeout_ms,
        transaction_status=STATE_IDS[standing.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=standing.updated_ms,
        transaction_start_timestamp_ms=standing.started_ms,
    )
    return pack(value, VALUE_VERSION)


def read_key(key: Buffer) -> str:
    """The transactional id. Raises Malformed for a key of a version that we do not know."""
    return unpack(TransactionLogKey, key).transactional_id


def read_value(value: Buffer) -> Standing:
    """What a record says. Which identity a producer had before is not in it."""
    found = unpack(TransactionLogValue, value)
    state = _STATES.get(found.transaction_status)
    if state is None or state in _NEVER_STORED:
        raise Malformed(f"{found.transaction_status} is not a state that is ever stored")
    return Standing(
        producer=ProducerIdentity(found.producer_id, found.producer_epoch),
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in found.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=found.transaction_start_timestamp_ms,
        updated_ms=found.transaction_last_update_timestamp_ms,
    )

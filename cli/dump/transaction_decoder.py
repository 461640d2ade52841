"""Decodes records of `__transaction_state`: how a transactional id stood, as Kafka 3.9 prints it."""

from ...broker.transactions.records import read_key, read_value
from ...protocol.primitives import Malformed
from ...protocol.records import Record


def transaction_decoder(record: Record) -> tuple[str | None, str | None]:
    """The transactional id, and its state: one line each."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key", None
    try:
        about = f"transaction_metadata::transactionalId={read_key(record.key)}"
        if record.value is None:
            return about, "<DELETE>"
        now = read_value(record.value)
    except Malformed as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    told = {
        "producerId:": now.producer.id,
        "producerEpoch:": now.producer.epoch,
        "state=": now.state,
        "partitions=": f"[{','.join(map(str, sorted(now.partitions)))}]",
        "txnLastUpdateTimestamp=": now.updated_ms,
        "txnTimeoutMs=": now.timeout_ms,
    }
    return about, ",".join(f"{name}{value}" for name, value in told.items())

"""The records of `__transaction_state`, byte by byte as Kafka 3.9 writes them."""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.transactions.loading import LoadedTransactions
from strandline.broker.transactions.records import (
    TransactionLogValue,
    read_key,
    read_value,
    transaction_key,
    transaction_value,
)
from strandline.broker.transactions.state import ProducerIdentity, Standing, TransactionState
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, iterate

KAFKA = Path(__file__).parents[1] / "fixtures" / "kafka" / "clean" / "__transaction_state-0"

ONGOING = Standing(
    producer=ProducerIdentity(7, 3),
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)}),
    started_ms=10,
    updated_ms=20,
)
ONGOING_BYTES = bytes.fromhex(
    "0000"  # version
    "0000000000000007" "0003" "0000ea60" "01"
    "00000002"  # topics
    "0001" "61" "00000001" "00000000"
    "0001" "62" "00000002" "00000000" "00000001"
    "0000000000000014" "000000000000000a"
)  # fmt: skip
ONGOING_FLEXIBLE = bytes.fromhex(
    "0001"
    "0000000000000007" "0003" "0000ea60" "01"
    "03"
    "02" "61" "02" "00000000" "00"
    "02" "62" "03" "00000000" "00000001" "00"
    "0000000000000014" "000000000000000a"
    "01" "00" "08" "000000000000002a"  # a tag of Kafka 4: the producer id before
)  # fmt: skip


def test_key() -> None:
    assert transaction_key("tx") == b"\0\0\0\2tx"
    assert read_key(transaction_key("tx")) == "tx"
    with pytest.raises(Malformed):
        read_key(b"\0\1\0\2tx")


def test_value() -> None:
    assert transaction_value(ONGOING) == ONGOING_BYTES
    assert read_value(ONGOING_BYTES) == ONGOING


def test_the_flexible_value_of_later_versions_is_read() -> None:
    assert read_value(ONGOING_FLEXIBLE) == ONGOING


def test_without_a_transaction_the_partitions_are_null() -> None:
    empty = Standing(ProducerIdentity(7, 0), 1, TransactionState.EMPTY, frozenset(), -1, 20)
    assert transaction_value(empty)[17:21] == b"\xff\xff\xff\xff"
    assert read_value(transaction_value(empty)) == empty


@pytest.mark.parametrize("state", [6, 7, 8, 255])
def test_a_state_that_is_never_stored(state: int) -> None:
    broken = bytearray(ONGOING_BYTES)
    broken[16] = state
    with pytest.raises(Malformed, match="ever stored"):
        read_value(broken)


def test_states_have_kafkas_numbers() -> None:
    for number, state in enumerate(
        ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
    ):
        changed = bytearray(ONGOING_BYTES)
        changed[16] = number
        assert read_value(changed).state == state
    assert TransactionLogValue.__name__ == "TransactionLogValue"


def test_kafkas_own_records_are_read_and_written_byte_by_byte() -> None:
    """Apache Kafka 3.9 wrote this log: three transactions of one producer, the second one aborted."""
    (path,) = KAFKA.glob("*.log")
    records = list(iterate(path.read_bytes()))
    standings = [read_value(record.value or b"") for record in records]
    assert [str(standing.state) for standing in standings] == [
        "Empty",
        *("Ongoing", "PrepareCommit", "CompleteCommit"),
        *("Ongoing", "PrepareAbort", "CompleteAbort"),
        *("Ongoing", "PrepareCommit", "CompleteCommit"),
    ]
    assert [transaction_value(standing) for standing in standings] == [record.value for record in records]
    assert {transaction_key("fixture")} == {record.key for record in records}
    loaded = LoadedTransactions()
    for _ in loaded.feed(path.read_bytes()):
        pass
    assert loaded.standings == {"fixture": standings[-1]} and not loaded.damaged


def test_the_newest_record_counts_and_damage_costs_one() -> None:
    builder = BatchBuilder()
    for key, value in (
        (transaction_key("a"), ONGOING_BYTES),
        (transaction_key("b"), ONGOING_BYTES),
        (transaction_key("c"), b"\0\0broken"),
        (b"\0\7unknown", b""),
        (transaction_key("a"), None),
        (transaction_key("b"), ONGOING_FLEXIBLE),
    ):
        builder.append(0, key, value)
    loaded = LoadedTransactions()
    for _ in loaded.feed(builder.build()):
        pass
    assert loaded.standings == {"b": ONGOING}
    assert (loaded.damaged, loaded.after) == (2, 6)

"""`strandline transactions`: what is open, who writes, what hangs, and how it is ended by hand."""

from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.sync import Consumer, Producer
from tests.cli.conftest import Shell

VERIFICATION = "transaction.partition.verification.enable"


def test_transactions_are_listed_and_described(strandline: Shell, topic: str) -> None:
    with Producer(strandline.bootstrap, transactional_id=f"tx-{topic}") as producer:
        with producer.transaction():
            producer.send(topic, b"first")
        with producer.transaction():
            producer.send(topic, b"second").result(30)
            listed = strandline("transactions", "list", "--state", "Ongoing", "--json").json
            (mine,) = [row for row in listed if row["transactional_id"] == f"tx-{topic}"]
            assert mine["state"] == "Ongoing" and mine["coordinator"] in (1, 2, 3)
            (row,) = strandline("transactions", "describe", f"tx-{topic}", "--json").json
            assert row["partitions"] == [f"{topic}-0"] and row["timeout_ms"] == 60_000
            assert row["producer_id"] == mine["producer_id"] and row["started_ms"] > 0
            (writer,) = strandline("transactions", "producers", topic, 0, "--json").json
            assert (writer["producer_id"], writer["transaction_start"]) == (mine["producer_id"], 2)
            assert "Ongoing" in strandline("transactions", "describe", f"tx-{topic}").out
            assert (
                strandline("transactions", "find-hanging", "--max-transaction-timeout", 0, "--json").json
                == []
            )
            assert "(none)" in strandline("transactions", "list", "--duration-filter", 3_600_000).out
            by_now = ("transactions", "list", "--duration-filter", 0, "--json")
            assert f"tx-{topic}" in {row["transactional_id"] for row in strandline(*by_now).json}
            abort = ("transactions", "abort", topic, 0, "--start-offset", 2)
            refused = strandline(*abort, expect=1).err
            assert f"its coordinator knows it (transactional id tx-{topic})" in refused
        (writer,) = strandline("transactions", "producers", topic, 0, "--json").json
        assert writer["transaction_start"] is None
        assert "CompleteCommit" in strandline("transactions", "list", "--state", "completecommit").out
        still = {row["transactional_id"] for row in strandline(*by_now).json}
        assert f"tx-{topic}" not in still, "what has ended is not open, however long ago it began"
        with pytest.raises(KeyError), producer.transaction():
            producer.send(topic, b"third").result(30)
            done = strandline("transactions", "abort", topic, 0, "--start-offset", 4, "--force").out
            assert done.startswith("Aborted the transaction of producer")
            raise KeyError


def test_a_hanging_transaction_is_found_and_aborted(strandline: Shell, topic: str) -> None:
    """Its producer sent a batch without announcing the partition, and nobody verified it."""
    strandline("configs", "alter", "--default", "--set", f"{VERIFICATION}=false")
    where = TopicPartition(topic, 0)
    try:
        with Producer(strandline.bootstrap, transactional_id=f"hangs-{topic}") as producer:
            producer.init_transactions()
            producer.begin()
            transactions: Any = producer._inner._transactions
            transactions.rules.added.add(where)
            producer.send(topic, b"nobody ends it").result(30)
    finally:
        strandline("configs", "alter", "--default", "--delete", VERIFICATION)
    assert strandline("transactions", "find-hanging", "--topic", topic, "--json").json == [], "not yet"
    by_now = ("transactions", "find-hanging", "--max-transaction-timeout", 0)
    (found,) = strandline(*by_now, "--json").json
    assert (found["topic"], found["partition"], found["transaction_start"]) == (topic, 0, 0)
    assert topic in strandline(*by_now, "--topic", topic, "--partition", 0).out
    reader: Any = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(strandline.bootstrap, **reader) as consumer:
        assert consumer.end_offsets([where]) == {where: 0}, "readers are held back"
        wrong = strandline("transactions", "abort", topic, 0, "--start-offset", 7, expect=1).err
        assert "no such open transaction" in wrong and f"producer {found['producer_id']} at 0" in wrong
        done = strandline("transactions", "abort", topic, 0, "--start-offset", 0).out
        assert done == f"Aborted the transaction of producer {found['producer_id']} in {topic}-0.\n"
        assert consumer.end_offsets([where]) == {where: 2}
    assert strandline(*by_now, "--json").json == []
    again = ("transactions", "abort", topic, 0, "--producer-id", found["producer_id"])
    assert "none at all" in strandline(*again, expect=1).err


@pytest.mark.parametrize(
    "words, status, why",
    [
        ("describe nobody", 1, "nobody"),
        ("list --state Sleeping", 1, "Sleeping"),
        ("producers nope 0", 1, "nope-0 does not exist"),
        ("find-hanging --partition 0", 2, "--partition needs --topic"),
        ("find-hanging --topic nope", 1, "nope"),
        ("abort t 0", 2, "expected exactly one of --start-offset, --producer-id"),
        ("abort t 0 --start-offset 1 --producer-id 1", 2, "expected exactly one of"),
    ],
)
def test_refusals_of_transactions(strandline: Shell, words: str, status: int, why: str) -> None:
    assert why in strandline("transactions", *words.split(), expect=status).err

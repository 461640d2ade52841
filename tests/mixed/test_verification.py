"""KIP-890 between kinds: a leader asks the coordinator of the other kind whether a transaction is open.

Before a batch begins a transaction in a partition, its leader asks; a late batch of a transaction that has
ended would else open it again, and nobody would end it.
"""

from typing import Any

import pytest

from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.testing.verify.places.kafka import KafkaPlace
from tests.integration.support import Wire
from tests.integration.test_transactions import Producer, coordinator_of, name_for, read, until
from tests.mixed.conftest import KAFKAS, OURS


@pytest.mark.parametrize("leader", [KAFKAS, OURS], ids=["Kafka's leader", "our leader"])
def test_a_leader_asks_a_coordinator_of_the_other_kind(pair: KafkaPlace, leader: int) -> None:
    """What the coordinator does not know as open is refused; what it knows is taken, until it has ended."""
    topic, cluster = f"led-by-{leader}", pair.cluster
    with Admin(pair.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [leader]})])
    name = name_for(cluster, topic, leader, is_here=False)
    assert coordinator_of(cluster, name) != leader
    producer = Producer(cluster, name, topic)

    assert producer.send(leader) == ErrorCode.TRANSACTION_ABORTABLE, "never announced"
    assert producer.send(leader, version=10) == ErrorCode.INVALID_TXN_STATE, "as older clients know it"
    producer.add()
    assert producer.send(leader) == 0
    producer.end(committed=False)
    until(lambda: read(cluster, topic, leader) == (2, 2, [0], [0]), 30, "the marker")

    assert producer.send(leader) == ErrorCode.TRANSACTION_ABORTABLE, "it comes late"
    assert read(cluster, topic, leader) == (2, 2, [0], [0]), "nothing holds readers back"
    producer.add()
    assert producer.send(leader) == 0
    producer.end(committed=True)
    until(lambda: read(cluster, topic, leader) == (4, 4, [0, 2], [0]), 30, "the marker")


def test_a_transaction_ends_in_a_topic_that_kafkas_controller_has_deleted(pair: KafkaPlace) -> None:
    """Its coordinator, of our kind, knows by then that there is nobody to be told."""
    topic, cluster = "deleted-meanwhile", pair.cluster
    name = name_for(cluster, topic, OURS, is_here=True)
    with Admin(pair.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [KAFKAS]})])
        producer = Producer(cluster, name, topic)
        producer.add()
        assert producer.send(KAFKAS) == 0
        admin.delete_topics([topic])
    producer.end(committed=True)
    assert Producer(cluster, name, topic).epoch == producer.epoch + 1, "the next one may begin"


def told(
    pair: KafkaPlace, broker: int, version: int, names: dict[int, str]
) -> list[dict[tuple[str, int], str]]:
    """What the coordinator at this broker answers other brokers, one question after another. The id of the
    other coordinator's producer comes along in the first one.
    """
    mine, others = names[broker], names[KAFKAS + OURS - broker]
    producer = Producer(pair.cluster, mine, "compared")
    producer.add()

    def ask(
        partitions: dict[str, list[int]], more: int = 0, later: int = 0, verify: bool = True, *names: str
    ) -> Any:
        topics = [AddPartitionsToTxnTopic(name=name, partitions=them) for name, them in partitions.items()]
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=producer.id + more, producer_epoch=producer.epoch + later,
                verify_only=verify, topics=topics,
            )
            for name in (mine, *names)
        ]  # fmt: skip
        with Wire(pair.cluster.brokers[broker].internal_port) as wire:
            answer = wire.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
        assert not answer.error_code
        return {
            (
                f"{topic.name} of {'mine' if one.transactional_id == mine else 'another'}",
                each.partition_index,
            ): (ErrorCode(each.partition_error_code).name)
            for one in answer.results_by_transaction
            for topic in one.topic_results
            for each in topic.results_by_partition
        }

    both, here = {"compared": [0, 1]}, {"compared": [0]}
    answers = [
        ask(both, 0, 0, True, others),
        ask(here, more=1000),
        ask(here, later=1),
        ask({**here, "nowhere": [0]}),
        ask({"compared": [1]}, verify=False),
        ask(both),
    ]
    producer.end(committed=True)
    until(lambda: ask(here) != {("compared of mine", 0): "CONCURRENT_TRANSACTIONS"}, 30, "it has ended")
    return [*answers, ask(here)]


@pytest.mark.parametrize("version", [4, 5])
def test_coordinators_of_both_kinds_say_the_same(pair: KafkaPlace, version: int) -> None:
    """To brokers, of several transactions at once: which partitions are in them, or why that is not known."""
    with Admin(pair.bootstrap) as admin:
        if "compared" not in admin.list_topics():
            admin.create_topics([NewTopic("compared", assignments={0: [KAFKAS], 1: [OURS]})])
    names = {broker: name_for(pair.cluster, f"v{version}", broker, is_here=True) for broker in (KAFKAS, OURS)}
    ours = told(pair, OURS, version, names)
    assert ours == told(pair, KAFKAS, version, names)
    mine, other = "compared of mine", "compared of another"
    assert ours == [
        {
            (mine, 0): "NONE",
            (mine, 1): "TRANSACTION_ABORTABLE",
            (other, 0): "NOT_COORDINATOR",
            (other, 1): "NOT_COORDINATOR",
        },
        {(mine, 0): "INVALID_PRODUCER_ID_MAPPING"},
        {(mine, 0): "PRODUCER_FENCED"},
        {(mine, 0): "OPERATION_NOT_ATTEMPTED", ("nowhere of mine", 0): "UNKNOWN_TOPIC_OR_PARTITION"},
        {(mine, 1): "NONE"},
        {(mine, 0): "NONE", (mine, 1): "NONE"},
        {(mine, 0): "TRANSACTION_ABORTABLE"},
    ]

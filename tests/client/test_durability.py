"""What a receipt tells of who had the record, and the warning where acks=all meant one replica."""

import copy
import pickle
from typing import Any

import pytest
from structlog.testing import capture_logs

from strandline.client import ConfigError, Durability, Producer, Receipt, ReplicaCopy
from strandline.client.config import ProducerConfig, configure
from strandline.client.results import receipt_of
from strandline.protocol.apis import Api
from strandline.protocol.messages import produce
from tests.client.broker_harness import Double

TWO = produce.BatchDurability(
    copies=[produce.ReplicaCopy(broker=1, after_us=0), produce.ReplicaCopy(broker=3, after_us=1_500)],
    replicas=3,
    min_isr=2,
    is_flushed=True,
)
ALONE = produce.BatchDurability(copies=[produce.ReplicaCopy(broker=1, after_us=0)], replicas=3, min_isr=1)


def telling(double: Double, durability: produce.BatchDurability) -> list[bool]:
    """Let the broker tell this to each request; what the requests have asked for."""
    asked: list[bool] = []

    def hook(broker: Any, api: int, request: Any) -> Any:
        if api != Api.PRODUCE:
            return None
        asked.append(request.wants_durability)
        answered = []
        for topic in request.topic_data:
            parts = []
            for one in topic.partition_data:
                code, base = double.topics[topic.name][one.index].append(bytes(one.records))
                parts.append(
                    produce.PartitionProduceResponse(
                        index=one.index, error_code=code, base_offset=base, durability=durability
                    )
                )
            answered.append(produce.TopicProduceResponse(name=topic.name, partition_responses=parts))
        return produce.ProduceResponse(responses=answered)

    double.hook = hook
    return asked


def warned(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "single_replica_acknowledged"]


def test_receipts_of_single_records_and_of_lists_tell_it(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            asked = telling(double, TWO)
            async with Producer(double.servers, ask_durability=True) as producer:
                with capture_logs() as logs:
                    one = await producer.send("t", b"a")
                    many = await producer.send_many("t", [b"b"] * 3)
            assert asked and all(asked)
            told = Durability((ReplicaCopy(1, 0), ReplicaCopy(3, 1_500)), 3, 2, True)
            assert one.durability == told and told.brokers == (1, 3)
            assert [receipt.durability for receipt in many] == [told] * 3
            assert [receipt.offset for receipt in many] == [1, 2, 3]
            assert not warned(logs)

    run(story())


def test_one_replica_is_warned_of_once_for_each_topic(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.topic("u")
            telling(double, ALONE)
            async with Producer(double.servers, ask_durability=True) as producer:
                with capture_logs() as logs:
                    for topic in ("t", "t", "u", "t"):
                        await producer.send(topic, b"a")
            lines = warned(logs)
            assert [line["topic"] for line in lines] == ["t", "u"]
            assert (lines[0]["broker"], lines[0]["replicas"], lines[0]["min_isr"]) == (1, 3, 1)
            assert lines[0]["log_level"] == "warning"

    run(story())


def test_who_does_not_ask_is_not_told(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            asked: list[bool] = []

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE:
                    asked.append(request.wants_durability)

            double.hook = hook
            async with Producer(double.servers) as producer:
                receipt = await producer.send("t", b"a")
                assert receipt.durability is None and type(receipt) is Receipt
            assert asked == [False]
            async with Producer(double.servers, ask_durability=True) as producer:
                receipt = await producer.send("t", b"a")
                assert receipt.durability is None, "a broker that does not know the question"

    run(story())


@pytest.mark.parametrize("acks", [0, 1, "1"])
def test_it_needs_acks_all(acks: Any) -> None:
    with pytest.raises(ConfigError, match="ask_durability needs acks='all'"):
        configure(ProducerConfig, "h:1", {"ask_durability": True, "acks": acks})


def test_a_receipt_that_tells_it_is_a_receipt() -> None:
    told = Durability((ReplicaCopy(1, 0),), 3, 1, False)
    receipt = receipt_of("t", 0, 7, 1000, told)
    topic, partition, offset, timestamp = receipt
    assert (topic, partition, offset, timestamp) == ("t", 0, 7, 1000)
    assert receipt == Receipt("t", 0, 7, 1000)
    assert pickle.loads(pickle.dumps(receipt)).durability == told
    assert copy.copy(receipt).durability == told


def test_a_durability_as_text_and_as_values() -> None:
    two = Durability((ReplicaCopy(1, 0), ReplicaCopy(3, 1_540)), 3, 2, True)
    assert str(two) == "broker 1, 3 (+1.5 ms); 2 of 3 replicas, flushed"
    again = Durability((ReplicaCopy(1, 0), ReplicaCopy(3, None)), 3, 2, False)
    assert str(again) == "broker 1, 3 (before); 2 of 3 replicas, in page cache"
    alone = Durability((ReplicaCopy(1, 0),), 3, 1, False)
    assert str(alone) == "broker 1; 1 of 3 replicas, in page cache; acks=all meant one replica"
    assert two.as_dict() == {
        "copies": [{"broker": 1, "after_us": 0}, {"broker": 3, "after_us": 1_540}],
        "replicas": 3,
        "min_isr": 2,
        "is_flushed": True,
    }

"""Transactions at real brokers, request by request: a partition takes what the coordinator knows of."""

import time
from typing import Any

import pytest

from strandline.local.cluster import LocalCluster
from strandline.protocol.batches import headers
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.groups import FindCoordinatorRequest
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from strandline.protocol.records import BatchBuilder
from tests.integration.support import Wire, create, until
from tests.patience import HANG_S

TRANSACTIONS = 1  # a key type of FindCoordinator
PASSING = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # this broker has not heard yet of a topic that was just made
)


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(3, {"default.replication.factor": "3", "min.insync.replicas": "2"})


class Producer:
    """A transactional producer without a mind of its own: it sends just what the test says."""

    def __init__(self, cluster: LocalCluster, name: str, topic: str) -> None:
        self.cluster, self.name, self.topic = cluster, name, topic
        self.sequence = 0
        begun = self._asked(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        self.id, self.epoch = begun.producer_id, begun.producer_epoch

    @property
    def coordinator(self) -> int:
        """The broker that coordinates."""
        return coordinator_of(self.cluster, self.name)

    def add(self) -> None:
        """The partition is in the transaction."""
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=[0])]
        self._asked(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=topics,
            ),
            3,
        )  # fmt: skip

    def end(self, committed: bool) -> None:
        self._asked(
            EndTxnRequest(
                transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch,
                committed=committed,
            ),
            3,
        )  # fmt: skip

    def send(self, leader: int, version: int = 11) -> int:
        """One record to the leader; its error, once it is none that passes."""
        builder = BatchBuilder(
            producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        now_ms = int(time.time() * 1000)  # of long ago, Kafka would roll segments, and delete them
        builder.append(now_ms, b"k", b"%d" % self.sequence, [])
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=0, records=builder.build())]
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])

        def sent() -> tuple[int] | None:
            with Wire(self.cluster.brokers[leader].port) as wire:
                answer = wire.ask(request, version).responses[0].partition_responses[0]
            return None if answer.error_code in PASSING else (answer.error_code,)

        (code,) = until(sent, 30, "an answer of the leader")
        self.sequence += not code
        return code

    def _asked(self, request: object, version: int) -> Any:
        def answered() -> Any:
            with Wire(self.cluster.brokers[self.coordinator].port) as wire:
                answer = wire.ask(request, version)
            code = getattr(answer, "error_code", 0)
            for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
                code = code or topic.results_by_partition[0].partition_error_code
            if code in PASSING:
                return None
            assert code == 0, ErrorCode(code).name
            return answer

        return until(answered, 30, f"an answer to {type(request).__name__}")


def coordinator_of(cluster: LocalCluster, name: str) -> int:
    """The broker that coordinates the transactions of this name."""

    def found() -> int:
        alive = next(broker for broker in cluster.brokers.values() if broker.alive)
        with Wire(alive.port) as wire:
            answer = wire.ask(FindCoordinatorRequest(key=name, key_type=TRANSACTIONS), 2)
        return 0 if answer.error_code else int(answer.node_id)

    return until(found, 30, "a coordinator")


def read(cluster: LocalCluster, topic: str, leader: int) -> tuple[int, int, list[int], list[int]]:
    """For a reader of committed records: high watermark, last stable offset, the offsets of data, and the
    first offsets of what was aborted.
    """
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    with Wire(cluster.brokers[leader].port) as wire:
        data = wire.ask(request, 11).responses[0].partitions[0]
    offsets = [one.base_offset for _, one in headers(bytes(data.records)) if not one.is_control]
    first = [one.first_offset for one in data.aborted_transactions or ()]  # null with Kafka
    return data.high_watermark, data.last_stable_offset, offsets, first


def name_for(cluster: LocalCluster, topic: str, leader: int, is_here: bool) -> str:
    """A transactional id whose coordinator is the broker that leads, or another one."""
    names = (f"{topic}-{number}" for number in range(1000))
    return next(each for each in names if (coordinator_of(cluster, each) == leader) is is_here)


@pytest.mark.parametrize("is_here", [True, False], ids=["coordinator here", "coordinator elsewhere"])
def test_a_late_batch_opens_no_transaction(cluster: LocalCluster, is_here: bool) -> None:
    """KIP-890 part 1: the batch arrives after its transaction was aborted, or was never announced."""
    topic = f"late-{is_here}"
    with create(cluster, topic, [1]) as view:
        view.wait_led_by(1, [1, 2, 3])
        producer = Producer(cluster, name_for(cluster, topic, 1, is_here), topic)
        assert producer.send(1) == ErrorCode.TRANSACTION_ABORTABLE
        assert producer.send(1, version=10) == ErrorCode.INVALID_TXN_STATE
        producer.add()
        assert producer.send(1) == 0
        assert read(cluster, topic, 1) == (1, 0, [], [])
        producer.end(committed=False)
        until(lambda: read(cluster, topic, 1) == (2, 2, [0], [0]), HANG_S, "the marker")
        assert producer.send(1) == ErrorCode.TRANSACTION_ABORTABLE
        assert read(cluster, topic, 1) == (2, 2, [0], [0]), "nothing holds readers back"
        producer.add()
        assert producer.send(1) == 0
        producer.end(committed=True)
        until(lambda: read(cluster, topic, 1) == (4, 4, [0, 2], [0]), HANG_S, "the marker")


def test_a_transaction_outlives_the_leader_that_has_it(cluster: LocalCluster) -> None:
    """The next leader knows from its log that the transaction is open, and gets the marker."""
    topic = "moved"
    with create(cluster, topic, [2]) as view:
        view.wait_led_by(2, [1, 2, 3])
        producer = Producer(cluster, name_for(cluster, topic, 2, is_here=False), topic)
        producer.add()
        assert [producer.send(2) for _ in range(3)] == [0, 0, 0]
        cluster.brokers[2].kill()
        view.wait_led_without(2)
        (leader,) = view.leaders()
        until(lambda: read(cluster, topic, leader)[1:] == (0, [], []), HANG_S, "it knows that it leads")
        assert producer.send(leader) == 0, "it has begun there, as far as this leader can tell"
        producer.end(committed=True)
        until(lambda: read(cluster, topic, leader) == (5, 5, [0, 1, 2, 3], []), HANG_S, "the marker")
        cluster.brokers[2].start()
        view.wait_full_isr()

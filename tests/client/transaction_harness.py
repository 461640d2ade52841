"""A transaction coordinator for the cluster double. It believes nobody: what may not happen is refused."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.base.types import TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.markers import EndMarker, marker_batch
from strandline.protocol.messages import group_offsets, producers, transactions

if TYPE_CHECKING:
    from tests.client.broker_harness import Double, Partition


@dataclass
class Transaction:
    """What the coordinator knows of one transactional id."""

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[str, dict[TopicPartition, tuple[int, str]]] = field(default_factory=dict)
    ends: list[bool] = field(default_factory=list)  # each EndTxn that was carried out


class Coordinator:
    """All transactional ids."""

    def __init__(self, double: "Double") -> None:
        self.double = double
        self.known: dict[str, Transaction] = {}

    def answer(self, api: int, request: Any) -> Any:
        if api == Api.INIT_PRODUCER_ID:
            return self.init(request)
        if api == Api.ADD_PARTITIONS_TO_TXN:
            return self.add_partitions(request)
        if api == Api.ADD_OFFSETS_TO_TXN:
            code = self.check(request.transactional_id, request.producer_id, request.producer_epoch)
            if not code:
                one = self.known[request.transactional_id]
                one.state = "Ongoing"
                one.groups.add(request.group_id)
            return transactions.AddOffsetsToTxnResponse(error_code=code)
        if api == Api.TXN_OFFSET_COMMIT:
            return self.commit_offsets(request)
        assert api == Api.END_TXN
        return self.end(request)

    def check(self, transactional_id: str, producer_id: int, epoch: int) -> int:
        one = self.known.get(transactional_id)
        if one is None or one.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return 0 if epoch == one.epoch else ErrorCode.PRODUCER_FENCED

    def init(self, request: producers.InitProducerIdRequest) -> Any:
        assert request.transactional_id is not None
        one = self.known.get(request.transactional_id)
        if one is None:
            self.double.producer_ids += 1
            one = self.known[request.transactional_id] = Transaction(self.double.producer_ids)
        else:
            if request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (
                one.producer_id,
                one.epoch,
            ):
                return producers.InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            if one.state == "Ongoing":
                self.finish(one, committed=False)
            one.epoch += 1
            one.state = "Empty"
        return producers.InitProducerIdResponse(producer_id=one.producer_id, producer_epoch=one.epoch)

    def add_partitions(self, request: transactions.AddPartitionsToTxnRequest) -> Any:
        code = self.check(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        topics = []
        for topic in request.v3_and_below_topics:
            if not code:
                one = self.known[request.v3_and_below_transactional_id]
                one.state = "Ongoing"
                one.partitions |= {TopicPartition(topic.name, number) for number in topic.partitions}
            topics.append(added(topic, code))
        return transactions.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def commit_offsets(self, request: group_offsets.TxnOffsetCommitRequest) -> Any:
        one = self.known[request.transactional_id]
        code = self.check(request.transactional_id, request.producer_id, request.producer_epoch)
        group = self.double.groups.group(request.group_id)
        if not code and request.group_id not in one.groups:
            code = ErrorCode.INVALID_TXN_STATE
        if not code and request.member_id:
            if request.member_id not in group.members:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            elif request.generation_id != group.generation:
                code = ErrorCode.ILLEGAL_GENERATION
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                if not code:
                    place = TopicPartition(topic.name, part.partition_index)
                    mark = part.committed_offset, part.committed_metadata or ""
                    one.pending.setdefault(request.group_id, {})[place] = mark
                parts.append(
                    group_offsets.TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                )
            topics.append(group_offsets.TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return group_offsets.TxnOffsetCommitResponse(topics=topics)

    def end(self, request: transactions.EndTxnRequest) -> Any:
        code = self.check(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            one = self.known[request.transactional_id]
            if one.state == "Ongoing":
                self.finish(one, request.committed)
            elif one.state != ("CompleteCommit" if request.committed else "CompleteAbort"):
                code = ErrorCode.INVALID_TXN_STATE
        return transactions.EndTxnResponse(error_code=code)

    def finish(self, one: Transaction, committed: bool) -> None:
        one.ends.append(committed)
        for name, number in sorted(one.partitions):
            log = self.double.topics[name][number]
            log.append_marker(one.producer_id, one.epoch, committed)
        for group, offsets in one.pending.items():
            if committed:
                self.double.groups.group(group).offsets.update(offsets)
        one.partitions, one.groups, one.pending = set(), set(), {}
        one.state = "CompleteCommit" if committed else "CompleteAbort"

    def expects(self, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        """Whether this transactional batch may be appended."""
        for one in self.known.values():
            if one.producer_id == producer_id:
                if epoch < one.epoch:
                    return ErrorCode.INVALID_PRODUCER_EPOCH
                return 0 if partition in one.partitions else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING


def added(topic: transactions.AddPartitionsToTxnTopic, code: int) -> Any:
    """The result for all partitions of a topic."""
    return transactions.AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            transactions.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            for number in topic.partitions
        ],
    )


def marker(producer_id: int, epoch: int, committed: bool) -> bytes:
    """The batch that ends a transaction."""
    return bytes(marker_batch(producer_id, epoch, EndMarker(committed, 0), 0))


def visible_end(partition: "Partition") -> int:
    """The last stable offset."""
    return min(partition.open.values(), default=partition.end)

"""Every error that a client can be told by a running broker: in each version, as Kafka's brokers tell it.

The requests below all go wrong, each in its own way, at a broker that leads nothing of what they name or
that finds them in error. No answer may have nulls where Kafka has none, and beside each error stands what
Kafka puts there (tests/protocol/error_answers.py).
"""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.apis import APIS, Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    cluster,
    config_changes,
    consumer_groups,
    elections,
    features,
    fetch,
    group_admin,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    reassignments,
    topics,
    transactions,
)
from strandline.protocol.schema import spec_of
from strandline.testing.nursery import forked

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "protocol"), str(ROOT)]
from bench.failover import Wire  # noqa: E402
from tests.protocol.error_answers import errors_in  # noqa: E402
from tests.protocol.samples import sample  # noqa: E402

RANDOM_REQUESTS = 3  # of each version
ACKS_ALL = -1
GONE, NOBODY = "no-such-topic", uuid.UUID(int=99)


def of_data(topic: str, topic_id: uuid.UUID) -> Iterator[Any]:
    """Produce, Fetch and what clients ask of logs; `topic` is led by another broker."""
    for name in (topic, GONE, "__consumer_offsets"):
        for acks in (-1, 1, 7):
            yield produce.ProduceRequest(
                acks=acks,
                timeout_ms=1000,
                topic_data=[
                    produce.TopicProduceData(
                        name=name,
                        partition_data=[produce.PartitionProduceData(index=0, records=b"x" * 80)],
                    )
                ],
            )
    for name, id, isolation, session in (
        (topic, topic_id, 0, 0),
        (topic, topic_id, 1, 0),
        (GONE, NOBODY, 1, 0),
        (topic, topic_id, 0, 77),
    ):
        asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        yield fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=isolation,
            session_id=session,
            session_epoch=5 if session else -1,
            topics=[fetch.FetchTopic(topic=name, topic_id=id, partitions=[asked])],
        )
    for name in (topic, GONE):
        place = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        yield offsets.ListOffsetsRequest(topics=[offsets.ListOffsetsTopic(name=name, partitions=[place])])
        epoch = offsets.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        yield offsets.OffsetForLeaderEpochRequest(
            topics=[offsets.OffsetForLeaderTopic(topic=name, partitions=[epoch])]
        )
        where = topics.DeleteRecordsPartition(partition_index=0, offset=1 << 40)
        yield topics.DeleteRecordsRequest(
            topics=[topics.DeleteRecordsTopic(name=name, partitions=[where])], timeout_ms=1000
        )
    yield producers.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)


def of_topics(topic: str) -> Iterator[Any]:
    """Metadata, and what administrators ask of topics."""
    for asked in (
        metadata.MetadataRequestTopic(name=GONE),
        metadata.MetadataRequestTopic(name="not legal"),
        metadata.MetadataRequestTopic(name=None, topic_id=NOBODY),
    ):
        yield metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    for name, count in ((topic, 1), ("not legal", 1), (GONE, -7)):
        one = topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        yield topics.CreateTopicsRequest(topics=[one], timeout_ms=1000)
    yield topics.DeleteTopicsRequest(
        topics=[topics.DeleteTopicState(name=GONE), topics.DeleteTopicState(topic_id=NOBODY)],
        topic_names=[GONE],
        timeout_ms=1000,
    )
    for name in (GONE, topic):
        more = topics.CreatePartitionsTopic(name=name, count=1)
        yield topics.CreatePartitionsRequest(topics=[more], timeout_ms=1000)
    yield elections.ElectLeadersRequest(
        topic_partitions=[elections.ElectedPartitions(topic=GONE, partitions=[0])], timeout_ms=1000
    )
    moved = reassignments.ReassignablePartition(partition_index=0, replicas=[99])
    yield reassignments.AlterPartitionReassignmentsRequest(
        topics=[reassignments.ReassignableTopic(name=name, partitions=[moved]) for name in (GONE, topic)],
        timeout_ms=1000,
    )


def of_settings() -> Iterator[Any]:
    """Configurations of what is not there, and settings that nobody knows."""
    for kind, name in ((2, GONE), (4, "99"), (77, "x")):
        yield cluster.DescribeConfigsRequest(
            resources=[cluster.DescribeConfigsResource(resource_type=kind, resource_name=name)]
        )
        yield config_changes.AlterConfigsRequest(
            resources=[
                config_changes.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[config_changes.AlterableConfig(name="no.such.setting", value="1")],
                )
            ]
        )
        yield config_changes.IncrementalAlterConfigsRequest(
            resources=[
                config_changes.IncrementalResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        config_changes.IncrementalConfig(
                            name="no.such.setting", config_operation=0, value="1"
                        )
                    ],
                )
            ]
        )
    yield cluster.ListConfigResourcesRequest(resource_types=[77])
    yield cluster.DescribeClusterRequest(endpoint_type=2)
    for name, level in (("metadata.version", 20), ("", 1)):
        yield features.UpdateFeaturesRequest(
            feature_updates=[features.FeatureUpdateKey(feature=name, max_version_level=level)]
        )
    gone = log_dirs.AlterReplicaLogDirTopic(name=GONE, partitions=[0])
    yield log_dirs.AlterReplicaLogDirsRequest(
        dirs=[log_dirs.AlterReplicaLogDir(path="/no/such", topics=[gone])]
    )
    yield log_dirs.DescribeLogDirsRequest(topics=None)


def of_groups(group: str) -> Iterator[Any]:
    """Groups that have no such member, and a broker that does not coordinate them."""
    place = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    yield group_offsets.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=5,
        member_id="nobody",
        topics=[group_offsets.OffsetCommitRequestTopic(name=GONE, partitions=[place])],
    )
    wanted = group_offsets.OffsetFetchRequestTopic(name=GONE, partition_indexes=[0])
    of_group = group_offsets.OffsetFetchRequestTopics(name=GONE, partition_indexes=[0])
    yield group_offsets.OffsetFetchRequest(
        group_id=group,
        topics=[wanted],
        groups=[group_offsets.OffsetFetchRequestGroup(group_id=group, topics=[of_group])],
    )
    yield consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="nobody", member_epoch=5, rebalance_timeout_ms=1
    )
    yield consumer_groups.ConsumerGroupDescribeRequest(group_ids=[group])
    for kind in (1, 77):
        yield groups.FindCoordinatorRequest(key=group, key_type=kind, coordinator_keys=[group])
    for instance in (None, "chair"):
        yield groups.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            member_id="nobody",
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        yield groups.SyncGroupRequest(
            group_id=group,
            generation_id=5,
            member_id="nobody",
            protocol_type="consumer",
            protocol_name="range",
        )
        yield groups.HeartbeatRequest(group_id=group, generation_id=5, member_id="nobody")
        yield groups.LeaveGroupRequest(
            group_id=group,
            member_id="nobody",
            members=[groups.MemberIdentity(member_id="nobody", group_instance_id=instance)],
        )
    yield group_admin.DescribeGroupsRequest(groups=[group])
    yield group_admin.DeleteGroupsRequest(groups_names=[group])
    of_producer = group_offsets.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    yield group_offsets.TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id=group,
        producer_id=1,
        producer_epoch=0,
        topics=[group_offsets.TxnOffsetCommitRequestTopic(name=GONE, partitions=[of_producer])],
    )
    unknown = [group_offsets.OffsetDeleteRequestPartition(partition_index=0)]
    yield group_offsets.OffsetDeleteRequest(
        group_id=group, topics=[group_offsets.OffsetDeleteRequestTopic(name=GONE, partitions=unknown)]
    )


def of_transactions(name: str) -> Iterator[Any]:
    """Transactions that are not known, partitions that are gone, a broker that coordinates neither."""
    topics = [transactions.AddPartitionsToTxnTopic(name=GONE, partitions=[0])]
    yield transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    yield transactions.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=1, producer_epoch=0, group_id="g"
    )
    yield transactions.EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
    marker = transactions.WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=[transactions.WritableTxnMarkerTopic(name=GONE, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    yield transactions.WriteTxnMarkersRequest(markers=[marker])
    yield transactions.DescribeProducersRequest(
        topics=[transactions.DescribeProducersTopic(name=GONE, partition_indexes=[0])]
    )
    yield transactions.DescribeTransactionsRequest(transactional_ids=[name])


def versions_of(request: Any, api: Api) -> Iterator[int]:
    """Those in which the request can be said."""
    by_id = isinstance(request, metadata.MetadataRequest) and any(
        t.name is None for t in request.topics or ()
    )
    return (version for version in APIS[api].served if version >= 10 or not by_id)


NEVER_WRONG = {
    Api.API_VERSIONS, Api.LIST_GROUPS, Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS,
    Api.LIST_TRANSACTIONS,
}  # fmt: skip


def test_no_request_that_can_be_read_ends_a_broker(tmp_path: Path) -> None:
    """Random ones, of every request in every version: it answers, or ends the connection."""
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    random = Random(1)
    with forked(LocalCluster(tmp_path, 1, settings=settings)) as alone:
        (broker,) = alone.brokers.values()
        for entry in APIS.values():
            for version in entry.served if entry.advertised is not None else ():
                wire = Wire(broker.port)
                for _ in range(RANDOM_REQUESTS):
                    request = sample(entry.request, version, random)
                    if getattr(request, "acks", ACKS_ALL) == 0:
                        continue  # nobody answers
                    try:
                        errors_in(wire.ask(request, version), version)
                    except ConnectionError:
                        assert broker.alive, f"{request} v{version}"
                        wire = Wire(broker.port)
                wire.close()
        assert broker.alive


@pytest.fixture
def told(running: LocalCluster, ours: Any) -> Iterator[dict[Api, set[int]]]:
    """Error codes by request, to be filled; in the end the brokers still live."""
    found: dict[Api, set[int]] = {}
    yield found
    assert all(broker.alive for broker in running.brokers.values()), "a broker has ended"


def test_each_error_in_each_version(
    running: LocalCluster, ours: Any, topic: str, told: dict[Api, set[int]]
) -> None:
    with Admin(running.bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
    (first, *_) = described.partitions
    strangers = [id for id in running.brokers if id != first.leader]
    group = f"group-{topic}"
    ours.group_state(group)  # so that the coordinators' topic is there
    requests = [
        *of_data(topic, described.topic_id), *of_topics(topic), *of_settings(), *of_groups(group),
        *of_groups(""), *of_transactions("nobody"), *of_transactions(""),
    ]  # fmt: skip
    for stranger in strangers:
        wire = Wire(running.brokers[stranger].port)
        for request in requests:
            api = Api(spec_of(type(request)).key)
            for version in versions_of(request, api):
                answer = wire.ask(request, version)
                told.setdefault(api, set()).update(errors_in(answer, version))
        wire.close()
    silent = {api for api in Api if APIS[api].advertised is not None} - NEVER_WRONG
    assert {api for api in silent if not told.get(api)} == set(), "each has told an error"
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in told[Api.FETCH] & told[Api.PRODUCE]
    assert ErrorCode.NOT_COORDINATOR in told[Api.JOIN_GROUP] & told[Api.OFFSET_FETCH]

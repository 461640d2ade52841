"""Metadata in every version, admin requests on their way, settings, producer ids."""

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from strandline.base.tasks import Tasks
from strandline.broker.config.live import LiveConfig
from strandline.broker.forward import Forwarder
from strandline.broker.handlers import cluster, features, metadata, producers, topics
from strandline.broker.metadata.cache import Picture
from strandline.broker.network.exchange import Exchange, Listener
from strandline.broker.network.metrics import Metrics
from strandline.protocol.apis import APIS, Api
from strandline.protocol.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    NotController,
    RequestTimedOut,
    TopicDeletionDisabled,
)
from strandline.protocol.messages.cluster import (
    DescribeClusterRequest,
)
from strandline.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.schema import decode, encode
from strandline.storage.config import TOPIC_OPTIONS
from strandline.storage.idle_settings import IDLE
from tests.broker.cluster_harness import TellsAtOnce, config
from tests.broker.test_metadata_picture import ONE, partition, topic, update
from tests.patience import HANG_S

CLIENT = Listener("PLAINTEXT", internal=False)


class Controller:
    """A controller that answers with what it was asked, when it is active."""

    def __init__(self) -> None:
        self.active = True
        self.controller_id: int | None = 1
        self.asked: list[Any] = []
        self.moves = 0
        self.answers: dict[type, Any] = {
            CreateTopicsRequest: self.create_topics,
            DeleteTopicsRequest: self.delete_topics,
        }

    async def ask(self, request: Any) -> Any:
        return await self.answers[type(request)](request)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.asked.append(request)
        if self.moves:
            self.moves -= 1
            raise NotController
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=t.name, configs=None) for t in request.topics]
        )

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        self.asked.append(request)
        code = 41 if self.moves else 0
        self.moves = max(self.moves - 1, 0)
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=t.name, error_code=code) for t in request.topics]
        )


class ProducerIds:
    """Counts."""

    def __init__(self) -> None:
        self.next = 1000

    async def take(self) -> int:
        self.next += 1
        return self.next - 1


def broker(**changes: Any) -> Any:
    """As much of a broker as these handlers look at. It knows topic t of two partitions, one leaderless."""
    picture = Picture().updated(
        update(topic("t", ONE, partition(0, 2, 5), partition(1, -1, 6)), brokers=(1, 2))
    )
    created: list[str] = []
    started_with = config(listeners="PLAINTEXT://127.0.0.1:0", **changes)
    return SimpleNamespace(
        id=1,
        config=started_with,
        live=LiveConfig(started_with),
        cluster_id="the-cluster",
        metadata=picture,
        cache=SimpleNamespace(picture=picture),
        metrics=Metrics(),
        controller=Controller(),
        producer_ids=ProducerIds(),
        created=created,
        held=TellsAtOnce(),
        forwarder=SimpleNamespace(create_soon=created.append),
        groups=SimpleNamespace(ensure_topic=lambda: created.append("offsets")),
    )


def exchange(api: Api, version: int) -> Exchange:
    channel: Any = None
    return Exchange(channel, CLIENT, api, version, 1, "test")


def ask(
    made: Any, version: int, names: list[str] | None, **more: Any
) -> dict[str | None, MetadataResponseTopic]:
    """Ask over the wire, as it were: the request and the response go through their codecs."""
    wanted = None if names is None else [MetadataRequestTopic(name=n) for n in names]
    if version == 0 and wanted is None:
        wanted = []
    request = b"".join(bytes(p) for p in encode(MetadataRequest(topics=wanted, **more), version))
    decoded, _ = decode(MetadataRequest, version, request)
    response = metadata.handle(made, exchange(Api.METADATA, version), decoded)
    sent = b"".join(bytes(p) for p in encode(response, version))
    received, end = decode(APIS[Api.METADATA].response, version, sent)
    assert end == len(sent)
    assert [b.node_id for b in received.brokers] == [1, 2]
    assert version < 1 or received.controller_id == 1
    assert version < 2 or received.cluster_id == "the-cluster"
    return {t.name: t for t in received.topics}


@pytest.mark.parametrize("version", range(13))
def test_metadata_of_all_topics(version: int) -> None:
    (found,) = ask(broker(), version, None).values()
    first, second = found.partitions
    assert (found.name, found.error_code) == ("t", 0)
    assert (first.error_code, first.leader_id, first.replica_nodes, first.isr_nodes) == (0, 2, [1, 2], [1])
    assert (second.error_code, second.leader_id) == (5, -1), "no leader is an error of its own, told at once"
    assert first.leader_epoch == (5 if version >= 7 else -1)
    assert found.topic_id == (ONE if version >= 10 else UUID(int=0))


@pytest.mark.parametrize("version", range(13))
def test_metadata_of_named_topics(version: int) -> None:
    made = broker()
    found = ask(made, version, ["t", "new", "../etc", "t", "x" * 250, ""])
    assert {name: t.error_code for name, t in found.items()} == {
        "t": 0,
        "new": 5,
        "../etc": 17,
        "x" * 250: 17,
        "": 17,
    }
    assert made.created == ["new"]


@pytest.mark.parametrize("version", range(1, 13))
def test_an_empty_list_means_no_topic_from_version_1_on(version: int) -> None:
    assert ask(broker(), version, []) == {}


def test_a_topic_is_created_only_if_broker_and_client_want_it() -> None:
    made = broker()
    assert ask(made, 4, ["new"], allow_auto_topic_creation=False)["new"].error_code == 3
    shut = broker(auto_create_topics_enable=False)
    assert ask(shut, 4, ["new"])["new"].error_code == 3
    assert (made.created, shut.created) == ([], [])


def test_a_name_that_collides_with_another_is_refused_at_once() -> None:
    """The controller would not create it, so a client that is told to come again waits in vain."""
    made = broker()
    names = {each: topic(each, UUID(int=40 + n), partition(0, 2, 5)) for n, each in enumerate(("a_b.c", "d"))}
    made.metadata = made.metadata.updated(update(*names.values(), brokers=(1, 2)))
    found = ask(made, 9, ["a.b_c", "a_b.c", "a.b", "d_", "a_b"])
    assert {name: t.error_code for name, t in found.items()} == {
        "a.b_c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b.c": 0,
        "a.b": ErrorCode.LEADER_NOT_AVAILABLE,
        "d_": ErrorCode.LEADER_NOT_AVAILABLE,
        "a_b": ErrorCode.LEADER_NOT_AVAILABLE,
    }
    assert sorted(made.created) == ["a.b", "a_b", "d_"]
    assert ask(made, 9, ["a.b_c"], allow_auto_topic_creation=False)["a.b_c"].error_code == 3


def test_internal_topics_are_not_created_like_others() -> None:
    made = broker()
    found = ask(made, 9, ["__consumer_offsets", "__transaction_state"])
    assert found["__consumer_offsets"].error_code == 5
    assert found["__transaction_state"].error_code == 3
    assert made.created == ["offsets"]


def test_a_topic_is_found_by_its_id() -> None:
    made = broker()
    wanted = [
        MetadataRequestTopic(topic_id=ONE, name=None),
        MetadataRequestTopic(topic_id=UUID(int=9), name=None),
        MetadataRequestTopic(topic_id=ONE, name=""),  # as Java's client sends it
        MetadataRequestTopic(topic_id=UUID(int=9), name="t"),
    ]
    response = metadata.handle(made, exchange(Api.METADATA, 12), MetadataRequest(topics=wanted))
    found = [(t.name, t.error_code) for t in response.topics]
    assert found == [("t", 0), (None, 100), ("t", 0), (None, 100)]
    assert made.created == []


def test_a_dead_leader_is_no_leader_and_dead_brokers_are_not_named() -> None:
    made = broker()
    made.cache.picture = made.metadata = made.metadata.updated(update(brokers=(1,)))
    response = metadata.handle(made, exchange(Api.METADATA, 9), MetadataRequest(topics=None))
    assert [b.node_id for b in response.brokers] == [1]
    first = response.topics[0].partitions[0]
    assert (first.error_code, first.leader_id, first.offline_replicas) == (5, -1, [2])


def test_operations_are_told_when_asked_for() -> None:
    made = broker()
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    response = metadata.handle(made, exchange(Api.METADATA, 10), request)
    assert response.topics[0].topic_authorized_operations > 0
    assert response.cluster_authorized_operations < 0


def forwarding(made: Any) -> Forwarder:
    live: Any = SimpleNamespace(current=made.config)
    forwarder = Forwarder(
        live, made.cache, made.controller, made.held, made.metrics, Tasks("test"), Random(1).randbytes
    )
    made.forwarder = forwarder
    return forwarder


async def test_bad_names_never_reach_the_controller() -> None:
    made = broker()
    forwarding(made)
    wanted = [CreatableTopic(name=name) for name in ("good", "..", "a/b", "")]
    response = await topics.create(
        made, exchange(Api.CREATE_TOPICS, 5), CreateTopicsRequest(topics=wanted, timeout_ms=1000)
    )
    assert {t.name: t.error_code for t in response.topics} == {"good": 0, "..": 17, "a/b": 17, "": 17}
    assert [t.name for r in made.controller.asked for t in r.topics] == ["good"]
    assert all(t.configs == [] for t in response.topics if t.error_code), "null would end Java's admin client"


async def test_the_settings_of_a_new_topic_are_told() -> None:
    made = broker(storage={"retention_ms": 4000})
    forwarding(made)
    given = {"segment.ms": "7", "preallocate": "true"}
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in given.items()]
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new", configs=configs)])
    response = await topics.create(made, exchange(Api.CREATE_TOPICS, 7), request)
    encode(response, 7)
    told = {c.name: (c.value, c.config_source) for c in response.topics[0].configs or ()}
    assert told.keys() == TOPIC_OPTIONS.keys() | IDLE.keys()
    assert (told["segment.ms"], told["preallocate"]) == (("7", 1), ("true", 1)), "of the topic"
    assert (told["retention.ms"], told["flush.ms"][1]) == (("4000", 4), 5), (
        "of the broker's file, the default"
    )
    newer = [CreatableTopicConfig(name="made.up", value="1")]
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new", configs=newer)])
    (result,) = (await topics.create(made, exchange(Api.CREATE_TOPICS, 7), request)).topics
    assert (result.error_code, result.topic_config_error_code, result.configs) == (0, 40, []), (
        "the controller took what this broker does not know: there is a topic"
    )


async def test_a_moving_controller_is_waited_for() -> None:
    made = broker()
    forwarding(made)
    made.controller.moves = 2
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    response = await topics.delete(made, exchange(Api.DELETE_TOPICS, 4), request)
    assert [r.error_code for r in response.responses] == [0]
    assert len(made.controller.asked) == 3
    made.controller.moves = 1
    created = await topics.create(
        made, exchange(Api.CREATE_TOPICS, 2), CreateTopicsRequest(topics=[CreatableTopic(name="x")])
    )
    assert [t.error_code for t in created.topics] == [0]


async def test_who_asked_once_is_not_told_of_what_its_first_try_has_done() -> None:
    """The answer was lost with the controller that gave it."""

    made = broker()
    forwarding(made)
    made.controller.moves = 1
    wanted = [CreatableTopic(name="x"), CreatableTopic(name="y", topic_id=ONE)]
    await topics.create(made, exchange(Api.CREATE_TOPICS, 5), CreateTopicsRequest(topics=wanted))
    first, second = ([t.topic_id for t in r.topics] for r in made.controller.asked)
    assert first == second, "the controller knows its own topic by its id"
    assert len({*first, ONE, NO_UUID}) == 4, "which no client chooses"

    async def full(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        made.controller.asked.append(request)
        code = ErrorCode.NOT_CONTROLLER if len(made.controller.asked) == 1 else 0
        return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=code)])

    made.controller.answers[CreatePartitionsRequest], made.controller.asked = full, []
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)], timeout_ms=5000)
    await topics.create_partitions(made, exchange(Api.CREATE_PARTITIONS, 2), more)
    assert [r.topics[0].grows_from for r in made.controller.asked] == [-1, 2], "what it had at first"

    async def gone(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if made.controller.moves else ErrorCode.NOT_CONTROLLER
        made.controller.moves = 1
        rows = [DeletableTopicResult(name=t.name, error_code=code) for t in request.topics]
        return DeleteTopicsResponse(responses=rows)

    made.controller.answers[DeleteTopicsRequest] = gone
    for moves, of_t in ((0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        made.controller.moves = moves
        request = DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=5000)
        response = await topics.delete(made, exchange(Api.DELETE_TOPICS, 4), request)
        assert [r.error_code for r in response.responses] == [of_t, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_an_internal_topic_does_not_grow() -> None:
    """Groups find their partition by the number of partitions, so their offsets would be in another one."""
    made = broker()
    forwarding(made)
    offsets = topic("__consumer_offsets", ONE, partition(0, 1), partition(1, 1))
    made.metadata = Picture().updated(update(offsets))

    async def grown(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        made.controller.asked.append(request)
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(name=each.name) for each in request.topics]
        )

    async def asked(**counts: int) -> dict[str, int]:
        wanted = [CreatePartitionsTopic(name=name, count=count) for name, count in counts.items()]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=5000)
        answer = await topics.create_partitions(made, exchange(Api.CREATE_PARTITIONS, 2), request)
        return {one.name: one.error_code for one in answer.results}

    made.controller.answers[CreatePartitionsRequest] = grown
    refused = ErrorCode.POLICY_VIOLATION
    assert await asked(__consumer_offsets=3) == {"__consumer_offsets": refused} and not made.controller.asked
    assert await asked(__consumer_offsets=3, t=3) == {"__consumer_offsets": refused, "t": 0}
    assert [each.name for each in made.controller.asked[0].topics] == ["t"]
    assert await asked(__consumer_offsets=2) == {"__consumer_offsets": 0}, "no growth: the controller says so"
    assert await asked(__transaction_state=9) == {"__transaction_state": 0}, "nor one that there is not"


async def test_without_a_controller_a_request_ends_at_its_own_deadline() -> None:
    made = broker()
    forwarding(made)
    made.controller.active = False
    made.controller.controller_id = None
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)], timeout_ms=120)
    began = asyncio.get_running_loop().time()
    with pytest.raises(RequestTimedOut) as caught:
        await topics.create_partitions(made, exchange(Api.CREATE_PARTITIONS, 2), request)
    assert asyncio.get_running_loop().time() - began < HANG_S
    refused = topics.refuse_create_partitions(request, caught.value)
    assert [(r.name, r.error_code) for r in refused.results] == [("t", 7)]


async def test_a_topic_is_created_in_the_background_once() -> None:
    made = broker()
    forwarder = forwarding(made)
    forwarder.create_soon("new")
    forwarder.create_soon("new")
    while forwarder._creating:
        await asyncio.sleep(0)
    assert [t.name for r in made.controller.asked for t in r.topics] == ["new"]


async def test_producers_get_ids() -> None:
    made, there = broker(), exchange(Api.INIT_PRODUCER_ID, 3)
    first = await producers.handle(made, there, InitProducerIdRequest(transaction_timeout_ms=1))
    second = await producers.handle(made, there, InitProducerIdRequest(transaction_timeout_ms=1))
    assert (first.producer_id, second.producer_id, second.producer_epoch) == (1000, 1001, 0)
    again = InitProducerIdRequest(transaction_timeout_ms=1, producer_id=7, producer_epoch=3)
    third = await producers.handle(made, there, again)
    assert (third.producer_id, third.producer_epoch) == (1002, 0), "an id that is not given out twice"
    for half in ({"producer_id": 7}, {"producer_epoch": 3}, {"producer_epoch": -2}):
        with pytest.raises(InvalidRequest) as caught:
            await producers.handle(made, there, InitProducerIdRequest(transaction_timeout_ms=1, **half))
    refused = producers.refuse(again, caught.value)
    assert (refused.error_code, refused.producer_id) == (42, -1)


def test_the_cluster_is_described() -> None:
    made = broker()
    response = cluster.describe_cluster(made, exchange(Api.DESCRIBE_CLUSTER, 1), DescribeClusterRequest())
    assert (response.cluster_id, response.controller_id) == ("the-cluster", 1)
    assert [(b.broker_id, b.port) for b in response.brokers] == [(1, 9001), (2, 9002)]


@pytest.mark.parametrize(("endpoint", "code"), [(2, 114), (0, 115), (7, 115)])
def test_only_brokers_have_endpoints(endpoint: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint)
    with pytest.raises(ApiError) as caught:
        cluster.describe_cluster(broker(), exchange(Api.DESCRIBE_CLUSTER, 1), request)
    assert cluster.refuse_describe_cluster(request, caught.value).error_code == code


@pytest.mark.parametrize(
    ("version", "asked", "why"),
    [
        (0, {"max_version_level": 1}, "the provided feature is not supported"),
        (0, {"max_version_level": 0}, "versionLevel: 0 less than 1 without setting the SAFE"),
        (0, {"max_version_level": 0, "allow_downgrade": True}, "Can not delete non-existing"),
        (1, {"max_version_level": 20}, "the provided feature is not supported"),
        (1, {"max_version_level": -3}, "versionLevel: -3 less than 1"),
        (1, {"max_version_level": 0, "upgrade_type": 2}, "Can not delete non-existing"),
        (1, {"max_version_level": 0, "upgrade_type": 3}, "Can not delete non-existing"),
        (1, {"max_version_level": 1, "upgrade_type": 0}, "unknown upgrade type"),
        (1, {"max_version_level": 1, "upgrade_type": 4}, "unknown upgrade type"),
        (1, {"max_version_level": 1, "upgrade_type": 4, "feature": ""}, "name can not be empty"),
    ],
)
def test_there_are_no_features_to_update(version: int, asked: dict[str, Any], why: str) -> None:
    """In the words of Kafka 3.9 with ZooKeeper, which Kafka's tools print."""
    key = FeatureUpdateKey(**{"feature": "metadata.version", **asked})
    other = FeatureUpdateKey(feature=key.feature, max_version_level=9)
    request = UpdateFeaturesRequest(feature_updates=[key, other, replace(other, feature="other")])
    read, _ = decode(UpdateFeaturesRequest, version, b"".join(encode(request, version)))
    answer = features.update(broker(), exchange(Api.UPDATE_FEATURES, version), read)
    told = {row.feature: row for row in answer.results}
    assert [*told] == [key.feature, "other"] and len(answer.results) == 2 and answer.error_code == 0
    assert why in (told[key.feature].error_message or "")
    assert {row.error_code for row in answer.results} == {ErrorCode.INVALID_REQUEST}


async def test_topics_are_not_deleted_where_that_is_switched_off() -> None:
    made = broker()
    forwarding(made)
    made.config = config(controller={"delete_topic_enable": False})
    with pytest.raises(TopicDeletionDisabled):
        await topics.delete(
            made, exchange(Api.DELETE_TOPICS, 5), DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        )
    assert made.controller.asked == []

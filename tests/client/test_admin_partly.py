"""Answers of a controller that are good for some topics or partitions, and not for others."""

from typing import Any

import pytest

from strandline.client import Admin, NewTopic, TopicAlreadyExists, TopicPartition, UnknownTopicOrPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, InvalidPartitions, UnsupportedVersion
from strandline.protocol.messages import elections, topics
from strandline.protocol.messages.transactions import ListTransactionsResponse
from tests.client.broker_harness import HANDLERS, SWALLOW, Double

PUT_OFF = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def put_off(double: Double, name: str, code: ErrorCode, asked: list[list[str]]) -> Any:
    """A hook by which the controller does the others, and puts this one off until it is asked again."""

    def hook(broker: Any, api: int, request: Any) -> Any:
        if api == Api.CREATE_TOPICS:
            asked.append([one.name for one in request.topics])
            if len(asked) == 1:
                request.topics = [one for one in request.topics if one.name != name]
                answer = HANDLERS[api](double, broker, request)
                answer.topics.insert(0, topics.CreatableTopicResult(name=name, error_code=code))
                return answer
        if api == Api.DELETE_TOPICS:
            asked.append(list(request.topic_names))
            if len(asked) == 1:
                request.topic_names = [one for one in request.topic_names if one != name]
                answer = HANDLERS[api](double, broker, request)
                answer.responses.insert(0, topics.DeletableTopicResult(name=name, error_code=code))
                return answer
        return None

    return hook


def in_turn(double: Double, asked: int, *answers: Any) -> list[Any]:
    """Requests of this API are answered by these, one after another; returns those that are left."""
    left = list(answers)
    double.hook = lambda broker, api, request: left.pop(0)(broker) if api == asked else None
    return left


@pytest.mark.parametrize("code", PUT_OFF)
def test_a_topic_that_was_there_is_not_said_to_be_made_because_another_took_long(run: Any, code: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("old", 1)
            asked: list[list[str]] = []
            double.hook = put_off(double, "slow", code, asked)
            with pytest.raises(TopicAlreadyExists):
                await admin.create_topics(["slow", NewTopic("old", 7)])
            assert asked == [["slow", "old"], ["slow"]], "all are tried, and none that has its answer again"
            assert "slow" in double.topics

    run(story())


@pytest.mark.parametrize("code", PUT_OFF)
def test_topics_are_made_though_the_controller_puts_some_off(run: Any, code: Any) -> None:
    """Kafka's controllers do as many as their quota lets through (KIP-599)."""

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.hook = put_off(double, "slow", code, [])
            made = await admin.create_topics(["slow", NewTopic("quick", 2)])
            assert [(one.name, one.partitions) for one in made.values()] == [("slow", 1), ("quick", 2)]

    run(story())


@pytest.mark.parametrize("code", PUT_OFF)
def test_a_topic_that_was_missing_is_not_said_to_be_deleted_because_another_took_long(
    run: Any, code: Any
) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("slow", 1)
            double.topic("quick", 1)
            asked: list[list[str]] = []
            double.hook = put_off(double, "slow", code, asked)
            with pytest.raises(UnknownTopicOrPartition):
                await admin.delete_topics(["slow", "quick", "none"])
            assert asked == [["slow", "quick", "none"], ["slow"]]
            assert not double.topics

    run(story())


def test_partitions_are_added_once_though_the_controller_puts_some_off(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            asked: list[list[str]] = []

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.CREATE_PARTITIONS:
                    return None
                asked.append([one.name for one in request.topics])
                later = ErrorCode.THROTTLING_QUOTA_EXCEEDED if len(asked) == 1 else ErrorCode.NONE
                codes = {"a": ErrorCode.NONE, "b": later}
                return topics.CreatePartitionsResponse(
                    results=[
                        topics.CreatePartitionsTopicResult(name=one.name, error_code=codes[one.name])
                        for one in request.topics
                    ]
                )

            double.hook = hook
            await admin.create_partitions({"a": 3, "b": 3})
            assert asked == [["a", "b"], ["b"]], "a has three by now, which is refused as too few"

    run(story())


def test_a_topic_that_was_made_too_late_for_its_answer_counts(run: Any) -> None:
    """The controller has given up waiting, not making it; asked again, it finds the topic."""

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:

            def give_up(broker: Any) -> Any:
                double.topic("t", 1)
                one = topics.CreatableTopicResult(name="t", error_code=ErrorCode.REQUEST_TIMED_OUT)
                return topics.CreateTopicsResponse(topics=[one])

            def refuse(broker: Any) -> Any:
                one = topics.CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
                return topics.CreateTopicsResponse(topics=[one])

            left = in_turn(double, Api.CREATE_TOPICS, give_up, refuse)
            assert set(await admin.create_topics(["t"])) == {"t"}
            assert not left

    run(story())


@pytest.mark.parametrize(("there", "asked"), [(3, 3), (5, 3)])
def test_a_growth_whose_answer_was_lost_counts_if_the_topic_has_as_many(
    run: Any, there: int, asked: int
) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("t", 1)

            def lose(broker: Any) -> Any:
                double.topic("t", there)
                for link in list(broker.links):
                    link.transport.abort()
                return SWALLOW

            def refuse(broker: Any) -> Any:
                one = topics.CreatePartitionsTopicResult(name="t", error_code=ErrorCode.INVALID_PARTITIONS)
                return topics.CreatePartitionsResponse(results=[one])

            left = in_turn(double, Api.CREATE_PARTITIONS, lose, refuse)
            growth = admin.create_partitions({"t": asked})
            if there == asked:
                await growth
            else:
                with pytest.raises(InvalidPartitions):
                    await growth
            assert not left

    run(story())


def test_an_election_is_asked_for_again_if_the_controller_has_moved(run: Any) -> None:
    """Apache Kafka's brokers with ZooKeeper say so of each partition, not of the whole request."""

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:

            def refuse(code: ErrorCode) -> Any:
                one = elections.ElectionPartitionResult(partition_id=0, error_code=code)
                topic = elections.ReplicaElectionResult(topic="t", partition_result=[one])
                return lambda broker: elections.ElectLeadersResponse(replica_election_results=[topic])

            codes = (ErrorCode.NOT_CONTROLLER, ErrorCode.ELECTION_NOT_NEEDED)
            in_turn(double, Api.ELECT_LEADERS, *map(refuse, codes))
            partition = TopicPartition("t", 0)
            told = await admin.elect_leaders(partitions=[partition])
            assert (trouble := told[partition]) is not None and trouble.code == ErrorCode.ELECTION_NOT_NEEDED

    run(story())


def test_a_broker_that_cannot_filter_by_duration_is_told_of_in_place_of_all_transactions(run: Any) -> None:
    """As Apache Kafka's before 3.8: the request has no such field there."""

    async def story() -> None:
        async with Double(1) as double:

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.API_VERSIONS:
                    answer = HANDLERS[api](double, broker, request)
                    for row in answer.api_keys:
                        if row.api_key == Api.LIST_TRANSACTIONS:
                            row.max_version = 0
                    return answer
                return ListTransactionsResponse() if api == Api.LIST_TRANSACTIONS else None

            double.hook = hook
            async with Admin(double.servers) as admin:
                assert await admin.list_transactions() == []
                with pytest.raises(UnsupportedVersion, match="broker 1 does not look how long"):
                    await admin.list_transactions(duration_ms=1000)

    run(story())

"""Requests to consumer groups through their handlers, in every version, and the records that they leave."""

from typing import Any
from uuid import UUID

import pytest

from strandline.broker.groups.consumer.records import read_fact, read_fact_key, stored
from strandline.broker.groups.consumer.state import (
    ClassicTerms,
    Fact,
    MemberState,
    Progress,
    Subject,
    Subscription,
    TopicFacts,
)
from strandline.broker.handlers.groups import consumer_groups
from strandline.broker.metadata.cache import Picture, PicturedTopic
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import group_admin, group_offsets
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from strandline.protocol.primitives import Malformed
from tests.broker.test_group_handlers import HANDLERS, Client, in_every_version, play

T = UUID(int=7)
HANDLERS.update(consumer_groups.HANDLERS)


def topics(client: Client) -> None:
    known = PicturedTopic("t", T, dict.fromkeys(range(2)))  # type: ignore[arg-type]
    client.stage.picture = Picture(topics={"t": known}, names={T: "t"}, is_whole=True)


def joining(version: int, **facts: Any) -> ConsumerGroupHeartbeatRequest:
    whole: dict[str, Any] = {
        "group_id": "g",
        "member_id": "a" if version else "",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**(whole | facts))


def joined(client: Client, version: int, **facts: Any) -> Any:
    topics(client)
    parked = client.send(joining(version, **facts), version)
    assert not parked, "it waits for the log"
    client.stage.commit()
    return parked[0]


@in_every_version(Api.CONSUMER_GROUP_HEARTBEAT)
def test_a_member_joins_lives_and_leaves(version: int) -> None:
    async def story(client: Client) -> None:
        answer = joined(client, version)
        assert answer.member_id == "a" if version else answer.member_id.startswith("member-")
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 5_000)
        all_of_it = [HeartbeatTopicPartitions(topic_id=T, partitions=[0, 1])]
        assert answer.assignment.topic_partitions == all_of_it
        lives = ConsumerGroupHeartbeatRequest(group_id="g", member_id=answer.member_id, member_epoch=1)
        (again,) = client.send(lives, version)
        assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
        wrong = ConsumerGroupHeartbeatRequest(group_id="g", member_id=answer.member_id, member_epoch=5)
        (fenced,) = client.send(wrong, version)
        assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH and "rejoin" in fenced.error_message
        leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=answer.member_id, member_epoch=-1)
        parked = client.send(leaving, version)
        client.stage.commit()
        assert (parked[0].error_code, parked[0].member_epoch) == (0, -1)
        (unknown,) = client.send(lives, version)
        assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


WRONG: tuple[tuple[dict[str, Any], ErrorCode], ...] = (
    ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
    ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
)


@pytest.mark.parametrize("facts, code", WRONG)
def test_what_makes_no_sense_is_refused(facts: dict[str, Any], code: ErrorCode) -> None:
    async def story(client: Client) -> None:
        (answer,) = client.send(joining(1, **facts), 1)
        assert answer.error_code == code and answer.error_message

    play(story)


@in_every_version(Api.CONSUMER_GROUP_DESCRIBE)
def test_groups_are_described(version: int) -> None:
    async def story(client: Client) -> None:
        joined(client, 1, instance_id="s1", rack_id="r", subscribed_topic_regex="t.*")
        request = ConsumerGroupDescribeRequest(group_ids=["g", "x"], include_authorized_operations=True)
        (answer,) = client.send(request, version)
        found, missing = answer.groups
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
        assert found.assignor_name == "uniform" and found.authorized_operations > 0
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == (
            "a",
            "s1",
            "r",
            1,
        )
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "t.*")
        assert member.member_type == (1 if version else -1)
        (has,) = member.assignment.topic_partitions
        assert (has.topic_id, has.topic_name, has.partitions) == (T, "t", [0, 1])
        assert member.target_assignment == member.assignment
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(story)


def test_tools_of_the_classic_protocol_see_it_as_kafkas_do() -> None:
    async def story(client: Client) -> None:
        joined(client, 1)
        (described,) = client.send(group_admin.DescribeGroupsRequest(groups=["g"]), 5)
        assert described.groups[0].group_state == "Dead", "so they ask with ConsumerGroupDescribe"
        (listed,) = client.send(group_admin.ListGroupsRequest(types_filter=["Consumer"]), 5)
        (group,) = listed.groups
        assert (group.group_type, group.protocol_type, group.group_state) == (
            "consumer",
            "consumer",
            "Stable",
        )
        (none,) = client.send(group_admin.ListGroupsRequest(types_filter=["classic"]), 5)
        assert not none.groups

    play(story)


def test_offsets_are_for_members_with_their_newest_epoch() -> None:
    async def story(client: Client) -> None:
        joined(client, 1)

        def commit(version: int, epoch: int) -> int:
            partition = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            topic = group_offsets.OffsetCommitRequestTopic(name="t", partitions=[partition])
            request = group_offsets.OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=epoch, member_id="a", topics=[topic]
            )
            parked = client.send(request, version)
            client.stage.commit()
            return int(parked[0].topics[0].partitions[0].error_code)

        def fetch(member_id: str | None, epoch: int) -> int:
            group = group_offsets.OffsetFetchRequestGroup(
                group_id="g", member_id=member_id, member_epoch=epoch
            )
            (answer,) = client.send(group_offsets.OffsetFetchRequest(groups=[group]), 9)
            return int(answer.groups[0].error_code)

        assert commit(9, 1) == 0 and commit(9, 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert commit(8, 1) == ErrorCode.UNSUPPORTED_VERSION, "it cannot know of epochs"
        assert fetch("a", 1) == fetch(None, -1) == 0
        assert fetch("a", 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_the_protocol_can_be_switched_off() -> None:
    async def story(client: Client) -> None:
        groups = client.stage.groups
        groups.config = groups.config.model_copy(update={"rebalance_protocols": "classic"})
        (answer,) = client.send(joining(1), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (described,) = client.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION

    play(story)


WHOLE = Subscription(
    instance_id="s1",
    rack_id="r",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=30_000,
    topics=frozenset({"t", "u"}),
    regex="t.*",
    assignor="range",
    classic=ClassicTerms(10_000, (("range", b"m"),)),
)
FACTS = (
    Fact(Subject.EPOCH, "", 4),
    Fact(Subject.TOPICS, "", {"t": TopicFacts(T, 3)}),
    Fact(Subject.SUBSCRIPTION, "a", WHOLE),
    Fact(Subject.SUBSCRIPTION, "a", Subscription()),
    Fact(Subject.TARGET_EPOCH, "", 3),
    Fact(Subject.TARGET, "a", frozenset({(T, 1), (T, 0)})),
    Fact(
        Subject.PROGRESS,
        "a",
        Progress(4, 3, MemberState.UNREVOKED, frozenset({(T, 1)}), frozenset({(T, 0)})),
    ),
)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.subject.name.lower())
def test_a_fact_is_read_back_from_its_record(fact: Fact) -> None:
    key, value = stored("g", fact)
    found = read_fact_key(key)
    assert found is not None and value is not None
    assert (found.group, found.subject, found.member_id) == ("g", fact.subject, fact.member_id)
    assert read_fact(fact.subject, value) == fact.value
    assert stored("g", fact._replace(value=None)) == (key, None)
    for end in range(len(value)):
        with pytest.raises(Malformed):
            read_fact(fact.subject, value[:end])


def test_records_are_kafkas_byte_by_byte() -> None:
    """Written by hand from ConsumerGroup*Key.json and *Value.json of Kafka 4.0."""
    topic = T.bytes
    assert stored("g", FACTS[0]) == (b"\0\3\0\1g", b"\0\0\0\0\0\4\0")
    assert stored("g", FACTS[1]) == (b"\0\4\0\1g", b"\0\0\2" + topic + b"\2t\0\0\0\3\1\0\0")
    assert stored("g", FACTS[2]) == (
        b"\0\5\0\1g\0\1a",
        b"\0\0\3s1\2r\2c\3/h\3\2t\2u\4t.*\0\0\x75\x30\6range"
        # a tag buffer of one: tag 0, its length, the struct is there, session timeout, one protocol
        b"\1\0\x10\1\0\0\x27\x10\2\6range\2m\0\0",
    )
    assert stored("g", FACTS[4]) == (b"\0\6\0\1g", b"\0\0\0\0\0\3\0")
    two = b"\2" + topic + b"\3\0\0\0\0\0\0\0\1\0"
    assert stored("g", FACTS[5]) == (b"\0\7\0\1g\0\1a", b"\0\0" + two + b"\0")
    one, zero = (b"\2" + topic + b"\2\0\0\0" + number + b"\0" for number in (b"\1", b"\0"))
    assert stored("g", FACTS[6]) == (
        b"\0\x08\0\1g\0\1a",
        b"\0\0\0\0\0\4\0\0\0\3\1" + one + zero + b"\0",
    )

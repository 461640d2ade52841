"""Group requests through their handlers, in every version, from decoded request to encoded answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import iscoroutine
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups.offsets import GroupOffset
from strandline.broker.groups.transactional_commits import Producer
from strandline.broker.handlers.groups import (
    admin,
    coordinators,
    membership,
    offset_deletion,
    offsets,
    transactional_offsets,
)
from strandline.broker.metadata.cache import Address, LiveBroker, Picture, PicturedTopic
from strandline.broker.network.exchange import Exchange, Listener
from strandline.broker.replicas.verification_guards import Guard
from strandline.protocol.apis import APIS, Api, response_header_version
from strandline.protocol.error_codes import ApiError, error_for
from strandline.protocol.errors import ErrorCode, NotCoordinator
from strandline.protocol.messages import group_admin, group_offsets
from strandline.protocol.messages import groups as members
from strandline.protocol.messages.control import UpdateMetadataPartitionState
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.schema import decode, encode
from tests.broker.cluster_harness import TellsAtOnce
from tests.broker.group_harness import SIMPLE, Stage

HANDLERS = {
    api: entry
    for file in (membership, admin, coordinators, offsets, offset_deletion, transactional_offsets)
    for api, entry in file.HANDLERS.items()
}


def topic(name: str, leader: int = 1) -> PicturedTopic:
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=1,
        isr=[leader],
        zk_version=0,
        replicas=[leader],
    )
    return PicturedTopic(name, NO_UUID, {0: state})


def picture(*topics: PicturedTopic) -> Picture:
    return Picture(
        brokers={1: LiveBroker(1, {"CLIENT": Address("127.0.0.1", 9092)})}, topics={t.name: t for t in topics}
    )


class Client:
    """Sends requests straight to the handlers, by way of their bytes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client_id = "me"
        self.replicas: dict[TopicPartition, Any] = {}
        self.picture = picture(topic("__consumer_offsets"), topic("t"))

    def broker(self) -> Any:
        groups = self.stage.groups
        return SimpleNamespace(
            groups=groups,
            metadata=self.picture,
            held=TellsAtOnce(),
            config=SimpleNamespace(groups=groups.config),
            replicas=SimpleNamespace(find=self.replicas.get),
        )

    def send(self, request: Any, version: int) -> list[Any]:
        """The list holds the answer once there is one."""
        api = next(api for api in HANDLERS if APIS[api].request is type(request))
        answers: list[Any] = []
        channel = SimpleNamespace(
            peer="127.0.0.1:5000",
            answered=lambda exchange: answers.append(_read(api, version, exchange.parts)),
        )
        listener = Listener("CLIENT", False)
        exchange = Exchange(channel, listener, api, version, 1, self.client_id)  # type: ignore[arg-type]
        broker, entry = self.broker(), HANDLERS[api]
        body, _ = decode(type(request), version, b"".join(encode(request, version)))
        try:
            answer = entry.handle(broker, exchange, body)
            if iscoroutine(answer):
                answer = at_once(answer)
        except ApiError as error:
            answer = entry.refuse(body, error)
        if answer is not None:
            exchange.answer(answer)
        return answers


def at_once(answering: Any) -> Any:
    """What it answers without waiting for anything."""
    try:
        answering.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


def _read(api: Api, version: int, parts: Any) -> Any:
    frame = b"".join(parts)
    body_at = 4 + 4 + response_header_version(api, version)
    answer, end = decode(APIS[api].response, version, frame, body_at)
    assert end == len(frame)
    return answer


def in_every_version(api: Api) -> Any:
    return pytest.mark.parametrize("version", sorted(APIS[api].served), ids=lambda version: f"v{version}")


def play(story: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = await Stage().lead()
        await story(Client(stage))
        await stage.groups.stop()

    asyncio.run(run())


def join(client: Client, version: int, member_id: str = "") -> Any:
    request = members.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000 if version >= 1 else -1,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[members.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    (answer,) = client.send(request, version)
    return answer


def admit(client: Client, version: int = 9) -> str:
    """Join, with a second round where an id is given first; then sync."""
    answer = join(client, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        answer = join(client, version, answer.member_id)
    assert answer.error_code == 0 and answer.leader == answer.member_id and answer.generation_id == 1
    assert [each.metadata for each in answer.members] == [b"m"]
    assert answer.protocol_name == "range"
    assert version < 7 or answer.protocol_type == "consumer"
    return str(answer.member_id)


def sync(client: Client, member_id: str, version: int = 5) -> Any:
    given = [members.SyncGroupRequestAssignment(member_id=member_id, assignment=b"p0")]
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    request = members.SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member_id, assignments=given, **names
    )
    parked = client.send(request, version)
    assert parked == []
    client.stage.commit()
    return parked[0]


@in_every_version(Api.JOIN_GROUP)
def test_a_member_with_the_longest_client_id_joins(version: int) -> None:
    """Its member id is longer than its client id, and must fit in a string all the same."""

    async def story(client: Client) -> None:
        client.client_id = "c" * 32_767
        assert admit(client, version).startswith("ccc")

    play(story)


@in_every_version(Api.JOIN_GROUP)
def test_join(version: int) -> None:
    async def story(client: Client) -> None:
        assert admit(client, version).startswith("me-")
        held = client.stage.groups.find("g")
        assert held is not None
        (member,) = held.group.members
        assert member.rebalance_timeout_ms == (20_000 if version else 10_000)
        assert member.client_host == "/127.0.0.1"

    play(story)


@in_every_version(Api.SYNC_GROUP)
def test_sync(version: int) -> None:
    async def story(client: Client) -> None:
        assert sync(client, admit(client), version).assignment == b"p0"

    play(story)


@pytest.mark.parametrize("names", [{}, {"protocol_type": "consumer"}, {"protocol_name": "range"}])
def test_a_sync_names_its_protocol_since_it_can(names: dict[str, str]) -> None:
    async def story(client: Client) -> None:
        member_id = admit(client)
        request = members.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, **names)
        (answer,) = client.send(request, 5)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play(story)


@in_every_version(Api.HEARTBEAT)
def test_heartbeat(version: int) -> None:
    async def story(client: Client) -> None:
        member_id = admit(client)
        for generation, code in ((1, 0), (0, 22)):
            request = members.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
            assert client.send(request, version)[0].error_code == code

    play(story)


@in_every_version(Api.LEAVE_GROUP)
def test_leave(version: int) -> None:
    async def story(client: Client) -> None:
        for member_id, code in ((admit(client), 0), ("nobody", 25)):
            leaving = [members.MemberIdentity(member_id=member_id)]
            request = members.LeaveGroupRequest(
                group_id="g", **({"members": leaving} if version >= 3 else {"member_id": member_id})
            )
            (answer,) = client.send(request, version)
            assert (answer.members[0].error_code if version >= 3 else answer.error_code) == code

    play(story)


def commit(client: Client, version: int, *notes: tuple[str, str]) -> Any:
    topics = [
        group_offsets.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                group_offsets.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=7, committed_metadata=note, **_epoch(version)
                )
            ],
        )
        for name, note in notes
    ]
    parked = client.send(group_offsets.OffsetCommitRequest(group_id="g", topics=topics), version)
    client.stage.commit()
    return [partition.error_code for each in parked[0].topics for partition in each.partitions]


def _epoch(version: int) -> dict[str, int]:
    return {"committed_leader_epoch": 4} if version >= 6 else {}


@in_every_version(Api.OFFSET_COMMIT)
def test_commit(version: int) -> None:
    async def story(client: Client) -> None:
        assert commit(client, version, ("t", "note"), ("unknown", "")) == [0, 3]
        assert commit(client, version, ("t", "x" * 4097)) == [12]
        (committed,) = client.stage.groups.find("g").offsets.by_topic()["t"]  # type: ignore[union-attr]
        assert (committed[1].offset, committed[1].metadata) == (7, "note")
        assert committed[1].leader_epoch == (4 if version >= 6 else -1)

    play(story)


@pytest.mark.parametrize("version", (2, 3, 4))
def test_no_retention_is_longer_than_a_record_can_say(version: int) -> None:
    async def story(client: Client) -> None:
        place = group_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = group_offsets.OffsetCommitRequestTopic(name="t", partitions=[place])
        longest = (1 << 63) - 1
        request = group_offsets.OffsetCommitRequest(group_id="g", retention_time_ms=longest, topics=[topic])
        client.send(request, version)
        client.stage.commit()
        (committed,) = client.stage.groups.find("g").offsets.by_topic()["t"]  # type: ignore[union-attr]
        assert committed[1].expire_ms == longest

    play(story)


def asked(version: int, group: str, topics: list[str] | None) -> group_offsets.OffsetFetchRequest:
    if version >= 8:
        wanted = (
            None
            if topics is None
            else [
                group_offsets.OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in topics
            ]
        )
        return group_offsets.OffsetFetchRequest(
            groups=[group_offsets.OffsetFetchRequestGroup(group_id=group, topics=wanted)]
        )
    old = (
        None
        if topics is None
        else [group_offsets.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics]
    )
    return group_offsets.OffsetFetchRequest(group_id=group, topics=old)


@in_every_version(Api.OFFSET_FETCH)
def test_fetch(version: int) -> None:
    async def story(client: Client) -> None:
        commit(client, 9, ("t", "note"))
        for group, first in (("g", (7, "note")), ("nobody", (-1, ""))):
            (answer,) = client.send(asked(version, group, ["t"]), version)
            (found,) = (answer.groups[0] if version >= 8 else answer).topics
            told = [(each.committed_offset, each.metadata, each.error_code) for each in found.partitions]
            assert told == [(*first, 0), (-1, "", 0)]
        if version >= 2:
            (answer,) = client.send(asked(version, "g", None), version)
            (found,) = (answer.groups[0] if version >= 8 else answer).topics
            assert [each.committed_offset for each in found.partitions] == [7]
        client.stage.groups.on_resigned(client.stage.log.partition)
        (answer,) = client.send(asked(version, "g", ["t"]), version)
        if version >= 8:
            assert answer.groups[0].error_code == 16
        else:
            assert answer.topics[0].partitions[0].error_code == 16
            assert version < 2 or answer.error_code == 16

    play(story)


@pytest.mark.parametrize("version", [7, 8])
def test_a_coordinator_in_doubt_tells_no_offsets_until_it_is_sure(version: int) -> None:
    """Another broker may have taken newer ones: those of a moment ago would make consumers read again."""

    async def story(client: Client) -> None:
        commit(client, 9, ("t", ""))
        fetch, exchange = HANDLERS[Api.OFFSET_FETCH].handle, SimpleNamespace(version=version)
        shared = SimpleNamespace(loop=asyncio.get_running_loop())
        doubtful = SimpleNamespace(is_in_doubt=True, changing=False, leading=None, shared=shared)
        client.replicas[client.stage.log.partition] = doubtful
        with pytest.raises(NotCoordinator):
            await fetch(client.broker(), exchange, asked(version, "g", ["t"]))
        doubtful.is_in_doubt, doubtful.changing = False, True
        with pytest.raises(NotCoordinator):  # amid a change of roles: another one may have led for long
            await fetch(client.broker(), exchange, asked(version, "g", ["t"]))
        doubtful.changing = False
        answer = await fetch(client.broker(), exchange, asked(version, "g", ["t"]))
        (found,) = (answer.groups[0] if version >= 8 else answer).topics
        assert found.partitions[0].committed_offset == 7

    play(story)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_fetch_of_stable_offsets_is_told_which_are_not(version: int) -> None:
    async def story(client: Client) -> None:
        commit(client, 9, ("t", ""))
        pending = {TopicPartition("t", 1): GroupOffset(8, -1, "", -1)}

        def told(topics: list[str] | None, stable: bool) -> list[tuple[int, int, int]]:
            request = replace(asked(version, "g", topics), require_stable=stable)
            (answer,) = client.send(request, version)
            (found,) = (answer.groups[0] if version >= 8 else answer).topics
            return [
                (each.partition_index, each.committed_offset, each.error_code) for each in found.partitions
            ]

        client.stage.groups.commit_in_transaction("g", SIMPLE, Producer("tx", 1, 0), pending, lambda _: None)
        client.stage.commit()
        assert told(["t"], stable=True) == [(0, 7, 0), (1, -1, 88)]
        assert told(["t"], stable=False) == [(0, 7, 0), (1, -1, 0)]
        assert told(None, stable=True) == [(0, 7, 0)], "as Kafka: of all that were ever committed"
        client.stage.end_transaction(1, committed=True)
        client.stage.commit()
        assert told(["t"], stable=True) == [(0, 7, 0), (1, 8, 0)]
        client.stage.groups.commit_in_transaction("g", SIMPLE, Producer("tx", 1, 0), pending, lambda _: None)
        client.stage.groups.commit(
            "g", SIMPLE, {TopicPartition("t", 0): pending[TopicPartition("t", 1)]}, lambda _: None
        )
        assert told(None, stable=True) == [(0, -1, 88), (1, -1, 88)], "one is on its way to the log"
        assert told(None, stable=False) == [(0, 7, 0), (1, 8, 0)]

    play(story)


@in_every_version(Api.FIND_COORDINATOR)
def test_find_coordinator(version: int) -> None:
    async def story(client: Client) -> None:
        names = {"coordinator_keys": ["g", "h"]} if version >= 4 else {"key": "g"}
        request = members.FindCoordinatorRequest(**names)  # type: ignore[arg-type]

        def found() -> list[tuple[int, int, str, int]]:
            (answer,) = client.send(request, version)
            rows = answer.coordinators if version >= 4 else [answer]
            assert version < 4 or [row.key for row in rows] == ["g", "h"]
            return [(row.error_code, row.node_id, row.host, row.port) for row in rows]

        count = 2 if version >= 4 else 1
        assert found() == [(0, 1, "127.0.0.1", 9092)] * count
        client.picture = picture(topic("__consumer_offsets", leader=-1))
        assert found() == [(15, -1, "", -1)] * count
        client.picture = picture()
        assert found() == [(15, -1, "", -1)] * count
        await asyncio.sleep(0)
        assert client.stage.created == [], "three replicas, and nobody to hold them"
        (answer,) = client.send(request, version)
        told = (answer.coordinators[0] if version >= 4 else answer).error_message
        assert version < 1 or "offsets.topic.replication.factor" in (told or "")
        client.stage.picture = Picture({each: LiveBroker(each, {}) for each in (1, 2, 3)})
        assert found() == [(15, -1, "", -1)] * count
        await asyncio.sleep(0)
        assert len(client.stage.created) == 1

    play(story)


@in_every_version(Api.DESCRIBE_GROUPS)
def test_describe(version: int) -> None:
    async def story(client: Client) -> None:
        member_id = admit(client)
        sync(client, member_id)
        (answer,) = client.send(group_admin.DescribeGroupsRequest(groups=["g", "nobody", ""]), version)
        one, nobody, nameless = answer.groups
        assert (one.group_state, one.protocol_type, one.protocol_data) == ("Stable", "consumer", "range")
        (member,) = one.members
        assert (member.member_id, member.member_metadata, member.member_assignment) == (
            member_id,
            b"m",
            b"p0",
        )
        assert (nobody.error_code, nobody.group_state) == (0, "Dead")
        assert (nameless.error_code, nameless.group_state) == (0, "Dead"), "a simple consumer's may exist"
        assert {each.authorized_operations for each in answer.groups} == {-(1 << 31)}, "nobody asked"
        if version >= 3:
            request = group_admin.DescribeGroupsRequest(groups=["g", "x"], include_authorized_operations=True)
            (answer,) = client.send(request, version)
            assert [each.authorized_operations for each in answer.groups] == [1 << 3 | 1 << 6 | 1 << 8] * 2

    play(story)


@in_every_version(Api.LIST_GROUPS)
def test_list(version: int) -> None:
    async def story(client: Client) -> None:
        admit(client)
        (answer,) = client.send(group_admin.ListGroupsRequest(), version)
        assert [(each.group_id, each.protocol_type) for each in answer.groups] == [("g", "consumer")]
        if version >= 4:
            (answer,) = client.send(group_admin.ListGroupsRequest(states_filter=["Empty"]), version)
            assert answer.groups == []
        if version >= 5:
            for kinds, told in (([], ["classic"]), (["Classic"], ["classic"]), (["consumer"], [])):
                (answer,) = client.send(group_admin.ListGroupsRequest(types_filter=kinds), version)
                assert [each.group_type for each in answer.groups] == told

    play(story)


@in_every_version(Api.DELETE_GROUPS)
def test_delete(version: int) -> None:
    async def story(client: Client) -> None:
        commit(client, 9, ("t", ""))
        parked = client.send(group_admin.DeleteGroupsRequest(groups_names=["g", "nobody", "", "g"]), version)
        assert parked == []
        client.stage.commit()
        assert [each.error_code for each in parked[0].results] == [0, 69, 69, 0]
        assert client.stage.groups.find("g") is None
        (answer,) = client.send(group_admin.DeleteGroupsRequest(groups_names=[]), version)
        assert answer.results == []

    play(story)


def txn_commit(*notes: tuple[str, str], group: str = "g") -> group_offsets.TxnOffsetCommitRequest:
    topics = [
        group_offsets.TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                group_offsets.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=9, committed_metadata=note
                )
            ],
        )
        for name, note in notes
    ]
    return group_offsets.TxnOffsetCommitRequest(
        transactional_id="tx", group_id=group, producer_id=1, producer_epoch=0, topics=topics
    )


def txn_errors(answer: Any) -> list[int]:
    return [partition.error_code for each in answer.topics for partition in each.partitions]


@in_every_version(Api.TXN_OFFSET_COMMIT)
def test_txn_commit(version: int) -> None:
    async def story(client: Client) -> None:
        parked = client.send(txn_commit(("t", "note"), ("unknown", "")), version)
        assert parked == [], "until the log has it"
        client.stage.commit()
        assert txn_errors(parked[0]) == [0, 3]
        assert txn_errors(*client.send(txn_commit(("t", "x" * 4097)), version)) == [12]
        client.stage.end_transaction(1, committed=True)
        client.stage.commit()
        (committed,) = client.stage.groups.find("g").offsets.by_topic()["t"]  # type: ignore[union-attr]
        assert (committed[1].offset, committed[1].metadata) == (9, "note")
        assert txn_errors(*client.send(txn_commit(("t", ""), group=""), version)) == [24]
        client.stage.groups.on_resigned(client.stage.log.partition)
        assert txn_errors(*client.send(txn_commit(("t", "")), version)) == [16]

    play(story)


@in_every_version(Api.TXN_OFFSET_COMMIT)
def test_errors_of_a_txn_commit_are_what_its_version_understands(version: int) -> None:
    async def story(client: Client) -> None:
        client.stage.partition.guard = Guard(0, -1)
        for code, hears in ((48, 120 if version >= 4 else 48), (15, 14 if version >= 2 else 15), (47, 47)):
            parked = client.send(txn_commit(("t", "")), version)
            client.stage.verdict.set_result({client.stage.log.partition: ErrorCode(code)})
            await asyncio.sleep(0)
            assert txn_errors(parked[0]) == [hears]
        client.stage.groups.on_resigned(client.stage.log.partition)
        client.stage.groups.on_leading(client.stage.partition)  # and reads the log
        assert txn_errors(*client.send(txn_commit(("t", "")), version)) == [14 if version >= 2 else 15]

    play(story)


def offset_delete(*topics: str, group: str = "g") -> group_offsets.OffsetDeleteRequest:
    places = [group_offsets.OffsetDeleteRequestPartition(partition_index=0)]
    return group_offsets.OffsetDeleteRequest(
        group_id=group,
        topics=[group_offsets.OffsetDeleteRequestTopic(name=name, partitions=places) for name in topics],
    )


@in_every_version(Api.OFFSET_DELETE)
def test_offset_delete(version: int) -> None:
    async def story(client: Client) -> None:
        client.picture = picture(topic("__consumer_offsets"), topic("t"), topic("u"))
        commit(client, 9, ("t", ""), ("u", ""))
        parked = client.send(offset_delete("t", "gone"), version)
        assert parked == [], "until the tombstone is committed"
        client.stage.commit()
        assert parked[0].error_code == 0
        assert [(each.name, each.partitions[0].error_code) for each in parked[0].topics] == [
            ("t", 0),
            ("gone", 3),
        ]
        held = client.stage.groups.find("g")
        assert held is not None and [tp.topic for tp in held.offsets] == ["u"]
        for group, code in (("nobody", 69), ("", 24)):
            (answer,) = client.send(offset_delete("t", "gone", group=group), version)
            assert (answer.error_code, answer.topics) == (code, [])

    play(story)


def requests(version: int) -> dict[Api, Any]:
    """A small request of each kind."""
    commit_topic = group_offsets.OffsetCommitRequestTopic(name="t", partitions=[])
    return {
        Api.OFFSET_COMMIT: group_offsets.OffsetCommitRequest(group_id="g", topics=[commit_topic]),
        Api.OFFSET_FETCH: asked(version, "g", ["t"]),
        Api.FIND_COORDINATOR: members.FindCoordinatorRequest(coordinator_keys=["g"]),
        Api.JOIN_GROUP: members.JoinGroupRequest(
            group_id="g", session_timeout_ms=1, member_id="m", protocol_type="c", protocols=[]
        ),
        Api.SYNC_GROUP: members.SyncGroupRequest(group_id="g", generation_id=1, member_id="m"),
        Api.HEARTBEAT: members.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        Api.LEAVE_GROUP: members.LeaveGroupRequest(group_id="g"),
        Api.DESCRIBE_GROUPS: group_admin.DescribeGroupsRequest(groups=["g"]),
        Api.LIST_GROUPS: group_admin.ListGroupsRequest(),
        Api.DELETE_GROUPS: group_admin.DeleteGroupsRequest(groups_names=["g"]),
        Api.OFFSET_DELETE: offset_delete("t"),
        Api.TXN_OFFSET_COMMIT: txn_commit(("t", "")),
    }


@pytest.mark.parametrize("api", sorted(HANDLERS), ids=lambda api: api.name)
def test_every_refusal_can_be_encoded(api: Api) -> None:
    for version in APIS[api].served:
        encode(HANDLERS[api].refuse(requests(version)[api], error_for(15)), version)

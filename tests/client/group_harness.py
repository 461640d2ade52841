"""A group coordinator for the cluster double: joins complete when all members came, or a moment later."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from strandline.base.types import TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import group_offsets, groups

JOIN_SECONDS = 2.0  # a member that has not come by then is gone; one that only stood still is not


@dataclass
class Group:
    """One group's members and generation."""

    generation: int = 0
    members: dict[str, Any] = field(default_factory=dict)  # member id -> its last join request
    joining: dict[str, "asyncio.Future[Any]"] = field(default_factory=dict)
    syncing: dict[str, "asyncio.Future[Any]"] = field(default_factory=dict)
    assignments: dict[str, bytes] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    births: int = 0
    offsets: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)  # of what is before them


class Groups:
    """All groups. `lose(group)` forgets its members, as a coordinator does whose log was lost."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def lose(self, name: str) -> None:
        self.group(name).members.clear()

    async def answer(self, api: int, request: Any) -> Any:
        group = self.group(request.group_id)
        if api == Api.JOIN_GROUP:
            return await self.join(group, request)
        if api == Api.SYNC_GROUP:
            return await self.sync(group, request)
        if api == Api.HEARTBEAT:
            return groups.HeartbeatResponse(error_code=self.check(group, request))
        if api == Api.LEAVE_GROUP:
            return self.leave(group, request)
        if api == Api.OFFSET_COMMIT:
            return self.commit(group, request)
        if api == Api.OFFSET_DELETE:
            return self.delete(group, request)
        assert api == Api.OFFSET_FETCH, f"the double does not know {Api(api).name}"
        return self.fetch(group, request)

    def check(self, group: Group, request: Any) -> int:
        if request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if group.timer is not None else 0

    async def join(self, group: Group, request: Any) -> Any:
        member = request.member_id
        if not member:
            group.births += 1
            member = f"member-{group.births}"
            group.members[member] = None
            return groups.JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, leader="", member_id=member, protocol_name=""
            )
        if member not in group.members:
            return groups.JoinGroupResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, leader="", member_id=member, protocol_name=""
            )
        group.members[member] = request
        future = group.joining[member] = asyncio.get_running_loop().create_future()
        self.rebalance(group)
        return await future

    def rebalance(self, group: Group) -> None:
        if group.timer is None:
            group.timer = asyncio.get_running_loop().call_later(JOIN_SECONDS, self.complete, group)
        if set(group.joining) == set(group.members):
            group.timer.cancel()
            self.complete(group)

    def complete(self, group: Group) -> None:
        group.timer = None
        group.members = {member: group.members[member] for member in group.joining}
        group.generation += 1
        group.assignments = {}
        joining, group.joining = group.joining, {}
        common = (
            [
                one.name
                for one in next(iter(group.members.values())).protocols
                if all(one.name in [p.name for p in other.protocols] for other in group.members.values())
            ]
            if joining
            else []
        )
        leader = min(joining, default="")
        for member, future in joining.items():
            listed = [
                groups.JoinGroupResponseMember(
                    member_id=name, metadata=next(p.metadata for p in one.protocols if p.name == common[0])
                )
                for name, one in group.members.items()
            ]
            future.set_result(
                groups.JoinGroupResponse(
                    generation_id=group.generation,
                    protocol_type="consumer",
                    protocol_name=common[0],
                    leader=leader,
                    member_id=member,
                    members=listed if member == leader else [],
                )
            )

    async def sync(self, group: Group, request: Any) -> Any:
        if code := self.check(group, request):
            return groups.SyncGroupResponse(error_code=code)
        if request.assignments:
            group.assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}
            waiting, group.syncing = group.syncing, {}
            for member, future in waiting.items():
                if not future.done():
                    future.set_result(group.assignments.get(member, b""))
        if not group.assignments:
            future = group.syncing[request.member_id] = asyncio.get_running_loop().create_future()
            await future
        given = group.assignments.get(request.member_id, b"")
        return groups.SyncGroupResponse(
            protocol_type="consumer", protocol_name=request.protocol_name, assignment=given
        )

    def leave(self, group: Group, request: Any) -> Any:
        told = []
        for one in request.members:
            known = [
                member
                for member, joined in group.members.items()
                if member == one.member_id
                or (one.group_instance_id and joined and joined.group_instance_id == one.group_instance_id)
            ]
            for member in known:
                del group.members[member]
            told.append(
                groups.MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    error_code=0 if known else ErrorCode.UNKNOWN_MEMBER_ID,
                )
            )
        self.rebalance(group)
        return groups.LeaveGroupResponse(members=told)

    def delete(self, group: Group, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                known = group.offsets.pop(place, None) is not None
                code = 0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                parts.append(
                    group_offsets.OffsetDeleteResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
            topics.append(group_offsets.OffsetDeleteResponseTopic(name=topic.name, partitions=parts))
        return group_offsets.OffsetDeleteResponse(topics=topics)

    def commit(self, group: Group, request: Any) -> Any:
        code = 0
        generation = request.generation_id_or_member_epoch
        if generation >= 0 and (request.member_id not in group.members or generation != group.generation):
            code = ErrorCode.ILLEGAL_GENERATION
        answered = []
        for topic in request.topics:
            parts = []
            for one in topic.partitions:
                if not code:
                    name = TopicPartition(topic.name, one.partition_index)
                    group.offsets[name] = (one.committed_offset, one.committed_metadata or "")
                    group.epochs[name] = one.committed_leader_epoch
                parts.append(
                    group_offsets.OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
            answered.append(group_offsets.OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return group_offsets.OffsetCommitResponse(topics=answered)

    def fetch(self, group: Group, request: Any) -> Any:
        if request.topics is None:
            asked = sorted(group.offsets)
        else:
            asked = [TopicPartition(t.name, index) for t in request.topics for index in t.partition_indexes]
        topics: dict[str, list[Any]] = {}
        for one in asked:
            offset, note = group.offsets.get(one, (-1, ""))
            part = group_offsets.OffsetFetchResponsePartition(
                partition_index=one.partition,
                committed_offset=offset,
                committed_leader_epoch=group.epochs.get(one, -1),
                metadata=note,
            )
            topics.setdefault(one.topic, []).append(part)
        return group_offsets.OffsetFetchResponse(
            topics=[
                group_offsets.OffsetFetchResponseTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ]
        )

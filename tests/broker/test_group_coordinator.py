"""The group coordinator over a log in memory: what is written, what a successor reads, what is forgotten."""

import asyncio

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.config.sections import GroupsConfig
from strandline.broker.groups.offset_records import offset_key
from strandline.broker.groups.offsets import GroupOffset
from strandline.broker.groups.state import GroupState
from strandline.broker.metadata.cache import LiveBroker, Picture
from strandline.protocol.errors import CoordinatorLoadInProgress, ErrorCode, InvalidGroupId, NotCoordinator
from strandline.protocol.records import BatchBuilder
from tests.broker.group_harness import SIMPLE, TP, Partition, Stage, plays

T0 = TopicPartition("t", 0)


def at(offset: int, note: str = "", ms: int = 1_700_000_000_000) -> GroupOffset:
    return GroupOffset(offset=offset, leader_epoch=3, metadata=note, commit_ms=ms)


def commit(
    stage: Stage, committed: GroupOffset, member: tuple[str, str | None, int] = SIMPLE
) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    stage.groups.commit("g", member, {T0: committed}, told.append)
    return told


def fetched(stage: Stage) -> GroupOffset | None:
    held = stage.groups.find("g")
    return held.offsets.get(T0) if held is not None else None


async def stable(stage: Stage) -> str:
    """One member in generation 1, its assignment written. Returns its id."""
    (joined,) = stage.join("a")
    synced = stage.sync(joined.member_id, 1)
    assert not synced, "nobody is told before the log has it"
    stage.commit()
    assert synced[0].assignment == b"p0"
    return joined.member_id


@plays
async def test_a_commit_counts_when_its_record_is_committed(stage: Stage) -> None:
    told = commit(stage, at(7, "note"))
    assert told == [] and fetched(stage) is None
    stage.commit()
    assert told == [ErrorCode.NONE] and fetched(stage) == at(7, "note")


@plays
async def test_a_commit_of_nothing_makes_no_group(stage: Stage) -> None:
    told: list[ErrorCode] = []
    stage.groups.commit("g", SIMPLE, {}, told.append)
    stage.groups.commit("g", ("a", None, 1), {}, told.append)
    assert told == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION] and stage.groups.all_groups() == []


@plays
async def test_a_later_record_wins_over_a_later_acknowledgement(stage: Stage) -> None:
    commit(stage, at(7))
    commit(stage, at(8))
    stage.waiting.reverse()
    stage.commit()
    assert fetched(stage) == at(8)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_failures_to_write_are_told_as_kafka_tells_them(failure: ErrorCode, told: ErrorCode) -> None:
    @plays
    async def story(stage: Stage) -> None:
        answers = commit(stage, at(7))
        stage.commit(failure)
        assert answers == [told] and fetched(stage) is None

    story()


@plays
async def test_a_commit_that_is_late_counts_once_it_is_committed_as_after_a_reload(stage: Stage) -> None:
    commit(stage, at(7))
    stage.commit()
    commit(stage, at(8))
    late = commit(stage, at(9))
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert late == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert fetched(stage) == at(7), "what is not committed may yet be lost"
    stage.commit()
    assert fetched(stage) == at(9) == fetched(await stage.successor())
    assert stage.groups.counts.offsets_committed == 1


@plays
async def test_a_later_commit_wins_over_one_that_was_late(stage: Stage) -> None:
    commit(stage, at(8))
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    commit(stage, at(9))
    stage.commit()
    assert fetched(stage) == at(9) == fetched(await stage.successor())


@plays
async def test_late_commits_of_a_group_are_as_many_as_its_partitions_and_each_counts_in_turn(
    stage: Stage,
) -> None:
    """A follower hangs, or ZooKeeper is away: clients that wait no more try again, perhaps for hours."""
    for offset in range(8, 40):
        commit(stage, at(offset))
        stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    held = stage.groups.find("g")
    assert held is not None and len(held.offsets._flights) == 2 and len(stage.late) == 1
    (first,), stage.late = stage.late, []
    first(ErrorCode.NONE)
    assert fetched(stage) == at(8), "the one that was awaited does not wait for those behind it"
    commit(stage, at(40))
    stage.commit()
    assert fetched(stage) == at(40) == fetched(await stage.successor())
    assert not held.offsets._flights and not stage.late


@plays
async def test_a_late_commit_of_a_coordinator_that_resigns_is_its_successors(stage: Stage) -> None:
    commit(stage, at(8))
    stage.is_leader = False
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert fetched(stage) is None, "whether it stands is not ours to know"
    stage.is_leader = True
    commit(stage, at(9))
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    (outcome,) = stage.late
    stage.groups.on_resigned(TP)
    outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@plays
async def test_a_commit_with_too_few_replicas_after_it_is_in_the_log(stage: Stage) -> None:
    told = commit(stage, at(7))
    ((on_committed, base),) = stage.waiting
    on_committed(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, base)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert fetched(stage) == at(7) == fetched(await stage.successor())


@plays
async def test_a_partition_that_moved_under_us(stage: Stage) -> None:
    stage.is_leader = False
    assert commit(stage, at(7)) == [ErrorCode.NOT_COORDINATOR]


@plays
async def test_no_commit_with_an_old_generation(stage: Stage) -> None:
    member = await stable(stage)
    assert commit(stage, at(7), (member, None, 0)) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(stage, at(7), ("x", None, 1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(stage, at(7)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    told = commit(stage, at(7), (member, None, 1))
    stage.commit()
    assert told == [ErrorCode.NONE]
    stage.groups.on_resigned(TP)
    with pytest.raises(NotCoordinator):
        commit(stage, at(8), (member, None, 1))


@plays
async def test_a_successor_goes_on_with_offsets_and_generation(stage: Stage) -> None:
    member = await stable(stage)
    commit(stage, at(7), (member, None, 1))
    commit(stage, at(9, "last"), (member, None, 1))
    stage.commit()
    successor = await stage.successor()
    assert fetched(successor) == at(9, "last")
    assert successor.groups.heartbeat("g", member, None, 1) is ErrorCode.NONE
    told = commit(successor, at(10), (member, None, 1))
    successor.commit()
    assert told == [ErrorCode.NONE]
    (again,) = successor.sync(member, 1)
    assert again.assignment == b"p0"
    await successor.groups.stop()


@plays
async def test_tombstones_delete_and_damage_is_passed_over(stage: Stage) -> None:
    await stable(stage)
    commit(stage, at(7), (stage.groups.find("g").group.members.leader or "", None, 1))  # type: ignore[union-attr]
    stage.commit()
    builder = BatchBuilder()
    builder.append(0, offset_key("g", "t", 0), None)
    builder.append(0, b"\x00\x01\x00\x7fbroken", b"x")
    builder.append(0, offset_key("other", "t", 0), b"\x00\x63")
    builder.append(0, b"\x00\x09later kind", b"x")
    builder.append(0, None, b"no key")
    stage.log.append(bytearray(builder.build()))
    successor = await stage.successor()
    assert fetched(successor) is None
    assert [group.name for group in successor.groups.all_groups()] == ["g"]
    await successor.groups.stop()


@plays
async def test_while_loading_and_elsewhere(stage: Stage) -> None:
    member = await stable(stage)
    newcomer = Stage(stage.config, stage.log, stage.clock)
    with pytest.raises(NotCoordinator):
        newcomer.groups.find("g")
    assert newcomer.join("b")[0].error is ErrorCode.NOT_COORDINATOR
    newcomer.groups.start()
    newcomer.groups.on_leading(Partition(stage.log))
    with pytest.raises(CoordinatorLoadInProgress):
        newcomer.groups.find("g")
    assert newcomer.join("b")[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert newcomer.groups.heartbeat("g", member, None, 1) is ErrorCode.NONE
    assert newcomer.sync(member, 1)[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    newcomer.groups.on_resigned(TP)  # before it was read: the reading ends by itself
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(NotCoordinator):
        newcomer.groups.find("g")
    await newcomer.groups.stop()


@plays
async def test_whoever_may_have_a_successor_tells_nothing(stage: Stage) -> None:
    """Offsets of a moment ago would make a consumer read again what its group has done."""
    await stable(stage)
    stage.partition.may_be_replaced = True
    with pytest.raises(NotCoordinator):
        stage.groups.find("g")
    stage.partition.may_be_replaced = False
    assert stage.groups.find("g") is not None


@plays
async def test_resigning_sends_away_who_waits(stage: Stage) -> None:
    await stable(stage)
    told = stage.join("b")
    stage.groups.on_resigned(TP)
    assert told[0].error is ErrorCode.NOT_COORDINATOR
    stage.commit()
    assert stage.groups.all_groups() == []


@plays
async def test_bad_questions(stage: Stage) -> None:
    assert stage.join("a", session_ms=1)[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert stage.join("a", session_ms=1 << 30)[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert stage.join("a", member_id="who")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.groups.all_groups() == []
    with pytest.raises(InvalidGroupId):
        stage.groups.leave("", [("x", None)])
    assert stage.groups.find("", empty_name_ok=True) is None


@plays
async def test_a_group_is_deleted_when_it_is_empty(stage: Stage) -> None:
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    member = await stable(stage)
    commit(stage, at(7), (member, None, 1))
    stage.commit()
    stage.groups.delete("g", told.append)
    assert stage.groups.leave("g", [(member, None), ("x", None)]) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    stage.commit()
    stage.groups.delete("g", told.append)
    stage.commit()
    assert told == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE]
    assert stage.groups.find("g") is None
    stage.commit()
    successor = await stage.successor()
    assert successor.groups.all_groups() == []
    await successor.groups.stop()


@plays
async def test_offsets_expire_when_the_group_is_left(stage: Stage) -> None:
    minute = 60_000
    loop = asyncio.get_running_loop()
    retention = stage.config.offsets_retention_minutes
    member = await stable(stage)
    commit(stage, at(7), (member, None, 1))
    stage.commit()
    stage.clock.ms += 2 * retention * minute
    later = loop.time() + stage.config.offsets_retention_check_interval_ms / 1000
    await stage.groups.forgetting.expire(later)
    assert not stage.waiting, "the group has members"
    stage.groups.leave("g", [(member, None)])
    stage.commit()
    await stage.groups.forgetting.expire(loop.time())
    assert not stage.waiting, "it was left just now"
    left_at = loop.time()
    stage.clock.ms += retention * minute + 1
    await stage.groups.forgetting.expire(left_at + retention * 60 + 1)
    stage.commit()
    assert fetched(stage) is None
    await stage.groups.forgetting.expire(left_at + retention * 60 + 2)
    assert stage.groups.find("g") is None
    await asyncio.sleep(0)  # the group's own tombstone follows
    stage.commit()
    successor = await stage.successor()
    assert successor.groups.all_groups() == []
    await successor.groups.stop()


async def test_the_timer_ends_a_silent_members_session() -> None:
    config = GroupsConfig(offsets_partitions=1, initial_rebalance_delay_ms=0, session_timeout_ms_min=1)
    stage = await Stage(config).lead()
    (joined,) = stage.join("a", session_ms=30)
    stage.sync(joined.member_id, 1)
    stage.commit()
    group = stage.groups.all_groups()[0]
    async with asyncio.timeout(20):
        while group.state is not GroupState.EMPTY:
            await asyncio.sleep(0.01)
    await stage.groups.stop()


@plays
async def test_the_topic_is_created_once_and_not_before_its_replicas_can_be(stage: Stage) -> None:
    """With fewer it would have those for good, and lose all offsets with them."""
    stage.picture = Picture({1: LiveBroker(1, {}), 2: LiveBroker(2, {})})
    reason = stage.groups.ensure_topic()
    assert reason is not None and "not created before 3 brokers are alive; 2 are" in reason
    await asyncio.sleep(0)
    assert not stage.created
    stage.picture = Picture({1: LiveBroker(1, {}), 2: LiveBroker(2, {}), 3: LiveBroker(3, {})})
    assert stage.groups.ensure_topic() is None
    assert stage.groups.ensure_topic() is None
    await asyncio.sleep(0)
    (request,) = stage.created
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("__consumer_offsets", 1, 3)
    assert {each.name: each.value for each in topic.configs}["cleanup.policy"] == "compact"

"""What the coordinator forgets: offsets of deleted topics, expired offsets, groups; and no more."""

import asyncio

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups.offset_loading import value_of
from strandline.broker.groups.offset_records import offset_key, offset_value
from strandline.broker.groups.offsets import GroupOffset
from strandline.broker.groups.state import GroupState, JoinAsked, Joined, SyncAsked
from strandline.broker.metadata.cache import Picture
from strandline.client.consumer.group_protocol import encode_subscription
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import BatchBuilder
from tests.broker.group_harness import SIMPLE, Partition, Stage, plays
from tests.patience import HANG_S

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOW_MS = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.groups.forgetting.PAY_AGAIN_S", (0.02, 0.02))


def commit(
    stage: Stage, *partitions: TopicPartition, offset: int = 7, group: str = "g", member: tuple = SIMPLE
) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    one = GroupOffset(offset=offset, leader_epoch=0, metadata="", commit_ms=stage.clock.ms)
    stage.groups.commit(group, member, dict.fromkeys(partitions, one), told.append)
    return told


def kept(stage: Stage, group: str = "g") -> dict[TopicPartition, int]:
    held = stage.groups.find(group, empty_name_ok=True)
    if held is None:
        return {}
    return {tp: one.offset for tp in held.offsets if (one := held.offsets.get(tp)) is not None}


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def written(stage: Stage) -> None:
    async with asyncio.timeout(HANG_S):
        while not stage.waiting:
            await asyncio.sleep(0.001)


async def as_a_successor_has_it(stage: Stage, group: str = "g") -> dict[TopicPartition, int]:
    successor = await stage.successor()
    found = kept(successor, group)
    await successor.groups.stop()
    return found


# Deleted topics


@plays
async def test_offsets_of_a_deleted_topic_are_void_at_once_and_for_whoever_comes_after(stage: Stage) -> None:
    commit(stage, T0, T1, U0)
    stage.commit()
    stage.groups.partitions_deleted([T0, T1])
    assert kept(stage) == {U0: 7}, "before any tombstone is acknowledged"
    await turns()
    stage.commit()
    assert await as_a_successor_has_it(stage) == {U0: 7}
    assert stage.groups.metrics()["offset-deletion-count"] == 2


@plays
async def test_a_group_that_had_nothing_else_goes_with_the_topic(stage: Stage) -> None:
    member = await stable(stage, "t")
    commit(stage, T0, member=(member, None, 1))
    stage.commit()
    stage.groups.leave("g", [(member, None)])
    stage.commit()
    stage.groups.partitions_deleted([T0])
    await turns()
    stage.commit()
    assert stage.groups.find("g") is None
    successor = await stage.successor()
    assert successor.groups.all_groups() == []
    await successor.groups.stop()


@plays
async def test_a_commit_in_flight_when_its_topic_is_deleted_is_void(stage: Stage) -> None:
    told = commit(stage, T0, U0)
    stage.groups.partitions_deleted([T0])
    await turns()
    stage.commit()
    assert told == [ErrorCode.NONE] and kept(stage) == {U0: 7}
    assert await as_a_successor_has_it(stage) == {U0: 7}


@plays
async def test_a_refused_tombstone_stays_owed_but_never_follows_a_new_commit(stage: Stage) -> None:
    commit(stage, T0, T1)
    stage.commit()
    stage.groups.partitions_deleted([T0, T1])
    await turns()
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    commit(stage, T1, offset=1)  # made again, and read
    stage.commit()
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    await turns()
    assert len(stage.waiting) == 1, "the tombstone of t-0 alone"
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 1}
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    await turns()
    assert not stage.waiting, "paid"


@plays
async def test_a_refused_tombstone_is_soon_written_again_for_no_successor_knows_of_it(
    stage: Stage,
) -> None:
    commit(stage, T0)
    stage.commit()
    stage.groups.partitions_deleted([T0])
    await turns()
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    await written(stage)
    stage.commit()
    assert await as_a_successor_has_it(stage) == {}
    await turns()
    assert not stage.waiting, "paid"


@plays
async def test_what_is_deleted_while_the_log_is_read_is_void(stage: Stage) -> None:
    commit(stage, T0, U0)
    stage.commit()
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.groups.on_leading(Partition(stage.log))
    successor.groups.partitions_deleted([T0])
    while successor.groups.is_loading:
        await asyncio.sleep(0)
    assert kept(successor) == {U0: 7}
    await successor.groups.stop()


@plays
async def test_what_was_deleted_before_the_log_was_read_is_void_if_all_topics_are_known(stage: Stage) -> None:
    commit(stage, T0, U0)
    stage.commit()
    assert await as_a_successor_has_it(stage) == {T0: 7, U0: 7}, "nobody has told it of all topics"
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.picture = Picture(is_whole=True, is_said_whole=True)
    await successor.lead()
    assert kept(successor) == {}
    await turns()
    assert successor.waiting, "and the log is told"
    await successor.groups.stop()


@plays
async def test_who_became_coordinator_out_of_the_controllers_reach_keeps_what_it_does_not_know(
    stage: Stage,
) -> None:
    """The topic was made while the link was cut: the controller has told all others of it."""
    commit(stage, T0)
    stage.commit()
    successor = Stage(stage.config, stage.log, stage.clock)
    successor.picture = Picture(is_whole=True, is_said_whole=True).doubted()
    await successor.lead()
    await turns()
    assert kept(successor) == {T0: 7} and not successor.waiting
    await successor.groups.stop()


# Retention


async def stable(stage: Stage, *topics: str, group: str = "g", said: bytes | None = None) -> str:
    """A member that has subscribed to these topics, in generation 1."""
    told: list[Joined] = []
    subscription = encode_subscription(topics, [], -1) if said is None else said
    asked = JoinAsked(
        "", None, "a", "/127.0.0.1", 10_000, 30_000, "consumer", (("range", subscription),), False, False
    )
    stage.groups.join(group, asked, told.append)
    member = told[0].member_id
    stage.groups.sync(group, SyncAsked(member, None, 1, None, None, ((member, b"p0"),)), lambda _: None)
    stage.commit()
    return member


async def expire(stage: Stage) -> None:
    stage.clock.ms += (stage.config.offsets_retention_minutes + 1) * MINUTE
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    await turns()


@plays
async def test_a_stable_group_keeps_what_it_reads_and_loses_what_it_left(stage: Stage) -> None:
    member = await stable(stage, "t")
    commit(stage, T0, U0, member=(member, None, 1))
    stage.commit()
    await expire(stage)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 7}
    assert stage.groups.metrics()["offset-expiration-count"] == 1


@plays
async def test_what_a_member_reads_cannot_be_told_so_nothing_expires(stage: Stage) -> None:
    member = await stable(stage, said=b"\0\1\0\0")
    commit(stage, T0, U0, member=(member, None, 1))
    stage.commit()
    await expire(stage)
    assert not stage.waiting and kept(stage) == {T0: 7, U0: 7}


@plays
async def test_no_tombstone_overtakes_a_commit_that_is_in_flight(stage: Stage) -> None:
    commit(stage, T0)
    stage.commit()
    stage.clock.ms += (stage.config.offsets_retention_minutes + 1) * MINUTE
    told = commit(stage, T0, offset=8)
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    stage.commit()
    assert told == [ErrorCode.NONE] and kept(stage) == await as_a_successor_has_it(stage) == {T0: 8}


# Groups that are deleted


@plays
async def test_a_group_is_dead_while_its_deletion_is_on_its_way(stage: Stage) -> None:
    commit(stage, T0)
    stage.commit()
    in_flight = commit(stage, T1)
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    held = stage.groups.find("g")
    assert held is not None and held.group.state is GroupState.DEAD and not told
    assert commit(stage, T0) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert stage.join("a")[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.groups.delete("g", told.append)
    assert told == [ErrorCode.GROUP_ID_NOT_FOUND] and stage.groups.all_groups() == []
    stage.commit()
    assert told == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE] and in_flight == [ErrorCode.NONE]
    assert stage.groups.find("g") is None and await as_a_successor_has_it(stage) == {}


@plays
async def test_a_deletion_that_is_refused_has_not_happened(stage: Stage) -> None:
    commit(stage, T0)
    stage.commit()
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and kept(stage) == {T0: 7}
    commit(stage, T0, offset=9)
    stage.commit()
    assert kept(stage) == {T0: 9}


@plays
async def test_a_deletion_of_open_fate_is_what_a_successor_would_read(stage: Stage) -> None:
    commit(stage, T0, T1)
    stage.commit()
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert kept(stage) == await as_a_successor_has_it(stage) == {}
    commit(stage, T1, offset=9)
    stage.commit()
    await written(stage)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 9}, "no tombstone follows a new commit"


@plays
async def test_a_coordinator_may_resign_while_a_group_is_being_deleted(stage: Stage) -> None:
    commit(stage, T0)
    stage.commit()
    told: list[ErrorCode] = []
    stage.groups.delete("g", told.append)
    stage.groups.on_resigned(stage.log.partition)
    stage.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told == [ErrorCode.NOT_COORDINATOR]


@plays
async def test_the_group_without_a_name_can_be_deleted(stage: Stage) -> None:
    commit(stage, T0, group="")
    stage.commit()
    told: list[ErrorCode] = []
    stage.groups.delete("", told.append)
    stage.commit()
    assert told == [ErrorCode.NONE] and await as_a_successor_has_it(stage, "") == {}


# Offsets that are deleted


def delete_offsets(
    stage: Stage, *partitions: TopicPartition, group: str = "g"
) -> list[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]]:
    told: list[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]] = []
    stage.groups.delete_offsets(group, partitions, lambda code, refused: told.append((code, refused)))
    return told


@plays
async def test_a_group_without_members_forgets_what_it_is_told_to(stage: Stage) -> None:
    commit(stage, T0, T1)
    stage.commit()
    told = delete_offsets(stage, T0, U0)
    assert told == [] and kept(stage) == {T0: 7, T1: 7}, "not before its tombstone is committed"
    stage.commit()
    assert told == [(ErrorCode.NONE, {})]
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 7}
    assert stage.groups.metrics()["offset-deletion-count"] == 1
    assert delete_offsets(stage, U0) == [(ErrorCode.NONE, {})], "it never had any, and nothing is written"
    delete_offsets(stage, T1)
    stage.commit()
    assert stage.groups.find("g") is None, "it had nothing else"


@plays
async def test_what_members_read_is_kept_and_what_they_left_is_not(stage: Stage) -> None:
    member = await stable(stage, "t")
    commit(stage, T0, U0, member=(member, None, 1))
    stage.commit()
    told = delete_offsets(stage, T0, U0)
    stage.commit()
    assert told == [(ErrorCode.NONE, {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})]
    assert kept(stage) == await as_a_successor_has_it(stage) == {T0: 7}


@plays
async def test_no_offset_goes_while_it_cannot_be_told_what_members_read(stage: Stage) -> None:
    commit(stage, U0)
    stage.commit()
    stage.join("a")
    assert delete_offsets(stage, U0) == [(ErrorCode.NONE, {U0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})]
    told: list[Joined] = []
    stage.groups.join(
        "connect",
        JoinAsked("", None, "w", "/h", 10_000, 30_000, "connect", (("v1", b""),), False, False),
        told.append,
    )
    assert delete_offsets(stage, U0, group="connect") == [(ErrorCode.NON_EMPTY_GROUP, {})]


@plays
async def test_a_commit_in_flight_is_deleted_too_and_a_later_one_is_not(stage: Stage) -> None:
    commit(stage, T0)
    delete_offsets(stage, T0)
    commit(stage, T1, offset=8)
    delete_offsets(stage, T1)
    commit(stage, T1, offset=9)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 9}


@plays
async def test_a_deletion_of_offsets_happens_or_not_as_the_log_has_it(stage: Stage) -> None:
    commit(stage, T0, T1)
    stage.commit()
    told = delete_offsets(stage, T0)
    stage.commit(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert told == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, {})] and kept(stage) == {T0: 7, T1: 7}
    told = delete_offsets(stage, T1)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert told == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, {})] and kept(stage) == {T0: 7}


@plays
async def test_a_late_commit_does_not_come_back_after_its_tombstone(stage: Stage) -> None:
    commit(stage, T0, T1)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert kept(stage) == {}
    told = delete_offsets(stage, T0)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert told == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, {})]
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {T1: 7}
    commit(stage, T0, offset=9)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    stage.groups.delete("g", lambda _: None)
    stage.commit()
    assert kept(stage) == await as_a_successor_has_it(stage) == {}


@plays
async def test_a_group_that_is_being_deleted_has_no_offsets_to_delete(stage: Stage) -> None:
    commit(stage, T0)
    stage.commit()
    stage.groups.delete("g", lambda _: None)
    assert delete_offsets(stage, T0) == [(ErrorCode.GROUP_ID_NOT_FOUND, {})]


# In slices


class Others:
    """Whoever else lives on the loop, counting their turns."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def end(self) -> int:
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.turns


@pytest.mark.parametrize("batches", [1, 40])
async def test_others_live_while_groups_are_read_and_built(batches: int) -> None:
    """Ten thousand commits of as many groups, be they one batch or many."""

    stage = Stage()
    value = offset_value(value_of(GroupOffset(7, 0, "", NOW_MS)))
    for batch in range(batches):
        builder = BatchBuilder()
        for number in range(10_000 // batches):
            builder.append(NOW_MS, offset_key(f"g-{batch}-{number}", "t", 0), value)
        stage.log.append(bytearray(builder.build()))
    others = Others()
    await stage.lead()
    assert len(stage.groups.all_groups()) == 10_000
    assert await others.end() > 10_000 / 500 + 10_000 / 200
    assert max(stage.log.asked_for) <= 1 << 16, "bytes read at once"
    await stage.groups.stop()


@plays
async def test_others_live_while_offsets_expire(stage: Stage) -> None:
    for number in range(5_000):
        commit(stage, T0, group=f"g-{number}")
    stage.commit()
    stage.clock.ms += (stage.config.offsets_retention_minutes + 1) * MINUTE
    others = Others()
    await stage.groups.forgetting.expire(asyncio.get_running_loop().time())
    assert await others.end() >= 5_000 * 2 / 2_000
    stage.commit()
    assert stage.groups.metrics()["NumOffsets"] == 0


@plays
async def test_tombstones_of_a_deleted_topic_are_written_in_slices(stage: Stage) -> None:
    for number in range(2_000):
        commit(stage, T0, group=f"g-{number}")
    stage.commit()
    stage.groups.partitions_deleted([T0])
    assert stage.groups.all_groups() == [], "in one breath"
    await turns(20)
    assert len(stage.waiting) == 4, "five hundred in a batch"
    stage.commit()
    successor = await stage.successor()
    assert successor.groups.metrics()["NumOffsets"] == 0
    await successor.groups.stop()


@plays
async def test_who_leads_anew_writes_no_tombstone_that_was_owed_before(stage: Stage) -> None:
    """There may be a commit by now of which the shard that owes it has never heard."""
    for number in range(600):
        commit(stage, T0, group=f"g-{number}")
    stage.commit()
    stage.groups.partitions_deleted([T0])
    while not stage.waiting:
        await asyncio.sleep(0)
    stage.groups.on_resigned(stage.log.partition)
    await stage.lead()
    assert commit(stage, T0, group="g-599", offset=1) == []
    await turns(20)
    assert len(stage.waiting) == 2, "the first tombstones, and the commit"
    stage.commit()
    assert await as_a_successor_has_it(stage, "g-599") == {T0: 1}


# In numbers


@plays
async def test_the_coordinator_is_told_in_numbers_under_kafkas_names(stage: Stage) -> None:
    member = await stable(stage, "t")
    commit(stage, T0, T1, member=(member, None, 1))
    commit(stage, T0, group="h")
    stage.commit()
    metrics = stage.groups.metrics()
    assert (metrics["NumGroups"], metrics["NumGroupsStable"], metrics["NumGroupsEmpty"]) == (2, 1, 1)
    assert (metrics["NumOffsets"], metrics["offset-commit-count"]) == (3, 3)
    assert metrics["group-completed-rebalance-count"] == 1
    stage.join("b")
    assert stage.groups.metrics()["NumGroupsPreparingRebalance"] == 1

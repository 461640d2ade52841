"""The coordinator of consumer groups: what is answered when, what the log has, what becomes of a group."""

import asyncio
from math import inf
from typing import Any
from uuid import UUID

from strandline.base.types import TopicPartition
from strandline.broker.groups.consumer.group import SESSION, SYNC, ConsumerGroup
from strandline.broker.groups.consumer.state import Beat, Beaten, ConsumerState
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffset
from strandline.broker.groups.state import GroupState, JoinAsked, Joined, SyncAsked, Synced
from strandline.broker.groups.transactional_commits import Producer
from strandline.broker.metadata.cache import Picture, PicturedTopic
from strandline.client.consumer.group_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from strandline.protocol.errors import ApiError, ErrorCode
from strandline.zookeeper.config_nodes import NOTHING, Overrides
from tests.broker.group_harness import SIMPLE, Stage, plays

T = UUID(int=7)
OFFSETS = {TopicPartition("t", 0): GroupOffset(5, 0, "", 1_700_000_000_000)}


def pictured(stage: Stage, partitions: int = 2, is_whole: bool = True) -> None:
    known: Any = object()  # nobody looks into it
    topic = PicturedTopic("t", T, dict.fromkeys(range(partitions), known))
    stage.picture = Picture(topics={"t": topic}, names={T: "t"}, is_whole=is_whole)


def places(*numbers: int) -> frozenset[tuple[UUID, int]]:
    return frozenset((T, number) for number in numbers)


def beat(stage: Stage, who: str, epoch: int = 0, **facts: Any) -> list[Beaten]:
    """A heartbeat; the answer appears in the list. Who joins says everything."""
    if epoch == 0:
        facts = {"rebalance_timeout_ms": 30_000, "topics": frozenset("t"), "owned": frozenset(), **facts}
    told: list[Beaten] = []
    try:
        stage.groups.consumer_heartbeat("g", Beat(who, epoch, **facts), told.append)
    except ApiError as error:
        told.append(Beaten(error.code))
    return told


def settled(stage: Stage, who: str, epoch: int = 0, **facts: Any) -> Beaten:
    told = beat(stage, who, epoch, **facts)
    stage.commit()
    (answer,) = told
    return answer


def join(stage: Stage, member_id: str = "c", *owned: int, **facts: Any) -> list[Joined]:
    told: list[Joined] = []
    metadata = encode_subscription(["t"], [TopicPartition("t", each) for each in owned], 1)
    asked = JoinAsked(
        member_id=member_id,
        instance_id=facts.get("instance"),
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(("range", metadata),),
        must_know_id=facts.get("must_know_id", False),
        may_skip_assignment=True,
    )
    stage.groups.join("g", asked, told.append)
    return told


def sync(stage: Stage, member_id: str, generation: int, **given: list[int]) -> list[Synced]:
    told: list[Synced] = []
    assignments = tuple(
        (name, encode_assignment(TopicPartition("t", each) for each in mine)) for name, mine in given.items()
    )
    stage.groups.sync("g", SyncAsked(member_id, None, generation, None, None, assignments), told.append)
    return told


def group_of(stage: Stage) -> ConsumerGroup:
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, ConsumerGroup)
    return held.group


def known(stage: Stage) -> dict[tuple[int, str], object]:
    return {(fact.subject, fact.member_id): fact.value for fact in group_of(stage).facts()}


async def classic_member(stage: Stage) -> str:
    """A group by the classic protocol whose only member has both partitions."""
    told = join(stage, "")
    (joined,) = told
    assert joined.error is ErrorCode.NONE
    synced = sync(stage, joined.member_id, joined.generation, **{joined.member_id: [0, 1]})
    stage.commit()
    assert synced[0].error is ErrorCode.NONE
    return joined.member_id


@plays
async def test_an_answer_waits_for_the_log(stage: Stage) -> None:
    pictured(stage)
    told = beat(stage, "a")
    assert not told and len(stage.waiting) == 1, "one batch for the group and its first member"
    stage.commit()
    assert told == [Beaten(member_id="a", epoch=1, interval_ms=5_000, assignment=places(0, 1))]


@plays
async def test_an_answer_that_rests_on_what_is_not_committed_yet_waits_too(stage: Stage) -> None:
    pictured(stage)
    beat(stage, "a")
    again = beat(stage, "a")
    assert not again and len(stage.waiting) == 1, "nothing has changed, but what a has is not committed"
    stage.commit()
    assert again[0].assignment == places(0, 1)


@plays
async def test_after_a_write_that_may_be_lost_something_is_written_again(stage: Stage) -> None:
    pictured(stage)
    first = beat(stage, "a")
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    assert first[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = beat(stage, "a")
    assert not again and len(stage.waiting) == 1, "a's partitions may be known to nobody else"
    stage.commit()
    assert again[0].assignment == places(0, 1)
    assert beat(stage, "a", 1)[0].error is ErrorCode.NONE and not stage.waiting, "now it is sure"


@plays
async def test_what_the_log_refuses_has_not_happened(stage: Stage) -> None:
    pictured(stage)
    stage.is_leader = False
    assert beat(stage, "a")[0].error is ErrorCode.NOT_COORDINATOR
    assert stage.groups.find("g") is None
    stage.is_leader = True
    settled(stage, "a")
    before = known(stage)
    stage.is_leader = False
    assert beat(stage, "b")[0].error is ErrorCode.NOT_COORDINATOR
    pictured(stage, 5)
    assert beat(stage, "a", 1)[0].error is ErrorCode.NOT_COORDINATOR
    assert known(stage) == before
    stage.is_leader = True
    assert settled(stage, "a", 1).assignment == places(0, 1, 2, 3, 4), "the topic's growth is not forgotten"


@plays
async def test_a_members_rack_is_kept_whichever_protocol_it_speaks(stage: Stage) -> None:
    pictured(stage)
    in_rack = encode_subscription(["t"], (), -1).replace(b"\0\2", b"\0\3", 1) + b"\0\2r1"
    nowhere = in_rack[:-4] + b"\xff\xff"

    def join_classic(client: str, metadata: bytes) -> str:
        told: list[Joined] = []
        asked = JoinAsked(
            "", None, client, "/h", 10_000, 30_000, "consumer", (("range", metadata),), False, True
        )
        stage.groups.join("g", asked, told.append)
        stage.commit()
        return told[0].member_id

    first = join_classic("c", in_rack)
    settled(stage, "a", rack_id="r2")
    expected = {first: "r1", "a": "r2", join_classic("d", in_rack): "r1", join_classic("e", nowhere): None}
    assert {who: said.rack_id for who, said in group_of(stage).subscriptions.items()} == expected
    other = await stage.successor()
    assert {who: said.rack_id for who, said in group_of(other).subscriptions.items()} == expected
    await other.groups.stop()


@plays
async def test_another_coordinator_goes_on(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a", instance_id="s1", rack_id="r", assignor="range")
    settled(stage, "b", regex="t+", topics=None)
    settled(stage, "a", 1, owned=places(0, 1))
    join(stage, "c")
    stage.commit()
    before = group_of(stage)
    other = await stage.successor()
    assert known(other) == known(stage)
    assert group_of(other).owners == before.owners and group_of(other).static_ids == {"s1": "a"}
    pictured(other)
    assert settled(other, "a", 1, owned=places(0)).error is ErrorCode.NONE
    await other.groups.stop()


@plays
async def test_a_coordinator_that_has_not_heard_of_all_topics_takes_none_away(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    other = await stage.successor()
    other.picture = Picture()
    assert settled(other, "a", 1).epoch == 1
    pictured(other)
    assert settled(other, "a", 1).epoch == 1
    other.picture = Picture(is_whole=True)
    assert settled(other, "a", 1).assignment == frozenset(), "now it is gone indeed"
    await other.groups.stop()


@plays
async def test_nor_from_a_member_that_names_topics_by_an_expression(stage: Stage) -> None:
    """Another member comes while the coordinator has not heard of all topics: targets are computed anew."""
    pictured(stage)
    assert settled(stage, "a", topics=None, regex="t.*").assignment == places(0, 1)
    other = await stage.successor()
    other.picture = Picture()
    settled(other, "b", topics=frozenset("u"))
    assert settled(other, "a", 1, owned=places(0, 1)).epoch == 2
    assert group_of(other).target_of("a") == places(0, 1)
    other.picture = Picture(is_whole=True)
    settled(other, "a", 2, owned=places(0, 1))
    assert group_of(other).target_of("a") == frozenset(), "now it is gone indeed"
    await other.groups.stop()


@plays
async def test_a_classic_group_is_not_upgraded_before_its_topics_are_known(stage: Stage) -> None:
    """What its members own would be given to others while they still read it."""
    pictured(stage)
    await classic_member(stage)
    stage.picture = Picture()
    assert settled(stage, "a").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, Group)
    pictured(stage)
    assert settled(stage, "a").assignment == frozenset(), "the classic member has everything"


@plays
async def test_what_a_classic_member_owns_is_its_own_while_topics_are_unknown(stage: Stage) -> None:
    """It has to give one up, and says that it has both still, to a coordinator that has just come."""
    pictured(stage)
    classic = await classic_member(stage)
    settled(stage, "a")
    other = await stage.successor()
    other.picture = Picture()
    topics, both = group_of(other).topics, {(T, 0): classic, (T, 1): classic}
    for known_to_the_group in ({}, topics):
        group_of(other).topics = known_to_the_group
        join(other, classic, 0, 1)
        other.commit()
        assert settled(other, "a", 2).assignment is None, "its owner still reads it"
        assert group_of(other).owners == both
    join(other, classic, 0)
    other.commit()
    assert settled(other, "a", 2).assignment == places(1), "now it is free"
    await other.groups.stop()


@plays
async def test_a_classic_group_is_upgraded_with_its_members_in_place(stage: Stage) -> None:
    pictured(stage)
    classic = await classic_member(stage)
    newcomer = settled(stage, "a")
    assert (newcomer.epoch, newcomer.assignment) == (2, frozenset()), "the classic member has everything"
    assert stage.groups.heartbeat("g", classic, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoins = join(stage, classic)
    stage.commit()
    (joined,) = rejoins
    assert (joined.generation, joined.leader, joined.members) == (2, "", ())
    told = sync(stage, classic, 2)
    assert decode_assignment(told[0].assignment) == [TopicPartition("t", 0)]
    assert settled(stage, "a", 2).assignment == places(1)
    other = await stage.successor()
    assert known(other) == known(stage), "and the classic record is gone"
    await other.groups.stop()


@plays
async def test_in_a_rebalance_members_keep_what_they_say_they_own(stage: Stage) -> None:
    """Its last assignment is void, for the rebalance began twice; but the client still reads both."""
    pictured(stage)
    classic = await classic_member(stage)
    join(stage, "", must_know_id=False)
    waits = join(stage, classic, 0, 1)
    assert waits and waits[0].generation == 2
    late = join(stage, "")
    again = join(stage, classic, 0, 1)
    assert settled(stage, "a").assignment == frozenset()
    assert late[0].error is again[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group_of(stage).owners == {(T, 0): classic, (T, 1): classic}


@plays
async def test_the_last_new_member_leaves_a_classic_group_behind(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    join(stage, "c")
    stage.commit()
    assert settled(stage, "a", -1).error is ErrorCode.NONE
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, Group)
    assert (held.group.state, held.group.generation) == (GroupState.PREPARING_REBALANCE, 2)
    assert stage.groups.heartbeat("g", "c", None, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(stage, "c")[0].generation == 3, "it leads, and assigns"
    other = await stage.successor()
    found = other.groups.find("g")
    assert found is not None and isinstance(found.group, Group) and "c" in found.group.members
    await other.groups.stop()


@plays
async def test_a_static_member_that_returns_as_classic_may_end_the_upgrade(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a", instance_id="s1")
    join(stage, "c")
    stage.commit()
    settled(stage, "a", -2, instance_id="s1")
    back = join(stage, "", instance="s1")
    stage.commit()
    assert not back, "all join anew"
    join(stage, "c")
    assert back[0].error is ErrorCode.NONE and back[0].generation == 3
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, Group) and "a" not in held.group.members


@plays
async def test_a_group_that_is_no_more_wakes_nobody(stage: Stage) -> None:
    """The last new member expires: its group goes in the middle of its own deadline."""
    pictured(stage)
    settled(stage, "a")
    join(stage, "c")
    stage.commit()
    before = group_of(stage)
    for what in (SESSION, SYNC):
        before.has_done("c", what)  # it lives
    stage.groups.tick(asyncio.get_running_loop().time() + 50)
    stage.commit()
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, Group)
    assert before.wake_at == inf and held.group.wake_at < inf
    again = settled(stage, "a")
    assert again.error is ErrorCode.NONE and held.group is not before


@plays
async def test_policies_forbid_changes(stage: Stage) -> None:
    for policy, upgrades, downgrades in (("disabled", False, False), ("upgrade", True, False)):
        other = Stage(stage.config.model_copy(update={"consumer_migration_policy": policy}))
        await other.lead()
        pictured(other)
        await classic_member(other)
        answer = settled(other, "a")
        assert (answer.error is ErrorCode.NONE) == upgrades
        if upgrades:
            settled(other, "a", -1)
            assert (not isinstance(group_of(other), ConsumerGroup)) == downgrades
        else:
            assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        await other.groups.stop()


@plays
async def test_an_empty_group_is_of_whatever_protocol_comes_next(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    stage.groups.commit("g", ("a", None, 1), OFFSETS, lambda code: None)
    stage.commit()
    settled(stage, "a", -1)
    assert group_of(stage).state is ConsumerState.EMPTY
    member = await classic_member(stage)
    await asyncio.sleep(0)
    stage.commit()
    held = stage.groups.find("g")
    assert held is not None and isinstance(held.group, Group) and held.offsets.get(TopicPartition("t", 0))
    other = await stage.successor()
    found = other.groups.find("g")
    assert found is not None and isinstance(found.group, Group) and member in found.group.members
    other.groups.leave("g", [(member, None)])
    other.commit()
    pictured(other)
    assert settled(other, "b").assignment == places(0, 1)
    third = await other.successor()
    assert isinstance(group_of(third), ConsumerGroup), "the classic record is gone"
    await third.groups.stop()
    await other.groups.stop()


@plays
async def test_commits_need_the_newest_epoch(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    codes: list[ErrorCode] = []
    for member in (("a", None, 1), ("a", None, 0), ("x", None, 1), SIMPLE):
        stage.groups.commit("g", member, OFFSETS, codes.append)
    stage.commit()
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [stale, unknown, unknown, ErrorCode.NONE]


@plays
async def test_a_transaction_commits_for_a_member_of_the_newest_epoch_or_for_none(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    codes: list[ErrorCode] = []
    producer = Producer("tx", 7, 0)
    for member in (("a", None, 1), ("a", None, 0), ("x", None, 1), ("a", None, -1), SIMPLE):
        stage.groups.commit_in_transaction("g", member, producer, OFFSETS, codes.append)
        stage.commit()
    stale, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [ErrorCode.NONE, stale, unknown, stale, ErrorCode.NONE]
    stage.end_transaction(7, committed=True)
    stage.commit()
    other = await stage.successor()
    for each in (stage, other):
        held = each.groups.find("g")
        assert held is not None and [tp.topic for tp in held.offsets] == ["t"]
    await other.groups.stop()


@plays
async def test_a_group_is_deleted_once_it_is_empty(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    codes: list[ErrorCode] = []
    stage.groups.delete("g", codes.append)
    settled(stage, "a", -1)
    stage.groups.delete("g", codes.append)
    assert beat(stage, "b")[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is about to go"
    assert join(stage, "c")[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.commit()
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE]
    other = await stage.successor()
    assert other.groups.find("g") is None, "the log has nothing of it"
    await other.groups.stop()


@plays
async def test_a_group_that_is_about_to_go_writes_nothing_more(stage: Stage) -> None:
    """Its tombstones would be followed by a fact, from which the next coordinator would make it again."""
    pictured(stage)
    settled(stage, "a")
    beat(stage, "a", -1)
    stage.commit(ErrorCode.REQUEST_TIMED_OUT)
    stage.groups.delete("g", lambda code: None)
    waiting = len(stage.waiting)
    assert sync(stage, "c", 1)[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.groups.leave("g", [("c", None)]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert stage.groups.heartbeat("g", "c", None, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(stage.waiting) == waiting
    stage.commit()
    other = await stage.successor()
    assert other.groups.find("g") is None
    await other.groups.stop()


@plays
async def test_an_administrator_removes_only_members_that_speak_the_classic_protocol(stage: Stage) -> None:
    """As Kafka 4.0 does."""
    pictured(stage)
    settled(stage, "a", instance_id="s1")
    join(stage, "", instance="s2")
    stage.commit()
    answers = stage.groups.leave("g", [("", "s1"), ("a", None), ("", "s3"), ("x", "s2"), ("", "s2")])
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answers == [unknown, unknown, unknown, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE]
    assert list(group_of(stage).subscriptions) == ["a"]


@plays
async def test_offsets_of_topics_that_members_read_do_not_expire(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    stage.groups.commit("g", ("a", None, 1), OFFSETS, lambda code: None)
    stage.commit()
    stage.clock.ms += 365 * 24 * 3_600_000
    loop = asyncio.get_running_loop()
    await stage.groups.forgetting.expire(loop.time())
    stage.commit()
    held = stage.groups.find("g")
    assert held is not None and len(held.offsets) == 1
    settled(stage, "a", -1)
    await stage.groups.forgetting.expire(loop.time() + 365 * 24 * 3_600)
    stage.commit()
    await stage.groups.forgetting.expire(loop.time())
    await asyncio.sleep(0)
    stage.commit()
    assert stage.groups.find("g") is None
    other = await stage.successor()
    assert other.groups.find("g") is None
    await other.groups.stop()


@plays
async def test_numbers_tell_of_both_kinds(stage: Stage) -> None:
    pictured(stage)
    settled(stage, "a")
    numbers = stage.groups.metrics()
    assert (numbers["NumGroups"], numbers["consumer-group-count"], numbers["NumGroupsStable"]) == (1, 1, 0)
    assert numbers["consumer-group-rebalance-count"] == 1


@plays
async def test_a_groups_own_settings_hold_from_each_members_next_heartbeat(stage: Stage) -> None:
    pictured(stage)
    started = stage.groups._now()
    assert settled(stage, "a").interval_ms == 5_000
    assert group_of(stage)._deadlines["a", SESSION] <= started + 45.5
    own = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"}
    stage.settings.learn("g", Overrides(own, 1, 0))
    stage.settings.learn("other", Overrides({"consumer.session.timeout.ms": "50000"}, 1, 0))
    assert group_of(stage)._deadlines["a", SESSION] <= started + 45.5, "it has not been told"
    assert settled(stage, "a", 1).interval_ms == 15_000
    assert group_of(stage)._deadlines["a", SESSION] >= started + 60
    assert settled(stage, "b").interval_ms == 15_000, "whoever joins, too"
    stage.settings.learn("g", NOTHING)
    assert settled(stage, "a", 1).interval_ms == 5_000


@plays
async def test_settings_wait_for_their_group_and_stay_when_it_is_deleted_or_loaded(stage: Stage) -> None:
    stage.settings.learn("g", Overrides({"consumer.heartbeat.interval.ms": "9000"}, 1, 0))
    pictured(stage)
    assert settled(stage, "a").interval_ms == 9_000
    settled(stage, "a", -1)
    stage.groups.delete("g", lambda code: None)
    stage.commit()
    assert stage.groups.find("g") is None
    assert settled(stage, "a").interval_ms == 9_000
    heir = Stage(stage.config, stage.log, stage.clock)
    heir.settings.learn("g", Overrides({"consumer.heartbeat.interval.ms": "8000"}, 1, 1))
    pictured(heir)
    await heir.lead()
    assert settled(heir, "a", group_of(heir).progress_of("a").epoch).interval_ms == 8_000

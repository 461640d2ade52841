"""Membership: what a consumer may still say of partitions that went to others, and how a membership ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client import (
    Admin,
    CommitFailed,
    Consumer,
    MemberToRemove,
    RebalanceListener,
    TopicPartition,
    UnknownMemberId,
)
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, FencedInstanceId, InconsistentGroupProtocol
from strandline.protocol.messages.groups import HeartbeatResponse, JoinGroupResponse
from tests.client.broker_harness import HANDLERS, Broker, Double, Partition
from tests.client.group_harness import Group
from tests.client.test_consumer import GROUP, T0, fill, take

T1 = TopicPartition("t", 1)
BY_HAND: dict[str, Any] = {**GROUP, "enable_auto_commit": False}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def begin_a_rebalance(double: Double, group: Group, consumer: Consumer) -> None:
    """Return while the consumer waits for a member that will not come."""
    group.members["ghost"] = None
    double.groups.rebalance(group)
    await until(lambda: not consumer.assignment())


def test_a_member_cannot_take_back_what_was_given_to_another(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            _, log = double.topic("t", 2)
            fill(log, 20)
            committed = double.groups.group("g").offsets
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as first:
                assert len(await take(first, 20)) == 20
                async with Consumer(double.servers, topics=["t"], **BY_HAND) as second:
                    assert len(await take(second, 20)) == 20
                    await second.commit({T1: 20})
                    await until(lambda: first.assignment() == {T0})
                    with pytest.raises(CommitFailed, match="t-1"):
                        await first.commit({T1: 10})
                    await first.commit({T0: 0})
                await until(lambda: first.assignment() == {T0, T1})
                with pytest.raises(CommitFailed, match="t-1"):
                    await first.commit({T1: 10})
                assert committed[T1][0] == 20, "it still has the records of the time before"
                assert await first.poll(50) == []
                await first.commit({T1: 10})
                assert committed[T1][0] == 10, "and has not now, and may say what it likes"

    run(story())


def test_until_all_have_joined_what_was_handed_out_is_committed_as_before(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as consumer:
                assert len(await take(consumer, 20)) == 20
                await begin_a_rebalance(double, group, consumer)
                await consumer.commit({T0: 10})
                assert group.offsets[T0][0] == 10
                await until(lambda: consumer.assignment() == {T0})
                await consumer.commit({T0: 20})
                assert group.offsets[T0][0] == 20, "it came back in the next generation and goes on"

    run(story())


@pytest.mark.parametrize(
    ("policy", "committed", "again"),
    [
        ("earliest", 10, list(range(10, 30))),
        ("earliest", 20, list(range(20, 30))),
        ("earliest", None, list(range(30))),
        ("latest", 10, list(range(10, 30))),
        ("latest", None, list(range(20, 30))),  # Kafka's would go on at the end
    ],
)
def test_what_was_not_committed_is_handed_out_again_after_a_rebalance(
    run: Any, policy: str, committed: int | None, again: list[int]
) -> None:
    """Who aborts a transaction amid a rebalance has no partition to seek back in. Nothing may be missed."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            group = double.groups.group("g")
            options = {**BY_HAND, "auto_offset_reset": policy}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                await until(lambda: consumer.assignment() == {T0})
                assert await consumer.position(T0) == 0
                fill(log, 20)
                assert await take(consumer, 20) == list(range(20))
                if committed is not None:
                    await consumer.commit({T0: committed})
                await begin_a_rebalance(double, group, consumer)
                await until(lambda: consumer.assignment() == {T0})
                fill(log, 10)
                wanted = [n % 20 for n in again]
                assert await take(consumer, len(wanted)) == wanted

    run(story())


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_commit_covers_nothing_that_was_let_go_of_while_the_partition_was_away(
    run: Any, comes_back: bool
) -> None:
    """Who has asked for more meanwhile may have dropped what it had of a partition that was not its own."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as consumer:
                assert len(await take(consumer, 20)) == 20
                await begin_a_rebalance(double, group, consumer)
                if comes_back:
                    assert await consumer.poll(0) == []
                await until(lambda: consumer.assignment() == {T0})
                await consumer.commit()
                assert group.offsets.get(T0, (0, ""))[0] == (0 if comes_back else 20)
                if comes_back:
                    assert await take(consumer, 20) == list(range(20))

    run(story())


@pytest.mark.parametrize("at", [5, 20])
def test_where_the_caller_goes_on_after_a_rebalance_is_its_own_choice(run: Any, at: int) -> None:
    """Offsets may be kept elsewhere."""

    class Seeking(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                consumer.seek(one, at if sought else 0)
            sought.append(at)

    async def story() -> None:
        nonlocal consumer
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            consumer = Consumer(double.servers, topics=["t"], listener=Seeking(), **BY_HAND)
            async with consumer:
                assert len(await take(consumer, 20)) == 20
                await begin_a_rebalance(double, group, consumer)
                await until(lambda: len(sought) == 2)
                fill(log, 10)
                wanted = [*range(20), *range(10)][at:]
                assert await take(consumer, len(wanted)) == wanted

    consumer: Any = None
    sought: list[int] = []
    run(story())


def test_who_closes_amid_a_rebalance_commits_what_it_is_done_with(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                async with asyncio.timeout(20):
                    while not await consumer.poll(50):
                        pass
                await begin_a_rebalance(double, group, consumer)
            assert group.offsets[T0][0] == 20

    run(story())


def test_a_revocation_that_closing_interrupts_is_told_again(run: Any) -> None:
    class Committing(RebalanceListener):
        begun = 0

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            self.begun += 1
            if self.begun == 1:
                await asyncio.Event().wait()
            await consumer.commit()

    async def story() -> None:
        nonlocal consumer
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            ear = Committing()
            consumer = Consumer(double.servers, topics=["t"], listener=ear, **BY_HAND)
            async with consumer:
                assert len(await take(consumer, 20)) == 20
                group.members["ghost"] = None
                double.groups.rebalance(group)
                await until(lambda: ear.begun)
            assert (ear.begun, group.offsets[T0][0]) == (2, 20)

    consumer: Any = None
    run(story())


class Broken(RebalanceListener):
    """Raises when told of what it names."""

    def __init__(self, *when: str, failure: type[Exception] = LookupError) -> None:
        self.when, self.failure = when, failure

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.tell("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.tell("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.tell("lost")

    def tell(self, what: str) -> None:
        if what in self.when:
            raise self.failure(what)


@pytest.mark.parametrize("when", [("assigned",), ("revoked",), ("revoked", "lost"), ("lost",)], ids="-".join)
@pytest.mark.parametrize("failure", [LookupError, OSError])
def test_a_listener_that_raises_ends_the_membership_and_the_caller_is_told(
    when: tuple[str, ...], failure: type[Exception], run: Any
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            consumer = Consumer(
                double.servers, topics=["t"], listener=Broken(*when, failure=failure), **GROUP
            )
            async with consumer:
                if "assigned" not in when:
                    assert len(await take(consumer, 20)) == 20
                    if "revoked" in when:
                        group.members["ghost"] = None
                        double.groups.rebalance(group)
                    else:
                        double.groups.lose("g")
                for _ in range(2):
                    with pytest.raises(failure, match=r"assigned|revoked|lost"):
                        async with asyncio.timeout(20):
                            while True:
                                await consumer.poll(50)
                    assert not consumer.assignment(), "what it had may be read by others"
                await until(lambda: not [one for one in group.members if one != "ghost"])
            await until(lambda: not double.brokers[1].links)

    run(story())


def test_who_is_refused_for_good_reads_no_more(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            fenced = False

            def fence(broker: Broker, api: int, request: Any) -> Any:
                refused = fenced and api == Api.HEARTBEAT
                return HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID) if refused else None

            double.hook = fence
            async with Consumer(double.servers, topics=["t"], group_instance_id="i", **GROUP) as consumer:
                assert len(await take(consumer, 20)) == 20
                fenced = True
                await until(lambda: not consumer.assignment())
                fill(log, 20)
                for _ in range(2):
                    with pytest.raises(FencedInstanceId):
                        await consumer.poll(50)

    run(story())


def test_closing_closes_all_even_if_a_listener_raises(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            consumer = Consumer(double.servers, topics=["t"], listener=Broken("revoked"), **GROUP)
            with pytest.raises(LookupError):
                async with consumer:
                    await until(consumer.assignment)
            assert not double.groups.group("g").members
            await until(lambda: not double.brokers[1].links)

    run(story())


KEEN: dict[str, Any] = {**GROUP, "metadata_max_age_ms": 20}


def test_a_leader_watches_all_topics_of_its_group_as_it_knew_them_when_it_decided(run: Any) -> None:
    """The topic that grows is the other member's, and the leader hears of it late."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("leaders")
            double.topic("others", 3)
            group, is_late = double.groups.group("g"), True

            def tell_the_leader_late(broker: Broker, api: int, request: Any) -> Any:
                if (
                    api != Api.METADATA
                    or not is_late
                    or "leaders" not in [one.name for one in request.topics]
                ):
                    return None
                known = double.topics["others"]
                double.topics["others"] = known[:3]
                answer = HANDLERS[Api.METADATA](double, broker, request)
                double.topics["others"] = known
                return answer

            double.hook = tell_the_leader_late
            async with Consumer(double.servers, topics=["leaders"], **KEEN) as leader:
                await until(leader.assignment)
                async with Consumer(double.servers, topics=["others"], **KEEN) as other:
                    await until(lambda: len(other.assignment()) == 3)
                    before = group.generation
                    double.topics["others"] += [Partition(1) for _ in range(3)]
                    await until(lambda: group.generation > before and len(other.assignment()) == 3)
                    is_late = False
                    await until(lambda: len(other.assignment()) == 6)

    run(story())


def test_partitions_that_come_while_a_generation_is_being_formed_are_given_in_the_next(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 3)
            grown = False

            async def grow(consumer: Consumer) -> None:
                double.topics["t"] += [Partition(1) for _ in range(3)]
                await until(lambda: len(consumer._cluster.view.topics["t"].partitions) == 6)

            def amid_the_sync(broker: Broker, api: int, request: Any) -> Any:
                nonlocal grown
                if api != Api.SYNC_GROUP or grown:
                    return None
                grown = True
                return grow(consumer)

            double.hook = amid_the_sync
            consumer = Consumer(double.servers, topics=["t"], **KEEN)
            async with consumer:
                await until(lambda: len(consumer.assignment()) == 6)

    run(story())


def test_a_newcomer_joins_once(run: Any) -> None:
    """It knows the topics before it joins: hearing of them afterwards would be a reason to join again."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **GROUP) as first:
                await until(first.assignment)
                async with Consumer(double.servers, topics=["t"], **GROUP) as second:
                    await until(lambda: first.assignment() and second.assignment())
                    for member in (first, second):
                        assert member._subscription.membership is not None
                        await member._subscription.membership.is_settled.wait()
                        assert not member._subscription.membership._rejoin.is_set()
                    assert group.generation == 2

    run(story())


def test_who_comes_back_while_it_is_stepping_aside_joins_again_at_once(run: Any) -> None:
    """A caller that waits in poll says that it is alive only twice in max_poll_interval_ms."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            back: list[asyncio.Task[Any]] = []

            async def come_back() -> None:
                back.append(tasks.create_task(consumer.poll(60_000)))
                await asyncio.sleep(0)

            def while_it_leaves(broker: Broker, api: int, request: Any) -> Any:
                return come_back() if api == Api.LEAVE_GROUP and not back else None

            consumer = Consumer(double.servers, topics=["t"], **BY_HAND)
            async with consumer, asyncio.TaskGroup() as tasks:
                assert len(await take(consumer, 20)) == 20
                double.hook = while_it_leaves
                assert consumer._subscription.membership is not None
                consumer._subscription.membership._last_poll = float("-inf")
                await until(lambda: back and group.members)
                assert len(await back[0]) == 20, "nothing was committed"

    run(story())


def test_who_takes_one_record_after_another_is_alive_though_it_asks_for_no_more(run: Any) -> None:
    """An iterator's records lie ready; that it takes them is seen when the next heartbeat is due."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            heard = double.brokers[1].requests

            def has_left() -> bool:
                return any(api == Api.LEAVE_GROUP for api, _ in heard)

            async with Consumer(double.servers, topics=["t"], **BY_HAND) as consumer:
                membership = consumer._subscription.membership
                assert membership is not None
                for n in range(5):
                    assert (await anext(consumer)).offset == n
                    membership._last_poll = float("-inf")
                    await until(lambda: membership._last_poll > 0)
                assert not has_left()
                membership._last_poll = float("-inf")
                await until(has_left)

    run(story())


def test_a_listener_that_commits_what_is_lost_already_costs_nothing_more(run: Any) -> None:
    """By default it is told of lost partitions as of revoked ones; its commit can only be refused."""

    class Committing(RebalanceListener):
        refused = 0

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            try:
                await consumer.commit()
                await consumer.commit(dict.fromkeys(partitions, 20))
            except CommitFailed:
                self.refused += 1
                raise

    async def story() -> None:
        nonlocal consumer
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group, ear = double.groups.group("g"), Committing()
            consumer = Consumer(double.servers, topics=["t"], listener=ear, **BY_HAND)
            async with consumer:
                assert len(await take(consumer, 20)) == 20
                double.groups.lose("g")
                await until(lambda: ear.refused)
                assert len(await take(consumer, 20)) == 20, "it is a member again"
                consumer._subscription.membership._last_poll = float("-inf")
                await until(lambda: ear.refused == 2)
                for _ in range(20):  # as many answers of the coordinator as joining takes, and more
                    await consumer.committed(T0)
                assert not group.members, "it waits until the caller comes back"
                assert len(await take(consumer, 20)) == 20

    consumer: Any = None
    run(story())


def test_closing_while_a_failed_membership_departs_raises_no_second_failure(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group, leaving = double.groups.group("g"), asyncio.Event()

            async def leave_slowly() -> None:
                leaving.set()
                await asyncio.Event().wait()

            double.hook = lambda broker, api, request: (
                leave_slowly() if api == Api.LEAVE_GROUP and not leaving.is_set() else None
            )
            listener = Broken("revoked", "lost")
            async with Consumer(double.servers, topics=["t"], listener=listener, **GROUP) as consumer:
                assert len(await take(consumer, 20)) == 20
                group.members["ghost"] = None
                double.groups.rebalance(group)
                await leaving.wait()

    run(story())


def test_sticky_members_keep_what_they_had_though_all_is_revoked_for_a_moment(run: Any) -> None:
    """Eager: who joins owns nothing. The leader learns from user data what each one had."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 4)
            sticky: Any = {**GROUP, "partition_assignment_strategy": ["sticky"]}
            async with Consumer(double.servers, topics=["t"], **sticky) as first:
                await until(lambda: len(first.assignment()) == 4)
                async with Consumer(double.servers, topics=["t"], **sticky) as second:
                    await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
                    theirs = first.assignment(), second.assignment()
                    async with Consumer(double.servers, topics=["t"], **sticky) as third:
                        await until(lambda: third.assignment())
                        await until(lambda: len(first.assignment() | second.assignment()) == 3)
                        assert first.assignment() <= theirs[0] and second.assignment() <= theirs[1]

    run(story())


def test_an_administrator_removes_members(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("t")
            group = double.groups.group("g")
            static: Any = {**GROUP, "group_instance_id": "seat"}
            async with Consumer(double.servers, topics=["t"], **static) as consumer:
                await until(lambda: consumer.assignment() == {T0})
            assert len(group.members) == 1, "a static member that closes keeps its seat"
            with pytest.raises(UnknownMemberId, match="nobody"):
                await admin.remove_group_members("g", [MemberToRemove("nobody")])
            await admin.remove_group_members("g", [MemberToRemove(instance_id="seat")])
            assert not group.members

    run(story())


def test_a_transaction_does_not_commit_what_went_to_another_member(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as first:
                await until(lambda: first.assignment() == {T0, T1})
                assert first.group_metadata([T0, T1]).is_member
                async with Consumer(double.servers, topics=["t"], **BY_HAND) as second:
                    await until(lambda: second.assignment() == {T1} and first.assignment() == {T0})
                    assert first.group_metadata([T0]).generation == second.group_metadata([T1]).generation
                    with pytest.raises(CommitFailed, match="t-1"):
                        first.group_metadata([T0, T1])

    run(story())


def test_who_has_no_assignor_in_common_with_the_others_is_told_which_it_has(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            refusal = JoinGroupResponse(error_code=code, leader="", member_id="", protocol_name="")
            double.hook = lambda broker, api, request: refusal if api == Api.JOIN_GROUP else None
            strategy: Any = {"partition_assignment_strategy": ("range", "sticky")}
            async with Consumer(double.servers, topics=["t"], group="g", **strategy) as consumer:
                why = "g: not all of its members have one of the assignors range, sticky"
                with pytest.raises(InconsistentGroupProtocol, match=why):
                    await consumer.poll(5_000)

    run(story())

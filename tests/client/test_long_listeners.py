"""A listener may take longer than a session: meanwhile its consumer stays a member of its group."""

from typing import Any

import pytest

from strandline.client import Consumer, RebalanceListener, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import RebalanceInProgress
from tests.client.broker_harness import Double
from tests.client.numbered import fill, take
from tests.client.test_consumer import GROUP, T0
from tests.client.test_membership import begin_a_rebalance, until

BEATS = 5


@pytest.mark.parametrize("long", ["assigned", "revoked"])
def test_heartbeats_go_on_while_a_listener_is_at_work(run: Any, long: str) -> None:
    class Loading(RebalanceListener):
        """Works until the coordinator has heard so many heartbeats meanwhile."""

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await self.work("assigned")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await self.work("revoked")

        async def work(self, what: str) -> None:
            if what == long and not done:
                before = beats()
                await until(lambda: beats() >= before + BEATS)
                done.append(what)

    done: list[str] = []

    async def story() -> None:
        nonlocal double
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(20))
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], listener=Loading(), **GROUP) as consumer:
                assert await take(consumer, 20) == list(range(20))
                if long == "revoked":
                    await begin_a_rebalance(double, group, consumer)
                assert done == [long]
                await until(consumer.assignment)
                membership = consumer._subscription.membership
                await until(lambda: len(membership._tasks) == 1)  # only the member itself

    def beats() -> int:
        return sum(api == Api.HEARTBEAT for api, _ in double.brokers[1].requests)

    double: Any = None
    run(story())


def test_nothing_of_a_partition_is_handed_out_while_its_revocation_is_told(run: Any) -> None:
    """What the listener commits is where the next owner begins: it would get the same records."""

    class Committing(RebalanceListener):
        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            for _ in range(2):
                if not handed:
                    assert await consumer.poll(50) == []
            handed.append(await consumer.position(T0))

    handed: list[int] = []

    async def story() -> None:
        nonlocal consumer
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(20))
            group = double.groups.group("g")
            consumer = Consumer(double.servers, topics=["t"], listener=Committing(), **GROUP)
            async with consumer:
                assert await take(consumer, 5) == list(range(5))
                await begin_a_rebalance(double, group, consumer)
                assert handed == [5]
                await until(consumer.assignment)
                assert await take(consumer, 15) == list(range(5, 20))

    consumer: Any = None
    run(story())


def test_what_a_member_keeps_since_its_listener_was_refused_is_handed_out(run: Any) -> None:
    """A cooperative member whose listener cannot commit, amid a rebalance, joins again, and may have the
    partition still.
    """

    class Refused(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            if not told:
                told.extend(partitions)
                raise RebalanceInProgress()

    told: list[TopicPartition] = []

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(20))
            async with Consumer(double.servers, topics=["t"], listener=Refused(), **GROUP) as consumer:
                assert await take(consumer, 5) == list(range(5))
                with pytest.raises(RebalanceInProgress):
                    await consumer._subscription._revoked({T0})
                assert told == [T0]
                assert await take(consumer, 15) == list(range(5, 20))

    run(story())

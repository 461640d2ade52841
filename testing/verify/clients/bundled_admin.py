"""An administrator, with the bundled client: topics are made, changed, grown and deleted, partitions moved,
while brokers come and go.

Each step is repeated until brokers say that it is done. Partitions of the run's topics and of the internal
ones are given other replicas, or the same ones in another order, whose first one then leads; a part of the
moves is called off. Left to others: what is seen of records meanwhile (the other clients).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from ....base.types import TopicPartition as Place
from ....client.admin.admin import Admin
from ....client.admin.descriptions import NewTopic, PartitionDescription
from ....protocol.errors import (
    ApiError,
    InvalidPartitions,
    NoReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ...anomalies import Action, Record, Type
from .client import STOP, Client

INTERNAL = ("__consumer_offsets", "__transaction_state")
INTERNAL_SHARE = 0.25  # of the moves
CALLED_OFF_SHARE = 0.15
STEP_S = 120.0  # for which a step is tried: brokers are away for some seconds
AGAIN_S = 0.2
PATIENCE_MS = 10_000
PARTITIONS, GROWN = 2, 3

Answer = TypeVar("Answer")


async def administrator(client: Client) -> None:
    """One topic of its own after another, and a few moves of others' partitions with each."""
    options: dict[str, Any] = {"request_timeout_ms": PATIENCE_MS, "default_api_timeout_ms": PATIENCE_MS}
    number = 0
    async with Admin(client.bootstrap, **options) as admin:
        works = Works(client, admin)
        while not STOP.is_set():
            number += 1
            name = f"{client.job.prefix}{client.name}-{client.job.life}-{number}"
            await works.make(name)
            for _ in range(3):
                await works.move_somewhere()
            await works.move(Place(name, client.random.randrange(GROWN)))
            await works.delete(name)


class Works:
    """The steps."""

    def __init__(self, client: Client, admin: Admin) -> None:
        self.client, self.admin, self.random = client, admin, client.random

    async def make(self, topic: str) -> None:
        """A topic with settings and partitions that it gets one after another."""
        kept_ms = str(self.random.randint(1, 9) * 86_400_000)

        async def created() -> bool:
            with suppress(TopicAlreadyExists):
                await self.admin.create_topics([NewTopic(topic, PARTITIONS, 2)])
            return all(one.leader >= 0 for one in await self.partitions(topic))

        async def is_set() -> bool:
            await self.admin.alter_configs({"retention.ms": kept_ms}, topic=topic)
            told = await self.admin.describe_configs(topic=topic)
            return {one.name: one.value for one in told}.get("retention.ms") == kept_ms

        async def grown() -> bool:
            with suppress(InvalidPartitions):  # it has as many
                await self.admin.create_partitions({topic: GROWN})
            found = await self.partitions(topic)
            return len(found) == GROWN and all(one.leader >= 0 for one in found)

        await self.changed(f"create {topic}", created)
        await self.changed(f"configure {topic}", is_set)
        await self.changed(f"grow {topic}", grown)

    async def delete(self, topic: str) -> None:
        """The topic, and no broker tells of it any more."""

        async def deleted() -> bool:
            with suppress(UnknownTopicOrPartition):
                await self.admin.delete_topics([topic])
            return topic not in await self.admin.list_topics()

        await self.changed(f"delete {topic}", deleted)

    async def move_somewhere(self) -> None:
        """A partition of the run, or an internal one."""
        places = [Place(*each) for each in self.client.places()]
        if self.random.random() < INTERNAL_SHARE:
            topic = self.random.choice(INTERNAL)
            with suppress(ApiError, OSError):
                places = [Place(topic, one.partition) for one in await self.partitions(topic)] or places
        await self.move(self.random.choice(places))

    async def move(self, place: Place) -> None:
        """To as many brokers as hold it now; the first of them leads, if it is in sync."""
        before = await self.surely(f"describe {place}", lambda: self.described(place))
        cluster = await self.surely("describe the cluster", self.admin.describe_cluster)
        brokers, count = [one.node_id for one in cluster.brokers], len(before.replicas)
        if len(brokers) < count:
            brokers = sorted({*brokers, *before.replicas})
        target = self.random.sample(brokers, count)
        is_called_off = self.random.random() < CALLED_OFF_SHARE

        async def moved() -> bool:
            found = await self.described(place)
            if place in await self.admin.list_partition_reassignments([place]):
                return False
            if list(found.replicas) != target:
                await self.admin.alter_partition_reassignments({place: target})
                return False
            return set(found.isr) == set(target)

        async def is_back() -> bool:
            with suppress(NoReassignmentInProgress):
                await self.admin.alter_partition_reassignments({place: None})
            found = await self.described(place)
            moves = await self.admin.list_partition_reassignments([place])
            return place not in moves and len(found.replicas) == count

        if is_called_off:
            await self.surely(f"move {place} to {target}", lambda: self._asked(place, target))
            await self.surely(f"call off the move of {place}", is_back)
        else:
            await self.surely(f"move {place} to {target}", moved)
            with suppress(ApiError, OSError):
                await self.admin.elect_leaders("preferred", [place])
        what = f"{'called off: ' if is_called_off else ''}{before.replicas} to {target}"
        self.client.notes.note(Type.OK, Action.REASSIGNED, [Record(*place)], error=what)

    async def _asked(self, place: Place, target: list[int]) -> bool:
        await self.admin.alter_partition_reassignments({place: target})
        return True

    async def partitions(self, topic: str) -> tuple[PartitionDescription, ...]:
        (found,) = await self.admin.describe_topics([topic])
        return found.partitions

    async def described(self, place: Place) -> PartitionDescription:
        """Raises ApiError if the broker that is asked does not know it yet."""
        for one in await self.partitions(place.topic):
            if one.partition == place.partition:
                return one
        raise UnknownTopicOrPartition(f"{place} is not known yet")

    async def changed(self, what: str, step: Callable[[], Awaitable[bool]]) -> None:
        """Do it, and note it."""
        await self.surely(what, step)
        self.client.notes.note(Type.OK, Action.CHANGED, error=what)

    @staticmethod
    async def surely(what: str, step: Callable[[], Awaitable[Answer]]) -> Answer:
        """Until it is done: what is told then. Raises RuntimeError after STEP_S: a next life begins anew."""
        deadline, why = time.monotonic() + STEP_S, "it is not said to be done"
        while time.monotonic() < deadline:
            try:
                if answer := await step():
                    return answer
            except (ApiError, OSError, TimeoutError) as error:
                why = repr(error)
            await asyncio.sleep(AGAIN_S)
        raise RuntimeError(f"{what}: not done within {STEP_S:g} s: {why}")

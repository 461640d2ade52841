"""Groups by the new consumer protocol (KIP-848), with librdkafka: shared, grown, killed, upgraded."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from driving import Row, until

from strandline.broker.coordinator_partitions import partition_of
from strandline.testing import LocalCluster

WAIT_S = 60


@pytest.fixture
def healed(running: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster; whatever was killed runs again afterwards."""
    yield running
    for broker in running.brokers.values():
        if not broker.alive:
            broker.start()
    running.wait_ready()


@pytest.fixture
def client(drivers: dict[str, Any]) -> Any:
    """confluent-kafka."""
    return drivers["confluent-kafka"]


@pytest.fixture
def group() -> str:
    """A group of the test's own."""
    return f"group-{uuid.uuid4().hex[:12]}"


class Crowd:
    """Members that are polled together: what they have read, and who has what."""

    def __init__(self, client: Any, topic: str, group: str, stack: ExitStack) -> None:
        self.client, self.topic, self.group, self.stack = client, topic, group, stack
        self.members: dict[str, Any] = {}
        self.leaving: dict[str, ExitStack] = {}
        self.found: list[bytes] = []

    def join(self, name: str, kind: str = "consumer") -> None:
        self.leaving[name] = ExitStack()
        self.stack.enter_context(self.leaving[name])
        member = self.client.member(self.topic, self.group, kind)
        self.members[name] = self.leaving[name].enter_context(member)

    def leave(self, name: str) -> None:
        del self.members[name]
        self.leaving.pop(name).close()

    def poll(self) -> None:
        for member in self.members.values():
            self.found.extend(one.row.value for one in member.poll() if one.row.value)

    def shares(self) -> list[set[int]]:
        self.poll()
        shares = [member.assignment() for member in self.members.values()]
        assert sum(map(len, shares)) == len(set().union(*shares)), f"a partition is read by two: {shares}"
        return shares

    def share(self, partitions: int, what: str) -> None:
        """Wait until all members have about as many of these partitions."""

        def is_fair() -> bool:
            shares = self.shares()
            sizes = sorted(map(len, shares))
            return sum(sizes) == partitions and sizes[-1] - sizes[0] <= 1

        until(is_fair, what, WAIT_S)

    def read(self, values: set[bytes], what: str) -> None:
        def has_all() -> bool:
            self.poll()
            return values <= set(self.found)

        until(has_all, what, WAIT_S)


@pytest.fixture
def crowd(client: Any, topic: str, group: str) -> Iterator[Crowd]:
    """Nobody yet."""
    with ExitStack() as stack:
        yield Crowd(client, topic, group, stack)


def write(ours: Any, topic: str, name: str) -> set[bytes]:
    rows = [Row(f"{name}-{number}".encode(), f"{name} {number}".encode()) for number in range(60)]
    ours.produce(topic, rows, "none", idempotent=True)
    return {row.value for row in rows if row.value}


def described(client: Any, group: str) -> Any:
    return client.admin.describe_consumer_groups([group])[group].result(30)


def test_members_come_and_go(crowd: Crowd, ours: Any) -> None:
    first = write(ours, crowd.topic, "first")
    crowd.join("one")
    crowd.share(3, "the lone member has everything")
    for name in ("two", "three"):
        crowd.join(name)
    crowd.share(3, "three members have a partition each")
    crowd.read(first, "all is read")
    found = described(crowd.client, crowd.group)
    assert (found.type.name, found.state.name, len(found.members)) == ("CONSUMER", "STABLE", 3)
    crowd.members["one"].commit()
    crowd.leave("one")
    crowd.leave("three")
    crowd.share(3, "the one that stays has everything")
    assert write(ours, crowd.topic, "second") and crowd.group in crowd.client.groups()


def test_a_topic_grows_under_a_group(crowd: Crowd, ours: Any) -> None:
    for name in ("one", "two"):
        crowd.join(name)
    crowd.share(3, "they share the topic")
    crowd.client.admin.create_partitions([NewPartitions(crowd.topic, 6)])[crowd.topic].result(30)
    crowd.share(6, "they share what is new, too")


def test_a_group_is_upgraded_and_downgraded_member_by_member(crowd: Crowd, ours: Any) -> None:
    """As when a service is deployed: no record is left out, and no partition is read by two at a time."""
    values = write(ours, crowd.topic, "classic")
    for name in ("one", "two"):
        crowd.join(name, "default")
    crowd.share(3, "a classic group")
    for number, name in enumerate(("one", "two")):
        crowd.leave(name)
        crowd.join(f"{name} anew", "consumer")
        values |= write(ours, crowd.topic, f"up {number}")
        crowd.share(3, "the group goes on")
    assert described(crowd.client, crowd.group).type.name == "CONSUMER"
    for number, name in enumerate(("one", "two")):
        crowd.leave(f"{name} anew")
        crowd.join(name, "default")
        values |= write(ours, crowd.topic, f"down {number}")
        crowd.share(3, "the group goes on")
    assert described(crowd.client, crowd.group).type.name == "CLASSIC"
    crowd.read(values, "no record is left out")


def test_the_coordinator_is_killed(crowd: Crowd, ours: Any, healed: LocalCluster) -> None:
    """What members have is in the log: they go on with it under another coordinator."""
    for name in ("one", "two"):
        crowd.join(name)
    crowd.share(3, "they share the topic")
    epoch = described(crowd.client, crowd.group).members
    before = {member.member_id: len(member.assignment.topic_partitions) for member in epoch}
    place = partition_of(crowd.group, 50)
    victim = healed.leader("__consumer_offsets", place)
    healed.brokers[victim].kill()
    until(lambda: healed.leader("__consumer_offsets", place) not in (victim, -1), "another coordinates")
    values = write(ours, crowd.topic, "after")
    crowd.read(values, "they read on")
    crowd.share(3, "and have what they had")
    found = described(crowd.client, crowd.group).members
    assert {each.member_id: len(each.assignment.topic_partitions) for each in found} == before
    crowd.join("three")
    crowd.share(3, "a third member comes")


def test_a_subscription_by_an_expression(crowd: Crowd, ours: Any, client: Any) -> None:
    values = write(ours, crowd.topic, "any")
    crowd.topic = f"^{crowd.topic[:-1]}.$"
    crowd.join("one")
    crowd.share(3, "the expression matches the topic")
    crowd.read(values, "its records are read")
    one = crowd.members["one"].consumer
    one.commit(asynchronous=False)
    ends = [
        one.committed([TopicPartition(each.topic, each.partition)])[0].offset for each in one.assignment()
    ]
    assert sum(max(end, 0) for end in ends) == len(values)

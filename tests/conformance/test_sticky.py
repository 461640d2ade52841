"""Sticky assignors of several clients in one group: whoever leads, each partition has one owner and stays.

The leader computes what all members get from what each of them tells it had (the assignor's user data, or the
partitions of the subscription): a leader that could not read another client's would deal anew.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sticky_members import PARTITIONS, Party

from strandline.client.sync import Admin
from strandline.testing import LocalCluster

COOPERATIVE = ("bundled", "librdkafka", "kafka-python", "java")
EAGER = ("bundled", "kafka-python", "aiokafka", "java")
EVERY = [("cooperative-sticky", led, other) for led in COOPERATIVE for other in COOPERATIVE if led != other]
EVERY += [("sticky", led, other) for led in EAGER for other in EAGER if led != other]
CHEAP = [
    ("cooperative-sticky", "bundled", "librdkafka"),
    ("cooperative-sticky", "librdkafka", "bundled"),
    ("sticky", "bundled", "kafka-python"),
    ("sticky", "aiokafka", "bundled"),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends every member."""
    with ExitStack() as held:
        yield held


def party(cluster: LocalCluster, strategy: str, stack: ExitStack) -> Party:
    topic = f"sticky-{uuid.uuid4().hex[:12]}"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, len(cluster.brokers))
    return Party(cluster.bootstrap, topic, f"group-{topic}", strategy, stack)


def reads(leader: str, strategy: str, others: set[str]) -> bool:
    """Whether it reads what the others had. kafka-python 3 puts a version before the data of `sticky`, which
    nobody else does: it reads only its own, and only the bundled client reads them beside Kafka's.
    """
    if strategy != "sticky" or leader == "bundled":
        return True
    return "kafka-python" not in {leader, *others}


def kept(leader: str, before: dict[str, set[int]], after: dict[str, set[int]]) -> bool:
    """Nobody has both lost a partition and won another one. aiokafka's assignor deals its own partitions
    anew now and then, so that of what it decides only the lot of others is looked at.
    """
    judged = [name for name in before if name in after and (leader != "aiokafka" or leader not in name)]
    return all(after[name] <= before[name] or after[name] >= before[name] for name in judged)


def story(cluster: LocalCluster, strategy: str, leader: str, other: str, stack: ExitStack) -> None:
    crowd = party(cluster, strategy, stack)
    crowd.join(leader)
    crowd.settle("the first has all")
    crowd.join(other)
    two = crowd.settle("two have three each")
    crowd.join("bundled" if "bundled" not in (leader, other) else leader)
    three = crowd.settle("three have two each")
    is_read = reads(leader, strategy, {other, "bundled"})
    assert not is_read or kept(leader, two, three), f"{two} became {three}"
    crowd.leave(2)
    back = crowd.settle("the third one's are dealt to those that stay")
    assert not is_read or kept(leader, three, back), f"{three} became {back}"
    crowd.leave(0)
    alone = crowd.settle("the other one leads and has all")
    assert kept(other, back, alone)


@pytest.mark.parametrize(("strategy", "leader", "other"), CHEAP)
def test_partitions_stay_whoever_leads(
    running: LocalCluster, stack: ExitStack, strategy: str, leader: str, other: str
) -> None:
    story(running, strategy, leader, other, stack)


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "leader", "other"), [each for each in EVERY if each not in CHEAP])
def test_every_pair_of_clients(
    running: LocalCluster, stack: ExitStack, strategy: str, leader: str, other: str
) -> None:
    story(running, strategy, leader, other, stack)

"""A path counts as watched from the read that armed it until the watch fires, or its connection is gone."""

import asyncio
from typing import Any, cast

import pytest

from strandline.controller.watches import BrokerWatch, TopicWatch, Watches
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import NoNode, Unknown, Watch
from strandline.zookeeper.znodes import ControllerTerm
from tests.controller.memory_zk_client import MemoryZkClient

LOST = Unknown("no answer")


class Nodes:
    """A client without a node, whose reads fail when told to. It keeps the watches that it was given."""

    def __init__(self) -> None:
        self.outcomes: list[BaseException | None] = []
        self.armed: list[tuple[str, Watch]] = []

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await asyncio.sleep(0)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        if watch is not None:
            self.armed.append((path, watch))
        return []

    def fire(self) -> None:
        armed, self.armed = self.armed, []
        for path, watch in armed:
            watch(path)


async def test_a_path_is_armed_once_until_it_fires_or_the_connection_ends() -> None:
    nodes, fired = Nodes(), list[str]()
    watches = Watches(fired.append)
    for _ in range(3):
        await watches.arm("/a", nodes.children)
    assert len(nodes.armed) == 1
    nodes.fire()
    assert fired == ["/a"]
    await watches.arm("/a", nodes.children)
    watches.forget()
    await watches.arm("/a", nodes.children)
    assert len(nodes.armed) == 2


@pytest.mark.parametrize("failure", [Unknown("no answer"), NoNode("/a"), asyncio.CancelledError()])
async def test_a_read_that_failed_has_armed_nothing(failure: BaseException) -> None:
    """Its answer may be lost, or the connection break before the question arrives: nobody would ever hear."""

    nodes = Nodes()
    watches = Watches(lambda _: None)
    nodes.outcomes = [failure]
    with pytest.raises(type(failure)):
        await watches.arm("/a", nodes.children)
    await watches.arm("/a", nodes.children)
    assert len(nodes.armed) == 1


@pytest.mark.parametrize("outcomes", [[LOST], [None, LOST], [LOST, None, LOST]])
async def test_a_topic_that_comes_after_a_look_without_an_answer_is_seen(
    outcomes: list[BaseException | None],
) -> None:
    """The reads of a look fail, one or the other; the look that follows arms what they should have armed."""

    nodes = Nodes()
    topics = TopicWatch(cast(Any, nodes), ControllerTerm(1, 1))
    nodes.outcomes = list(outcomes)
    for _ in range(outcomes.count(LOST)):
        with pytest.raises(Unknown):
            await topics.look()
    assert await topics.look() == [] and not topics.due.is_set()
    assert sorted(path for path, _ in nodes.armed) == [documents.DELETE_TOPICS, documents.TOPICS]
    nodes.fire()
    assert topics.due.is_set()


async def test_a_broker_is_seen_with_the_directories_that_it_has_given_up() -> None:
    """Also by a controller that was elected after that: it must not lead where it cannot read."""

    zk = cast(Any, MemoryZkClient(SimZooKeeper()))
    await znodes.ensure_paths(zk)
    for broker in (1, 2):
        await znodes.read_incarnation(zk, broker)
        await znodes.register_broker(zk, broker, documents.RegistrationDocument.of([], 0, 1, 1), [])
    await znodes.report_failed_dir(zk, 2, "a-directory")
    seen = await BrokerWatch(zk).look()
    assert {broker: known.has_failed_dirs for broker, known in seen.items()} == {1: False, 2: True}

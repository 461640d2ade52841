"""A path counts as watched from the read that armed it until the watch fires, or its connection is gone."""

import asyncio
from random import randbytes
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.controller.planning import plans
from strandline.controller.watches import BrokerWatch, TopicWatch, Watches
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, Delete, NoNode, SetData, Unknown, Watch
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
    topics = TopicWatch(cast(Any, nodes), ControllerTerm(1, 1), randbytes)
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


async def test_a_topic_that_an_old_tool_has_made_is_given_an_id() -> None:
    """Else no follower could fetch it. The tool may write once more meanwhile."""

    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(cast(Any, zk))
    path = documents.topic_path("old")
    await zk.multi([Create(path, b'{"version":1,"partitions":{"0":[1]}}')])
    grown = b'{"version":2,"partitions":{"0":[1],"1":[2]},"adding_replicas":{},"removing_replicas":{}}'
    ids = [bytes(16), UUID(int=7).bytes]

    def random_bytes(count: int) -> bytes:
        if len(ids) == 2:
            zk.server.multi([SetData(path, grown, 0)], zk.session_id)
        return ids.pop(0)

    term = await znodes.elect(cast(Any, zk), 1, 0)
    assert term is not None
    (read,) = await TopicWatch(cast(Any, zk), term, random_bytes).look()
    assert isinstance(read, plans.TopicsRead)
    topic = read.topics["old"]
    assert (topic.id, topic.replicas, topic.version) == (UUID(int=7), {0: (1,), 1: (2,)}, 2)
    kept = documents.parse(documents.TopicDocument, (await zk.get(path))[0])
    assert (kept.uuid, kept.version) == (topic.id, 3)
    (again,) = await TopicWatch(cast(Any, zk), term, randbytes).look()
    assert again == read, "the next controller finds the same topic"


async def test_a_topic_whose_id_an_old_tool_has_lost_gets_it_back() -> None:
    """`kafka-topics --zookeeper --alter` of before 2.8 writes the node anew without it. With another id all
    its replicas would set their logs aside. One that was deleted and made again meanwhile is another topic.
    """
    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(cast(Any, zk))
    path, id = documents.topic_path("t"), documents.uuid_to_text(UUID(int=7))
    await zk.multi([Create(path, documents.TopicDocument(topic_id=id, partitions={0: [1]}).data())])
    term = await znodes.elect(cast(Any, zk), 1, 0)
    assert term is not None
    watch = TopicWatch(cast(Any, zk), term, lambda count: UUID(int=8).bytes)

    async def look() -> Any:
        (read,) = await watch.look()
        assert isinstance(read, plans.TopicsRead)
        return read.topics["t"]

    assert (await look()).id == UUID(int=7)
    await zk.multi([SetData(path, b'{"version":1,"partitions":{"0":[1],"1":[2]}}', 0)])
    grown = await look()
    assert (grown.id, grown.replicas) == (UUID(int=7), {0: (1,), 1: (2,)})
    assert documents.parse(documents.TopicDocument, (await zk.get(path))[0]).topic_id == id
    await zk.multi([Delete(path, 2), Create(path, b'{"version":1,"partitions":{"0":[1]}}')])
    assert (await look()).id == UUID(int=8)


@pytest.mark.parametrize("deletes", [True, False])
async def test_a_deletion_that_an_old_tool_asks_for_is_refused_where_topics_must_not_be_deleted(
    deletes: bool,
) -> None:
    """`kafka-topics --zookeeper --delete` asks no broker. Kafka's controllers take the request away, too."""

    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(cast(Any, zk))
    path, wanted = documents.topic_path("t"), documents.delete_topic_path("t")
    await zk.multi([Create(path, documents.TopicDocument(partitions={0: [1]}).data()), Create(wanted, b"")])
    term = await znodes.elect(cast(Any, zk), 1, 0)
    assert term is not None
    watch = TopicWatch(cast(Any, zk), term, randbytes, deletes)
    events = [event for event in await watch.look() if isinstance(event, plans.DeletionsWanted)]
    assert events == ([plans.DeletionsWanted(frozenset({"t"}))] if deletes else [])
    assert (await zk.exists(wanted) is not None) is deletes and await zk.exists(path) is not None


async def test_what_a_broker_of_ours_has_given_up_says_nothing_of_kafkas_of_its_id() -> None:
    """To a new controller a broker of Kafka that goes on in its roles says nothing of its directories: its
    replicas would not count as electable until each gets another leader epoch.
    """

    zk = cast(Any, MemoryZkClient(SimZooKeeper()))
    await znodes.ensure_paths(zk)
    await znodes.read_incarnation(zk, 1)
    await znodes.report_failed_dir(zk, 1, "a-directory")
    kafkas = b'{"version":5,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"timestamp":"1"}'
    await zk.multi([Create(documents.broker_path(1), kafkas, ephemeral=True)])
    (seen,) = (await BrokerWatch(zk).look()).values()
    assert seen.is_kafkas and not seen.has_failed_dirs

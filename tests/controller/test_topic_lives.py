"""Nodes below /strandline/topics: of topics that a controller of Kafka has deleted, and of living ones."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from strandline.base.clock import SystemClock
from strandline.controller.controller import Controller, ControllerOptions
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, topic_lives, znodes
from strandline.zookeeper.client import Create, SetData, Stat
from strandline.zookeeper.topic_lives import is_gone, remove_orphans
from strandline.zookeeper.znodes import ControllerMoved, ControllerTerm
from tests.controller.cluster_harness import until
from tests.controller.memory_zk_client import MemoryZkClient


async def started() -> tuple[MemoryZkClient, ControllerTerm]:
    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(zk)
    term = await znodes.elect(zk, 1, 0)
    assert term is not None
    return zk, term


async def lives(zk: MemoryZkClient, *ids: int) -> None:
    await zk.multi([Create(documents.life_path(UUID(int=id)), b"") for id in ids])


async def topic(zk: MemoryZkClient, name: str, data: bytes | int) -> None:
    if isinstance(data, int):
        text = documents.uuid_to_text(UUID(int=data))
        data = documents.TopicDocument(topic_id=text, partitions={0: [1]}).data()
    await zk.multi([Create(documents.topic_path(name), data)])


async def left(zk: MemoryZkClient) -> list[int]:
    return sorted(documents.uuid_from_text(name).int for name in await zk.children(documents.LIVES))


async def test_nodes_of_topics_that_are_gone_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lives, "TOGETHER_MAX", 2)
    zk, term = await started()
    await lives(zk, 1, 2, 3, 4, 5, 6, 7)
    for id in (2, 4, 5):
        await topic(zk, f"t{id}", id)
    await topic(zk, "by-a-tool", 9)
    assert await remove_orphans(zk, term) == 4
    assert await left(zk) == [2, 4, 5]
    assert await remove_orphans(zk, term) == 0


@pytest.mark.parametrize("data", [b"nonsense", documents.TopicDocument(partitions={0: [1]}).data()])
async def test_while_a_topic_cannot_tell_its_id_nothing_is_removed(data: bytes) -> None:
    zk, term = await started()
    await lives(zk, 1, 2)
    await topic(zk, "t", data)
    await topic(zk, "u", 2)
    assert await remove_orphans(zk, term) == 0 and await left(zk) == [1, 2]


async def test_topics_are_read_only_if_one_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    zk, term = await started()
    await lives(zk, 1, 2)
    for id in (1, 2):
        await topic(zk, f"t{id}", id)
    read, whole = list[str](), zk.get_many

    async def get_many(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        read.extend(paths)
        return await whole(paths)

    monkeypatch.setattr(zk, "get_many", get_many)
    assert await remove_orphans(zk, term, [UUID(int=id) for id in (1, 2, 7)]) == 0 and read == []
    assert await remove_orphans(zk, term, [UUID(int=1)]) == 0 and len(read) == 2
    await lives(zk, 3)
    assert await remove_orphans(zk, term, [UUID(int=id) for id in (1, 2)]) == 1
    assert await left(zk) == [1, 2]


async def test_a_topic_that_is_made_meanwhile_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one write with its node, after these were listed."""
    zk, term = await started()
    await lives(zk, 1)
    listed = zk.children

    async def children(path: str, watch: znodes.Watch | None = None) -> list[str]:
        found = await listed(path, watch)
        if path == documents.LIVES and len(found) == 1:
            await lives(zk, 2)
            await topic(zk, "t", 2)
        return found

    monkeypatch.setattr(zk, "children", children)
    assert await remove_orphans(zk, term) == 1
    monkeypatch.undo()
    assert await left(zk) == [2]


async def test_one_that_was_removed_or_written_meanwhile_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zk, term = await started()
    await lives(zk, 1, 2, 3)
    await zk.multi([SetData(documents.life_path(UUID(int=2)), b"somebody's", 0)])
    await remove_orphans(zk, term)
    assert await left(zk) == [2]


async def test_a_controller_that_is_none_any_more_removes_nothing() -> None:
    zk, term = await started()
    await lives(zk, 1)
    with pytest.raises(ControllerMoved):
        await remove_orphans(zk, ControllerTerm(term.epoch - 1, term.fence - 1))
    assert await left(zk) == [1]


async def test_without_a_parent_there_are_none() -> None:
    zk = MemoryZkClient(SimZooKeeper())
    assert await remove_orphans(zk, ControllerTerm(1, 1)) == 0


async def test_a_new_controller_removes_them() -> None:
    """Also if an answer of ZooKeeper is lost."""
    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(zk)
    await znodes.read_incarnation(zk, 1)
    at = [documents.Endpoint("PLAINTEXT", "127.0.0.1", 1)]
    await znodes.register_broker(zk, 1, documents.RegistrationDocument.of(at, 0, 1, 1), [])
    await lives(zk, 1, 2)
    await topic(zk, "t", 2)
    zk.unreadable.add(documents.LIVES)
    controller = Controller(ControllerOptions(1, "PLAINTEXT"), zk, SystemClock(), random.Random(1).randbytes)
    await controller.start()
    try:
        path = documents.life_path(UUID(int=1))
        await until(lambda: zk.server.exists(path, zk.session_id, None) is None)
        assert await left(zk) == [2]
    finally:
        await controller.stop()


async def test_whether_a_topic_is_gone() -> None:
    zk, _ = await started()
    assert await is_gone(zk, "t")
    await topic(zk, "t", 1)
    assert not await is_gone(zk, "t")
    await zk.multi([Create(documents.delete_topic_path("t"), b"")])
    assert await is_gone(zk, "t"), "its replicas are being deleted"
    assert not await is_gone(zk, "t", deletes_topics=False), "the request will be removed, and nothing else"
    assert await is_gone(zk, "u", deletes_topics=False)

"""Removes the znodes of a topic whose replicas are gone, partitions first.

The topic itself, its settings and the request to delete it go in one write, so that no request is ever seen
without its topic. May be repeated from any point.
"""

from __future__ import annotations

import asyncio

from ...zookeeper import documents
from ...zookeeper.client import Delete, NoNode, Op, ZkClient
from ...zookeeper.znodes import ControllerTerm, fenced


async def remove_topic(zk: ZkClient, term: ControllerTerm, topic: str) -> None:
    """Remove everything of a topic. Raises MultiFailed or Unknown: then it is to be called again."""
    root = documents.partitions_path(topic)
    numbers = await _children(zk, root)
    await asyncio.gather(*(_remove_partition(zk, term, f"{root}/{number}") for number in numbers))
    paths = (
        root,
        documents.topic_path(topic),
        documents.topic_config_path(topic),
        documents.delete_topic_path(topic),
    )
    await _remove(zk, term, (*paths, *await _life(zk, topic)))


async def _life(zk: ZkClient, topic: str) -> list[str]:
    """The znode that says that this topic, by its id, exists."""
    try:
        data, _ = await zk.get(documents.topic_path(topic))
        return [documents.life_path(documents.parse(documents.TopicDocument, data).uuid)]
    except (NoNode, documents.BadDocument):
        return []


async def _remove_partition(zk: ZkClient, term: ControllerTerm, path: str) -> None:
    below = [f"{path}/{name}" for name in await _children(zk, path)]
    await _remove(zk, term, (*below, path))


async def _remove(zk: ZkClient, term: ControllerTerm, paths: tuple[str, ...]) -> None:
    stats = await asyncio.gather(*(zk.exists(path) for path in paths))
    ops: list[Op] = [
        Delete(path, stat.version) for path, stat in zip(paths, stats, strict=True) if stat is not None
    ]
    if ops:
        await fenced(zk, term, ops)


async def _children(zk: ZkClient, path: str) -> list[str]:
    try:
        return await zk.children(path)
    except NoNode:
        return []

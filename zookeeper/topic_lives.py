"""One node for each topic id, so that a late write for a topic cannot hit the next topic of its name.

The controller creates and deletes it in the same write as the topic (`controller/requests/topics.py`,
`controller/requests/topic_removal.py`). Controllers of Apache Kafka know no such nodes: a topic that one of
them deletes leaves its own, which the next controller of ours removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from . import documents
from .client import ANY_VERSION, TOGETHER_MAX, Check, Delete, MultiFailed, NoNode, ZkClient
from .znodes import ControllerTerm, fenced


async def life_checks(zk: ZkClient, topic_ids: Iterable[UUID]) -> list[Check]:
    """The condition that these topics (at most `TOGETHER_MAX`) still exist, for a write that may land late.

    State versions alone do not protect: a topic that is deleted and created again counts them from 0. Topics
    made by tools have no such node, and get no check.
    """
    paths = [documents.life_path(topic_id) for topic_id in topic_ids]
    found = await zk.get_many(paths) if paths else []
    return [Check(path, ANY_VERSION) for path, node in zip(paths, found, strict=True) if node is not None]


async def is_gone(zk: ZkClient, topic: str, deletes_topics: bool = True) -> bool:
    """Whether there is no such topic, or it is being deleted. ZooKeeper's leader answers, which is never
    behind. Raises Unknown.

    Where topics must not be deleted a request to do so, as old tools write it, is about to be removed.
    """
    if not await _is_there(zk, documents.topic_path(topic)):
        return True
    return deletes_topics and await _is_there(zk, documents.delete_topic_path(topic))


async def _is_there(zk: ZkClient, path: str) -> bool:
    try:
        await zk.multi([Check(path, ANY_VERSION)])
    except MultiFailed:
        return False
    return True


async def remove_orphans(zk: ZkClient, term: ControllerTerm, known: Iterable[UUID] = ()) -> int:
    """Remove the nodes of topics that are gone, and return how many there were. Raises Unknown,
    ControllerMoved.

    The nodes are listed before the topics, and each is made in one write with its topic: so the topic of one
    that lives is seen. While one topic cannot tell its id nothing is removed. The nodes of `known` topics
    stay: so mostly no topic is read, for a controller that has just been elected has other work.
    """
    try:
        orphans = set(await zk.children(documents.LIVES)).difference(map(documents.uuid_to_text, known))
    except NoNode:
        return 0
    names = await zk.children(documents.TOPICS) if orphans else []
    for some in _in_parts(names):
        for node in await zk.get_many([documents.topic_path(name) for name in some]):
            if node is None:
                continue  # it has been deleted since
            try:
                topic_id = documents.parse(documents.TopicDocument, node[0]).topic_id
            except documents.BadDocument:
                return 0
            if topic_id is None:
                return 0
            orphans.discard(topic_id)
    for few in _in_parts(sorted(orphans)):
        await _remove(zk, term, [f"{documents.LIVES}/{name}" for name in few])
    return len(orphans)


async def _remove(zk: ZkClient, term: ControllerTerm, paths: Sequence[str]) -> None:
    """Remove these nodes, which nobody ever writes to. One that is gone keeps no other."""
    try:
        await fenced(zk, term, [Delete(path, 0) for path in paths])
    except MultiFailed:
        if len(paths) > 1:
            for path in paths:
                await _remove(zk, term, [path])


def _in_parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[first : first + TOGETHER_MAX] for first in range(0, len(names), TOGETHER_MAX)]

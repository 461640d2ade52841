"""One node for each topic id, so that a late write for a topic cannot hit the next topic of its name.

The controller creates and deletes it in the same write as the topic (`controller/requests/topics.py`,
`controller/requests/topic_removal.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from . import documents
from .client import ANY_VERSION, Check, ZkClient


async def life_checks(zk: ZkClient, topic_ids: Iterable[UUID]) -> list[Check]:
    """The condition that these topics (at most `TOGETHER_MAX`) still exist, for a write that may land late.

    State versions alone do not protect: a topic that is deleted and created again counts them from 0. Topics
    made by tools have no such node, and get no check.
    """
    paths = [documents.life_path(topic_id) for topic_id in topic_ids]
    found = await zk.get_many(paths) if paths else []
    return [Check(path, ANY_VERSION) for path, node in zip(paths, found, strict=True) if node is not None]

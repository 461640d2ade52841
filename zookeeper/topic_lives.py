"""One node for each life of a topic name: what was meant for a topic does not reach the next of its name.

Made and removed by the controller in the same write as the topic itself (`controller/requests/topics.py`,
`controller/requests/topic_removal.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from . import documents
from .client import ANY_VERSION, Check, ZkClient


async def life_checks(registry: ZkClient, topic_ids: Iterable[UUID]) -> list[Check]:
    """The condition that these topics (at most `TOGETHER_MAX`) still live, for a write that may land late.

    One that was deleted and made again counts the versions of its states from 0. What tools have made has no
    such node.
    """
    paths = [documents.life_path(topic_id) for topic_id in topic_ids]
    found = await registry.get_many(paths) if paths else []
    return [Check(path, ANY_VERSION) for path, node in zip(paths, found, strict=True) if node is not None]

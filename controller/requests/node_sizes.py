"""How much ZooKeeper can keep in one node. More than that is refused in words, and never sent.

ZooKeeper ends the connection of whoever sends it a MiB, again with each attempt, and with that all else that
a controller has under way. Our bound leaves room for the rest of a write.
Left to others: nodes whose size no client decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import InvalidConfig, InvalidPartitions
from ...zookeeper import documents

NODE_BYTES_MAX = 1_000_000


def fits(*together: documents.Document) -> bool:
    """Whether these can be written together."""
    return sum(len(one.data()) for one in together) <= NODE_BYTES_MAX


def check_topic(topic: documents.TopicDocument) -> None:
    """Raises InvalidPartitions for more than a topic's node can hold."""
    if not fits(topic):
        factor = len(next(iter(topic.partitions.values())))
        raise InvalidPartitions(
            f"{len(topic.partitions)} partitions with {factor} replicas are more than ZooKeeper can keep for "
            "one topic: use several topics"
        )


def check_settings(settings: Mapping[str, str], beside: documents.TopicDocument | None = None) -> None:
    """Raises InvalidConfig for more settings than a node can hold. A new topic is written together with its
    settings (`beside`), and must fit beside them.
    """
    told = documents.ConfigDocument(config=dict(settings))
    if not fits(told):
        raise InvalidConfig(f"settings of {len(told.data())} bytes are more than ZooKeeper can keep")
    if beside is not None and not fits(told, beside):
        raise InvalidConfig(
            f"settings of {len(told.data())} bytes are more than ZooKeeper takes together with a topic of "
            f"{len(beside.partitions)} partitions: create it without them, then set them"
        )

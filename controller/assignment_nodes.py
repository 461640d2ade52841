"""Assignments in ZooKeeper: read from a topic's znode, and written there under the fence.

The znode is Kafka's. One key, which Kafka leaves alone, holds the order in which replicas were assigned
before a reassignment began, so that a cancellation restores it.
Left to others: when an assignment changes (planning/reassignment.py), who asks for it
(requests/reassignments.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..zookeeper import documents
from ..zookeeper.client import MultiFailed, NoNode, SetData, Stat, ZkClient
from ..zookeeper.znodes import ControllerTerm, fenced
from .planning.assignment import Assignment
from .planning.plans import RestorePartitions

Change = Callable[[documents.TopicDocument], Mapping[int, Assignment]]  # what should change; empty: nothing


def assignment_of(document: documents.TopicDocument, number: int) -> Assignment:
    """One partition's assignment. If another tool wrote it, the original order is not known."""
    replicas = tuple(document.partitions[number])
    held = set(replicas)
    adding = tuple(r for r in document.adding_replicas.get(number, ()) if r in held)
    removing = tuple(r for r in document.removing_replicas.get(number, ()) if r in held)
    if not adding and not removing:
        return Assignment(replicas)
    origin = tuple((document.origin_replicas or {}).get(number, ()))
    if not origin or not set(origin) <= held or set(origin) & set(adding):
        origin = tuple(r for r in replicas if r not in adding)
    return Assignment(replicas, adding, removing, origin)


def with_assignments(
    document: documents.TopicDocument, changes: Mapping[int, Assignment]
) -> documents.TopicDocument:
    """The same topic with other assignments."""
    partitions, adding = dict(document.partitions), dict(document.adding_replicas)
    removing, origins = dict(document.removing_replicas), dict(document.origin_replicas or {})
    for number, assignment in changes.items():
        partitions[number] = list(assignment.replicas)
        for kept, told in ((adding, assignment.adding), (removing, assignment.removing)):
            kept.pop(number, None)
            if told:
                kept[number] = list(told)
        origins.pop(number, None)
        if assignment.is_moving:
            origins[number] = list(assignment.origin)
    return document.model_copy(
        update={
            "partitions": partitions,
            "adding_replicas": adding,
            "removing_replicas": removing,
            "origin_replicas": origins or None,
        }
    )


async def change_assignments(zk: ZkClient, term: ControllerTerm, topic: str, change: Change) -> int | None:
    """Change a topic's znode. Returns its version, None if there is none. May raise Unknown: then repeat.

    `change` is called at each attempt with what the znode holds then. It must return nothing once it is done.
    """
    path = documents.topic_path(topic)
    while True:
        try:
            data, stat = await zk.get(path)
        except NoNode:
            return None
        document = documents.parse(documents.TopicDocument, data)
        wanted = change(document)
        if not wanted:
            return stat.version
        write = SetData(path, with_assignments(document, wanted).data(), stat.version)
        try:
            (written,) = await fenced(zk, term, [write])
        except MultiFailed:
            continue
        assert isinstance(written, Stat)
        return written.version


async def restore_partitions(zk: ZkClient, term: ControllerTerm, command: RestorePartitions) -> None:
    """Put missing partitions back into the topic's znode, unless it is a new topic's. May raise Unknown."""

    def lacking(document: documents.TopicDocument) -> Mapping[int, Assignment]:
        if document.uuid != command.topic_id:
            return {}
        return {n: one for n, one in command.assignments.items() if n not in document.partitions}

    await change_assignments(zk, term, command.topic, lacking)

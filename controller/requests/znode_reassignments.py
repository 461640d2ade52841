"""`/admin/reassign_partitions`: reassignments as tools before Kafka 2.4 ask for them.

Only the controller watches the znode. It treats each entry like a client's request. An entry is removed when
its partition has moved, when another move was asked for, or when it cannot be done; with the last entry the
znode is removed. Nothing is remembered: a new controller asks again, which changes nothing for moves under
way.
Left to others: moving (reassignments.py).
"""

from __future__ import annotations

import asyncio

import structlog

from ...base.types import TopicPartition
from ...protocol.errors import RequestTimedOut, UnknownServerError
from ...zookeeper import documents
from ..planning import plans
from ..planning.state import ClusterState
from .reach import Reach
from .reassignments import ReassignmentWriter
from .request_node import RequestNode

logger = structlog.get_logger(__name__)

RETRY_S = 1.0


class ReassignmentRequests:
    """Reads the znode, asks for its reassignments, and clears it."""

    def __init__(self, reach: Reach, mover: ReassignmentWriter) -> None:
        self.due = asyncio.Event()
        self._mover = mover
        self._state = reach.state
        self._node = RequestNode(
            reach.zk, reach.term, documents.REASSIGN_PARTITIONS, documents.ReassignmentDocument, self.due
        )
        self._waiting: dict[TopicPartition, tuple[int, ...]] = {}
        self._asked: dict[TopicPartition, tuple[int, ...]] = {}

    def reconnected(self) -> None:
        """Look again, with a new watch."""
        self._node.reconnected()

    def follow(self, state: ClusterState) -> None:
        """The controller's state has changed: look at the znode if an entry of it is over."""
        if any(self._is_over(state, q, target) for q, target in self._waiting.items()):
            self.due.set()

    async def look(self) -> list[plans.Event]:
        """Ask for new entries, and remove those that are over."""
        found = await self._node.read()
        if found is None:
            self._waiting, self._asked = {}, {}
            return []
        document, version = found
        if document is None:
            await self._node.remove(version)
            return []
        targets = {entry.place: tuple(entry.replicas) for entry in document.partitions}
        new = {q: target for q, target in targets.items() if self._asked.get(q) != target}
        refused = await self._mover.move(new)
        for partition, error in sorted(refused.items()):
            logger.warning("reassignment_refused", partition=str(partition), reason=error.message)
        again = {q for q, error in refused.items() if isinstance(error, RequestTimedOut | UnknownServerError)}
        self._asked = {q: target for q, target in targets.items() if q not in refused}
        state = self._state()
        self._waiting = {q: t for q, t in self._asked.items() if not self._is_over(state, q, t)}
        left = [e for e in document.partitions if e.place in self._waiting or e.place in again]
        if not left:
            await self._node.remove(version)
        elif len(left) < len(document.partitions):
            await self._node.replace(documents.ReassignmentDocument(partitions=left), version)
        if again:
            await asyncio.sleep(RETRY_S)
            self.due.set()
        return []

    def _is_over(self, state: ClusterState, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        """Whether it has moved, has another target now, or is gone."""
        known = state.assignment(partition)
        return not known.is_moving or known.target != target

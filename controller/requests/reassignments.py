"""Reassignments that clients and old tools ask for: checked, written, watched, answered.

A request is checked against what ZooKeeper holds and written there first. Everything else follows from what
ZooKeeper holds, whichever broker is controller then. The answer waits until the leaders concerned have new
epochs, or for a short time. The state znode of each moving partition is watched, so that the move goes on as
soon as the leader has written a new ISR. Only the controller's session holds these watches.
Left to others: what follows (planning/reassignment.py), the znode that old tools write
(znode_reassignments.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, InvalidRequest, NotController, UnknownTopicOrPartition
from ...protocol.messages import reassignments
from ...zookeeper import documents
from ...zookeeper.client import Unknown, ZkClient, ZkError
from ..assignment_nodes import assignment_of, change_assignments, with_assignments
from ..planning import plans
from ..planning.assignment import Assignment, is_topic_name
from ..planning.reassignment import is_out, wanted
from ..planning.state import ClusterState
from ..watches import Watches, read_states
from .deadlines import by, deadline_in
from .node_sizes import fits
from .reach import Reach

logger = structlog.get_logger(__name__)

WRITE_MS = 10_000
TELL_MS = 5_000
RETRY_S = 0.1

Targets = Mapping[TopicPartition, Sequence[int] | None]
Refusals = dict[TopicPartition, ApiError]


class MoveWatch:
    """Watches the state znodes of moving partitions."""

    def __init__(self, zk: ZkClient) -> None:
        self.due = asyncio.Event()
        self._zk = zk
        self._watches = Watches(self._touched)
        self._moving: frozenset[TopicPartition] = frozenset()
        self._touched_states: set[TopicPartition] = set()

    def reconnected(self) -> None:
        """Look at all of them again, with new watches."""
        self._watches.forget()
        self._touched_states |= self._moving
        self.due.set()

    def follow(self, moving: Sequence[TopicPartition]) -> None:
        """Set which partitions are moving now."""
        now = frozenset(moving)
        if new := now - self._moving:
            self._touched_states |= new
            self.due.set()
        self._moving = now

    def _touched(self, path: str) -> None:
        partition = documents.partition_of_state(path)
        if partition in self._moving:
            self._touched_states.add(partition)
            self.due.set()

    async def look(self) -> list[plans.Event]:
        """What was written since the last look."""
        touched, self._touched_states = self._touched_states & self._moving, set()
        try:
            if not touched:
                return []
            return [await read_states(self._zk, sorted(touched), self._watches)]
        except ZkError:
            self._touched_states |= touched
            raise


class ReassignmentWriter:
    """Requests to move partitions during one term. Methods may raise `NotController`."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def alter(
        self, request: reassignments.AlterPartitionReassignmentsRequest
    ) -> reassignments.AlterPartitionReassignmentsResponse:
        """Answer AlterPartitionReassignments: each partition moves, moves back, or is refused."""
        named = [TopicPartition(t.name, one.partition_index) for t in request.topics for one in t.partitions]
        refused: Refusals = {
            q: InvalidRequest(f"{q} is in the request more than once")
            for q, times in Counter(named).items()
            if times > 1
        }
        targets = {
            TopicPartition(t.name, one.partition_index): one.replicas
            for t in request.topics
            for one in t.partitions
        }
        refused |= await self.move({q: target for q, target in targets.items() if q not in refused})
        responses = [
            reassignments.ReassignedTopic(
                name=topic.name,
                partitions=[
                    _result(one.partition_index, refused.get(TopicPartition(topic.name, one.partition_index)))
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return reassignments.AlterPartitionReassignmentsResponse(responses=responses)

    async def move(self, targets: Targets) -> Refusals:
        """Start to move each partition to its target, or back (None). Returns the refusals, with reasons."""
        topics: dict[str, dict[int, Sequence[int] | None]] = {}
        for partition, target in targets.items():
            topics.setdefault(partition.topic, {})[partition.partition] = target
        refused: Refusals = {}
        versions: dict[str, int] = {}
        for name, asked in sorted(topics.items()):
            try:
                versions[name], more = await self._move(name, asked)
                refused |= more
            except NotController:
                raise
            except ApiError as error:
                refused |= {TopicPartition(name, number): error for number in asked}
        done = {q: targets[q] for q in targets.keys() - refused.keys()}
        if done:
            with suppress(ApiError):  # it is written: slow brokers will hear of it later
                await by(deadline_in(TELL_MS), self._told(versions, done))
        return refused

    async def list(
        self, request: reassignments.ListPartitionReassignmentsRequest
    ) -> reassignments.ListPartitionReassignmentsResponse:
        """The partitions that are moving, of those asked about or of all."""
        state = self._reach.state()
        asked = None
        if request.topics is not None:
            asked = {TopicPartition(t.name, number) for t in request.topics for number in t.partition_indexes}
        topics: dict[str, list[reassignments.OngoingPartition]] = {}
        for partition in state.moving():
            if asked is None or partition in asked:
                one = state.assignment(partition)
                told = reassignments.OngoingPartition(
                    partition_index=partition.partition,
                    replicas=list(one.replicas),
                    adding_replicas=list(one.adding),
                    removing_replicas=list(one.removing),
                )
                topics.setdefault(partition.topic, []).append(told)
        return reassignments.ListPartitionReassignmentsResponse(
            topics=[reassignments.OngoingTopic(name=name, partitions=each) for name, each in topics.items()]
        )

    async def finish(self, command: plans.WriteAssignments) -> None:
        """Write the assignments of finished moves, unless a client has asked for something else meanwhile.

        Raises Unknown: then repeat. What has landed already is not written twice.
        """

        def change(document: documents.TopicDocument) -> dict[int, Assignment]:
            return {
                number: then
                for number, (before, then) in command.changes.items()
                if number in document.partitions
                and assignment_of(document, number) == before
                and is_out(self._reach.state(), TopicPartition(command.topic, number), before)
            }

        await change_assignments(self._reach.zk, self._reach.term, command.topic, change)
        for number, (_, then) in sorted(command.changes.items()):
            logger.info(
                "reassignment_completed", partition=f"{command.topic}-{number}", replicas=list(then.replicas)
            )

    # --- inside ------------------------------------------------------------------------------------

    async def _move(self, name: str, asked: Mapping[int, Sequence[int] | None]) -> tuple[int, Refusals]:
        refused: Refusals = {}
        if not is_topic_name(name):
            raise UnknownTopicOrPartition(f"{name[:300]!r} is no name of a topic")
        is_ending = name in self._reach.state().deletions
        versions: list[int] = []

        def change(document: documents.TopicDocument) -> dict[int, Assignment]:
            refused.clear()
            found: dict[int, Assignment] = {}
            for number, target in asked.items():
                try:
                    if number not in document.partitions or (is_ending and target is not None):
                        raise UnknownTopicOrPartition(_absent(name, number, is_ending))
                    before = assignment_of(document, number)
                    after = wanted(before, target, self._reach.state().live)
                    if after != before:
                        found[number] = after
                except ApiError as error:
                    refused[TopicPartition(name, number)] = error
            if fits(with_assignments(document, found)):
                return found
            begun = {number for number in found if asked[number] is not None}
            too_many = InvalidRequest(
                f"{len(begun)} partitions of {name!r} that move at once are more than ZooKeeper can keep for "
                "one topic: move fewer, and the others when these are done"
            )
            refused.update({TopicPartition(name, number): too_many for number in begun})
            return {number: after for number, after in found.items() if number not in begun}

        async def write() -> None:
            while True:
                try:
                    version = await change_assignments(self._reach.zk, self._reach.term, name, change)
                except Unknown:  # repeat: what has landed is found there, and not written again
                    await asyncio.sleep(RETRY_S)
                    continue
                if version is None:
                    raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
                versions.append(version)
                return

        await by(deadline_in(WRITE_MS), write())
        logger.info("reassignment_requested", topic=name, partitions=len(asked), refused=len(refused))
        return versions[-1], refused

    async def _told(self, versions: Mapping[str, int], done: Targets) -> None:
        """Wait until the new replicas have been announced, and cancelled moves are over."""

        def is_over(state: ClusterState) -> bool:
            return all(_is_told(state, q, versions[q.topic], target is None) for q, target in done.items())

        await self._reach.until(is_over)
        await self._reach.all_told()


def _is_told(state: ClusterState, partition: TopicPartition, version: int, is_cancelled: bool) -> bool:
    topic = state.topics.get(partition.topic)
    if topic is None:
        return True
    if topic.version < version or partition in state.in_flight or partition in state.unannounced:
        return False
    return not (is_cancelled and state.assignment(partition).is_moving)


def _absent(name: str, number: int, is_ending: bool) -> str:
    return f"topic {name!r} is being deleted" if is_ending else f"topic {name!r} has no partition {number}"


def _result(number: int, refusal: ApiError | None) -> reassignments.ReassignedPartition:
    if refusal is None:
        return reassignments.ReassignedPartition(partition_index=number)
    return reassignments.ReassignedPartition(
        partition_index=number, error_code=refusal.code, error_message=refusal.message
    )

"""DeleteRecords at the leader: moves the log start, and waits until all live replicas have moved theirs.

The new start is checkpointed here first: otherwise deleted records could come back after a crash. Requests
that come during one checkpoint write share the next. Followers learn the new start from the response to their
parked fetch, which is sent at once, and report their own start with each fetch.
Left to others: the message (handlers/delete_records.py), the files (storage/directories/log_manager.py), when
the segments go (upkeep/passes.py).
Why: docs/decisions/0027-what-deleted-records-wait-for.md
"""

from typing import NamedTuple

import structlog

from ...base.tasks import Tasks
from ...base.types import BrokerId, Offset, TopicPartition
from ...protocol.errors import ErrorCode, InvalidTopic, NotLeaderOrFollower, OffsetOutOfRange, PolicyViolation
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError
from ..fetch.parked import ParkedReplicas
from ..replicas.partition import Partition
from ..replicas.purgatory import AckQueue, Waiter
from ..replicas.shared import ReplicaShared
from ..topic_names import INTERNAL_TOPICS

logger = structlog.get_logger(__name__)

HIGH_WATERMARK = -1  # as an offset: delete everything committed
UNKNOWN = -1


class Wait(NamedTuple):
    """Entry `place` of `waiting` completes when no live replica holds a record before `start`."""

    partition: Partition
    start: int
    waiting: Waiter
    place: int


def delete_before(partition: Partition, offset: int) -> int:
    """Raise the log start of a partition led here to `offset`. Returns the offset meant. Raises ApiError."""
    if partition.tp.topic in INTERNAL_TOPICS:
        raise InvalidTopic("records of internal topics cannot be deleted")
    leader = partition.led()
    if partition.shared.fenced:
        raise NotLeaderOrFollower()
    if not partition.topic_config.deletes:
        raise PolicyViolation("records can be deleted only if cleanup.policy includes delete")
    start = leader.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= leader.high_watermark:
        raise OffsetOutOfRange(
            f"offset {offset} is out of range: expected 0 to the high watermark {leader.high_watermark}"
        )
    try:
        if partition.log.move_start(start):
            logger.info("records_deleted", partition=str(partition.tp), start_offset=start)
    except DiskError as error:
        raise partition.disk_failed(error) from error
    return start


def low_watermark(partition: Partition) -> int:
    """No live replica holds a record before it; -1 if unknown."""
    leader = partition.leading
    return UNKNOWN if leader is None else leader.low_watermark(Offset(partition.log.start_offset))


class Deletions:
    """The waiters for the low watermark of partitions that this broker leads."""

    def __init__(self, shared: ReplicaShared, logs: Logs, parked: ParkedReplicas, tasks: Tasks) -> None:
        self._shared = shared
        self._logs = logs
        self._parked = parked
        self._tasks = tasks
        self._fresh: dict[str, list[Wait]] = {}  # by directory; their starts are not checkpointed yet
        self._writing: set[str] = set()
        self._queues: dict[Partition, AckQueue] = {}
        shared.on_start_reported.subscribe(self.look_at)
        shared.on_resigned.subscribe(self.resigned)
        shared.on_brokers.subscribe(self.look_at_all)

    def begin(self, wait: Wait) -> None:
        """The log start has moved: checkpoint it, answer parked followers, then queue `wait`."""
        directory = self._logs.directory_of(wait.partition.tp)
        self._fresh.setdefault(directory, []).append(wait)
        leader = wait.partition.leading
        wait.partition.stir()
        for follower in leader.replicas if leader is not None else ():
            self._parked.supersede(follower)
        if directory not in self._writing:
            self._writing.add(directory)
            self._tasks.spawn(self._write(directory), "log-starts")

    async def _write(self, directory: str) -> None:
        write = self._logs.checkpoint_start_offsets
        try:
            while fresh := self._fresh.pop(directory, []):
                code = ErrorCode.NONE
                try:
                    await self._shared.loop.run_in_executor(None, write, directory)
                except DiskError as error:
                    self._shared.on_disk_failed(None, error)
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                for wait in fresh:
                    self._admit(wait, code)
        finally:
            self._writing.discard(directory)

    def _admit(self, wait: Wait, code: ErrorCode) -> None:
        partition, start, waiting, place = wait
        if waiting.slot is None:
            return
        if code == ErrorCode.NONE and partition.leading is None:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code != ErrorCode.NONE:
            waiting.reached(place, code)
            return
        self._queues.setdefault(partition, AckQueue()).add(start, waiting, place)
        self.look_at(partition)

    def look_at(self, partition: Partition) -> None:
        """A replica's log start has moved, or a replica is not live any more: complete what can be."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.reach(low_watermark(partition), ErrorCode.NONE)
            self._forget_empty(partition, queue)

    def look_at_all(self, _registered: frozenset[BrokerId]) -> None:
        """The set of live brokers has changed."""
        for partition in list(self._queues):
            self.look_at(partition)

    def expired(self, partition: Partition) -> None:
        """The deadline of a waiter for this partition has passed."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.one_expired()
            self._forget_empty(partition, queue)

    def resigned(self, tp: TopicPartition) -> None:
        """This broker leads the partition no longer: waiters get NOT_LEADER_OR_FOLLOWER."""
        for partition in [each for each in self._queues if each.tp == tp]:
            self._queues.pop(partition).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _forget_empty(self, partition: Partition, queue: AckQueue) -> None:
        if not queue:
            self._queues.pop(partition, None)

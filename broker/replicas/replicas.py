"""The map of all replicas on this broker (Kafka's ReplicaManager, without what works on them).

Left to others: one replica (partition.py), its roles (roles/leader_and_isr.py), following
(follower/fetcher.py), what is built around the map and in which order (broker/parts.py).
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from uuid import UUID

import structlog

from ...base.types import TopicPartition
from ...protocol.batches import BatchHeader
from ...protocol.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from ...storage.directories.log_manager import STRAY, Logs
from ...storage.disk import DiskError, DiskFailed, DiskFull
from ...storage.log.log import Log
from ..topic_names import is_legal
from .flushing import Flushing
from .partition import Partition
from .shared import ReplicaShared

logger = structlog.get_logger(__name__)


class Replicas:
    """The replicas of one broker."""

    def __init__(
        self,
        shared: ReplicaShared,
        logs: Logs,
        flushing: Flushing,
        *,
        is_known: Callable[[TopicPartition], bool],
        is_elsewhere: Callable[[TopicPartition, UUID, int], bool],
    ) -> None:
        """`is_known`: the cluster has such a partition. `is_elsewhere`: the controller of this epoch has sent
        its full metadata, and there the topic id does not exist or the partition is of other brokers only.
        """
        self.partitions: dict[TopicPartition, Partition] = {}
        self._shared = shared
        self._logs = logs
        self._is_known = is_known
        self._is_elsewhere = is_elsewhere
        self._names: dict[UUID, str] = {}
        self._removed = 0
        flushing.flushed.subscribe(self._flushed)
        flushing.failed.subscribe(self._not_flushed)

    # Finding.

    def get(self, tp: TopicPartition) -> Partition:
        """The replica of `tp`. Raises NotLeaderOrFollower if it is on other brokers only,
        UnknownTopicOrPartition if it is on none.
        """
        found = self.partitions.get(tp)
        if found is None:
            raise NotLeaderOrFollower() if self._is_known(tp) else UnknownTopicOrPartition()
        return found

    def sent_away(self, tp: TopicPartition, header: BatchHeader) -> None:
        """A batch was refused because `tp` has no replica here; it may have one when the batch comes again,
        and before that, when the next one comes.
        """
        if is_legal(tp.topic):  # what is no name may be long
            self._shared.refused.add(tp, header, self._shared.loop.time())

    def find(self, tp: TopicPartition) -> Partition | None:
        """The replica of `tp`, if it is here."""
        return self.partitions.get(tp)

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic name, if a replica is here: LeaderAndIsr may come before UpdateMetadata."""
        return self._names.get(topic_id)

    def topic_id_of(self, tp: TopicPartition) -> UUID | None:
        """The id of the topic whose log is here under this name."""
        held = self._logs.get(tp)
        return None if held is None else held.topic_id

    def in_directory(self, directory: str) -> list[Partition]:
        """The replicas whose logs are open in this log directory."""
        held = self._logs.logs
        return [
            partition
            for tp, partition in self.partitions.items()
            if tp in held and self._logs.directory_of(tp) == directory
        ]

    def strays(self, named: Mapping[UUID, Collection[int]], controller_epoch: int) -> list[TopicPartition]:
        """Logs of partitions that are not in `named` and not assigned to this broker by the controller."""
        return [
            tp
            for tp, held in sorted(self._logs.logs.items())
            if held.topic_id is not None
            and tp.partition not in named.get(held.topic_id, ())
            and self._is_elsewhere(tp, held.topic_id, controller_epoch)
        ]

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of every log here; the checkpointed one if no controller has named the log yet. Thread-safe."""
        known = dict(self._logs.high_watermarks)
        known.update((tp, partition.high_watermark) for tp, partition in dict(self.partitions).items())
        return known

    # Coming and going.

    def host_partition(self, tp: TopicPartition, topic_id: UUID) -> Partition:
        """Add a replica of `tp` with its log. Raises DiskError if its directory has failed meanwhile."""
        held = self._logs.get(tp)
        if held is None:
            raise DiskFailed(str(tp), OSError("its log directory has failed"))
        self.identify(tp, held, topic_id)
        partition = Partition(tp, held, self._logs.high_watermarks.get(tp, 0), self._shared)
        partition.full = self._logs.places.full.get(self._logs.directory_of(tp))
        self.partitions[tp] = partition
        return partition

    def identify(self, tp: TopicPartition, held: Log, topic_id: UUID) -> None:
        """Give a log that has no topic id the one that the controller says: `partition.metadata` was damaged,
        or the topic had none until now. Raises DiskError.
        """
        if held.topic_id is None and topic_id.int:
            with suppress(DiskFull):  # the next start asks once more
                held.adopt_topic_id(topic_id)
        if held.topic_id is not None:
            self._names[held.topic_id] = tp.topic

    def unhost(self, tp: TopicPartition) -> None:
        """Remove the replica and its log. Durable after `logs.settle_removals`. Raises DiskError."""
        self._let_go(tp, "deleted")
        if self._logs.holds(tp):
            self._logs.remove(tp, self._removal_name(), sync=False)

    def set_aside(self, tp: TopicPartition) -> str:
        """Rename a log whose topic is deleted or whose partition has moved away, so that it is never served.
        Returns its new name. Raises DiskError.
        """
        self._let_go(tp, "its topic is deleted, or assigned to other brokers")
        target = self._logs.remove(tp, self._removal_name(), STRAY, sync=False)
        logger.warning("stray_log_renamed", partition=str(tp), kept_as=target)
        return target

    def _let_go(self, tp: TopicPartition, why: str) -> None:
        partition = self.partitions.pop(tp, None)
        if partition is None:
            return
        partition.offline = why
        self._shared.gone_traffic.add(partition.traffic)
        if not any(other.topic == tp.topic for other in self.partitions):
            self._names = {id: name for id, name in self._names.items() if name != tp.topic}

    def _removal_name(self) -> UUID:
        self._removed += 1
        return UUID(int=(self._shared.clock.wall_ms() << 64) + self._removed)

    # What a flush has shown.

    def _flushed(self, each: Log) -> None:
        partition = self.partitions.get(each.partition)
        if partition is not None and partition.log is each:
            partition.flushed()

    def _not_flushed(self, each: Log, error: DiskError) -> None:
        partition = self.partitions.get(each.partition)
        if partition is not None and partition.log is each and partition.offline is None:
            partition.disk_failed(error)
        else:
            self._shared.on_disk_failed(None, error)

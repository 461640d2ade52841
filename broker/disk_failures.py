"""A log directory that has failed: remembered on the disks that still work and in ZooKeeper, beyond restarts.

The next start must not claim to hold what was there. A full disk is not a failed one: nothing is lost by it,
so nothing is noted. Without any working directory the broker stops.
Left to others: the replicas there go offline by themselves (partition.py), others are elected (controller/).
"""

import asyncio

import structlog

from ..client.tasks import FailureHook, Tasks
from ..controller import znodes
from ..controller.registry import Registry, Unknown
from ..protocol.kinds import BrokerId, TopicPartition
from ..storage.disk import DiskError, DiskFull, LogDamaged
from ..storage.incarnation import Incarnations
from ..storage.logs import Logs
from .partition import Partition
from .trouble import BrokenInvariant

log = structlog.get_logger(__name__)

RETRY_S = 1.0


class DiskFailures:
    """Takes note of each failed log directory once."""

    def __init__(
        self, me: BrokerId, incarnations: Incarnations, logs: Logs, registry: Registry, fail: FailureHook
    ) -> None:
        self._me = me
        self._incarnations = incarnations
        self._logs = logs
        self._registry = registry
        self._fail = fail
        self._failed: set[str] = set()
        self._tasks = Tasks("disk-failures", fail)

    def happened(self, partition: Partition, error: DiskError) -> None:
        """Hook of `replicas`: a file call of this replica has failed."""
        log.error("disk_failed", partition=str(partition.tp), reason=str(error))
        if isinstance(error, DiskFull):
            return None
        if isinstance(error, LogDamaged):  # one replica is in doubt, not all that the directory holds
            return self._note(partition.tp)
        directory = self._logs.directory_of(partition.tp)
        if directory in self._failed:
            return None
        self._failed.add(directory)
        self._note(None)
        if self._failed >= set(self._logs.dirs):
            self._fail(BrokenInvariant("every log directory has failed"))
        else:
            self._tasks.spawn(self._report(self._incarnations.dir_ids[directory]), "report")
        return None

    def _note(self, partition: TopicPartition | None) -> None:
        try:
            self._incarnations.note_doubt(partition)
        except OSError as trouble:
            log.error("loss_not_noted", reason=str(trouble))

    async def stop(self) -> None:
        """End what is not told yet."""
        await self._tasks.stop()

    async def _report(self, directory_id: str) -> None:
        while True:
            try:
                return await znodes.report_failed_dir(self._registry, self._me, directory_id)
            except Unknown:
                await asyncio.sleep(RETRY_S)

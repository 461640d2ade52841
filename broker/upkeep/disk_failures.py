"""Handles failed file calls (Kafka's log dir failure): a directory goes offline or full, and others are told.

- A failed directory goes offline: its replicas answer 56 (KAFKA_STORAGE_ERROR). The next start must not claim
  to hold their data, so the failure is noted on the disks that still work and in ZooKeeper. The controller is
  notified, asks what is offline and elects others. Without any working directory the broker stops.
- A full disk loses nothing, so nothing is noted (full_disks.py).
- Damage in one log concerns that replica only.
- A request of the controller that failed for a passing reason is asked for again, because the controller does
  not repeat it by itself.
Left to others: who is elected (controller/), what one replica does (replicas/partition.py).
Why: docs/decisions/0025-a-failed-directory-stays-failed.md
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import TopicPartition
from ...storage.directories.incarnation import Incarnations
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError, DiskFailed, DiskFull, LeftBehind, LogDamaged, NoDescriptor
from ...storage.log.new_log import ReplicaMissing
from ...zookeeper import znodes
from ...zookeeper.client import ZkClient, ZkError
from ..errors import StorageLost
from ..follower.fetcher import Fetchers
from ..replicas.partition import Partition
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared
from .full_disks import FullDisks

logger = structlog.get_logger(__name__)

RETRY_S = 1.0
ASK_AGAIN_S = (1.0, 30.0)  # before asking the controller to repeat a request: first pause, longest
CHECKPOINT = "-checkpoint"  # suffix of all checkpoint files
LAST_WORDS_S = 3.0  # how long a broker without any directory may take to report it


class DiskFailures:
    """Handles each failed log directory once, and watches over full ones."""

    def __init__(
        self,
        shared: ReplicaShared,
        incarnations: Incarnations,
        logs: Logs,
        zk: ZkClient,
        replicas: Replicas,
        fetchers: Fetchers,
        register: Callable[[Collection[TopicPartition]], Awaitable[None]],
        fail: FailureHook,
    ) -> None:
        """`register`: register this broker again, with doubts about the data of these partitions."""
        self._me = shared.me
        self._incarnations = incarnations
        self._logs = logs
        self._zk = zk
        self._replicas = replicas
        self._fetchers = fetchers
        self._register = register
        self._fail = fail
        self._tasks = Tasks("disk-failures", fail)
        self._untold = False
        self._telling = False
        self._asking_again = False
        self._asked_again = (0.0, ASK_AGAIN_S[0])  # when it last asked, and after which pause
        self._missed: set[TopicPartition] = set()
        self._doubted: set[TopicPartition] = set()  # noted on disk, not registered yet
        self._registering = False
        self.room = FullDisks(logs, replicas, fetchers, self._tasks, self.tell_controller, self.failed)
        shared.on_disk_failed.subscribe(self.happened)
        shared.on_order_failed.subscribe(self.order_failed)

    async def stop(self) -> None:
        """Stop, with whatever is not reported yet."""
        await self._tasks.stop()

    # What has happened.

    def happened(self, partition: Partition | None, error: DiskError) -> None:
        """A file call has failed, of this replica or (None) outside of any."""
        if isinstance(error, ReplicaMissing):
            self._miss(error)
        elif partition is None:
            self.failed(error)
        elif isinstance(error, LogDamaged):  # only this replica is in doubt, not the directory
            logger.error("log_corrupt", partition=str(partition.tp), reason=str(error))
            self._incarnations.mark_doubt(partition.tp)
            self._tasks.spawn(self._doubt(partition.tp), "note")
        elif isinstance(error, DiskFull):
            self.room.ran_out(self._logs.directory_of(partition.tp), error)
            self.room.pause(partition)
        elif isinstance(error, DiskFailed):
            self._lose(self._logs.directory_of(partition.tp), error)
        else:
            logger.warning("replica_io_failed", partition=str(partition.tp), reason=str(error))

    def failed(self, error: DiskError) -> None:
        """A file call outside of any replica has failed; the path says in which directory."""
        directory = self._logs.places.holding(error.path)
        logger.error("file_io_failed", path=error.path, reason=str(error))
        if directory is None:
            return
        if isinstance(error, DiskFailed):
            self._lose(directory, error)
        elif isinstance(error, DiskFull) and not error.path.endswith(CHECKPOINT):
            self.room.ran_out(directory, error)  # a checkpoint can wait: an old one costs only time

    def order_failed(self, error: DiskError) -> None:
        """A replica could not be created or deleted as the controller asked.

        If the error may pass, ask the controller to repeat it. A full directory asks when it has room.
        """
        places = self._logs.places
        is_short = isinstance(error, DiskFull) and places.holding(error.path) not in places.full
        if (is_short or isinstance(error, NoDescriptor | LeftBehind)) and not self._asking_again:
            self._asking_again = True
            self._tasks.spawn(self._ask_again(), "ask-again")

    async def _ask_again(self) -> None:
        """Make the controller resend everything. The pauses grow as long as that does not help."""
        loop, (first_s, most_s) = asyncio.get_running_loop(), ASK_AGAIN_S
        last, pause = self._asked_again
        pause = min(2 * pause, most_s) if loop.time() - last < 2 * pause else first_s
        await asyncio.sleep(pause)
        self._asking_again = False
        self._asked_again = loop.time(), pause
        self.tell_controller()

    def _miss(self, error: ReplicaMissing) -> None:
        """Log it once: the controller may ask repeatedly while nobody else can lead."""
        if error.partition not in self._missed:
            self._missed.add(error.partition)
            logger.error("replica_missing", partition=str(error.partition), reason=str(error))
            self._incarnations.mark_doubt(error.partition)
            self._tasks.spawn(self._doubt(error.partition), "note")

    async def _doubt(self, partition: TopicPartition) -> None:
        """Note the doubt on disk, then notify the controller: the next start must know it in any case.

        Also registers again, so that a controller elected later learns of the doubt.
        """
        await self._note(partition)
        self.tell_controller()
        self._doubted.add(partition)
        if self._registering:
            return
        self._registering = True
        try:
            while self._doubted:
                doubted, self._doubted = self._doubted, set()
                await self._register(doubted)
        finally:
            self._registering = False

    # A directory is lost.

    def _lose(self, directory: str, error: DiskError) -> None:
        if directory in self._logs.places.offline:
            return
        gone = self._logs.give_up(directory, str(error))
        for partition in filter(None, map(self._replicas.find, gone)):
            self._fetchers.drop(partition)
            if partition.offline is None:
                partition.fail(str(error))
        logger.error("log_dir_offline", directory=directory, replicas=len(gone), reason=str(error))
        self._incarnations.mark_doubt(None)
        directory_id = self._incarnations.dir_ids.get(directory)
        if self._logs.places.usable:
            self._tasks.spawn(self._note(None, directory), "note")
            self._tasks.spawn(self._report(directory_id), "report")
            self.tell_controller()
        else:
            self._tasks.spawn(self._end(directory_id), "end")

    async def _note(self, partition: TopicPartition | None, directory: str | None = None) -> None:
        """Note what is in doubt in every directory that can be written, the failing one included."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._incarnations.note_doubt, partition)
        except OSError as trouble:
            logger.error("data_loss_not_recorded", reason=str(trouble))
        if directory is not None:
            self._incarnations.give_up(directory, OSError(self._logs.places.offline[directory]))

    async def _report(self, directory_id: str | None) -> None:
        if directory_id is not None:
            await self._until_done(lambda: znodes.report_failed_dir(self._zk, self._me, directory_id))

    async def _end(self, directory_id: str | None) -> None:
        reasons = "; ".join(self._logs.places.offline.values())
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._note(None)
                await self._report(directory_id)
        except TimeoutError:
            logger.error("log_dir_failure_not_reported", directory=directory_id)
        self._fail(StorageLost(f"every log directory has failed, the broker stops: {reasons}"))

    # The controller.

    def tell_controller(self) -> None:
        """Notify the controller that the state of replicas here has changed, so that it asks."""
        self._untold = True
        if not self._telling:
            self._telling = True
            self._tasks.spawn(self._tell(), "tell")

    async def _tell(self) -> None:
        try:
            while self._untold:
                self._untold = False
                await self._until_done(lambda: znodes.notify_log_dir_event(self._zk, self._me))
        finally:
            self._telling = False

    async def _until_done(self, deed: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await deed()
            except ZkError as error:
                logger.warning("log_dir_event_retried", reason=repr(error))
                await asyncio.sleep(RETRY_S)

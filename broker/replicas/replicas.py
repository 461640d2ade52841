"""All replicas on this broker (Kafka's ReplicaManager): look-up, background work.

Left to others: one replica (partition.py), LeaderAndIsr (leader_and_isr.py), following (follower/fetcher.py),
ISR writes (isr_writer.py), retention and recovery points (storage/directories/log_manager.py, called by
broker/node.py).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import BrokerId, Clock, Incarnation, TopicPartition
from ...protocol.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from ...protocol.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ...replication.isr import Settled
from ...replication.leader import LeaderOptions, LiveBrokers
from ...storage.decision_log import BROKER
from ...storage.directories.log_manager import STRAY, Logs
from ...storage.disk import DiskError, DiskFailed
from ...storage.log.log import Log
from ...zookeeper.client import SessionEvent, SessionState, ZkClient
from ..config.broker import BrokerConfig
from ..fetch.parked import ParkedReplicas
from ..fetch.sessions import FetchSessions
from ..follower.fetcher import Fetchers
from ..recorder import Recorder
from ..turn import Turn
from .cold_reads import ColdReads
from .controller_fence import ControlGate
from .delete_records import Deletions
from .flushing import Flushing
from .isr_writer import IsrWriter
from .leader_and_isr import LeaderAndIsr
from .local_appends import Committed, LocalAppend
from .mismatched_logs import MismatchedLogs, Vouches
from .out_of_reach import OutOfReach
from .partition import Partition
from .purgatory import Deadlines
from .recompression import Recoding
from .shared import ReplicaShared
from .topic_configs import TopicSettings

logger = structlog.get_logger(__name__)

T = TypeVar("T")

TICK_SECONDS = 0.1  # how often leaders with an unsettled ISR are checked
SILENT_FETCHES = 2  # a follower that has not fetched for so many fetch waits may follow another leader
FULL_PASS_SECONDS_MIN = 0.1


class Replicas:
    """The replicas of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        incarnation: Incarnation,
        logs: Logs,
        registry: ZkClient,
        clock: Clock,
        turn: Turn,
        *,
        is_known: Callable[[TopicPartition], bool],
        is_elsewhere: Callable[[TopicPartition, UUID, int], bool] = lambda tp, topic_id, epoch: False,
        vouches: Vouches = lambda tp, joined: False,
        recorder: Recorder | None = None,
        on_failure: FailureHook | None = None,
        on_disk_failed: Callable[[Partition | None, DiskError], None] = lambda partition, error: None,
    ) -> None:
        """`is_known`: the cluster has such a partition. `is_elsewhere`: the controller of this epoch has sent
        its full metadata, and there the topic id does not exist or the partition is of other brokers only.
        `vouches`: see mismatched_logs.py.
        """
        replication, storage = config.replication, config.storage
        loop = asyncio.get_running_loop()
        self.logs = logs
        self.gate = ControlGate()
        self.on_leading: list[Callable[[Partition], None]] = []
        self.on_resigned: list[Callable[[TopicPartition], None]] = []
        self._is_known = is_known
        self._is_elsewhere = is_elsewhere
        self.estranged = MismatchedLogs(config.id, vouches)
        self._tasks = Tasks("replicas", on_failure)
        self._isr = IsrWriter(registry, self._tasks, lambda: self.host, self.look_after)
        self.host = ReplicaShared(
            me=config.id, incarnation=incarnation, loop=loop, clock=clock, turn=turn,
            deadlines=Deadlines(loop), membership=LiveBrokers(frozenset()), options=_leader_options(config),
            flush_before_ack=storage.flush_before_ack, validate_records=storage.validate_records,
            perform=self._isr.perform, flush=lambda each: self.flushing.want(each),
            untold=OutOfReach(registry, self, self._tasks).suspect,
            on_disk_failed=on_disk_failed, on_leading=lambda partition: _tell(self.on_leading, partition),
            on_resigned=lambda tp: _tell(self.on_resigned, tp), recoding=Recoding(loop, on_failure),
            on_start_reported=lambda partition: self.deletions.look_at(partition), lower=logs.lower,
            cold_reads=ColdReads(loop, turn, on_failure, len(logs.places.configured)), lift=logs.lift,
            recorder=recorder or Recorder(clock, 1 << 20), keeps_aside=storage.aside_bytes_max != 0,
        )  # fmt: skip
        self.partitions: dict[TopicPartition, Partition] = {}
        self.settings = TopicSettings(logs, self.partitions)
        self.parked_replicas = ParkedReplicas(replication.fetch_gather_ms / 1000)
        self.sessions = FetchSessions(self.host)
        self.deletions = Deletions(self.host, logs, self.parked_replicas, self._tasks)
        self.on_resigned.append(self.deletions.resigned)
        self._names: dict[UUID, str] = {}
        self.flushing = Flushing(logs, storage, self._flushed, self._not_flushed, on_failure)
        turn.after_settling(self.flushing.start)
        self.fetchers = Fetchers(self.host, replication, self._tasks, self.flushing)
        self.transitions = LeaderAndIsr(self, self.gate, self._tasks)
        self._checkpoint_seconds = storage.high_watermark_checkpoint_interval_ms / 1000
        self._fence_on_loss = replication.fence_on_zookeeper_loss
        self._full_pass_seconds = max(replication.lag_time_max_ms / 2000, FULL_PASS_SECONDS_MIN)
        self._restless: dict[Partition, None] = {}  # leaders whose ISR is changing or incomplete
        self._removed = 0
        self._stop_listening = registry.listen(self._on_session)

    # Life.

    def start(self) -> None:
        """Start the ISR ticks, the high watermark checkpoints and the flush passes."""
        self._tasks.spawn(self._run_ticks(), "ticks")
        for directory in self.logs.places.configured:  # one task each: a disk may hang
            self._tasks.spawn(self._run_checkpoints(directory), "watermarks")
        self.flushing.begin_passes()

    async def stop(self) -> None:
        """Stop fetching, answer 6 to all waiters, checkpoint the high watermarks. The logs stay open."""
        self._stop_listening()
        self.fetchers.stop()
        for partition in self.partitions.values():
            partition.resign()
        self.host.turn.settle()
        self.host.deadlines.stop()
        await self._tasks.stop()
        for threads in (self.flushing, self.host.cold_reads, self.host.recoding):
            await threads.stop()
        await self.checkpoint_watermarks()

    # Finding.

    def get(self, tp: TopicPartition) -> Partition:
        """The replica of `tp`. Raises NotLeaderOrFollower if it is on other brokers only,
        UnknownTopicOrPartition if it is on none.
        """
        found = self.partitions.get(tp)
        if found is None:
            raise NotLeaderOrFollower() if self._is_known(tp) else UnknownTopicOrPartition()
        return found

    def find(self, tp: TopicPartition) -> Partition | None:
        """The replica of `tp`, if it is here."""
        return self.partitions.get(tp)

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic name, if a replica is here: LeaderAndIsr may come before UpdateMetadata."""
        return self._names.get(topic_id)

    def topic_id_of(self, tp: TopicPartition) -> UUID | None:
        """The id of the topic whose log is here under this name."""
        held = self.logs.get(tp)
        return None if held is None else held.topic_id

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of every log here; the checkpointed one if no controller has named the log yet. Thread-safe."""
        known = dict(self.logs.high_watermarks)
        known.update((tp, partition.high_watermark) for tp, partition in dict(self.partitions).items())
        return known

    def counts(self) -> dict[str, int]:
        """Gauges (replicas by state, waiting requests) and counters of ISR changes."""
        leaders = [p.leading for p in self.partitions.values() if p.leading is not None]
        return {
            "partitions": len(self.partitions),
            "leaders": len(leaders),
            "under_replicated": sum(leader.under_replicated for leader in leaders),
            "under_min_isr": sum(leader.under_min_isr for leader in leaders),
            "offline": sum(p.offline is not None for p in self.partitions.values()),
            "waiting": len(self.host.deadlines),
            "isr_shrinks": self._isr.shrinks,
            "isr_expands": self._isr.expands,
            "isr_failed": self._isr.notes.failed,
        }

    # Requests of the controller.

    async def obey_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Become leader or follower, or wait for a leader, as the controller says."""
        return await self.transitions.obey_leader_and_isr(request)

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those marked for deletion."""
        return await self.transitions.stop_replicas(request)

    def brokers_are(
        self, live: Iterable[tuple[int, tuple[str, int] | None]], away: frozenset[int] = frozenset()
    ) -> None:
        """Which brokers are registered, and their inter-broker addresses.

        A broker in `away` is shutting down or may be dead: it joins no ISR, so no high watermark waits for it
        (KAFKA-15021).
        """
        brokers = list(live)
        staying = (broker for broker, _ in brokers if broker not in away)
        self.host.membership.live = frozenset(map(BrokerId, staying))
        self.sessions.keep_only(frozenset(BrokerId(broker) for broker, _ in brokers))
        self.deletions.look_at_all()
        self.fetchers.know((BrokerId(b), *address) for b, address in brokers if address is not None)

    def reborn(self, incarnation: Incarnation) -> None:
        """This broker has registered again, after a lost session or with doubts about its data."""
        self.host.incarnation = incarnation

    async def config_changed(self) -> None:
        """The broker's configuration has changed."""
        self.host.validate_records = self.logs.config.validate_records
        await self.settings.defaults_changed()

    # Used by transitions.

    def host_partition(self, tp: TopicPartition, topic_id: UUID) -> Partition:
        """Add a replica of `tp` with its log. Raises DiskError if its directory has failed meanwhile."""
        held = self.logs.get(tp)
        if held is None:
            raise DiskFailed(str(tp), OSError("its directory has failed"))
        if held.topic_id is None and topic_id.int:
            held.topic_id = topic_id
        partition = Partition(tp, held, self.logs.high_watermarks.get(tp, 0), self.host)
        partition.full = self.logs.places.full.get(self.logs.directory_of(tp))
        self.partitions[tp] = partition
        if held.topic_id is not None:
            self._names[held.topic_id] = tp.topic
        return partition

    def unhost(self, tp: TopicPartition) -> None:
        """Remove the replica and its log. Durable after `logs.settle_removals`. Raises DiskError."""
        self._let_go(tp, "deleted")
        if self.logs.holds(tp):
            self.logs.remove(tp, self._removal_name(), sync=False)

    def in_directory(self, directory: str) -> list[Partition]:
        """The replicas whose logs are open in this log directory."""
        held = self.logs.logs
        return [
            partition
            for tp, partition in self.partitions.items()
            if tp in held and self.logs.directory_of(tp) == directory
        ]

    def lose(self, gone: Iterable[TopicPartition], reason: str) -> None:
        """The logs of these partitions are lost: their replicas go offline."""
        for partition in filter(None, map(self.partitions.get, gone)):
            self.fetchers.drop(partition)
            if partition.offline is None:
                partition.fail(reason)
            self.look_after(partition)

    def strays(self, named: Mapping[UUID, Collection[int]], controller_epoch: int) -> list[TopicPartition]:
        """Logs of partitions that are not in `named` and not assigned to this broker by the controller."""
        return [
            tp
            for tp, held in sorted(self.logs.logs.items())
            if held.topic_id is not None
            and tp.partition not in named.get(held.topic_id, ())
            and self._is_elsewhere(tp, held.topic_id, controller_epoch)
        ]

    def set_aside(self, tp: TopicPartition) -> None:
        """Rename a log whose topic is deleted or whose partition has moved away, so that it is never served.
        Raises DiskError.
        """
        self._let_go(tp, "of a topic that is no more, or of other brokers")
        target = self.logs.remove(tp, self._removal_name(), STRAY, sync=False)
        self.estranged.add(tp, target)
        logger.warning("stray_log", partition=str(tp), kept_as=target)

    def _let_go(self, tp: TopicPartition, why: str) -> None:
        partition = self.partitions.pop(tp, None)
        if partition is None:
            return
        partition.offline = why
        self._restless.pop(partition, None)
        if not any(other.topic == tp.topic for other in self.partitions):
            self._names = {id: name for id, name in self._names.items() if name != tp.topic}

    def _removal_name(self) -> UUID:
        self._removed += 1
        return UUID(int=(self.host.clock.wall_ms() << 64) + self._removed)

    def append_local(
        self, tp: TopicPartition, batch: bytearray, on_committed: Committed, deadline: float
    ) -> None:
        """Produce with acks=all from inside the broker. `on_committed` gets the result, perhaps at once."""
        LocalAppend(on_committed).begin(self.get, tp, batch, deadline)

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
            self.host.on_disk_failed(None, error)

    # In the background.

    def look_after(self, partition: Partition) -> None:
        """Its role or its ISR has changed: decide whether frequent ticks check it."""
        leader = partition.leading
        if leader is None or (
            isinstance(leader.isr, Settled)
            and leader.isr.members.issuperset(leader.replicas)
            and not leader.is_recovering
        ):
            self._restless.pop(partition, None)
        else:
            self._restless[partition] = None

    async def _run_ticks(self) -> None:
        full_pass_at = 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.host.loop.time()
            if now >= full_pass_at:
                full_pass_at = now + self._full_pass_seconds
                self.tick(list(self.partitions.values()), now)
            elif self._restless:
                self.tick(list(self._restless), now)

    def tick(self, partitions: Sequence[Partition], now: float) -> None:
        """Let leaders react to the time: a lagging follower, say, is proposed out of the ISR."""
        for partition in partitions:
            leader = partition.leading
            if leader is not None:
                effects = leader.tick(now)
                if effects:
                    self._isr.perform(partition, leader, effects)
                    partition.mark()

    def _on_session(self, event: SessionEvent) -> None:
        """After a disconnection, every leader reads its state znode again: its ISR may be outdated."""
        gone = event.state in (SessionState.ASSUME_EXPIRED, SessionState.EXPIRED)
        self.host.recorder.note(BROKER, "session", state=event.state.name.lower())
        connected = event.state is SessionState.CONNECTED
        self.host.sessionless = not connected and (gone or self.host.sessionless)
        self.host.fenced = self._fence_on_loss and self.host.sessionless
        if connected:
            for partition in self.partitions.values():
                if partition.leading is not None:
                    partition.leading.revalidate()
                    self._restless[partition] = None

    async def _run_checkpoints(self, directory: str) -> None:
        while directory not in self.logs.places.offline:
            await asyncio.sleep(self._checkpoint_seconds)
            await self.checkpoint_watermarks(directory)

    async def checkpoint_watermarks(self, only: str | None = None) -> None:
        """Checkpoint high watermarks, in all directories or one. They only save a round of fetches after a
        restart: logs are not truncated to them, except under profiles of old versions.
        """
        write = self.logs.checkpoint_high_watermarks
        try:
            await self.host.loop.run_in_executor(None, write, self.high_watermarks, only)
        except DiskError as error:
            self.host.on_disk_failed(None, error)


def _leader_options(config: BrokerConfig) -> LeaderOptions:
    given = config.replication
    lag_s = given.lag_time_max_ms / 1000
    silent_s = SILENT_FETCHES * given.fetch_wait_max_ms / 1000
    return LeaderOptions(lag_s, given.strict_min_isr, given.lag_messages_max, config.semantics, silent_s)


def _tell(hooks: Sequence[Callable[[T], None]], what: T) -> None:
    for hook in hooks:
        hook(what)

"""Builds the parts of a broker that hold replicas and work on them, in the order of their dependency.

Each part gets finished parts only. What happens below is heard above by subscription: a part subscribes to
the events of `ReplicaShared` when it is made.
Left to others: the rest of a broker (node.py), handlers' view of the parts (context.py).
"""

import asyncio
from collections.abc import Callable
from uuid import UUID

from ..base.tasks import FailureHook, Tasks
from ..base.types import Clock, Incarnation, TopicPartition
from ..replication.leader import LeaderOptions, LiveBrokers
from ..storage.directories.log_manager import Logs
from ..zookeeper.client import ZkClient
from .config.broker import BrokerConfig
from .fetch.client_sessions import ClientSessions
from .fetch.follower_sessions import FollowerSessions
from .fetch.parked import ParkedReplicas
from .follower.fetcher import Fetchers
from .recorder import Recorder
from .replicas.cold_reads import ColdReads
from .replicas.flushing import Flushing
from .replicas.isr_writer import IsrWriter
from .replicas.leader_ticks import LeaderTicks
from .replicas.purgatory import Deadlines
from .replicas.recompression import Recoding
from .replicas.replicas import Replicas
from .replicas.shared import ReplicaShared
from .replicas.topic_configs import TopicSettings
from .replicas.watermark_checkpoints import WatermarkCheckpoints
from .roles.leader_and_isr import LeaderAndIsr
from .roles.mismatched_logs import MismatchedLogs, Vouches
from .roles.out_of_reach import OutOfReach
from .throttle import FOLLOWERS, LEADERS, Throttle
from .turn import Turn
from .upkeep.delete_records import Deletions

SILENT_FETCHES = 2  # a follower that has not fetched for so many fetch waits may follow another leader


class ReplicaParts:
    """The replicas of one broker and all that works on them, from start to stop."""

    def __init__(
        self,
        config: BrokerConfig,
        incarnation: Incarnation,
        logs: Logs,
        zk: ZkClient,
        clock: Clock,
        turn: Turn,
        *,
        is_known: Callable[[TopicPartition], bool],
        is_elsewhere: Callable[[TopicPartition, UUID, int], bool] = lambda tp, topic_id, epoch: False,
        vouches: Vouches = lambda tp, joined: False,
        recorder: Recorder | None = None,
        on_failure: FailureHook | None = None,
    ) -> None:
        """`is_known`, `is_elsewhere`: see replicas.py. `vouches`: see mismatched_logs.py."""
        replication, storage = config.replication, config.storage
        loop = asyncio.get_running_loop()
        self.logs = logs
        self._tasks = tasks = Tasks("replicas", on_failure)
        self.isr = IsrWriter(zk, tasks)
        self.flushing = Flushing(logs, storage, turn, on_failure)
        self.shared = shared = ReplicaShared(
            me=config.id, incarnation=incarnation, loop=loop, clock=clock, turn=turn,
            deadlines=Deadlines(loop), membership=LiveBrokers(frozenset()), options=_leader_options(config),
            flush_before_ack=storage.flush_before_ack, validate_records=storage.validate_records,
            perform=self.isr.perform, flush=self.flushing.want, lower=logs.lower, lift=logs.lift,
            cold_reads=ColdReads(loop, turn, on_failure, len(logs.places.configured)),
            recoding=Recoding(loop, on_failure), recorder=recorder or Recorder(clock, 1 << 20),
            keeps_aside=storage.aside_bytes_max != 0,
        )  # fmt: skip
        self.replicas = Replicas(shared, logs, self.flushing, is_known=is_known, is_elsewhere=is_elsewhere)
        self.settings = TopicSettings(logs, self.replicas.partitions)
        self.ticks = LeaderTicks(zk, shared, self.replicas, self.isr, replication, tasks)
        self.watermarks = WatermarkCheckpoints(
            shared, logs, self.replicas, storage.high_watermark_checkpoint_interval_ms, tasks
        )
        self.parked = ParkedReplicas(replication.fetch_gather_ms / 1000)
        self.sessions = FollowerSessions(shared)
        self.client_sessions = ClientSessions(shared, config.fetch_session_slots_max)
        self.leader_throttle = Throttle(
            config.id, replication.leader_throttled_rate, LEADERS, self.settings.names_of
        )
        self.follower_throttle = Throttle(
            config.id, replication.follower_throttled_rate, FOLLOWERS, self.settings.names_of
        )
        self.fetchers = Fetchers(shared, replication, tasks, self.flushing, self.follower_throttle)
        self.deletions = Deletions(shared, logs, self.parked, tasks)
        self.roles = LeaderAndIsr(
            shared, logs, self.replicas, self.settings, self.fetchers,
            MismatchedLogs(config.id, vouches), tasks,
        )  # fmt: skip
        self.out_of_reach = OutOfReach(zk, shared, self.replicas, self.settings, self.roles, tasks)

    def start(self) -> None:
        """Start the leaders' ticks, the high watermark checkpoints and the flush passes."""
        self.ticks.start()
        self.watermarks.start()
        self.flushing.begin_passes()

    async def config_changed(self, config: BrokerConfig) -> None:
        """The broker's configuration is this one now."""
        now = self.shared.loop.time()
        self.leader_throttle.set_rate(config.replication.leader_throttled_rate, now)
        self.follower_throttle.set_rate(config.replication.follower_throttled_rate, now)
        self.shared.validate_records = self.logs.config.validate_records
        await self.settings.defaults_changed()

    async def stop(self) -> None:
        """Stop fetching, answer 6 to all waiters, checkpoint the high watermarks. The logs stay open."""
        shared = self.shared
        self.ticks.stop_listening()
        self.fetchers.stop()
        for partition in self.replicas.partitions.values():
            partition.resign()
        shared.turn.settle()
        shared.deadlines.stop()
        await self._tasks.stop()
        for threads in (self.flushing, shared.cold_reads, shared.recoding):
            await threads.stop()
        await self.watermarks.write()


def _leader_options(config: BrokerConfig) -> LeaderOptions:
    given = config.replication
    lag_s = given.lag_time_max_ms / 1000
    silent_s = SILENT_FETCHES * given.fetch_wait_max_ms / 1000
    return LeaderOptions(lag_s, given.strict_min_isr, given.lag_messages_max, config.semantics, silent_s)

"""Obeys LeaderAndIsr and StopReplica: makes replicas lead, follow, wait, stop or be deleted.

The partitions of a request take these steps together, per log directory:
1. A thread makes new logs.
2. The partitions pause: they answer 6 (NOT_LEADER_OR_FOLLOWER).
3. One hop to a thread syncs the new logs, and writes the leader epoch files of new leaders.
4. Each partition takes its new role, if its replica is still as it was before the hop.
If one directory hangs, the others still lead and follow. One request at a time, so that no two transitions
overlap.
Left to others: which requests count (controller_fence.py), the roles themselves (replicas/partition.py),
fetching (follower/fetcher.py).
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from ...base.tasks import Tasks
from ...base.types import NO_LEADER, BrokerId, Epoch, TopicPartition
from ...protocol.errors import ErrorCode
from ...protocol.messages.control import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from ...replication.leader import Mandate
from ...storage.directories.log_manager import Logs
from ...storage.disk import Disk, DiskError, ReplicaElsewhere
from ...storage.log import bulk_sync
from ...storage.log.log import Log
from ..follower.fetcher import Fetchers
from ..replicas.partition import Partition
from ..replicas.per_directory import side_by_side
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared
from ..replicas.topic_configs import TopicSettings
from ..replicas.truncation import Uncut, cut_unasked
from .controller_fence import ControlGate
from .directory_shares import DirectoryShare, Removals, Transition, directory_shares
from .held_requests import RoleChange
from .mismatched_logs import MismatchedLogs
from .new_replicas import FULL, NewReplicas, Unmade

logger = structlog.get_logger(__name__)

BREATH = 20  # partitions between two yields to the event loop
SETTINGS_S = 2.0  # how long a role waits for settings that its controller, one of Kafka, does not send
LINES_MAX = 100  # above it, one log line sums up all new roles; `why leader` knows each


class LeaderAndIsr:
    """Performs the requests of controllers, one after the other."""

    def __init__(
        self,
        shared: ReplicaShared,
        logs: Logs,
        replicas: Replicas,
        settings: TopicSettings,
        fetchers: Fetchers,
        mismatched: MismatchedLogs,
        tasks: Tasks,
    ) -> None:
        self.gate = ControlGate()
        self.change: RoleChange | None = None  # under way
        self._shared = shared
        self._logs = logs
        self._replicas = replicas
        self._settings = settings
        self._fetchers = fetchers
        self._tasks = tasks
        self._new = NewReplicas(shared, logs, replicas, settings, mismatched)
        self._turn = asyncio.Lock()

    def admit(self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> ErrorCode:
        """NONE if this request of a controller counts, else the error to answer (controller_fence.py)."""
        return self.gate.admit(
            request.controller_epoch, request.broker_epoch, request.control_sequence, self._shared.incarnation
        )

    async def obey_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Become leader or follower, or wait for a leader, as the controller says."""
        async with self._turn:
            if refused := self.admit(request):
                return LeaderAndIsrResponse(error_code=refused)
            return await self._obey(request)

    async def take_up(self, request: LeaderAndIsrRequest, known: int) -> None:
        """The same for roles that this broker read in ZooKeeper (out_of_reach.py). Does nothing if more than
        `known` requests have been admitted: one of them may have stopped or deleted a replica named here.
        """
        async with self._turn:
            if self.gate.admitted == known:
                await self._obey(request)

    async def _obey(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        self.change = change = RoleChange(self._shared.loop)
        try:
            return await self._change(request, change)
        finally:
            self.change = None
            change.done.set_result(None)

    async def _change(self, request: LeaderAndIsrRequest, change: RoleChange) -> LeaderAndIsrResponse:
        began_s = self._shared.loop.time()
        self._fetchers.know((BrokerId(b.broker_id), b.host_name, b.port) for b in request.live_leaders)
        if request.type == FULL:
            self._set_strays_aside(request)
        for topic in request.topic_states:
            self._settings.told(topic, self.gate.is_kafkas)
        await self._settings.until_read([topic.topic_name for topic in request.topic_states], SETTINGS_S)
        wanted, unmade = self._new.missing(request, change.making)
        removals = self._begin_removals()
        shares = directory_shares(self._logs, request, wanted)
        await side_by_side(self._apply_share(share, removals, unmade) for share in shares)
        for _, settled in removals:
            await settled
        codes = {tp: code for share in shares for tp, code in share.codes.items()}
        took_ms = round((self._shared.loop.time() - began_s) * 1000, 1)
        begun = sum(len(share.begun) for share in shares)
        logger.info("leader_and_isr_applied", partitions=begun, full=request.type == FULL, took_ms=took_ms)
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[self._result(topic, state, codes) for state in topic.partition_states],
                )
                for topic in request.topic_states
            ]
        )

    async def _apply_share(self, share: DirectoryShare, removals: Removals, unmade: Unmade) -> None:
        """The steps of one log directory."""
        made = await self._new.make(share.wanted, unmade)
        for tp, topic, state in share.named:
            share.codes[tp] = await self._begin(topic, state, share.begun, unmade)
        for names, settled in removals:
            if not names.isdisjoint(each.partition for each in share.wanted):
                await settled  # else a crash might leave the old and the new log, in two directories
        await self._save(made, [one for one in share.begun if self._leads(one.state)])
        await self._finish_all(share.begun)

    def _result(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        codes: Mapping[TopicPartition, ErrorCode],
    ) -> LeaderAndIsrPartitionError:
        """As things are at the end: also reports what failed meanwhile."""
        tp = TopicPartition(topic.topic_name, state.partition_index)
        code, partition = codes[tp], self._replicas.find(tp)
        if partition is not None and partition.offline is not None:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        return LeaderAndIsrPartitionError(
            partition_index=state.partition_index,
            error_code=code,
            is_full=partition is not None and partition.full is not None,
        )

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those marked for deletion."""
        async with self._turn:
            if refused := self.admit(request):
                return StopReplicaResponse(error_code=refused)
            errors = [
                StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=state.partition_index,
                    error_code=self._stop(TopicPartition(topic.topic_name, state.partition_index), state),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
            if not all([await settled for _, settled in self._begin_removals()]):
                errors = [
                    StopReplicaPartitionError(
                        topic_name=error.topic_name,
                        partition_index=error.partition_index,
                        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                    )
                    for error in errors
                ]
            return StopReplicaResponse(partition_errors=errors)

    def _begin_removals(self) -> Removals:
        """Sync the removal of logs: for each directory the removed names, and the task that syncs them."""
        return [
            (frozenset(names), self._tasks.spawn(self._settle_removals(directory), "removals"))
            for directory, names in self._logs.removed.items()
        ]

    async def _settle_removals(self, directory: str) -> bool:
        """Sync the removals of one directory. False if that failed."""
        try:
            settle = self._logs.settle_removals
            await self._shared.loop.run_in_executor(None, settle, directory)
        except DiskError as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: DiskError) -> None:
        """A replica could not be made or deleted."""
        self._shared.on_disk_failed(None, error)
        self._shared.on_order_failed(error)

    def _leads(self, state: LeaderAndIsrPartitionState) -> bool:
        return state.leader == self._shared.me

    # LeaderAndIsr, step by step.

    def _set_strays_aside(self, request: LeaderAndIsrRequest) -> None:
        """Set aside logs of deleted topics and of partitions that have moved to other brokers."""
        named = {
            topic.topic_id: {state.partition_index for state in topic.partition_states}
            for topic in request.topic_states
        }
        for tp in self._replicas.strays(named, request.controller_epoch):
            partition = self._replicas.find(tp)
            if partition is not None:
                self._fetchers.drop(partition)
                partition.stop(partition.leader_epoch)
            self._new.set_aside(tp)

    async def _begin(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        begun: list[Transition],
        unmade: Unmade,
    ) -> ErrorCode:
        if len(begun) % BREATH == BREATH - 1:
            await asyncio.sleep(0)
        try:
            return self._begin_one(topic, state, begun, unmade)
        except ReplicaElsewhere as error:
            logger.warning(
                "replica_in_offline_dir", topic=topic.topic_name, partition=state.partition_index,
                reason=str(error),
            )  # fmt: skip
        except DiskError as error:
            logger.error(
                "replica_not_created", topic=topic.topic_name, partition=state.partition_index,
                reason=str(error),
            )  # fmt: skip
            self._failed(error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _begin_one(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        begun: list[Transition],
        unmade: Unmade,
    ) -> ErrorCode:
        replicas = self._replicas
        tp = TopicPartition(topic.topic_name, state.partition_index)
        if self._shared.me not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._new.can_be(state):
            return ErrorCode.INVALID_REQUEST
        if self._new.is_of_another_topic(tp, topic):
            hosted = replicas.find(tp) is not None
            return ErrorCode.INCONSISTENT_TOPIC_ID if hosted else ErrorCode.KAFKA_STORAGE_ERROR
        if tp in unmade:
            raise unmade[tp]
        partition = replicas.find(tp) or replicas.host_partition(tp, topic.topic_id)
        if partition.log.topic_id is None:
            replicas.identify(tp, partition.log, topic.topic_id)
        if partition.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if state.leader_epoch < partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if state.leader_epoch == partition.leader_epoch and not partition.incomplete:
            return ErrorCode.NONE
        if self._leads(state) and partition.log.epochs.latest > state.leader_epoch:
            partition.fail(
                f"its log already has epoch {partition.log.epochs.latest}, later than the epoch it is "
                "to lead in"
            )
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._shared.told(tp, state.leader_epoch)
        if self._settings.are_read(topic.topic_name):  # else it goes on with those of its last start
            partition.configure(self._settings.config_of(topic.topic_name))
        partition.pause()
        self._fetchers.drop(partition)
        if self._leads(state) and self._shared.options.semantics.begins_when_elected:
            partition.log.assign_epoch(state.leader_epoch)
        begun.append(Transition(partition, state, partition.log.generation, partition.log.end_offset))
        return ErrorCode.NONE

    async def _save(self, new: Sequence[Log], leading: Sequence[Transition]) -> None:
        """Sync new logs, write new leaders' epochs (KAFKA-7415: before their first append), in one hop."""
        if not (new or leading):
            return
        led = [change.partition.log for change in leading]
        failures = await self._shared.loop.run_in_executor(None, _save_all, self._logs.disk, new, led)
        for held, error in failures:
            partition = self._replicas.find(held.partition)
            if partition is not None and partition.log is held and partition.offline is None:
                partition.disk_failed(error)

    async def _finish_all(self, begun: list[Transition]) -> None:
        """Leaders first, because others wait for them. Fetching begins last, for all without an await."""
        begun.sort(key=lambda change: not self._leads(change.state))
        for place, change in enumerate(begun):
            if place % BREATH == BREATH - 1:
                await asyncio.sleep(0)  # so `_finish` checks `holds` for each
            self._finish(change, quiet=len(begun) > LINES_MAX)
        uncut: list[Uncut] = []
        for change in begun:
            follower = change.partition.following
            if follower is None or follower.leader == NO_LEADER:
                continue
            if effects := follower.opened():
                uncut.append((change.partition, follower, effects))
            else:
                self._fetchers.follow(change.partition)
        if uncut:
            self._tasks.spawn(cut_unasked(self._shared, uncut, self._fetchers.follow), "cuts")

    def _finish(self, change: Transition, quiet: bool) -> None:
        partition, state = change.partition, change.state
        if not change.holds():
            logger.warning("leader_and_isr_superseded", partition=str(partition.tp), epoch=state.leader_epoch)
            return
        epoch = Epoch(state.leader_epoch)
        partition.recovering = state.leader_recovery_state != 0
        partition.in_sync = self._shared.me in state.isr
        if self._leads(state):
            partition.lead(
                Mandate(
                    epoch,
                    tuple(map(BrokerId, state.replicas)),
                    tuple(map(BrokerId, state.isr)),
                    state.partition_epoch,
                    frozenset(map(BrokerId, state.adding_replicas)),
                    frozenset(map(BrokerId, state.removing_replicas)),
                    partition.recovering,
                )
            )
        else:
            leader = NO_LEADER if state.leader < 0 else BrokerId(state.leader)
            partition.follow(leader, epoch)
        self._note(partition, state)
        if quiet:
            return
        logger.info(
            "role_changed", partition=str(partition.tp), role=partition.role.value, epoch=epoch,
            leader=state.leader, end=partition.log.end_offset, watermark=partition.high_watermark,
        )  # fmt: skip

    def _note(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        """Record the new role for `why`, and which controller gave it."""
        self._shared.recorder.note(
            str(partition.tp), f"became_{partition.role.value}", epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch, leader=state.leader, isr=list(state.isr),
            replicas=list(state.replicas), end=partition.log.end_offset, watermark=partition.high_watermark,
            unclean=partition.recovering,
        )  # fmt: skip

    # StopReplica.

    def _stop(self, tp: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        partition = self._replicas.find(tp)
        if partition is not None:
            if partition.log.failed and self._logs.get(tp) is None:
                return ErrorCode.KAFKA_STORAGE_ERROR  # its directory is offline: it cannot be deleted there
            if 0 <= state.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._fetchers.drop(partition)
            partition.stop(Epoch(max(state.leader_epoch, partition.leader_epoch)))
            logger.info("replica_stopped", partition=str(tp), delete=state.delete_partition)
        self._shared.recorder.note(str(tp), "stopped", deleted=state.delete_partition)
        try:
            if state.delete_partition:
                self._replicas.unhost(tp)
        except DiskError as error:
            logger.error("replica_not_deleted", partition=str(tp), reason=str(error))
            self._failed(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def _save_all(disk: Disk, new: Sequence[Log], led: Sequence[Log]) -> bulk_sync.Failures:
    return bulk_sync.save_epochs(led) + bulk_sync.settle_new(disk, new)

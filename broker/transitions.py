"""Obeys LeaderAndIsr and StopReplica: which replica leads, follows, waits or goes.

All partitions of a command pass three steps together: pause, so that they answer 6; one hop to a thread
in which the epochs of the new leaders come to the medium; then the new roles, each after a look whether
its replica is still as it was before the hop. One command at a time, so that nothing else begins a
transition meanwhile.
Left to others: which commands count (control_gate.py), the roles themselves (partition.py), fetching
(fetchers.py).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from ..protocol.errors import ErrorCode
from ..protocol.kinds import NO_LEADER, BrokerId, Epoch, TopicPartition
from ..protocol.messages.control import (
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
)
from ..protocol.primitives import NO_UUID
from ..replication.leader import Mandate
from ..storage.disk import DiskError
from .control_gate import ControlGate
from .partition import Partition

if TYPE_CHECKING:
    from .replicas import Replicas

log = structlog.get_logger(__name__)

FULL = 2  # a request that names all that this broker hosts
BREATH = 50  # after so many new partitions, others get a turn


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition that has begun, and how the log was then."""

    partition: Partition
    state: LeaderAndIsrPartitionState
    generation: int
    end_offset: int

    def holds(self) -> bool:
        """Whether the replica is still as it was when the transition began."""
        partition = self.partition
        return (
            partition.incomplete
            and partition.offline is None
            and partition.log.generation == self.generation
            and partition.log.end_offset == self.end_offset
        )


class Transitions:
    """Performs the commands of controllers, one after the other."""

    def __init__(self, replicas: "Replicas", gate: ControlGate) -> None:
        self._replicas = replicas
        self._gate = gate
        self._turn = asyncio.Lock()

    async def obey_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Lead, follow or wait, as told."""
        async with self._turn:
            refused = self._gate.admit(
                request.controller_epoch, request.broker_epoch, request.control_sequence, self._incarnation
            )
            if refused:
                return LeaderAndIsrResponse(error_code=refused)
            self._replicas.fetchers.know(
                (BrokerId(b.broker_id), b.host_name, b.port) for b in request.live_leaders
            )
            if request.type == FULL:
                self._set_strays_aside(request)
            begun: list[Transition] = []
            topics = []
            for topic in request.topic_states:
                errors = [await self._begin(topic, state, begun) for state in topic.partition_states]
                topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            await self._save_epochs([change for change in begun if self._leads(change.state)])
            for change in begun:
                self._finish(change)
            return LeaderAndIsrResponse(topics=topics)

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those that are to be deleted."""
        async with self._turn:
            refused = self._gate.admit(
                request.controller_epoch, request.broker_epoch, request.control_sequence, self._incarnation
            )
            if refused:
                return StopReplicaResponse(error_code=refused)
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=self._stop(TopicPartition(topic.topic_name, state.partition_index), state),
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ]
            )

    @property
    def _incarnation(self) -> int:
        return self._replicas.host.incarnation

    def _leads(self, state: LeaderAndIsrPartitionState) -> bool:
        return state.leader == self._replicas.host.me

    # LeaderAndIsr, step by step.

    def _set_strays_aside(self, request: LeaderAndIsrRequest) -> None:
        """Logs of topics that the cluster does not have. Of a topic that it has, none is touched for that."""
        named = {topic.topic_id for topic in request.topic_states}
        for tp in self._replicas.strays(named, request.controller_epoch):
            partition = self._replicas.find(tp)
            if partition is not None:
                self._replicas.fetchers.drop(partition)
                partition.stop(partition.leader_epoch)
            try:
                self._replicas.set_aside(tp)
            except DiskError as error:
                log.error("stray_not_set_aside", partition=str(tp), reason=str(error))

    async def _begin(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, begun: list[Transition]
    ) -> LeaderAndIsrPartitionError:
        if len(begun) % BREATH == BREATH - 1:
            await asyncio.sleep(0)
        try:
            code = self._begin_one(topic, state, begun)
        except DiskError as error:
            log.error(
                "replica_not_created",
                topic=topic.topic_name,
                partition=state.partition_index,
                reason=str(error),
            )
            code = ErrorCode.KAFKA_STORAGE_ERROR
        return LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)

    def _begin_one(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, begun: list[Transition]
    ) -> ErrorCode:
        replicas = self._replicas
        tp = TopicPartition(topic.topic_name, state.partition_index)
        if replicas.host.me not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._leads(state) and state.leader not in state.isr:
            return ErrorCode.INVALID_REQUEST
        held = replicas.topic_id_of(tp)
        if held is not None and NO_UUID not in (held, topic.topic_id) and held != topic.topic_id:
            if replicas.find(tp) is not None:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            replicas.set_aside(tp)
        config = replicas.config_of(topic.topic_name, {c.name: c.value for c in topic.configs})
        partition = replicas.find(tp) or replicas.host_partition(tp, topic.topic_id, config)
        if partition.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if state.leader_epoch < partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if state.leader_epoch == partition.leader_epoch and not partition.incomplete:
            return ErrorCode.NONE
        if self._leads(state) and partition.log.epochs.latest > state.leader_epoch:
            partition.fail(f"its log knows epoch {partition.log.epochs.latest}, later than its leadership")
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition.configure(config)
        partition.pause()
        replicas.fetchers.drop(partition)
        if self._leads(state):
            partition.log.assign_epoch(state.leader_epoch)
        begun.append(Transition(partition, state, partition.log.generation, partition.log.end_offset))
        return ErrorCode.NONE

    async def _save_epochs(self, leading: Sequence[Transition]) -> None:
        """The epochs of all new leaders to the medium, in one hop (KAFKA-7415: before their first append)."""
        if not leading:
            return
        failures = await self._replicas.host.loop.run_in_executor(None, _save_all, leading)
        for change, error in failures:
            change.partition.disk_failed(error)

    def _finish(self, change: Transition) -> None:
        partition, state = change.partition, change.state
        if not change.holds():
            log.warning("transition_void", partition=str(partition.tp), epoch=state.leader_epoch)
            return
        epoch = Epoch(state.leader_epoch)
        if self._leads(state):
            partition.lead(
                Mandate(
                    epoch,
                    tuple(map(BrokerId, state.replicas)),
                    tuple(map(BrokerId, state.isr)),
                    state.partition_epoch,
                )
            )
        else:
            leader = NO_LEADER if state.leader < 0 else BrokerId(state.leader)
            partition.follow(leader, epoch)
            if leader != NO_LEADER:
                self._replicas.fetchers.follow(partition)
        self._replicas.role_changed(partition)
        log.info(
            "role_changed", partition=str(partition.tp), role=partition.role.value, epoch=epoch,
            leader=state.leader, end=partition.log.end_offset, watermark=partition.high_watermark,
        )  # fmt: skip

    # StopReplica.

    def _stop(self, tp: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        partition = self._replicas.find(tp)
        if partition is not None:
            if 0 <= state.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._replicas.fetchers.drop(partition)
            partition.stop(Epoch(max(state.leader_epoch, partition.leader_epoch)))
            self._replicas.role_changed(partition)
        log.info("replica_stopped", partition=str(tp), delete=state.delete_partition)
        try:
            if state.delete_partition:
                self._replicas.unhost(tp)
        except DiskError as error:
            log.error("replica_not_deleted", partition=str(tp), reason=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def _save_all(changes: Sequence[Transition]) -> list[tuple[Transition, DiskError]]:
    failures = []
    for change in changes:
        try:
            change.partition.log.save_epochs()
        except DiskError as error:
            failures.append((change, error))
    return failures

"""Turns commands into control requests: LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4. Pure.

A request is built again for every attempt, because each attempt has its own control sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from itertools import groupby
from typing import Any
from uuid import UUID

from ..base.types import TopicPartition
from ..base.values import dataclass
from ..protocol.apis import Api
from ..protocol.messages.control import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    TopicConfigEntry,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ..protocol.messages.elections import GetReplicaLogInfoRequest, LogInfoTopic
from .planning.plans import AskEnds, PartitionRole, SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from .planning.state import Broker, ClusterState

VERSIONS: dict[int, int] = {
    Api.LEADER_AND_ISR: 7,
    Api.UPDATE_METADATA: 8,
    Api.STOP_REPLICA: 4,
    Api.GET_REPLICA_LOG_INFO: 0,
}
INCREMENTAL, FULL = 1, 2


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to one broker that waits to be sent; `build` gives it its sequence number."""

    build: Callable[[int], Any]
    deletes: frozenset[TopicPartition] = frozenset()
    asks: tuple[TopicPartition, ...] = ()  # the partitions of a question, in its order
    topics: Mapping[UUID, str] = field(default_factory=dict)  # of a LeaderAndIsr: its answer has only ids
    leads: Mapping[TopicPartition, int] = field(default_factory=dict)  # leader epochs it gives the broker
    roles: tuple[PartitionRole, ...] = ()  # of a LeaderAndIsr
    partitions: int = 0  # how many partitions the broker must handle, each of which may take a moment


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Builds requests for one controller: its broker and epoch, and the listener that brokers use."""

    broker: int
    epoch: int
    listener: str

    def endpoint(self, broker: Broker) -> tuple[str, int] | None:
        """Where a broker is reached by other brokers."""
        found = next((e for e in broker.endpoints if e.listener == self.listener), None)
        return None if found is None else (found.host, found.port)

    def leader_and_isr(self, state: ClusterState, command: SendLeaderAndIsr) -> ControlRequest:
        """LeaderAndIsr: tell one broker what it leads and follows."""
        assert all(command.broker in role.replicas for role in command.roles), "only replicas lead or follow"
        topics = [
            LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=roles[0].topic_id,
                partition_states=[self._assignment(role) for role in roles],
                configs=_configs(state, topic),
                configs_born=_edition(state, topic)[0],
                configs_version=_edition(state, topic)[1],
            )
            for topic, roles in _by_topic(command.roles)
        ]
        leaders = sorted({role.state.leader for role in command.roles} & state.brokers.keys())
        live = [
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=place[0], port=place[1])
            for leader in leaders
            if (place := self.endpoint(state.brokers[leader])) is not None
        ]
        epoch = state.brokers[command.broker].epoch
        return ControlRequest(
            lambda sequence: LeaderAndIsrRequest(
                controller_id=self.broker,
                controller_epoch=self.epoch,
                broker_epoch=epoch,
                type=FULL if command.full else INCREMENTAL,
                topic_states=topics,
                live_leaders=live,
                control_sequence=sequence,
            ),
            topics={topic.topic_id: topic.topic_name for topic in topics},
            leads={
                role.partition: role.state.leader_epoch
                for role in command.roles
                if role.state.leader == command.broker
            },
            roles=command.roles,
            partitions=len(command.roles),
        )

    def _assignment(self, role: PartitionRole) -> LeaderAndIsrPartitionState:
        state = role.state
        return LeaderAndIsrPartitionState(
            partition_index=role.partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.version,
            replicas=list(role.replicas),
            adding_replicas=list(role.adding),
            removing_replicas=list(role.removing),
            is_new=role.is_new,
            leader_recovery_state=int(state.recovering),
            isr_epochs=[state.isr_epochs.get(member, -1) for member in state.isr],
        )

    def update_metadata(self, state: ClusterState, command: SendUpdateMetadata) -> dict[int, ControlRequest]:
        """UpdateMetadata: for each addressed broker, what it should tell clients."""
        topics = [
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=roles[0].topic_id,
                partition_states=[self._picture(role) for role in roles],
                configs=_configs(state, topic),
                configs_born=_edition(state, topic)[0],
                configs_version=_edition(state, topic)[1],
            )
            for topic, roles in _by_topic(command.roles)
        ]
        live = [_registered(state, state.brokers[broker]) for broker in sorted(state.brokers)]

        def request(epoch: int) -> ControlRequest:
            return ControlRequest(
                lambda sequence: UpdateMetadataRequest(
                    controller_id=self.broker,
                    controller_epoch=self.epoch,
                    broker_epoch=epoch,
                    type=FULL if command.full else INCREMENTAL,
                    topic_states=topics,
                    live_brokers=live,
                    control_sequence=sequence,
                )
            )

        return {broker: request(state.brokers[broker].epoch) for broker in command.brokers}

    def _picture(self, role: PartitionRole) -> UpdateMetadataPartitionState:
        state = role.state
        return UpdateMetadataPartitionState(
            partition_index=role.partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.version,
            replicas=list(role.replicas),
            offline_replicas=list(role.offline),
        )

    def stop_replica(self, state: ClusterState, command: SendStopReplica) -> ControlRequest:
        """StopReplica: tell one broker which replicas to stop."""
        assert command.partitions, "a list of nothing stops nothing"
        topics = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=q.partition,
                        leader_epoch=command.partitions[q],
                        delete_partition=command.delete,
                    )
                    for q in partitions
                ],
            )
            for topic, partitions in groupby(sorted(command.partitions), key=lambda q: q.topic)
        ]
        epoch = state.brokers[command.broker].epoch
        return ControlRequest(
            lambda sequence: StopReplicaRequest(
                controller_id=self.broker,
                controller_epoch=self.epoch,
                broker_epoch=epoch,
                topic_states=topics,
                control_sequence=sequence,
            ),
            deletes=frozenset(command.partitions) if command.delete else frozenset(),
            partitions=len(command.partitions),
        )

    def log_info(self, state: ClusterState, command: AskEnds) -> ControlRequest:
        """GetReplicaLogInfo: ask where logs end. It changes nothing, so it needs no sequence number."""
        asks = tuple(q for q in sorted(command.partitions) if q.topic in state.topics)
        topics = [
            LogInfoTopic(topic_id=state.topics[name].id, partitions=[q.partition for q in group], topic=name)
            for name, group in groupby(asks, key=lambda q: q.topic)
        ]
        return ControlRequest(
            lambda _: GetReplicaLogInfoRequest(topic_partitions=topics), asks=asks, partitions=len(asks)
        )


def _by_topic(roles: Iterable[PartitionRole]) -> list[tuple[str, list[PartitionRole]]]:
    ordered = sorted(roles, key=lambda role: role.partition)
    return [(topic, list(group)) for topic, group in groupby(ordered, key=lambda role: role.partition.topic)]


def _configs(state: ClusterState, topic: str) -> list[TopicConfigEntry]:
    known = state.topics.get(topic)
    return (
        [] if known is None else [TopicConfigEntry(name=k, value=v) for k, v in sorted(known.configs.items())]
    )


def _edition(state: ClusterState, topic: str) -> tuple[int, int]:
    known = state.topics.get(topic)
    return (-1, -1) if known is None else known.configs_at


def _registered(state: ClusterState, broker: Broker) -> UpdateMetadataBroker:
    """Suspected brokers are named too, since a suspicion may be wrong; `is_suspected` tells."""
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener, security_protocol=e.security_code
        )
        for e in broker.endpoints
    ]
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=endpoints,
        rack=broker.rack,
        is_leaving=state.is_leaving(broker.id),
        is_suspected=state.is_suspected(broker.id),
    )

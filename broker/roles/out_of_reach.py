"""Reads roles from ZooKeeper when the controller cannot reach this broker to send LeaderAndIsr.

Without this, one broken link stops partitions that could be served. When a replica dies, the controller takes
it out of the ISR in a new leader epoch. A leader that has not heard of the epoch can no longer change its
ISR, and a follower that has not is refused by its leader, although both reach each other and ZooKeeper.
(Kafka's brokers wait until the controller reaches them.)
This broker suspects it when its epoch is over, its leader is unreachable, somebody asks for a later epoch, or
it is challenged through ZooKeeper. If no request of the controller has come a moment later, it reads the
state znodes of its partitions. A state with a newer epoch than the replica's is obeyed as if it were a
LeaderAndIsr: the znodes of the partition and of its topic hold the same content. Other topics are not read:
who takes up a role may not have heard of new ones, which must not count as deleted (`on_roles_read`).
Left to others: the suspicion (replicas/isr_writer.py, follower/fetcher.py, controller/challenges.py), what a
role means (leader_and_isr.py). Topics that this broker has not heard of at all wait for the controller.
Why: docs/decisions/0050-a-role-that-nobody-can-tell-is-read.md
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeVar

import structlog

from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.messages.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    TopicConfigEntry,
)
from ...zookeeper import documents
from ...zookeeper.client import TOGETHER_MAX, ZkClient, ZkError
from ...zookeeper.documents import BadDocument, StateDocument, TopicDocument
from ..replicas.partition import Partition
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared
from ..replicas.topic_configs import TopicSettings
from .leader_and_isr import LeaderAndIsr

logger = structlog.get_logger(__name__)

LOOK_AFTER_S = 1.0  # a request usually comes sooner, if the link broke for a moment only
LOOK_EVERY_S = 5.0  # at most: each look reads the states of all partitions here
LOOKS_MAX = 6  # as long as a replica has no role; after that, only on a new suspicion
READ_WITHIN_S = 10.0
NOBODY = -1  # not sent by a controller

T = TypeVar("T")
Read = tuple[StateDocument, int]  # and the version of its znode


class OutOfReach:
    """Looks in ZooKeeper for roles that this broker has not been told."""

    def __init__(
        self,
        zk: ZkClient,
        shared: ReplicaShared,
        replicas: Replicas,
        settings: TopicSettings,
        roles: LeaderAndIsr,
        tasks: Tasks,
    ) -> None:
        self._zk = zk
        self._shared = shared
        self._replicas = replicas
        self._settings = settings
        self._roles = roles
        self._tasks = tasks
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._known = 0  # requests admitted when this was last suspected
        shared.untold.subscribe(self.suspect)

    def suspect(self) -> None:
        """This broker may have missed a request of the controller, or another broker cannot reach it."""
        self._known = self._roles.gate.admitted
        if not self.is_looking and not self._tasks.is_stopping:
            self._looking = self._tasks.spawn(self._look(), "roles")

    @property
    def is_looking(self) -> bool:
        """Whether ZooKeeper is being read, or is about to be."""
        return self._looking is not None and not self._looking.done()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(max(LOOK_AFTER_S, self._looked_at + LOOK_EVERY_S - loop.time()))
            if self._known != self._roles.gate.admitted:
                return
            self._looked_at = loop.time()
            await self._look_once()
            if not any(_has_no_role(partition) for partition in self._replicas.partitions.values()):
                return  # else ZooKeeper's answer was older than what ended a leadership here

    async def _look_once(self) -> None:
        known = self._known
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                topics = await self.untold_roles()
        except (ZkError, TimeoutError) as error:
            logger.info("partition_states_read_failed", reason=repr(error))
            return
        if topics:
            count = sum(len(topic.partition_states) for topic in topics)
            logger.warning(
                "partition_states_read", partitions=count, reason="the controller cannot reach this broker"
            )
            request = LeaderAndIsrRequest(
                controller_id=NOBODY, controller_epoch=NOBODY, topic_states=topics, live_leaders=[]
            )
            self._shared.on_roles_read()
            await self._roles.take_up(request, known)

    async def untold_roles(self) -> list[LeaderAndIsrTopicState]:
        """Roles in newer epochs than those of the replicas here."""
        hosted = sorted(p.tp for p in self._replicas.partitions.values() if _may_be_told(p))
        states = dict[TopicPartition, Read]()
        for some in _in_parts(hosted):
            states.update(await self._read(some))
        newer = _by_topic(tp for tp, (state, _) in states.items() if self._is_news(tp, state))
        told = list[LeaderAndIsrTopicState]()
        for names in _in_parts(sorted(newer)):
            nodes = await self._zk.get_many([documents.topic_path(name) for name in names])
            for name, node in zip(names, nodes, strict=True):
                topic = self._topic(name, node and node[0], {tp: states[tp] for tp in newer[name]})
                if topic.partition_states:
                    told.append(topic)
        return told

    async def _read(self, some: list[TopicPartition]) -> dict[TopicPartition, Read]:
        nodes = await self._zk.get_many([documents.state_path(tp) for tp in some])
        read = dict[TopicPartition, Read]()
        for tp, node in zip(some, nodes, strict=True):
            try:
                if node is not None:
                    read[tp] = documents.parse(StateDocument, node[0]), node[1].version
            except BadDocument as bad:
                logger.info("partition_state_malformed", partition=str(tp), reason=str(bad))
        return read

    def _is_news(self, tp: TopicPartition, state: StateDocument) -> bool:
        """Whether the state has a newer epoch. If it names this broker as leader, it must mean this start: an
        earlier one may have held more, and the controller would then announce no leader.
        """
        partition, shared = self._replicas.find(tp), self._shared
        is_newer = (
            partition is not None and _may_be_told(partition) and state.leader_epoch > partition.leader_epoch
        )
        return is_newer and (
            state.leader != shared.me or state.isr_epochs.get(shared.me) == shared.incarnation
        )

    def _topic(
        self, name: str, node: bytes | None, states: Mapping[TopicPartition, Read]
    ) -> LeaderAndIsrTopicState:
        """What the controller would send; without partitions if the topic is another by now, or unreadable.

        Its znode is read after the states: if the id is that of the logs here, the states were this topic's.
        """
        try:
            topic = documents.parse(TopicDocument, node or b"")
        except BadDocument as bad:
            logger.info("topic_malformed", topic=name, reason=str(bad))
            topic = TopicDocument(partitions={})
        me, known = self._shared.me, self._settings.of(name)
        born, version = known.edition
        return LeaderAndIsrTopicState(
            topic_name=name,
            topic_id=topic.uuid,
            partition_states=[
                _role(tp, topic, *read)
                for tp, read in states.items()
                if self._replicas.topic_id_of(tp) == topic.uuid
                and me in topic.partitions.get(tp.partition, ())
            ],
            configs=[TopicConfigEntry(name=key, value=value) for key, value in known.names.items()],
            configs_born=born,
            configs_version=version,
        )


def _may_be_told(partition: Partition) -> bool:
    """The controller has given it a role, and it was neither stopped nor went offline since."""
    return partition.offline is None and not partition.incomplete


def _has_no_role(partition: Partition) -> bool:
    """It has given up a leadership, and has no new role yet."""
    return partition.leading is None and partition.following is None and _may_be_told(partition)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    return {name: list(some) for name, some in groupby(sorted(partitions), key=lambda tp: tp.topic)}


def _in_parts(all_of_them: list[T]) -> Iterator[list[T]]:
    for first in range(0, len(all_of_them), TOGETHER_MAX):
        yield all_of_them[first : first + TOGETHER_MAX]


def _role(
    tp: TopicPartition, topic: TopicDocument, state: StateDocument, version: int
) -> LeaderAndIsrPartitionState:
    index = tp.partition
    going = set(topic.removing_replicas.get(index, ())) - set(state.isr)  # these may have been told to delete
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=version,
        replicas=[replica for replica in topic.partitions[index] if replica not in going],
        adding_replicas=list(topic.adding_replicas.get(index, ())),
        removing_replicas=list(topic.removing_replicas.get(index, ())),
        leader_recovery_state=state.leader_recovery_state,
        isr_epochs=[state.isr_epochs.get(member, -1) for member in state.isr],
    )

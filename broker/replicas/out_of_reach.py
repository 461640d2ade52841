"""What the controller has written down and cannot tell this broker, which reads it in ZooKeeper instead.

A controller goes on to rule while it cannot reach a broker that lives. When a replica of a partition dies it
takes it out of the ISR, in a new epoch; a leader that has not been told can change its ISR no more, and a
follower is refused by its leader, though both reach each other and ZooKeeper. (Kafka's brokers wait until the
controller reaches them.) Whoever finds that its epoch is over, or its leader gone, is asked for a later epoch
or challenged through ZooKeeper, suspects it. If no command has come a moment later, it reads the states of
its partitions. One in a newer epoch than that of the replica here is obeyed as if the controller had said it:
what LeaderAndIsr says is in the znodes of the partition and of its topic.
Left to others: the suspicion (isr_writer.py, follower/fetcher.py, controller/challenges.py), what a role
means (leader_and_isr.py). Topics that this broker has not heard of at all wait for the controller.
Why: docs/decisions/0050-a-role-that-nobody-can-tell-is-read.md
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

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
from .partition import Partition

if TYPE_CHECKING:
    from .replicas import Replicas

logger = structlog.get_logger(__name__)

LOOK_AFTER_S = 1.0  # a command usually comes sooner: the path was broken for a moment only
LOOK_EVERY_S = 5.0  # at most: each time the states of all partitions here are read
LOOKS_MAX = 6  # while a replica has no role; then the next suspicion counts
READ_WITHIN_S = 10.0
NOBODY = -1  # no controller has sent this

T = TypeVar("T")
Read = tuple[StateDocument, int]  # and the version of its znode


class OutOfReach:
    """Looks for roles that this broker has not been told."""

    def __init__(self, registry: ZkClient, replicas: "Replicas", tasks: Tasks) -> None:
        self._registry = registry
        self._replicas = replicas
        self._tasks = tasks
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._known = 0  # commands, when this was last suspected

    def suspect(self) -> None:
        """Something here is not as a command would have made it, or somebody cannot reach this broker."""
        self._known = self._replicas.gate.admitted
        if (self._looking is None or self._looking.done()) and not self._tasks.is_stopping:
            self._looking = self._tasks.spawn(self._look(), "roles")

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(max(LOOK_AFTER_S, self._looked_at + LOOK_EVERY_S - loop.time()))
            if self._known != self._replicas.gate.admitted:
                return
            self._looked_at = loop.time()
            await self._look_once()
            if not any(_has_no_role(partition) for partition in self._replicas.partitions.values()):
                return  # else what was read is older than what has ended a leadership here

    async def _look_once(self) -> None:
        known = self._known
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                topics = await self._untold()
        except (ZkError, TimeoutError) as error:
            logger.info("roles_not_read", reason=repr(error))
            return
        if topics:
            count = sum(len(topic.partition_states) for topic in topics)
            logger.warning("roles_read", partitions=count, reason="the controller does not reach this broker")
            request = LeaderAndIsrRequest(
                controller_id=NOBODY, controller_epoch=NOBODY, topic_states=topics, live_leaders=[]
            )
            await self._replicas.transitions.take_up(request, known)

    async def _untold(self) -> list[LeaderAndIsrTopicState]:
        """Roles in newer epochs than those that the replicas here know."""
        hosted = sorted(p.tp for p in self._replicas.partitions.values() if _may_be_told(p))
        states = dict[TopicPartition, Read]()
        for some in _in_parts(hosted):
            states.update(await self._read(some))
        newer = _by_topic(tp for tp, (state, _) in states.items() if self._is_news(tp, state))
        told = list[LeaderAndIsrTopicState]()
        for names in _in_parts(sorted(newer)):
            nodes = await self._registry.get_many([documents.topic_path(name) for name in names])
            for name, node in zip(names, nodes, strict=True):
                topic = self._topic(name, node and node[0], {tp: states[tp] for tp in newer[name]})
                if topic.partition_states:
                    told.append(topic)
        return told

    async def _read(self, some: list[TopicPartition]) -> dict[TopicPartition, Read]:
        nodes = await self._registry.get_many([documents.state_path(tp) for tp in some])
        read = dict[TopicPartition, Read]()
        for tp, node in zip(some, nodes, strict=True):
            try:
                if node is not None:
                    read[tp] = documents.parse(StateDocument, node[0]), node[1].version
            except BadDocument as bad:
                logger.info("state_unreadable", partition=str(tp), reason=str(bad))
        return read

    def _is_news(self, tp: TopicPartition, state: StateDocument) -> bool:
        """Also: it names this start of this broker, if it names it. An earlier start may have held more, and
        the controller would announce that nobody leads.
        """
        partition, host = self._replicas.find(tp), self._replicas.host
        is_newer = (
            partition is not None and _may_be_told(partition) and state.leader_epoch > partition.leader_epoch
        )
        return is_newer and (state.leader != host.me or state.isr_epochs.get(host.me) == host.incarnation)

    def _topic(
        self, name: str, node: bytes | None, states: Mapping[TopicPartition, Read]
    ) -> LeaderAndIsrTopicState:
        """As the controller would put it; without partitions if it is another topic by now, or unreadable.

        Read after the states: if it is still the topic whose logs are here, they were its own.
        """
        try:
            topic = documents.parse(TopicDocument, node or b"")
        except BadDocument as bad:
            logger.info("topic_unreadable", topic=name, reason=str(bad))
            topic = TopicDocument(partitions={})
        me, known = self._replicas.host.me, self._replicas.settings.of(name)
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
    """It has been told before, and neither stopped nor lost since."""
    return partition.offline is None and not partition.incomplete


def _has_no_role(partition: Partition) -> bool:
    """It has given up a leadership, and nobody has said what comes next."""
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
    going = set(topic.removing_replicas.get(index, ())) - set(state.isr)  # they may have been told to delete
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

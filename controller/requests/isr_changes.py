"""AlterPartition: leaders of Apache Kafka have the controller write their new ISRs.

Our own leaders write to ZooKeeper themselves. For Kafka's the controller does the same in their name: it
reads the state, holds the request against it, and writes on condition that nothing has changed since. A
member that is shutting down, or not registered, does not join (KIP-841).
What ZooKeeper does not answer is tried again here: leaders of Kafka 3.3 and later repeat such a change at
once, without a pause, for as long as it takes. If another write came first, it is looked what it was: an
earlier copy of the request, perhaps, for leaders send it again when a connection breaks. Told that its
version is old, a leader would change its ISR no more in that leader epoch.
Left to others: what follows from a new ISR (planning/), which is learned as for all leaders.
Why: docs/decisions/0064-kafkas-brokers-in-the-same-cluster.md
"""

from __future__ import annotations

import asyncio

import structlog

from ...base.types import NO_BROKER_EPOCH, TopicPartition
from ...protocol.errors import ErrorCode, NotController, RequestTimedOut, StaleBrokerEpoch
from ...protocol.messages import control as messages
from ...protocol.primitives import NO_UUID
from ...zookeeper import documents
from ...zookeeper.client import BadVersion, Check, MultiFailed, NoNode, SetData, Stat, Unknown
from ...zookeeper.topic_lives import life_checks
from ...zookeeper.znodes import ControllerMoved, read_state
from ..planning import plans
from ..planning.state import Broker, Topic
from .reach import Reach

logger = structlog.get_logger(__name__)

ANSWER_S = 10.0  # then the leader is told to ask again
RETRY_S = 0.1
RECOVERING = 1
SAID_MAX = 10_000  # partitions of which it is known what the log has said last


class Refused(Exception):
    """This change is not made, for the reason of this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Ineligible(Exception):
    """A member may not join now."""


class Overtaken(Exception):
    """Another write came first."""


class IsrChanges:
    """Answers AlterPartition during one term.

    Versions 0 and 1 name topics; they are those of Kafka 2.8 to 3.2. Of an error for one partition that they
    do not know, leaders of 2.8 and 3.0 never recover in the same leader epoch: the change stays pending, and
    what they have must be on the new member, too, to be committed. So they are told no such error: a member
    may not join, and the answer is the ISR as it stays; nobody knows, and the request fails as a whole.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._said: dict[TopicPartition, tuple[messages.PartitionChange, ErrorCode]] = {}

    async def alter(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionResponse:
        """Write each change by itself. Raises StaleBrokerEpoch for an earlier start of the leader, and
        RequestTimedOut for one that must repeat the request as a whole.
        """
        known = self._reach.state().brokers.get(request.broker_id)
        if known is None or request.broker_epoch not in (known.epoch, NO_BROKER_EPOCH):
            raise StaleBrokerEpoch(
                f"broker {request.broker_id} is not registered with broker epoch {request.broker_epoch}"
            )
        outcomes = await asyncio.gather(*(self._topic(known.id, topic) for topic in request.topics))
        changed = [
            TopicPartition(name, one.partition_index)
            for name, outcome in outcomes
            for one in outcome.partitions
            if one.error_code == ErrorCode.NONE
        ]
        if changed:
            self._reach.post(plans.IsrsChanged(tuple(changed)))
        if any(_is_unknown(outcome) for _, outcome in outcomes):
            raise RequestTimedOut("what became of a change is not known: ask again")
        return messages.AlterPartitionResponse(topics=[outcome for _, outcome in outcomes])

    async def _topic(self, leader: int, topic: messages.TopicChange) -> tuple[str, messages.TopicOutcome]:
        name, by_id = topic.topic_name, topic.topic_id != NO_UUID
        if by_id:
            topics = self._reach.state().topics
            name = next((each.name for each in topics.values() if each.id == topic.topic_id), "")
        rows = await asyncio.gather(*(self._outcome(leader, name, one, by_id) for one in topic.partitions))
        return name, messages.TopicOutcome(
            topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=list(rows)
        )

    async def _outcome(
        self, leader: int, name: str, change: messages.PartitionChange, by_id: bool
    ) -> messages.PartitionOutcome:
        partition = TopicPartition(name, change.partition_index)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._until_known(leader, partition, change, by_id)
        except Refused as refused:
            code = refused.code
        except TimeoutError:
            code = ErrorCode.REQUEST_TIMED_OUT
        except ControllerMoved:
            raise NotController from None
        self._say(leader, partition, change, code)
        return messages.PartitionOutcome(partition_index=change.partition_index, error_code=code)

    def _say(
        self, leader: int, partition: TopicPartition, change: messages.PartitionChange, code: ErrorCode
    ) -> None:
        """Log a refusal, but once: a leader asks for the same again with each fetch of the follower."""
        if self._said.get(partition) != (change, code):
            if len(self._said) >= SAID_MAX:
                self._said.clear()
            self._said[partition] = change, code
            logger.info("isr_change_refused", partition=str(partition), leader=leader, code=code.name)

    async def _until_known(
        self, leader: int, partition: TopicPartition, change: messages.PartitionChange, by_id: bool
    ) -> messages.PartitionOutcome:
        """What became of the change, once ZooKeeper has said so. Raises NotController when the term ends."""
        while True:
            await self._reach.until(lambda _: True)
            try:
                return await self._change(leader, partition, change, by_id)
            except Overtaken:
                continue
            except Unknown:
                await asyncio.sleep(RETRY_S)

    async def _change(
        self, leader: int, partition: TopicPartition, change: messages.PartitionChange, by_id: bool
    ) -> messages.PartitionOutcome:
        """One attempt. Raises Refused, Overtaken, Unknown or ControllerMoved."""
        topic = self._reach.state().topics.get(partition.topic)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            state, version = await read_state(self._reach.zk, partition)
        except (NoNode, documents.BadDocument):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
        if _is_there_already(leader, state, change):
            return _told(change, state, version)
        _judge(leader, state, version, change)
        try:
            return await self._write(partition, topic, change, state, version)
        except Ineligible:
            if by_id:
                raise Refused(ErrorCode.INELIGIBLE_REPLICA) from None
            self._say(leader, partition, change, ErrorCode.INELIGIBLE_REPLICA)
            return _told(change, state, version)

    async def _write(
        self,
        partition: TopicPartition,
        topic: Topic,
        change: messages.PartitionChange,
        state: documents.StateDocument,
        version: int,
    ) -> messages.PartitionOutcome:
        """Raises Ineligible, Overtaken, or what a write raises."""
        joining = [self._joining(member) for member in change.members if member not in state.isr]
        wanted = state.model_copy(
            update={
                "isr": change.members,
                "isr_epochs": self._reach.state().still_joined(state.isr_epochs, change.members)
                | self._reach.state().joined(one.id for one in joining),
                "controller_epoch": self._reach.term.epoch,
                "leader_recovery_state": change.leader_recovery_state,
            }
        )
        checks = [check for one in joining for check in _same_start(one)]
        checks += await life_checks(self._reach.zk, [topic.id] if topic.id != NO_UUID else [])
        write = SetData(documents.state_path(partition), wanted.data(), version)
        try:
            stat = (await self._reach.write([write, *checks]))[0]
        except MultiFailed as failed:
            if isinstance(failed.results[0], BadVersion | NoNode):
                raise Overtaken from failed
            raise Ineligible from failed
        assert isinstance(stat, Stat)
        self._said.pop(partition, None)
        return _told(change, wanted, stat.version)

    def _joining(self, member: int) -> Broker:
        """A live broker that may join. Raises Ineligible."""
        state = self._reach.state()
        if not state.is_live(member) or state.is_leaving(member):
            raise Ineligible
        return state.brokers[member]


def _judge(
    leader: int, state: documents.StateDocument, version: int, change: messages.PartitionChange
) -> None:
    """Raises Refused unless the change is one that this leader may make to this state."""
    if change.partition_epoch > version or change.leader_epoch > state.leader_epoch:
        raise Refused(ErrorCode.NOT_CONTROLLER)  # the leader knows more: another controller must have told it
    if change.leader_epoch < state.leader_epoch or leader != state.leader:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH)
    if change.partition_epoch != version:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION)
    if leader not in change.members or len(set(change.members)) != len(change.members):
        raise Refused(ErrorCode.INVALID_REQUEST)
    recovers = change.leader_recovery_state == RECOVERING
    if recovers and (len(change.members) > 1 or state.leader_recovery_state != RECOVERING):
        raise Refused(ErrorCode.INVALID_REQUEST)


def _is_there_already(leader: int, state: documents.StateDocument, change: messages.PartitionChange) -> bool:
    """Whether an earlier attempt has landed, and only its answer was lost."""
    return (
        (state.leader, state.leader_epoch) == (leader, change.leader_epoch)
        and sorted(state.isr) == sorted(change.members)
        and state.leader_recovery_state == change.leader_recovery_state
    )


def _same_start(broker: Broker) -> list[Check]:
    """That a member of ours which joins has not started again since; of Kafka's nothing can be said."""
    if broker.is_kafkas:
        return []
    return [Check(documents.incarnation_path(broker.id), broker.incarnation)]


def _is_unknown(outcome: messages.TopicOutcome) -> bool:
    """Whether the topic is named, as in versions 0 and 1, and nobody knows what became of a change there."""
    codes = (one.error_code for one in outcome.partitions)
    return outcome.topic_id == NO_UUID and ErrorCode.REQUEST_TIMED_OUT in codes


def _told(
    change: messages.PartitionChange, state: documents.StateDocument, version: int
) -> messages.PartitionOutcome:
    return messages.PartitionOutcome(
        partition_index=change.partition_index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=version,
    )

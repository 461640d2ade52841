"""Writes ISR changes to ZooKeeper for the leaders on this broker, then notifies the controller.

A write is one conditional `multi`: the state znode first, then checks on the brokers it depends on and on the
topic's identity. Without the latter, a late write could land on a new topic of the same name, whose znodes
have the same versions. The state is read first, because it also holds what this leader does not keep (the
incarnations that joined). If its version is not the expected one, nothing is written. After each await the
leadership is compared again: an outcome for one that has ended is dropped.
All writes asked for in one loop turn go together, many partitions in one `multi`, because a returning broker
joins thousands of ISRs. If one of them makes the `multi` fail, each is written by itself.
Left to others: when to ask, and what an outcome means (replication/leader.py); the znodes
(zookeeper/znodes.py).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from ...base.tasks import Tasks
from ...base.types import BrokerId, Epoch, TopicPartition, broker_epoch
from ...replication.effects import (
    NOTHING,
    CheckBatch,
    Effects,
    HighWatermarkMoved,
    IsrChanged,
    ReadState,
    StepDown,
    WriteIsr,
)
from ...replication.isr import Settled
from ...replication.leader import Leader
from ...zookeeper import documents, znodes
from ...zookeeper.client import TOGETHER_MAX, Check, Stat, ZkClient, ZkError
from ...zookeeper.documents import BadDocument, StateDocument
from ...zookeeper.topic_lives import life_checks
from .isr_notes import IsrNotes
from .partition import Partition
from .refused_batch import check_batch
from .shared import ReplicaShared

logger = structlog.get_logger(__name__)

T = TypeVar("T")

WRITE_SECONDS_MAX = 10.0  # then the outcome counts as unknown
RECOVERED = 0  # a leader that writes its ISR already serves, also after an unclean election
NOTIFY_AFTER_SECONDS = 1.0  # collects the changes for one notification
NOTIFY_PARTITIONS_MAX = 3000  # keeps one notification well below ZooKeeper's limit of 1 MiB


class WantedWrite(NamedTuple):
    """A write that a leader has asked for."""

    partition: Partition
    leader: Leader
    ask: WriteIsr


class IsrWriter:
    """Performs the effects of leaders that reach beyond their partition."""

    def __init__(
        self,
        zk: ZkClient,
        tasks: Tasks,
    ) -> None:
        self._zk = zk
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self.unsettled: dict[Partition, None] = {}  # leaders whose ISR is changing or incomplete
        self._asked: list[WantedWrite] = []  # in this turn
        self._questions: list[tuple[Partition, Leader]] = []
        self._changed: dict[TopicPartition, None] = {}
        self._notifying = False
        self.notes = IsrNotes()
        self.shrinks = 0
        self.expands = 0

    def perform(self, partition: Partition, leader: Leader, effects: Effects) -> None:
        """Perform the effects of the leader rules, in order."""
        for effect in effects:
            match effect:
                case HighWatermarkMoved():
                    pass  # `settle` answers the waiters
                case WriteIsr():
                    now = self._loop.time()
                    self.notes.proposed(partition.shared.recorder, partition.tp, leader, effect, now)
                    self._asked.append(WantedWrite(partition, leader, effect))
                    self._begin_soon()
                case ReadState():
                    self._questions.append((partition, leader))
                    self._begin_soon()
                case IsrChanged(isr, joined, left):
                    self.expands += len(joined)
                    self.shrinks += len(left)
                    logger.info(
                        "isr_changed", partition=str(partition.tp), isr=isr, joined=joined, left=left,
                        epoch=leader.epoch, version=leader.version,
                    )  # fmt: skip
                    self.notes.landed(partition.shared.recorder, partition.tp, leader, joined, left)
                    self._notify(partition.tp)
                case CheckBatch(offset):
                    self._tasks.spawn(check_batch(partition, leader, offset), f"check-{partition.tp}")
                case StepDown(successor, epoch):
                    logger.warning(
                        "leadership_lost", partition=str(partition.tp), epoch=leader.epoch,
                        successor=successor, successor_epoch=epoch,
                    )  # fmt: skip
                    self.notes.forget(partition.tp)
                    partition.shared.recorder.note(
                        str(partition.tp), "leadership_lost", epoch=leader.epoch, successor=successor,
                        successor_epoch=epoch,
                    )  # fmt: skip
                    partition.resign((successor, epoch))
                    partition.shared.untold()
                case _:
                    raise AssertionError(f"unexpected effect of a leader: {effect}")
        self._look_after(partition)

    def _look_after(self, partition: Partition) -> None:
        """Its ISR may have changed: decide whether frequent ticks check it (leader_ticks.py)."""
        leader = partition.leading
        if leader is None or (
            isinstance(leader.isr, Settled)
            and leader.isr.members.issuperset(leader.replicas)
            and not leader.is_recovering
        ):
            self.unsettled.pop(partition, None)
        else:
            self.unsettled[partition] = None

    def _begin_soon(self) -> None:
        if len(self._asked) + len(self._questions) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Writes with the same joining broker go together: they depend on the same registrations."""
        asked, self._asked = self._asked, []
        questions, self._questions = self._questions, []
        questions = [each for each in questions if self._stands(*each)]
        groups: defaultdict[tuple[BrokerId | None, int], list[WantedWrite]] = defaultdict(list)
        for each in asked:
            if self._stands(each.partition, each.leader):
                groups[each.ask.joining, each.ask.incarnation].append(each)
        for group in groups.values():
            for some in _in_parts(group):
                name = f"isr-{some[0].partition.tp}"
                self._tasks.spawn(self._write(*some[0]) if len(some) == 1 else self._write_all(some), name)
        for few in _in_parts(questions):
            self._tasks.spawn(self._read(few), f"state-{few[0][0].tp}")

    async def _write_all(self, asked: Sequence[WantedWrite]) -> None:
        alone: list[WantedWrite] = []
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                alone = await self._attempt_all(asked)
        except (ZkError, BadDocument, TimeoutError) as error:
            logger.warning("isr_batch_unknown", partitions=len(asked), reason=repr(error))
            for partition, leader, ask in asked:
                self.notes.unknown(partition.shared.recorder, partition.tp, leader, ask, repr(error))
                self._done(partition, leader, leader.isr_unknown)
        await asyncio.gather(*(self._write(*each) for each in alone))

    async def _attempt_all(self, asked: Sequence[WantedWrite]) -> list[WantedWrite]:
        """One try for all. Reports the outcomes, and returns those that must be written one by one."""
        nodes = await self._zk.get_many([documents.state_path(each.partition.tp) for each in asked])
        joining, shared = asked[0].ask.joining, asked[0].partition.shared
        there = await self._there(asked[0].ask)
        checks = _checks(shared, asked[0].ask, there)
        checks += await self._lives([each.partition for each in asked])
        writes, good, alone = [], list[WantedWrite](), list[WantedWrite]()
        for each, node in zip(asked, nodes, strict=True):
            if not self._stands(each.partition, each.leader):
                continue
            if node is None or node[1].version != each.ask.expected_version:
                alone.append(each)
                continue
            try:
                proposal = _proposal(each.ask, documents.parse(StateDocument, node[0]), there)
            except BadDocument:
                alone.append(each)
                continue
            good.append(each)
            writes.append(znodes.StateWrite(each.partition.tp, proposal, node[1].version))
        if not writes:
            return alone
        try:
            landed = await znodes.write_states(self._zk, writes, checks)
        except znodes.StateMoved:
            return alone + good
        except znodes.CheckFailed as failed:
            logger.info("isr_batch_refused", partitions=len(good), joining=joining, check=failed.path)
            for partition, leader, ask in good:
                self.notes.refused(shared.recorder, partition.tp, leader, ask, failed.path)
                self._done(partition, leader, leader.isr_refused)
            return alone
        for each, version in zip(good, landed, strict=True):
            self._done(each.partition, each.leader, partial(each.leader.isr_landed, version))
        return alone

    async def _lives(self, partitions: Sequence[Partition]) -> list[Check]:
        """Checks that keep a late write from landing on a new topic of the same name."""
        ids = {p.log.topic_id: None for p in partitions if p.log.topic_id is not None}
        return await life_checks(self._zk, ids)

    async def _there(self, ask: WriteIsr) -> znodes.Joinable:
        """How the follower that is to join, if any, is registered."""
        if ask.joining is None:
            return znodes.ANYBODY
        return await znodes.joinable(self._zk, ask.joining, broker_epoch(ask.incarnation))

    async def _write(self, partition: Partition, leader: Leader, ask: WriteIsr) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                outcome = await self._attempt(partition, leader, ask)
        except (ZkError, BadDocument, TimeoutError) as error:
            logger.warning("isr_write_unknown", partition=str(partition.tp), reason=repr(error))
            self.notes.unknown(partition.shared.recorder, partition.tp, leader, ask, repr(error))
            outcome = leader.isr_unknown
        self._done(partition, leader, outcome)

    async def _attempt(
        self, partition: Partition, leader: Leader, ask: WriteIsr
    ) -> Callable[[float], Effects]:
        """One try. Returns the event for the leader rules, to be called with the time."""
        tp = partition.tp
        state, version = await znodes.read_state(self._zk, tp)
        if version != ask.expected_version:
            return _as_event(leader, state, version)
        there = await self._there(ask)
        checks, proposal = _checks(partition.shared, ask, there), _proposal(ask, state, there)
        checks += await self._lives([partition])
        if not self._stands(partition, leader):
            return leader.isr_unknown  # the leadership has ended meanwhile: write nothing
        try:
            landed = await znodes.write_state(self._zk, tp, proposal, version, checks)
        except znodes.StateMoved:
            return _as_event(leader, *await znodes.read_state(self._zk, tp))
        except znodes.CheckFailed as failed:
            logger.info("isr_write_refused", partition=str(tp), isr=ask.isr, check=failed.path)
            self.notes.refused(partition.shared.recorder, tp, leader, ask, failed.path)
            return leader.isr_refused
        return lambda now: leader.isr_landed(landed, now)

    async def _read(self, questions: Sequence[tuple[Partition, Leader]]) -> None:
        nodes: Sequence[tuple[bytes, Stat] | None] = [None] * len(questions)
        reason = "the partition state does not exist"
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                nodes = await self._zk.get_many([documents.state_path(p.tp) for p, _ in questions])
        except (ZkError, TimeoutError) as error:
            reason = repr(error)
        for (partition, leader), node in zip(questions, nodes, strict=True):
            try:
                if node is None:
                    raise BadDocument(reason)
                outcome = _as_event(leader, documents.parse(StateDocument, node[0]), node[1].version)
            except BadDocument as bad:
                logger.info("partition_state_malformed", partition=str(partition.tp), reason=str(bad))
                outcome = leader.isr_unknown
            self._done(partition, leader, outcome)

    def _done(self, partition: Partition, leader: Leader, outcome: Callable[[float], Effects]) -> None:
        if not self._stands(partition, leader):
            return
        effects = outcome(self._loop.time())
        if effects != NOTHING:
            self.perform(partition, leader, effects)
        partition.mark()

    def _stands(self, partition: Partition, leader: Leader) -> bool:
        """Whether the leadership that asked still holds."""
        return partition.leading is leader

    # Telling the controller.

    def _notify(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        if not self._notifying:
            self._notifying = True
            self._tasks.spawn(self._notify_soon(), "isr-notification")

    async def _notify_soon(self) -> None:
        """One task while there are changes. A lost notification is sent again; a duplicate does no harm."""
        try:
            while self._changed:
                await asyncio.sleep(NOTIFY_AFTER_SECONDS)
                told = list(self._changed)[:NOTIFY_PARTITIONS_MAX]
                for tp in told:
                    del self._changed[tp]
                try:
                    async with asyncio.timeout(WRITE_SECONDS_MAX):
                        await znodes.notify_isr_change(self._zk, told)
                except (ZkError, TimeoutError) as error:
                    logger.info("isr_notification_failed", reason=repr(error))
                    self._changed.update(dict.fromkeys(told))
        finally:
            self._notifying = False


def _checks(shared: ReplicaShared, ask: WriteIsr, there: znodes.Joinable) -> list[Check]:
    if ask.joining is None:
        return znodes.leader_checks(shared.me, shared.incarnation)
    joined = broker_epoch(ask.incarnation)
    return znodes.member_checks(ask.joining, joined, shared.me, shared.incarnation, there)


def _in_parts(all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(all_of_them), TOGETHER_MAX):
        yield all_of_them[first : first + TOGETHER_MAX]


def _proposal(ask: WriteIsr, state: StateDocument, there: znodes.Joinable) -> StateDocument:
    epochs = {broker: k for broker, k in state.isr_epochs.items() if broker in ask.isr}
    if ask.joining is not None and there.counts_starts:
        epochs[ask.joining] = broker_epoch(ask.incarnation)
    return state.model_copy(
        update={"isr": list(ask.isr), "isr_epochs": epochs, "leader_recovery_state": RECOVERED}
    )


def _as_event(leader: Leader, state: StateDocument, version: int) -> Callable[[float], Effects]:
    isr = [BrokerId(broker) for broker in state.isr]
    return lambda now: leader.state_read(BrokerId(state.leader), Epoch(state.leader_epoch), isr, version, now)

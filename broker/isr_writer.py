"""Writes ISR changes into ZooKeeper for the leaders of this broker, and later tells the controller.

A write is one conditional `multi`: the state first, then the checks of the brokers it depends on. The
state is read before, for it also holds what this leader does not keep (the incarnations that joined); a
version other than the expected one settles the matter without a write. What was asked before an await is
compared after it: an outcome for a leadership that has ended is dropped.
Left to others: when to ask, and what an outcome means (replication/leader.py); the znodes
(controller/znodes.py).
"""

import asyncio
from collections.abc import Callable

import structlog

from ..client.tasks import Tasks
from ..controller import znodes
from ..controller.documents import BadDocument, StateDocument
from ..controller.registry import Registry, RegistryError
from ..protocol.kinds import BrokerId, Epoch, TopicPartition
from ..replication.effects import (
    NOTHING,
    CheckBatch,
    Effects,
    HighWatermarkMoved,
    IsrChanged,
    ReadState,
    StepDown,
    WriteIsr,
)
from ..replication.leader import Leader
from .host import Host
from .isr_notes import IsrNotes
from .partition import Partition
from .self_check import check_batch

log = structlog.get_logger(__name__)

WRITE_SECONDS_MAX = 10.0  # then the outcome counts as unknown
RECOVERED = 0  # a leader that writes its ISR serves already what an unclean election left
NOTIFY_AFTER_SECONDS = 1.0  # changes of so long are told together
NOTIFY_PARTITIONS_MAX = 3000  # keeps one notification well below ZooKeeper's limit of 1 MiB


class IsrWriter:
    """Performs the effects of leaderships that reach beyond their partition."""

    def __init__(
        self,
        registry: Registry,
        tasks: Tasks,
        host: Callable[[], Host],
        on_change: Callable[[Partition], None],
    ) -> None:
        self._registry = registry
        self._tasks = tasks
        self._host = host
        self._on_change = on_change
        self._changed: dict[TopicPartition, None] = {}
        self._notifying = False
        self.notes = IsrNotes()
        self.shrinks = 0
        self.expands = 0

    def perform(self, partition: Partition, leader: Leader, effects: Effects) -> None:
        """What the rules ask for, in order."""
        for effect in effects:
            match effect:
                case HighWatermarkMoved():
                    pass  # `settle` answers whoever waited
                case WriteIsr():
                    now = self._host().loop.time()
                    self.notes.proposed(self._host().recorder, partition.tp, leader, effect, now)
                    self._tasks.spawn(self._write(partition, leader, effect), f"isr-{partition.tp}")
                case ReadState():
                    self._tasks.spawn(self._read(partition, leader), f"state-{partition.tp}")
                case IsrChanged(isr, joined, left):
                    self.expands += len(joined)
                    self.shrinks += len(left)
                    log.info(
                        "isr_changed", partition=str(partition.tp), isr=isr, joined=joined, left=left,
                        epoch=leader.epoch, version=leader.version,
                    )  # fmt: skip
                    self.notes.landed(self._host().recorder, partition.tp, leader, joined, left)
                    self._notify(partition.tp)
                case CheckBatch(offset):
                    self._tasks.spawn(check_batch(partition, leader, offset), f"check-{partition.tp}")
                case StepDown(successor, epoch):
                    log.warning(
                        "leadership_lost", partition=str(partition.tp), epoch=leader.epoch,
                        successor=successor, successor_epoch=epoch,
                    )  # fmt: skip
                    self.notes.forget(partition.tp)
                    self._host().recorder.note(
                        str(partition.tp), "leadership_lost", epoch=leader.epoch, successor=successor,
                        successor_epoch=epoch,
                    )  # fmt: skip
                    partition.resign()
                case _:
                    raise AssertionError(f"a leader does not ask for {effect}")
        self._on_change(partition)

    async def _write(self, partition: Partition, leader: Leader, ask: WriteIsr) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                outcome = await self._attempt(partition.tp, leader, ask)
        except (RegistryError, BadDocument, TimeoutError) as error:
            log.warning("isr_write_unknown", partition=str(partition.tp), reason=repr(error))
            self.notes.unknown(self._host().recorder, partition.tp, leader, ask, repr(error))
            outcome = leader.isr_unknown
        self._done(partition, leader, outcome)

    async def _attempt(self, tp: TopicPartition, leader: Leader, ask: WriteIsr) -> Callable[[float], Effects]:
        """One try; the answer is the event to tell the rules, still without its time."""
        state, version = await znodes.read_state(self._registry, tp)
        if version != ask.expected_version:
            return _as_event(leader, state, version)
        host = self._host()
        checks = znodes.leader_checks(host.me, host.incarnation)
        epochs = {broker: k for broker, k in state.isr_epochs.items() if broker in ask.isr}
        if ask.joining is not None:
            there = await znodes.joinable_version(self._registry, ask.joining)
            checks = znodes.member_checks(ask.joining, ask.incarnation, host.me, host.incarnation, there)
            epochs[ask.joining] = ask.incarnation
        proposal = state.model_copy(
            update={"isr": list(ask.isr), "isr_epochs": epochs, "leader_recovery_state": RECOVERED}
        )
        try:
            landed = await znodes.write_state(self._registry, tp, proposal, version, checks)
        except znodes.StateMoved:
            return _as_event(leader, *await znodes.read_state(self._registry, tp))
        except znodes.CheckFailed as failed:
            log.info("isr_write_refused", partition=str(tp), isr=ask.isr, check=failed.path)
            self.notes.refused(host.recorder, tp, leader, ask, failed.path)
            return leader.isr_refused
        return lambda now: leader.isr_landed(landed, now)

    async def _read(self, partition: Partition, leader: Leader) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                outcome = _as_event(leader, *await znodes.read_state(self._registry, partition.tp))
        except (RegistryError, BadDocument, TimeoutError) as error:
            log.info("state_unreadable", partition=str(partition.tp), reason=repr(error))
            outcome = leader.isr_unknown
        self._done(partition, leader, outcome)

    def _done(self, partition: Partition, leader: Leader, outcome: Callable[[float], Effects]) -> None:
        if partition.leading is not leader:
            return
        effects = outcome(self._host().loop.time())
        if effects != NOTHING:
            self.perform(partition, leader, effects)
        partition.mark()

    # Telling the controller.

    def _notify(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        if not self._notifying:
            self._notifying = True
            self._tasks.spawn(self._notify_soon(), "isr-notification")

    async def _notify_soon(self) -> None:
        """One task while there is something to tell. What was lost is told again; twice does no harm."""
        try:
            while self._changed:
                await asyncio.sleep(NOTIFY_AFTER_SECONDS)
                told = list(self._changed)[:NOTIFY_PARTITIONS_MAX]
                for tp in told:
                    del self._changed[tp]
                try:
                    async with asyncio.timeout(WRITE_SECONDS_MAX):
                        await znodes.notify_isr_change(self._registry, told)
                except (RegistryError, TimeoutError) as error:
                    log.info("isr_notification_failed", reason=repr(error))
                    self._changed.update(dict.fromkeys(told))
        finally:
            self._notifying = False


def _as_event(leader: Leader, state: StateDocument, version: int) -> Callable[[float], Effects]:
    isr = [BrokerId(broker) for broker in state.isr]
    return lambda now: leader.state_read(BrokerId(state.leader), Epoch(state.leader_epoch), isr, version, now)

"""The controller's writes of partition states: in groups, repeated until each outcome is certain.

Groups only save round trips: each state has its own expected version. ZooKeeper carries out all of a group or
nothing. If a group fails because of one state, each state is written by itself. If an answer is lost, the
same write is repeated, and only one of the attempts can win.
Left to others: what is written (`planning/planner.py`), what follows (`active_controller.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..base.types import NO_LEADER, TopicPartition
from ..base.values import dataclass
from ..zookeeper import documents
from ..zookeeper.client import (
    TOGETHER_MAX,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Stat,
    Unknown,
    ZkClient,
    ZkError,
)
from ..zookeeper.znodes import ControllerMoved, ControllerTerm, create_if_absent, fenced, read_state
from .planning import plans
from .planning.state import PartitionState

RETRY_S = 0.2

Wanted = tuple[TopicPartition, PartitionState]


class Attempt(Protocol):
    """One attempt to write states, all or none. Returns their new versions."""

    async def __call__(self, wanted: Sequence[Wanted]) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What the writes of one term need. `ended` tells whether the term is over, `end` ends it."""

    zk: ZkClient
    term: ControllerTerm
    connected: asyncio.Event
    ended: Callable[[], bool]
    end: Callable[[str], None]


class StateWrites:
    """Writes and creates partition states during one term."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context

    async def replace(self, writes: Mapping[TopicPartition, PartitionState]) -> plans.StatesWritten | None:
        """Overwrite the known versions; None if the term ends meanwhile."""
        return await self._write(writes, self._replace)

    async def create(self, writes: Mapping[TopicPartition, PartitionState]) -> plans.StatesWritten | None:
        """Create states where there are none; None if the term ends meanwhile."""
        return await self._write(writes, self._create)

    async def _write(
        self, writes: Mapping[TopicPartition, PartitionState], attempt: Attempt
    ) -> plans.StatesWritten | None:
        """Send all writes at once. Their results come back as one event."""
        assert all(s.controller_epoch == self._context.term.epoch for s in writes.values()), "its own epoch"
        assert all(s.leader in (NO_LEADER, *s.isr) for s in writes.values()), "a leader is in the ISR"
        wanted = [(partition, writes[partition]) for partition in sorted(writes)]
        groups = [wanted[first : first + TOGETHER_MAX] for first in range(0, len(wanted), TOGETHER_MAX)]
        settled = await asyncio.gather(*(self._settle_group(group, attempt) for group in groups))
        if self._context.ended():
            return None
        written = {q: state for some in settled for q, state in some.items()}
        return plans.StatesWritten(written, frozenset(writes.keys() - written.keys()))

    async def _settle_group(
        self, group: Sequence[Wanted], attempt: Attempt
    ) -> dict[TopicPartition, PartitionState]:
        """Write a group at once. If that fails, write each by itself, so that one cannot stop the others."""
        unsure = False
        while len(group) > 1 and not self._context.ended():
            try:
                versions = await attempt(group)
            except Unknown:
                unsure = True
                await self._pause()
            except MultiFailed:
                break
            except ControllerMoved as moved:
                self._context.end(str(moved))
            else:
                return {q: replace(s, version=v) for (q, s), v in zip(group, versions, strict=True)}
        settled = await asyncio.gather(*(self._settle(*one, attempt, unsure) for one in group))
        return {q: state for (q, _), state in zip(group, settled, strict=True) if state is not None}

    async def _settle(
        self, partition: TopicPartition, wanted: PartitionState, attempt: Attempt, unsure: bool
    ) -> PartitionState | None:
        """Repeat the same conditional write until its outcome is known. Only one attempt can win."""
        while not self._context.ended():
            try:
                (version,) = await attempt([(partition, wanted)])
                return replace(wanted, version=version)
            except Unknown:
                unsure = True
                await self._pause()
            except MultiFailed:
                return await self._adopt(partition, wanted) if unsure else None
            except ControllerMoved as moved:
                self._context.end(str(moved))
        return None

    async def _adopt(self, partition: TopicPartition, wanted: PartitionState) -> PartitionState | None:
        """Read whether an earlier attempt of ours, whose answer was lost, has written what is there now."""
        while not self._context.ended():
            try:
                document, version = await read_state(self._context.zk, partition)
            except (NoNode, documents.BadDocument):
                return None
            except Unknown:
                await self._pause()
            else:
                return replace(wanted, version=version) if document == wanted.document() else None
        return None

    async def _pause(self) -> None:
        await asyncio.sleep(RETRY_S)
        await self._context.connected.wait()

    async def _replace(self, wanted: Sequence[Wanted]) -> list[int]:
        writes: list[Op] = [
            SetData(documents.state_path(q), s.document().data(), s.version) for q, s in wanted
        ]
        stats = await fenced(self._context.zk, self._context.term, writes + _same_starts(wanted))
        return [stat.version for stat in stats if isinstance(stat, Stat)]

    async def _create(self, wanted: Sequence[Wanted]) -> list[int]:
        zk, term = self._context.zk, self._context.term
        assert all(state.isr for _, state in wanted), "a partition begins with an ISR"
        parents: list[Op] = [Create(documents.partition_path(q), b"") for q, _ in wanted]
        states: list[Op] = [Create(documents.state_path(q), s.document().data()) for q, s in wanted]
        ops = [op for pair in zip(parents, states, strict=True) for op in pair]
        try:
            await fenced(zk, term, ops)
        except MultiFailed as failed:
            if isinstance(failed.results[failed.culprit], NoNode):
                for topic in sorted({q.topic for q, _ in wanted}):
                    await _make_room(zk, topic)
            elif len(wanted) > 1:
                raise
            elif isinstance(failed.results[0], NodeExists):
                ops = states  # some tool has created only the parent
            await fenced(zk, term, ops)
        return [0] * len(wanted)


def _same_starts(wanted: Sequence[Wanted]) -> list[Op]:
    """Checks that no leader has restarted since. A write may land late, and a leader that restarted may have
    lost the records that it was elected for.
    """
    elected = {(s.leader, s.isr_epochs[s.leader]) for _, s in wanted if s.leader in s.isr_epochs}
    return [Check(documents.incarnation_path(leader), incarnation) for leader, incarnation in sorted(elected)]


async def _make_room(zk: ZkClient, topic: str) -> None:
    """The parent of a topic's partitions. If the topic itself is gone, the write that follows says so."""
    try:
        await create_if_absent(zk, documents.partitions_path(topic), b"")
    except Unknown:
        raise
    except ZkError:
        return

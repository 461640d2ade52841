"""A controller's writes of partition states: in groups, each write settled for certain.

A state has a version of its own to expect, so a group is a saving and nothing else: ZooKeeper carries it out
as a whole or not at all, and a group that fails because of one state is written again, each state by itself.
An answer that is lost settles nothing: the same write is repeated, and exactly one of the attempts can win.
Left to others: what is written (`planning/planner.py`), what follows (`active.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..base.types import TopicPartition
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
    """One try to write states, all or none; their versions then."""

    async def __call__(self, wanted: Sequence[Wanted]) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Where an office's writes are made: `ended` when its reign is over, which `end` brings about."""

    registry: ZkClient
    reign: ControllerTerm
    connected: asyncio.Event
    ended: Callable[[], bool]
    end: Callable[[str], None]


class StateWrites:
    """Writes and creates the states of partitions for one reign."""

    def __init__(self, desk: WriteContext) -> None:
        self._desk = desk

    async def replace(self, writes: Mapping[TopicPartition, PartitionState]) -> plans.StatesWritten | None:
        """Over the versions that are known; None if the reign ends meanwhile."""
        return await self._write(writes, self._replace)

    async def create(self, writes: Mapping[TopicPartition, PartitionState]) -> plans.StatesWritten | None:
        """Where there are none; None if the reign ends meanwhile."""
        return await self._write(writes, self._create)

    async def _write(
        self, writes: Mapping[TopicPartition, PartitionState], attempt: Attempt
    ) -> plans.StatesWritten | None:
        """All go out together; their results come back as one event."""
        wanted = [(partition, writes[partition]) for partition in sorted(writes)]
        groups = [wanted[first : first + TOGETHER_MAX] for first in range(0, len(wanted), TOGETHER_MAX)]
        settled = await asyncio.gather(*(self._settle_group(group, attempt) for group in groups))
        if self._desk.ended():
            return None
        written = {q: state for some in settled for q, state in some.items()}
        return plans.StatesWritten(written, frozenset(writes.keys() - written.keys()))

    async def _settle_group(
        self, group: Sequence[Wanted], attempt: Attempt
    ) -> dict[TopicPartition, PartitionState]:
        """All at once if that works. If it fails, those that cannot be written must not stop the others."""
        unsure = False
        while len(group) > 1 and not self._desk.ended():
            try:
                versions = await attempt(group)
            except Unknown:
                unsure = True
                await self._pause()
            except MultiFailed:
                break
            except ControllerMoved as moved:
                self._desk.end(str(moved))
            else:
                return {q: replace(s, version=v) for (q, s), v in zip(group, versions, strict=True)}
        settled = await asyncio.gather(*(self._settle(*one, attempt, unsure) for one in group))
        return {q: state for (q, _), state in zip(group, settled, strict=True) if state is not None}

    async def _settle(
        self, partition: TopicPartition, wanted: PartitionState, attempt: Attempt, unsure: bool
    ) -> PartitionState | None:
        """Repeat the same conditional write until its fate is known: exactly one attempt can win."""
        while not self._desk.ended():
            try:
                (version,) = await attempt([(partition, wanted)])
                return replace(wanted, version=version)
            except Unknown:
                unsure = True
                await self._pause()
            except MultiFailed:
                return await self._adopt(partition, wanted) if unsure else None
            except ControllerMoved as moved:
                self._desk.end(str(moved))
        return None

    async def _adopt(self, partition: TopicPartition, wanted: PartitionState) -> PartitionState | None:
        """An attempt whose answer was lost may be what stands there now."""
        while not self._desk.ended():
            try:
                document, version = await read_state(self._desk.registry, partition)
            except (NoNode, documents.BadDocument):
                return None
            except Unknown:
                await self._pause()
            else:
                return replace(wanted, version=version) if document == wanted.document() else None
        return None

    async def _pause(self) -> None:
        await asyncio.sleep(RETRY_S)
        await self._desk.connected.wait()

    async def _replace(self, wanted: Sequence[Wanted]) -> list[int]:
        assert all(state.isr for _, state in wanted), "an ISR is never empty"
        writes: list[Op] = [
            SetData(documents.state_path(q), s.document().data(), s.version) for q, s in wanted
        ]
        stats = await fenced(self._desk.registry, self._desk.reign, writes + _same_starts(wanted))
        return [stat.version for stat in stats if isinstance(stat, Stat)]

    async def _create(self, wanted: Sequence[Wanted]) -> list[int]:
        registry, reign = self._desk.registry, self._desk.reign
        parents: list[Op] = [Create(documents.partition_path(q), b"") for q, _ in wanted]
        states: list[Op] = [Create(documents.state_path(q), s.document().data()) for q, s in wanted]
        ops = [op for pair in zip(parents, states, strict=True) for op in pair]
        try:
            await fenced(registry, reign, ops)
        except MultiFailed as failed:
            if isinstance(failed.results[failed.culprit], NoNode):
                for topic in sorted({q.topic for q, _ in wanted}):
                    await _make_room(registry, topic)
            elif len(wanted) > 1:
                raise
            elif isinstance(failed.results[0], NodeExists):
                ops = states  # some tool has made the parent alone
            await fenced(registry, reign, ops)
        return [0] * len(wanted)


def _same_starts(wanted: Sequence[Wanted]) -> list[Op]:
    """The condition that no leader has started again meanwhile: a write may land late, and a later start may
    have lost what its leader was elected for.
    """
    elected = {(s.leader, s.isr_epochs[s.leader]) for _, s in wanted if s.leader in s.isr_epochs}
    return [Check(documents.incarnation_path(leader), incarnation) for leader, incarnation in sorted(elected)]


async def _make_room(registry: ZkClient, topic: str) -> None:
    """The parent of a topic's partitions. If the topic itself is gone, the write that follows says so."""
    try:
        await create_if_absent(registry, documents.partitions_path(topic), b"")
    except Unknown:
        raise
    except ZkError:
        return

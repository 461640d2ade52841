"""What must hold in every world: looked at while it happens, and once more when all has healed.

The checks read the brokers' state and the ZooKeeper tree; they decide nothing. Numbers I1… are those of
docs/simulation.md.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from ..broker.host import Role
from ..broker.partition import Partition
from ..protocol.kinds import TopicPartition
from ..protocol.records import iterate
from .workload import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from .world import World

LOOK_EVERY_S = 0.05


class Violation(Exception):
    """Something that must hold did not."""


class Checks:
    """The world's conscience."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders: dict[tuple[TopicPartition, int], int] = {}  # (partition, epoch) -> broker that led it
        self.watermarks: dict[tuple[TopicPartition, int], int] = {}  # (partition, epoch) -> the leader's HW
        self.epochs: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Look again and again until the world ends."""
        self.world.loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        try:
            self.look()
        except Violation as violation:
            self.world.loop.failures.append(str(violation))
            return
        self.world.loop.call_later(LOOK_EVERY_S, self._look_again)

    def look(self) -> None:
        """The invariants of one moment."""
        for id in sorted(self.world.nodes):
            for partition in self._partitions(id):
                self._one_replica(id, partition)
        for number in range(PARTITIONS):
            self._znode(TopicPartition(TOPIC, number))
        if self.world.workload.contradictions:
            raise Violation(f"I14, I16: {self.world.workload.contradictions[0]}")

    def _one_replica(self, id: int, partition: Partition) -> None:
        log, tp, epoch = partition.log, partition.tp, partition.leader_epoch
        if not log.start_offset <= partition.high_watermark <= log.end_offset:
            raise Violation(
                f"I8: {tp} on b{id}: HW {partition.high_watermark} in [{log.start_offset}, {log.end_offset}]"
            )
        if partition.role is Role.LEADING:
            if self.leaders.setdefault((tp, epoch), id) != id:
                raise Violation(f"I7: {tp} epoch {epoch} is led by b{self.leaders[tp, epoch]} and b{id}")
            if self.watermarks.get((tp, epoch), 0) > partition.high_watermark:
                raise Violation(
                    f"I8: the watermark of {tp} fell to {partition.high_watermark} in epoch {epoch}"
                )
            self.watermarks[tp, epoch] = partition.high_watermark

    def _znode(self, tp: TopicPartition) -> None:
        state = self._state(tp)
        if state is None:
            return
        isr, leader, epoch = state["isr"], state["leader"], state["leader_epoch"]
        if not isr or not set(isr) <= {1, 2, 3} or (leader != -1 and leader not in isr):
            raise Violation(f"I12: {tp} has leader {leader} and ISR {isr}")
        if epoch < self.epochs.get(tp, 0):
            raise Violation(f"I7: the leader epoch of {tp} fell to {epoch}")
        self.epochs[tp] = epoch

    def _state(self, tp: TopicPartition) -> dict[str, Any] | None:
        node = self.world.zookeeper.nodes.get(f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state")
        state: dict[str, Any] | None = json.loads(node.data) if node else None
        return state

    def _partitions(self, id: int) -> list[Partition]:
        hosted = self.world.nodes[id].broker.replicas.partitions
        return [hosted[tp] for tp in sorted(hosted)]

    def spares(self, id: int, lossy: tuple[int, int] | None) -> bool:
        """Whether b`id` may lose data: whoever did before is whole again, and another holds what counts."""
        states = [self._state(tp) for tp in self.world.workload.partitions]
        if any(state is None or not set(state["isr"]) - {id} for state in states):
            return False
        return lossy is None or all(self._has_recovered(*lossy, state) for state in states if state)

    def leader(self, tp: TopicPartition) -> int:
        """Whom ZooKeeper names; -1 if nobody."""
        state = self._state(tp)
        return -1 if state is None else int(state["leader"])

    def incarnation(self, id: int) -> int:
        """The latest that this broker has registered in."""
        node = self.world.zookeeper.nodes.get(f"/brokers/incarnations/{id}")
        return node.version if node else 0

    def _has_recovered(self, id: int, before: int, state: dict[str, Any]) -> bool:
        return id in state["isr"] and bool(state["isr_epochs"].get(str(id), -1) > before)

    # ------------------------------------------------------------ at the end

    async def wait_healed(self, within_s: float) -> None:
        """Wait until every replica is in its ISR; Violation when that does not happen."""
        deadline = self.world.loop.now + within_s
        while not self._healed():
            if self.world.loop.now > deadline:
                raise Violation(
                    f"liveness: not healed {within_s:g} s after the last fault: {self._picture()}"
                )
            await asyncio.sleep(0.1)

    def _healed(self) -> bool:
        states = [self._state(tp) for tp in self.world.workload.partitions]
        return len(self.world.nodes) == 3 and all(
            state is not None and len(state["isr"]) == 3 and state["leader"] != -1 for state in states
        )

    def _picture(self) -> str:
        states = [(str(tp), self._state(tp)) for tp in self.world.workload.partitions]
        return f"brokers {sorted(self.world.nodes)}, {states}"

    async def judge(self) -> None:
        """Every acknowledged number stands where its receipt said, once, on all three replicas alike."""
        self.look()
        await self._settle()
        if self.world.workload.refused:
            raise Violation(f"liveness: a send failed for good: {self.world.workload.refused[0]}")
        for tp in self.world.workload.partitions:
            logs = {id: self._numbers(id, tp) for id in sorted(self.world.nodes)}
            first = logs[min(logs)]
            for id, numbers in logs.items():
                if numbers != first:
                    raise Violation(f"I5: {tp} differs between b{min(logs)} and b{id}")
            self._compare(tp, first)

    async def _settle(self) -> None:
        """Let followers take up the last records and the last watermark."""
        deadline = self.world.loop.now + 20
        while self.world.loop.now < deadline:
            ends = {
                (tp, partition.log.end_offset, partition.high_watermark)
                for id in self.world.nodes
                for partition in self._partitions(id)
                for tp in [partition.tp]
                if tp.topic == TOPIC
            }
            if len(ends) == PARTITIONS and all(end == mark for _, end, mark in ends):
                return
            await asyncio.sleep(0.1)
        raise Violation(f"liveness: ends and watermarks do not meet: {sorted(ends)}")

    def _numbers(self, id: int, tp: TopicPartition) -> dict[int, int]:
        log = self.world.nodes[id].broker.replicas.partitions[tp].log
        found: dict[int, int] = {}
        at = log.start_offset
        while at < log.end_offset:
            data = b"".join(log.read(at, 1 << 20, log.end_offset).parts)
            for record in iterate(data):
                found[record.offset] = int(record.value or b"-1")
                at = record.offset + 1
        return found

    def _compare(self, tp: TopicPartition, found: dict[int, int]) -> None:
        promised = {offset: n for (of, offset), n in self.world.workload.acknowledged.items() if of == tp}
        for offset, number in sorted(promised.items()):
            if found.get(offset) != number:
                raise Violation(
                    f"I16: {number} was acknowledged at {tp}@{offset}; there is {found.get(offset)}"
                )
        numbers = list(found.values())
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            raise Violation(f"I16: {twice[:5]} stand twice in {tp}, though the producer is idempotent")

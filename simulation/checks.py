"""What must hold in every world: looked at while it happens, and once more when all has healed.

The checks read the brokers' state, their logs and the ZooKeeper tree; they decide nothing. Numbers I1… are
those of docs/simulation.md. Left to others: bytes (`committed.py`), single writes to ZooKeeper (`states.py`),
what clients were told (`history.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..broker.host import Role
from ..broker.node import Node
from ..broker.partition import Partition
from ..protocol.kinds import TopicPartition
from ..protocol.records import iterate
from ..replication.isr import Settled
from .committed import Committed, Violation, epochs_match, same_tails
from .history import Anomaly, judge
from .states import State, States
from .workload import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from .world import World

LOOK_EVERY_S = 0.05
TAILS_EVERY = 10
"""Looks between two at what lies beyond the watermarks."""


class Checks:
    """The world's conscience."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.states = States(world.zookeeper, self._state_written)
        self.committed = {tp: Committed(tp) for tp in world.workload.partitions}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}  # (partition, epoch) -> broker that led it
        self.watermarks: dict[tuple[TopicPartition, int], int] = {}  # (partition, epoch) -> the leader's HW
        self.epochs: dict[Partition, int] = {}  # of a replica, as long as it stays
        self.hosted: dict[Node, set[TopicPartition]] = {}
        self.looks = 0
        world.zookeeper.on_write = self._written

    def begin(self) -> None:
        """Look again and again until the world ends."""
        self.world.loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        try:
            self.look()
        except Violation as violation:
            self.fail(violation)
            return
        self.world.loop.call_later(LOOK_EVERY_S, self._look_again)

    def fail(self, violation: Violation) -> None:
        """The run has failed; it ends with this."""
        if not self.world.violations:
            self.world.note(str(violation))
        self.world.violations.append(str(violation))

    # ------------------------------------------------------------ the moment

    def look(self) -> None:
        """The invariants of one moment."""
        self.looks += 1
        for id, node in sorted(self.world.nodes.items()):
            hosted = node.broker.replicas
            fetched = Counter(chain.from_iterable(each.partitions for each in hosted.fetchers.of()))
            for partition in hosted.partitions.values():
                self._one_replica(id, partition, fetched[partition])
            self._nothing_vanished(id, node)
        for tp, committed in self.committed.items():
            replicas = self._replicas(tp)
            for id, partition in replicas.items():
                committed.look_at(id, partition)
            self._candidates(tp, replicas)
            if self.looks % TAILS_EVERY == 0 and len(replicas) > 1:
                same_tails(tp, replicas)
        if self.world.workload.contradictions:
            raise Violation(f"I14, I16: {self.world.workload.contradictions[0]}")

    def _replicas(self, tp: TopicPartition) -> dict[int, Partition]:
        """Those that can be read; the watermarks of the others are noted, too."""
        found: dict[int, Partition] = {}
        for id, node in sorted(self.world.nodes.items()):
            partition = node.broker.replicas.find(tp)
            if partition is not None:
                self.committed[tp].note(partition)
                if self._is_readable(id, partition):
                    found[id] = partition
        return found

    def last_words(self, id: int) -> None:
        """A broker is about to die: what its watermarks cover is committed all the same."""
        try:
            for partition in self._partitions(id) if id in self.world.nodes else ():
                if partition.tp in self.committed:
                    self.committed[partition.tp].note(partition)
                    if self._is_readable(id, partition):
                        self.committed[partition.tp].look_at(id, partition)
        except Violation as violation:
            self.fail(violation)

    def leads_no_more(self, id: int, tp: TopicPartition) -> None:
        """A leader ends, and its replica may be deleted in the same breath: its watermark counts."""
        partition = self.world.nodes[id].broker.replicas.find(tp) if id in self.world.nodes else None
        if partition is not None and tp in self.committed:
            try:
                self.committed[tp].note(partition)
                if self._is_readable(id, partition):
                    self.committed[tp].look_at(id, partition)
            except Violation as violation:
                self.fail(violation)

    def read(self, tp: TopicPartition, offset: int) -> None:
        """A reader was given this record: some watermark must have covered it."""
        committed = self.committed[tp]
        if offset >= committed.told_end and not committed.forgiven:
            self._replicas(tp)
            if offset >= committed.told_end:
                raise Violation(f"I15: {tp}@{offset} was read; {committed.told_end} are committed")

    def _one_replica(self, id: int, partition: Partition, fetched: int) -> None:
        log, tp, epoch, mark = partition.log, partition.tp, partition.leader_epoch, partition.high_watermark
        if not log.start_offset <= mark <= log.end_offset:
            raise Violation(f"I8: {tp} on b{id}: HW {mark} in [{log.start_offset}, {log.end_offset}]")
        if epoch < self.epochs.get(partition, -1):
            raise Violation(f"I7: the leader epoch of {tp} on b{id} fell to {epoch}")
        self.epochs[partition] = epoch
        if fetched and fetched > (partition.role is not Role.LEADING):
            raise Violation(f"I18: {fetched} fetchers fetch {tp} for b{id}, which is {partition.role.value}")
        if partition.leading is None:
            if not partition.incomplete and (partition.acks or partition.flush_acks):
                raise Violation(f"I19: producers wait for {tp} at b{id}, which does not lead it")
            return
        if self.leaders.setdefault((tp, epoch), id) != id:
            raise Violation(f"I7: {tp} epoch {epoch} is led by b{self.leaders[tp, epoch]} and b{id}")
        if self.watermarks.get((tp, epoch), 0) > mark:
            raise Violation(f"I8: the watermark of {tp} fell to {mark} in epoch {epoch}")
        self.watermarks[tp, epoch] = mark
        self._quorum(id, partition)

    def _quorum(self, id: int, partition: Partition) -> None:
        """A leader that ZooKeeper names, too, waits for everybody whom ZooKeeper may hold to be in sync."""
        leader, state = partition.leading, self.states.latest.get(partition.tp)
        if leader is None or state is None:
            return
        if (state["leader"], state["leader_epoch"]) != (id, leader.epoch):
            return
        if not set(state["isr"]) <= leader.isr.must_ack:
            raise Violation(
                f"I3: for {partition.tp} b{id} waits for {sorted(leader.isr.must_ack)}, "
                f"the ISR is {state['isr']}"
            )

    def _candidates(self, tp: TopicPartition, replicas: dict[int, Partition]) -> None:
        """Who may lead next holds all that is committed."""
        state = self.states.latest.get(tp)
        for id, partition in replicas.items():
            if state is None or id not in state["isr"]:
                continue
            if state["isr_epochs"].get(str(id), -1) > self.states.lossy_until.get(id, -1):
                is_leader = partition.leading is not None and state["leader"] == id
                self.committed[tp].must_hold(id, partition, "I1" if is_leader else "I2, I4")

    def _nothing_vanished(self, id: int, node: Node) -> None:
        """What an ISR counts on is not deleted."""
        now = node.broker.replicas.partitions.keys()
        before = self.hosted.get(node)
        if before == now:
            return
        for tp in sorted((before or set()) - now):
            state = self.states.latest.get(tp)
            if state is not None and id in state["isr"] and f"/brokers/topics/{tp.topic}" in self.zookeeper:
                raise Violation(f"I17: b{id} deleted {tp}, and is in its ISR {state['isr']}")
        self.hosted[node] = set(now)

    def _is_readable(self, id: int, partition: Partition) -> bool:
        """To look is not to touch: what cannot be read would be found out by the look."""
        disk, log = self.world.disks[id], partition.log
        return not (disk.broken or disk.flawed or log.closed or log.failed or partition.offline)

    # ------------------------------------------------------------ ZooKeeper

    @property
    def zookeeper(self) -> dict[str, Any]:
        """The nodes as they are."""
        nodes: dict[str, Any] = self.world.zookeeper.nodes
        return nodes

    def _written(self, session: int, ops: Any) -> None:
        try:
            self.states.written(session, ops)
        except Violation as violation:
            self.fail(violation)

    def _state_written(self, tp: TopicPartition, state: State) -> None:
        """Whoever has just been let in holds what is committed now."""
        committed = self.committed.get(tp)
        if committed is None:
            return
        if state.get("leader_recovery_state"):
            committed.forgiven = True
        for id in state["isr"]:
            node = self.world.nodes.get(id)
            partition = node.broker.replicas.find(tp) if node else None
            proof = state["isr_epochs"].get(str(id), -1)
            if node is None or partition is None or not self._is_readable(id, partition):
                continue
            if proof == node.broker.incarnation and proof > self.states.lossy_until.get(id, -1):
                committed.must_hold(id, partition, "I2")

    def leader(self, tp: TopicPartition) -> int:
        """Whom ZooKeeper names; -1 if nobody."""
        state = self.states.latest.get(tp)
        return -1 if state is None else int(state["leader"])

    def incarnation(self, id: int) -> int:
        """The latest that this broker has registered in."""
        return self.states.incarnation(id)

    def lost_data(self, id: int) -> None:
        """A broker's disk is not what it was."""
        self.states.lost_data(id)

    def flushed(self) -> dict[tuple[TopicPartition, int], set[int]]:
        """What stands on the media of the brokers that run: place -> numbers."""
        found: dict[tuple[TopicPartition, int], set[int]] = {}
        for tp in self.world.workload.partitions:
            for id, partition in self._replicas(tp).items():
                end = partition.log.flushed_offset
                for offset, number in _numbers(self._whole(id, tp)).items():
                    if offset < end:
                        found.setdefault((tp, offset), set()).add(number)
        return found

    def spares(self, id: int, lossy: tuple[int, int] | None) -> bool:
        """Whether b`id` may lose data: whoever did before is whole again, and another holds what counts."""
        states = [self.states.latest.get(tp) for tp in self.world.workload.partitions]
        if any(state is None or not set(state["isr"]) - {id} for state in states):
            return False
        return lossy is None or all(self._has_recovered(*lossy, state) for state in states if state)

    def _has_recovered(self, id: int, before: int, state: State) -> bool:
        return id in state["isr"] and bool(state["isr_epochs"].get(str(id), -1) > before)

    def _partitions(self, id: int) -> list[Partition]:
        hosted = self.world.nodes[id].broker.replicas.partitions
        return [hosted[tp] for tp in sorted(hosted)]

    # ------------------------------------------------------------ at the end

    async def wait_healed(self, within_s: float) -> None:
        """Wait until every replica is in its ISR; Violation when that does not happen."""
        deadline = self.world.loop.now + within_s
        while not self.is_whole() or not self._is_calm():
            if self.world.loop.now > deadline:
                raise Violation(
                    f"liveness: not healed {within_s:g} s after the last fault: {self._picture()}"
                )
            await asyncio.sleep(0.1)

    def is_whole(self) -> bool:
        """Whether every broker serves and every replica is in its ISR."""
        states = [self.states.latest.get(tp) for tp in self.world.workload.partitions]
        return len(self.world.nodes) == 3 and all(
            state is not None and len(state["isr"]) == 3 and state["leader"] != -1 for state in states
        )

    def _is_calm(self) -> bool:
        """One controller, and no change of an ISR under way."""
        nodes = self.world.nodes.values()
        leaders = [p.leading for node in nodes for p in node.broker.replicas.partitions.values()]
        return sum(node.broker.controller.active for node in nodes) == 1 and all(
            isinstance(leader.isr, Settled) for leader in leaders if leader is not None
        )

    def _picture(self) -> str:
        states = [(str(tp), self.states.latest.get(tp)) for tp in self.world.workload.partitions]
        controllers = [id for id, node in self.world.nodes.items() if node.broker.controller.active]
        return f"brokers {sorted(self.world.nodes)}, controllers {controllers}, {states}"

    async def judge(self) -> None:
        """Every acknowledged number stands where its receipt said, once, on all three replicas alike."""
        self.look()
        await self._settle()
        self.look()
        if self.world.workload.refused:
            raise Violation(f"liveness: a send failed for good: {self.world.workload.refused[0]}")
        for tp in self.world.workload.partitions:
            logs = {id: self._whole(id, tp) for id in sorted(self.world.nodes)}
            first = min(logs)
            for id, data in logs.items():
                if data != logs[first]:
                    raise Violation(f"I5: {tp} differs between b{first} and b{id}")
                epochs_match(id, self.world.nodes[id].broker.replicas.partitions[tp])
            self.world.workload.history.read_whole(tp, sorted(_numbers(logs[first]).items()))
        self._below_watermark()
        report = judge(self.world.workload.history)
        if self.world.workload.has_lost_power:  # and with it what brokers knew of a producer's order
            report.anomalies.pop(Anomaly.NONMONOTONIC_SEND, None)
        if report.anomalies:
            anomaly, evidence = next(iter(report.anomalies.items()))
            raise Violation(f"I16: {anomaly}: {evidence[0]} ({', '.join(report.anomalies)})")

    def _below_watermark(self) -> None:
        for id, node in sorted(self.world.nodes.items()):
            if node.broker.replicas.host.truncated_below_watermark and not any(
                committed.forgiven for committed in self.committed.values()
            ):
                raise Violation(f"I11: b{id} has cut below its watermark")

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

    def _whole(self, id: int, tp: TopicPartition) -> bytes:
        log = self.world.nodes[id].broker.replicas.partitions[tp].log
        return b"".join(log.read(log.start_offset, 1 << 30, log.end_offset).parts)


def _numbers(data: bytes) -> dict[int, int]:
    return {record.offset: int(record.value or b"-1") for record in iterate(data)}

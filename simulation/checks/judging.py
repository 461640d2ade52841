"""The end of a world: does it heal, and is every acknowledged record where its acknowledgement said?

Left to others: what must hold at any time (`invariants.py`), the history of the clients (`history.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ...base.types import TopicPartition
from ...broker.replicas.partition import Partition
from ...broker.topic_names import INTERNAL_TOPICS
from ...replication.isr import Settled
from ..cluster import BROKERS, SimCluster
from ..trace import Violation
from .committed import epochs_match
from .copies import COPIES
from .history import judge
from .invariants import Checks
from .ledger import Ledger
from .pictures import disagreement
from .reading import contents, newest, numbers, whole

T = TypeVar("T")

SETTLE_S = 20.0
TOLD_S = 10.0
"""How soon every broker knows the last change: a leader notifies the controller after a second."""


class Judging:
    """The verdict on one world."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, checks: Checks) -> None:
        self.cluster, self.ledger, self.checks = cluster, ledger, checks

    async def wait_healed(self, within_s: float) -> None:
        """Wait until every replica is in its ISR. Raises Violation if that takes longer than `within_s`."""
        deadline = self.cluster.loop.now + within_s
        while not (self._is_whole() and self._is_calm()):
            if self.cluster.loop.now > deadline:
                raise Violation(
                    f"liveness: the cluster is not healthy {within_s:g} s after the last fault: "
                    f"{self._picture()}"
                )
            await asyncio.sleep(0.1)

    def _is_whole(self) -> bool:
        """Whether every broker serves, no topic deletion is pending, and every replica is in its ISR."""
        checks = self.checks
        return (
            len(self.cluster.nodes) == len(BROKERS)
            and not any(path.startswith("/admin/delete_topics/") for path in checks.zookeeper)
            and all(
                state["leader"] != -1 and set(state["isr"]) == checks.states.replicas(tp)
                for tp, state in checks.states.latest.items()
            )
        )

    def _is_calm(self) -> bool:
        """Whether there is exactly one controller, and no ISR change is in flight."""
        nodes = self.cluster.nodes.values()
        leaders = [p.leading for node in nodes for p in node.broker.replicas.partitions.values()]
        return sum(node.broker.controller.active for node in nodes) == 1 and all(
            isinstance(leader.isr, Settled) for leader in leaders if leader is not None
        )

    async def wait_told(self, within_s: float = TOLD_S) -> None:
        """Wait until all brokers know how things stand. Raises Violation if that takes too long."""
        deadline = self.cluster.loop.now + within_s
        while (what := disagreement(self.cluster.nodes, self.checks.states.latest)) is not None:
            if self.cluster.loop.now > deadline:
                raise Violation(f"I25: after {within_s:g} s without faults {what}")
            await asyncio.sleep(0.1)

    def _picture(self) -> str:
        states = [(str(tp), state) for tp, state in sorted(self.checks.states.latest.items())]
        controllers = [id for id, node in self.cluster.nodes.items() if node.broker.controller.active]
        return f"brokers {sorted(self.cluster.nodes)}, controllers {controllers}, {states}"

    async def judge(self) -> None:
        """Every acknowledged number is at the offset of its acknowledgement, once, on all three replicas."""
        checks, ledger = self.checks, self.ledger
        checks.look()
        await self._settle()
        await self.wait_told()
        checks.look()
        if ledger.refused:
            raise Violation(f"liveness: a send failed for good: {ledger.refused[0]}")
        held: dict[TopicPartition, dict[int, int]] = {}
        for tp in sorted(checks.states.latest):
            if tp.topic in INTERNAL_TOPICS:
                self._compacted_alike(tp)
            elif tp.topic == COPIES:
                self._alike(tp, contents)
            else:
                held[tp] = self._alike(tp, numbers)
        for tp in ledger.partitions:
            let_go = {at: n for at, n in checks.committed[tp].numbers.items() if at not in held[tp]}
            ledger.history.read_whole(tp, sorted({**let_go, **held[tp]}.items()))
        self._extra_topics(held)
        report = judge(ledger.history)
        if report.anomalies:
            anomaly, evidence = next(iter(report.anomalies.items()))
            raise Violation(f"I16: {anomaly}: {evidence[0]} ({', '.join(report.anomalies)})")

    def _extra_topics(self, held: dict[TopicPartition, dict[int, int]]) -> None:
        """Every record acknowledged for an extra topic that still exists must be in it."""
        for (id, tp, offset), number in sorted(self.ledger.extra.items(), key=str):
            if id is None or id != self.cluster.topic(tp.topic).get("topic_id"):
                continue
            if number not in (held[tp].get(offset), self.checks.committed[tp].lost.get(offset)):
                raise Violation(f"I16: {number}, acknowledged at {tp}@{offset}, is missing")

    def _replicas(self, tp: TopicPartition) -> dict[int, Partition]:
        found = {id: node.broker.replicas.find(tp) for id, node in sorted(self.cluster.nodes.items())}
        return {id: partition for id, partition in found.items() if partition is not None}

    def _alike(self, tp: TopicPartition, content: Callable[[bytes], dict[int, T]]) -> dict[int, T]:
        """All replicas hold the same records, except that their logs may start at different offsets."""
        replicas = self._replicas(tp)
        held = {id: content(whole(partition.log)) for id, partition in replicas.items()}
        starts = {id: partition.log.start_offset for id, partition in replicas.items()}
        first = max(starts.values())
        common = {id: {at: n for at, n in held[id].items() if at >= first} for id in held}
        for id, partition in replicas.items():
            if common[id] != common[min(common)]:
                raise Violation(f"I5: {tp} differs between b{min(common)} and b{id}")
            epochs_match(id, partition)
        return held[min(starts, key=lambda id: starts[id])]

    def _compacted_alike(self, tp: TopicPartition) -> None:
        """Each replica compacts by itself, so only the last record of each key must be equal."""
        kept = {id: newest(whole(partition.log)) for id, partition in self._replicas(tp).items()}
        for id in kept:
            if kept[id] != kept[min(kept)]:
                raise Violation(f"I5: the last records of {tp} differ between b{min(kept)} and b{id}")

    async def _settle(self) -> None:
        """Wait until followers have the last records and the last high watermark."""
        deadline = self.cluster.loop.now + SETTLE_S
        while not self._have_met():
            if self.cluster.loop.now > deadline:
                raise Violation(f"liveness: high watermarks do not reach the log end offsets: {self._ends()}")
            await asyncio.sleep(0.1)

    def _ends(self) -> dict[TopicPartition, set[tuple[int, int]]]:
        return {
            tp: {(each.log.end_offset, each.high_watermark) for each in self._replicas(tp).values()}
            for tp in self.checks.states.latest
        }

    def _have_met(self) -> bool:
        return all(
            len(ends) == 1 and all(end == mark for end, mark in ends) for ends in self._ends().values()
        )

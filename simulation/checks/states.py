"""Checks every write to ZooKeeper as it lands: who may lead, who may be in the ISR, which numbers never fall.

Left to others: what the replicas hold (`committed.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...base.types import TopicPartition
from ...zookeeper.client import Check, Create, Delete, Op, SetData
from ...zookeeper.documents import CONTROLLER_EPOCH
from ..environment.zookeeper import SimZooKeeper
from ..trace import Violation

STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
INCARNATION = re.compile(r"/brokers/incarnations/(\d+)")
NOBODY = -1

State = dict[str, Any]


class States:
    """The partition states in ZooKeeper, checked at every change."""

    def __init__(
        self, server: SimZooKeeper, on_state: Callable[[TopicPartition, State | None, State], None]
    ) -> None:
        self.server = server
        self.latest: dict[TopicPartition, State] = {}
        self.lossy_until: dict[int, int] = {}  # broker -> the last incarnation whose data was lost
        self._on_state = on_state
        self._highest: dict[str, int] = {}

    def written(self, session: int, ops: Sequence[Op]) -> None:
        """A `multi` has just been applied."""
        for op in ops:
            if isinstance(op, Delete) and (found := STATE.fullmatch(op.path)):
                self.latest.pop(TopicPartition(found[1], int(found[2])), None)
            if isinstance(op, Create | SetData):
                if found := STATE.fullmatch(op.path):
                    tp = TopicPartition(found[1], int(found[2]))
                    state = json.loads(op.data)
                    before = None if isinstance(op, Create) else self.latest.get(tp)
                    self._fenced(tp, op, ops, session)
                    self._follows(tp, before, state)
                    self.latest[tp] = state
                    self._on_state(tp, before, state)
                elif op.path == CONTROLLER_EPOCH:
                    self._rises("the controller epoch", int(op.data or b"0"))
                elif found := INCARNATION.fullmatch(op.path):
                    version = self.server.nodes[op.path].version
                    self._rises(f"the incarnation of b{found[1]}", version)

    def lost_data(self, id: int) -> None:
        """A broker may have lost data: none of its incarnations so far is a proof any more."""
        self.lossy_until[id] = self.incarnation(id)

    def incarnation(self, id: int) -> int:
        """The latest incarnation of this broker."""
        node = self.server.nodes.get(f"/brokers/incarnations/{id}")
        return node.version if node else 0

    def _registered(self, id: int) -> int:
        """The incarnation of its registration, dead or alive; -1 if there is none."""
        node = self.server.nodes.get(f"/brokers/ids/{id}")
        return -1 if node is None else int(json.loads(node.data)["incarnation"])

    def _rises(self, what: str, value: int) -> None:
        if value < self._highest.get(what, 0):
            raise Violation(f"I7: {what} fell to {value}")
        self._highest[what] = value

    def _fenced(self, tp: TopicPartition, write: Create | SetData, ops: Sequence[Op], session: int) -> None:
        checks = {op.path for op in ops if isinstance(op, Check) and op.version >= 0}
        leader = json.loads(write.data)["leader"]
        own = f"/brokers/incarnations/{leader}"
        if CONTROLLER_EPOCH not in checks and own not in checks:
            raise Violation(f"I13: the state of {tp} was written by session {session:#x} without a fence")

    def _follows(self, tp: TopicPartition, before: State | None, state: State) -> None:
        isr, leader, epoch = state["isr"], state["leader"], state["leader_epoch"]
        replicas = self.replicas(tp)
        epochs = {int(member) for member in state["isr_epochs"]}
        if not isr or not set(isr) <= replicas or leader not in (NOBODY, *isr) or epochs != set(isr):
            raise Violation(
                f"I12: {tp} has leader {leader}, ISR {isr} and isr_epochs of {epochs}, but the "
                f"replicas {replicas}"
            )
        if before is None:
            return
        if epoch < before["leader_epoch"] or (epoch == before["leader_epoch"] and leader != before["leader"]):
            raise Violation(
                f"I7: {tp} was led by {before['leader']} in epoch {before['leader_epoch']}, "
                f"now by {leader} in epoch {epoch}"
            )
        if state.get("leader_recovery_state"):
            return
        if leader not in (NOBODY, before["leader"]):
            if leader not in before["isr"]:
                raise Violation(f"I10: b{leader}, elected for {tp}, was not in the ISR {before['isr']}")
            self._has_proof(tp, leader, before["isr_epochs"], "elected for")
        for member in sorted(set(isr) - set(before["isr"])):
            self._has_proof(tp, member, state["isr_epochs"], "added to the ISR of")

    def _has_proof(self, tp: TopicPartition, id: int, epochs: dict[str, int], how: str) -> None:
        """It must have lost no data since it joined, as its `isr_epochs` entry shows.

        A broker that has not come back since the loss is exempt: nobody can know yet, and it is dead anyway.
        Once it is back, only its new incarnation counts as proof.
        """
        joined, lossy_until = epochs.get(str(id), -1), self.lossy_until.get(id, -1)
        if joined <= lossy_until < self._registered(id):
            raise Violation(f"I10: b{id}, {how} {tp}, has lost data since it joined in incarnation {joined}")

    def replicas(self, tp: TopicPartition) -> set[int]:
        """The assigned replicas, and those that a reassignment is adding or removing."""
        node = self.server.nodes.get(f"/brokers/topics/{tp.topic}")
        document = json.loads(node.data) if node else {"partitions": {}}
        assigned = document["partitions"].get(str(tp.partition), [])
        adding = (document.get("adding_replicas") or {}).get(str(tp.partition), [])
        removing = (document.get("removing_replicas") or {}).get(str(tp.partition), [])
        return {*assigned, *adding, *removing}

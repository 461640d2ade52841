"""Every write to ZooKeeper is looked at as it lands: who may lead, who is in sync, what never goes back.

Left to others: what the replicas hold (`committed.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..controller.documents import CONTROLLER_EPOCH
from ..controller.registry import Check, Create, Op, SetData
from ..protocol.kinds import TopicPartition
from .committed import Violation
from .zookeeper import SimZooKeeper

STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
INCARNATION = re.compile(r"/brokers/incarnations/(\d+)")
NOBODY = -1

State = dict[str, Any]


class States:
    """The partition states, one after the other."""

    def __init__(self, server: SimZooKeeper, on_state: Callable[[TopicPartition, State], None]) -> None:
        self.server = server
        self.latest: dict[TopicPartition, State] = {}
        self.lossy_until: dict[int, int] = {}  # broker -> the last incarnation whose data were lost
        self._on_state = on_state
        self._highest: dict[str, int] = {}

    def written(self, session: int, ops: Sequence[Op]) -> None:
        """A `multi` has just been applied."""
        for op in ops:
            if isinstance(op, Create | SetData):
                if found := STATE.fullmatch(op.path):
                    tp = TopicPartition(found[1], int(found[2]))
                    state = json.loads(op.data)
                    self._fenced(tp, op, ops, session)
                    self._follows(tp, self.latest.get(tp), state)
                    self.latest[tp] = state
                    self._on_state(tp, state)
                elif op.path == CONTROLLER_EPOCH:
                    self._rises("the controller epoch", int(op.data or b"0"))
                elif found := INCARNATION.fullmatch(op.path):
                    version = self.server.nodes[op.path].version
                    self._rises(f"the incarnation of b{found[1]}", version)

    def lost_data(self, id: int) -> None:
        """A broker has lost data, of all the incarnations that it has had so far."""
        self.lossy_until[id] = self.incarnation(id)

    def incarnation(self, id: int) -> int:
        """The latest that this broker has registered in."""
        node = self.server.nodes.get(f"/brokers/incarnations/{id}")
        return node.version if node else 0

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
        replicas = self._replicas(tp)
        epochs = {int(member) for member in state["isr_epochs"]}
        if not isr or not set(isr) <= replicas or leader not in (NOBODY, *isr) or not epochs <= set(isr):
            raise Violation(f"I12: {tp} has leader {leader}, ISR {isr} with epochs of {epochs} in {replicas}")
        if before is None:
            return
        if epoch < before["leader_epoch"] or (epoch == before["leader_epoch"] and leader != before["leader"]):
            raise Violation(
                f"I7: {tp} was led by {before['leader']} in epoch {before['leader_epoch']}, "
                f"now by {leader} in epoch {epoch}"
            )
        is_elected = leader not in (NOBODY, before["leader"])
        if is_elected and not state.get("leader_recovery_state"):
            if leader not in before["isr"]:
                raise Violation(f"I10: b{leader}, elected for {tp}, was not in the ISR {before['isr']}")
            joined = before["isr_epochs"].get(str(leader), -1)
            if joined <= self.lossy_until.get(leader, -1):
                raise Violation(
                    f"I10: b{leader}, elected for {tp}, has lost data since it joined the ISR in {joined}"
                )

    def _replicas(self, tp: TopicPartition) -> set[int]:
        node = self.server.nodes.get(f"/brokers/topics/{tp.topic}")
        document = json.loads(node.data) if node else {"partitions": {}}
        assigned = document["partitions"].get(str(tp.partition), [])
        adding = (document.get("adding_replicas") or {}).get(str(tp.partition), [])
        removing = (document.get("removing_replicas") or {}).get(str(tp.partition), [])
        return {*assigned, *adding, *removing}

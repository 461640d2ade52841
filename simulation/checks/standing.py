"""Invariant I19: no broker acts in a role that is over; so roles are checked again after an await.

We watch two things. A write to ZooKeeper about a partition must be true for its sender when it is sent: it
leads in that epoch and knows no newer version, or it is the controller and has not resigned. And code that
still holds a role that has ended must call neither that role nor its log.
Left to others: whether a write is right (`states.py`), what becomes of it (`environment/zk_client.py`).
Why: docs/decisions/0043-roles-that-are-over.md
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from ...base.types import TopicPartition
from ...broker.node import Node
from ...broker.replicas.isr_writer import IsrWriter
from ...broker.replicas.partition import Partition
from ...replication.follower import Follower
from ...replication.leader import Leader
from ...storage.log.log import Log
from ...zookeeper.client import Check, Create, Op, SetData
from ...zookeeper.documents import CONTROLLER_EPOCH
from ..cluster import SimCluster
from ..environment.host import current_host
from ..patches import Patches
from ..trace import Violation
from .invariants import Checks
from .states import STATE

LEADER = ("appended", "fetched", "tick", "isr_landed", "isr_refused", "isr_unknown", "state_read")
FOLLOWER = (
    "epoch_ends", "diverged", "out_of_range", "refused", "truncated", "restarted", "replicated",
)  # fmt: skip


class StandingChecks:
    """Watches the calls of all brokers of a world."""

    def __init__(self, cluster: SimCluster, checks: Checks) -> None:
        self._checks, self._fail = checks, cluster.trace.fail
        cluster.on_send = self.sends
        self._patches = Patches()
        self._of: dict[int, tuple[Any, Partition]] = {}  # by id: a role or a log, held, and whose it is

    def begin(self) -> None:
        """Start to watch."""
        for begins in ("lead", "follow"):
            self._around(Partition, begins, after=self._begun)
        for name in LEADER:
            self._around(Leader, name, before=self._check_role)
        for name in FOLLOWER:
            self._around(Follower, name, before=self._check_role)
        self._around(IsrWriter, "perform", before=lambda writer, partition, role, *_: self._check_role(role))
        self._around(Log, "append", before=lambda log, records, header, epoch, *_: self._leads(log, epoch))
        self._around(
            Log, "append_replicated", before=lambda log, records, epoch=None, *_: self._follows(log, epoch)
        )
        for name in ("truncate_to", "restart_at"):
            self._around(Log, name, before=lambda log, *_: self._follows(log))
        self._around(Log, "truncate_to", before=self._cuts)
        self._around(Log, "restart_at", before=self._begins_anew)
        self._around(Log, "retire", before=self._retires)

    def end(self) -> None:
        """Stop watching."""
        self._patches.undo()
        self._of.clear()

    def _around(
        self,
        owner: type,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> None:
        method = getattr(owner, name)

        @functools.wraps(method)
        def watched(*args: Any, **more: Any) -> Any:
            if before is not None:
                before(*args)
            result = method(*args, **more)
            if after is not None:
                after(*args)
            return result

        self._patches.put(owner, name, watched)

    # ------------------------------------------------------------ the rules of a role, and its log

    def _begun(self, partition: Partition, *_: object) -> None:
        for each in (partition.leading, partition.following, partition.log):
            if each is not None:
                self._of[id(each)] = each, partition

    def _check_role(self, role: Leader | Follower, *_: object) -> None:
        """A role that has ended must not be called any more."""
        known = self._of.get(id(role))
        if known is not None and role not in (known[1].leading, known[1].following):
            self._stale(known[1], f"its ended role of epoch {role.epoch} was called")

    def _leads(self, log: Log, epoch: int) -> None:
        known = self._of.get(id(log))
        if known is not None and (known[1].leading is None or known[1].leading.epoch != epoch):
            self._stale(known[1], f"a batch of epoch {epoch} was appended without leading in that epoch")

    def _follows(self, log: Log, epoch: int | None = None) -> None:
        known = self._of.get(id(log))
        if known is not None and (
            known[1].following is None or epoch not in (None, known[1].following.epoch)
        ):
            self._stale(known[1], "its log was changed by a leader of another epoch")

    def _cuts(self, log: Log, offset: int, *_: object) -> None:
        """No truncation below a replica's own high watermark, unless its leader was elected without proof."""
        known = self._of.get(id(log))
        if known is None or offset >= known[1].high_watermark or log.start_offset > offset:
            return
        host, partition = current_host(), known[1]
        if host.alive and not self._checks.may_cut(int(host.name[1:]), partition):
            self._fail(
                Violation(
                    f"I11: {partition} on {host.name} is truncated to {offset}, below its high "
                    f"watermark {partition.high_watermark}"
                )
            )

    def _begins_anew(self, log: Log, offset: int, *_: object) -> None:
        """A log starts again where its leader's does, no later."""
        if offset > self._checks.starts.get(log.partition, 0) and current_host().alive:
            self._fail(
                Violation(
                    f"I21: {log.partition} on {current_host().name} restarts at {offset}, after the "
                    "leader's log start offset"
                )
            )

    def _retires(self, log: Log, count: int, *_: object) -> None:
        """Retention by size keeps at least that size. Segments before the log start offset go in any case.

        So a follower whose leader has moved the log start up may keep less: it has not caught up yet.
        """
        ends = [each.base_offset for each in log.segments[1:]] + [log.end_offset]
        if not count or ends[count - 1] <= log.start_offset:
            return
        left, limit = sum(each.size for each in log.segments[count:]), log.config.retention_bytes
        if limit < 0 or left < limit:
            self._fail(
                Violation(
                    f"I21: retention of {log.partition} on {current_host().name} leaves {left} bytes, "
                    f"less than {limit}"
                )
            )
        if count < len(log.segments):
            self._checks.let_go(log.partition, log.segments[count].base_offset)

    def _stale(self, partition: Partition, what: str) -> None:
        host = current_host()
        if host.alive:
            self._fail(Violation(f"I19: {partition} on {host.name}: {what}"))

    # ------------------------------------------------------------ what is sent to ZooKeeper

    def sends(self, node: Node, ops: Sequence[Op]) -> None:
        """A broker is about to send this write to ZooKeeper."""
        for op in ops:
            if isinstance(op, Create | SetData) and (found := STATE.fullmatch(op.path)):
                fence = next((o for o in ops if isinstance(o, Check) and o.path == CONTROLLER_EPOCH), None)
                tp = TopicPartition(found[1], int(found[2]))
                if fence is not None:
                    self._serves_a_term(node, tp, fence.version)
                elif isinstance(op, SetData):
                    self._writes(node, tp, op)

    def _serves_a_term(self, node: Node, tp: TopicPartition, fence: int) -> None:
        if not any(one.term.fence == fence and not one.ended for one in node.broker.controller.terms):
            self._fail(
                Violation(f"I19: b{node.broker.id} writes the state of {tp} after it resigned as controller")
            )

    def _writes(self, node: Node, tp: TopicPartition, write: SetData) -> None:
        state = json.loads(write.data)
        partition = node.broker.replicas.find(tp)
        leader = partition.leading if partition is not None else None
        now = None if leader is None else (node.broker.id, leader.epoch, leader.version)
        if now != (state["leader"], state["leader_epoch"], write.version):
            self._fail(
                Violation(
                    f"I19: b{node.broker.id} writes the state of {tp} over version {write.version} "
                    f"as leader of epoch {state['leader_epoch']}, but is {partition}"
                )
            )

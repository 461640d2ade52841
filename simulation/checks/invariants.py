"""The invariants of every world, checked while it runs and once more when all has healed.

The checks only read: the brokers' state, their logs and the ZooKeeper tree. The numbers I1… are those of
docs/simulation.md. Left to others: bytes (`committed.py`), single writes to ZooKeeper (`states.py`), what
clients were told (`history.py`), the end (`judging.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any
from uuid import UUID

from ...base.types import TopicPartition
from ...broker.node import Node
from ...broker.replicas.partition import Partition
from ...broker.replicas.shared import Role
from ...broker.topic_names import INTERNAL_TOPICS
from ...zookeeper.documents import TopicDocument
from ..cluster import SimCluster
from ..trace import Violation
from .committed import CommittedRecords, same_tails
from .ledger import Ledger, is_extra
from .reading import numbers, whole
from .states import State, States

LOOK_EVERY_S = 0.05
TAILS_EVERY = 10
"""Only every so many checks compare the records above the high watermarks."""


class Checks:
    """All invariants of one world; it raises a Violation, or notes it, if one is broken."""

    def __init__(self, cluster: SimCluster, ledger: Ledger) -> None:
        self.cluster, self.ledger = cluster, ledger
        self.states = States(cluster.zookeeper, self._state_written)
        self.committed = {tp: CommittedRecords(tp) for tp in ledger.partitions}
        self.leaders: dict[tuple[TopicPartition, UUID | None, int], int] = {}  # who led it in this epoch
        self.watermarks: dict[
            tuple[TopicPartition, UUID | None, int], int
        ] = {}  # the leader's, in this epoch
        self.epochs: dict[
            tuple[int, TopicPartition, UUID | None], int
        ] = {}  # of a broker, over all its restarts
        self.terms: dict[int, int] = {}  # broker -> the highest controller epoch that it has obeyed
        self.hosted: dict[Node, dict[TopicPartition, UUID | None]] = {}
        self.starts: dict[TopicPartition, int] = {}  # the highest log start offset that retention allows
        self.unproven: set[TopicPartition] = set()  # partitions that ever had a leader without proof
        self.looks = 0
        self._ids: dict[bytes, UUID | None] = {}  # of a topic, by its document
        self._tails: dict[TopicPartition, object] = {}  # as they were when last compared
        cluster.zookeeper.on_write = self._written
        cluster.on_resigned = self.leads_no_more
        cluster.on_death = self.last_words
        cluster.on_data_lost = self.lost_data

    def begin(self) -> None:
        """Check again and again until the world ends."""
        self.cluster.loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        try:
            self.look()
        except Violation as violation:
            self.cluster.trace.fail(violation)
            return
        self.cluster.loop.call_later(LOOK_EVERY_S, self._look_again)

    # ------------------------------------------------------------ the moment

    def look(self) -> None:
        """Check all invariants as of now."""
        self.looks += 1
        for id, node in sorted(self.cluster.nodes.items()):
            broker = node.broker
            self._obeys(id, broker.roles.gate.controller_epoch)
            fetched = Counter(chain.from_iterable(each.partitions for each in broker.fetchers.of()))
            for partition in broker.replicas.partitions.values():
                self._one_replica(id, partition, fetched[partition])
            self._nothing_vanished(id, node)
        for tp, committed in self.committed.items():
            replicas = self._replicas(tp)
            self._take_unproven(committed, replicas)
            for id, partition in replicas.items():
                committed.look_at(id, partition)
            self._candidates(tp, replicas)
            if self.looks % TAILS_EVERY == 0 and len(replicas) > 1:
                self._compare_tails(tp, replicas)
        if self.ledger.contradictions:
            raise Violation(f"I14, I16: {self.ledger.contradictions[0]}")

    def _replicas(self, tp: TopicPartition) -> dict[int, Partition]:
        """Readable replicas of the current topic. The high watermarks of the others are noted, too."""
        found: dict[int, Partition] = {}
        for id, node in sorted(self.cluster.nodes.items()):
            partition = node.broker.replicas.find(tp)
            if partition is not None and self._is_of_today(partition):
                self.committed[tp].note(id, partition)
                if self._is_readable(id, partition):
                    found[id] = partition
        return found

    def _compare_tails(self, tp: TopicPartition, replicas: dict[int, Partition]) -> None:
        """Compare records above the high watermarks, unless no log has changed since the last time."""
        logs = [
            (id, p.log, p.log.generation, p.log.end_offset, p.high_watermark) for id, p in replicas.items()
        ]
        if self._tails.get(tp) != logs:
            same_tails(tp, replicas)
            self._tails[tp] = logs

    def last_words(self, id: int) -> None:
        """A broker is about to die: what its high watermarks cover is committed all the same."""
        for partition in self._partitions(id) if id in self.cluster.nodes else ():
            self._heard(id, partition)

    def leads_no_more(self, id: int, tp: TopicPartition) -> None:
        """A leadership ends; the replica may be deleted in the same loop turn, so note its high watermark."""
        partition = self.cluster.nodes[id].broker.replicas.find(tp) if id in self.cluster.nodes else None
        if partition is not None:
            self._heard(id, partition)

    def _heard(self, id: int, partition: Partition) -> None:
        committed = self.committed.get(partition.tp)
        if committed is None or not self._is_of_today(partition):
            return
        try:
            committed.note(id, partition)
            if self._is_readable(id, partition):
                committed.look_at(id, partition)
        except Violation as violation:
            self.cluster.trace.fail(violation)

    def read(self, tp: TopicPartition, offset: int) -> None:
        """A consumer was given this record: some high watermark must have covered it."""
        committed = self.committed[tp]
        if offset >= committed.told_end and committed.unproven is None:
            self._replicas(tp)
            if offset >= committed.told_end:
                raise Violation(
                    f"I15: {tp}@{offset} was read, but only offsets below {committed.told_end} are committed"
                )

    def _obeys(self, id: int, controller_epoch: int) -> None:
        """No broker obeys an older controller epoch, even after a restart; a new process has none (-1)."""
        if -1 < controller_epoch < self.terms.get(id, -1):
            raise Violation(f"I7: b{id} accepts controller epoch {controller_epoch} after {self.terms[id]}")
        self.terms[id] = max(controller_epoch, self.terms.get(id, -1))

    def _one_replica(self, id: int, partition: Partition, fetched: int) -> None:
        log, tp, epoch, mark = partition.log, partition.tp, partition.leader_epoch, partition.high_watermark
        if not log.start_offset <= mark <= log.end_offset:
            raise Violation(
                f"I8: {tp} on b{id}: the high watermark {mark} is outside the log [{log.start_offset}, "
                f"{log.end_offset}]"
            )
        if log.start_offset > self.starts.get(tp, 0):
            raise Violation(
                f"I21: {tp} on b{id} starts at {log.start_offset}, but retention deleted only up "
                f"to {self.starts.get(tp, 0)}"
            )
        before = self.epochs.get((id, tp, log.topic_id), -1)
        if -1 < epoch < before:  # a new process has none yet
            raise Violation(f"I7: the leader epoch of {tp} on b{id} fell from {before} to {epoch}")
        self.epochs[id, tp, log.topic_id] = max(epoch, before)
        if fetched and fetched > (partition.role is not Role.LEADING):
            raise Violation(f"I18: b{id} has {fetched} fetchers for {tp}, which is {partition.role.value}")
        if partition.leading is None:
            if not partition.incomplete and (partition.acks or partition.flush_acks):
                raise Violation(f"I19: b{id} holds acknowledgements of {tp}, which it does not lead")
            return
        key = tp, log.topic_id, epoch
        if self.leaders.setdefault(key, id) != id:
            raise Violation(f"I7: {tp} epoch {epoch} is led by b{self.leaders[key]} and b{id}")
        if self.watermarks.get(key, 0) > mark:
            raise Violation(f"I8: the high watermark of {tp} fell to {mark} in epoch {epoch}")
        self.watermarks[key] = mark
        self._quorum(id, partition)

    def _quorum(self, id: int, partition: Partition) -> None:
        """The leader named in ZooKeeper has lost no data, and waits for every replica in ZooKeeper's ISR."""
        leader, state = partition.leading, self.states.latest.get(partition.tp)
        if leader is None or state is None:
            return
        if (state["leader"], state["leader_epoch"]) != (id, leader.epoch):
            return
        proof = state["isr_epochs"].get(str(id), -1)
        if proof <= self.states.lossy_until.get(id, -1) and not state.get("leader_recovery_state"):
            raise Violation(
                f"I10: b{id} leads {partition.tp}, but has lost data since it joined in incarnation {proof}"
            )
        if not set(state["isr"]) <= leader.isr.must_ack:
            raise Violation(
                f"I3: b{id} waits for {sorted(leader.isr.must_ack)} in {partition.tp}, but the "
                f"ISR is {state['isr']}"
            )

    def _candidates(self, tp: TopicPartition, replicas: dict[int, Partition]) -> None:
        """Every replica that may lead next holds all committed records."""
        state = self.states.latest.get(tp)
        for id, partition in replicas.items():
            if state is None or id not in state["isr"]:
                continue
            if state["isr_epochs"].get(str(id), -1) > self.states.lossy_until.get(id, -1):
                is_leader = partition.leading is not None and state["leader"] == id
                self.committed[tp].must_hold(id, partition, "I1" if is_leader else "I2, I4")

    def _nothing_vanished(self, id: int, node: Node) -> None:
        """No broker deletes a replica that is in the ISR."""
        now = {tp: partition.log.topic_id for tp, partition in node.broker.replicas.partitions.items()}
        before = self.hosted.get(node)
        if before == now:
            return
        for tp in sorted((before or {}).keys() - now):
            state, is_the_same = self.states.latest.get(tp), (before or {})[tp] == self._topic_id(tp.topic)
            is_wanted = is_the_same and f"/admin/delete_topics/{tp.topic}" not in self.zookeeper
            if is_wanted and state is not None and id in state["isr"]:
                raise Violation(f"I17: b{id} deleted {tp}, but is in its ISR {state['isr']}")
        self.hosted[node] = now

    def _topic_id(self, name: str) -> UUID | None:
        node = self.zookeeper.get(f"/brokers/topics/{name}")
        if node is None:
            return None
        if node.data not in self._ids:
            self._ids[node.data] = TopicDocument.model_validate(json.loads(node.data)).uuid
        return self._ids[node.data]

    def _take_unproven(self, committed: CommittedRecords, replicas: dict[int, Partition]) -> None:
        """A leader was elected without proof. Records it lacks are lost; none of them may be acknowledged."""
        leader = committed.unproven
        if leader is None or leader not in replicas:
            return
        lost = committed.take(leader, replicas[leader])
        if lost:
            self.cluster.note(f"b{leader} leads {committed.tp} without {sorted(lost.values())}")
        promised = self.ledger.promised(committed.tp)
        for offset, number in sorted(lost.items()):
            if promised.get(offset) == number:
                raise Violation(
                    f"I16: b{leader}, elected leader of {committed.tp}, lacks {number} at {offset}"
                )

    def _is_of_today(self, partition: Partition) -> bool:
        """Whether this is a replica of the topic that has this name now."""
        id = self._topic_id(partition.tp.topic)
        return id is not None and partition.log.topic_id in (None, id)

    def _is_readable(self, id: int, partition: Partition) -> bool:
        """Whether we may read its log. A read that fails would make the broker notice, so we must not try."""
        disk, log = self.cluster.disks[id], partition.log
        return not (disk.is_troubled or log.closed or log.failed or partition.offline)

    # ------------------------------------------------------------ ZooKeeper

    @property
    def zookeeper(self) -> dict[str, Any]:
        """The nodes as they are now."""
        nodes: dict[str, Any] = self.cluster.zookeeper.nodes
        return nodes

    def _written(self, session: int, ops: Any) -> None:
        try:
            self.states.written(session, ops)
        except Violation as violation:
            self.cluster.trace.fail(violation)

    def _state_written(self, tp: TopicPartition, before: State | None, state: State) -> None:
        """A partition state was written. Members of the new ISR must hold all committed records."""
        if before is None and is_extra(tp):
            self.committed[tp] = CommittedRecords(tp)
        is_unproven = bool(state.get("leader_recovery_state")) and state["leader"] not in (
            -1, (before or state)["leader"],
        )  # fmt: skip
        if is_unproven:
            self.unproven.add(tp)
        committed = self.committed.get(tp)
        if committed is None:
            return
        if is_unproven:
            committed.recovered(state["leader"])
        nodes = {id: self.cluster.nodes[id] for id in state["isr"] if id in self.cluster.nodes}
        replicas = {id: node.broker.replicas.find(tp) for id, node in nodes.items()}
        whole = {id: p for id, p in replicas.items() if p is not None and self._is_readable(id, p)}
        self._take_unproven(committed, whole)
        for id in state["isr"]:
            committed.joined(id)
        for id, partition in whole.items():
            proof = state["isr_epochs"].get(str(id), -1)
            if proof == nodes[id].broker.incarnation and proof > self.states.lossy_until.get(id, -1):
                committed.must_hold(id, partition, "I2")

    def leader(self, tp: TopicPartition) -> int:
        """The leader in ZooKeeper; -1 if there is none."""
        state = self.states.latest.get(tp)
        return -1 if state is None else int(state["leader"])

    def incarnation(self, id: int) -> int:
        """The latest incarnation of this broker."""
        return self.states.incarnation(id)

    def may_cut(self, id: int, partition: Partition) -> bool:
        """Whether a replica may truncate below its high watermark: the leader lacks proof or is compacted."""
        committed = self.committed.get(partition.tp)
        if committed is None or not self._is_of_today(partition):
            is_another = committed is not None
            return is_another or partition.tp in self.unproven or self._is_behind_compaction(id, partition)
        return partition.recovering or not committed.counts(id)

    def _is_behind_compaction(self, id: int, partition: Partition) -> bool:
        """Whether the leader's compacted log may lack epochs that this replica knows.

        A replica that copied the log when compaction had left no record of an epoch has never heard of that
        epoch. A member of the ISR has the newest epoch of what was compacted.
        """
        state = self.states.latest.get(partition.tp)
        return partition.log.config.compacted and state is not None and id not in state["isr"]

    def holds(self, id: int, tp: TopicPartition, state: State) -> bool:
        """Whether a member of this ISR is up, readable, and has lost no data since it joined."""
        node = self.cluster.nodes.get(id)
        partition = node.broker.replicas.find(tp) if node else None
        proof = state["isr_epochs"].get(str(id), -1)
        return (
            partition is not None
            and self._is_readable(id, partition)
            and proof > self.states.lossy_until.get(id, -1)
        )

    def let_go(self, tp: TopicPartition, start: int) -> None:
        """Retention has removed records before `start`; no log may start later than this."""
        self.starts[tp] = max(start, self.starts.get(tp, 0))

    def lost_data(self, id: int) -> None:
        """A power loss may have taken unflushed data of this broker."""
        self.states.lost_data(id)

    def flushed(self) -> dict[tuple[TopicPartition, int], set[int]]:
        """Flushed records of the brokers that run and are in sync: (partition, offset) -> numbers.

        Only replicas in the ISR count. Another one may have flushed the same number at the same offset, sent
        to a deposed leader. Its batch has an older epoch; it is truncated if the next leader lacks it.
        """
        found: dict[tuple[TopicPartition, int], set[int]] = {}
        for tp in self.ledger.partitions:
            isr = self.states.latest[tp]["isr"] if tp in self.states.latest else ()
            for id, partition in self._replicas(tp).items():
                end = partition.log.flushed_offset if id in isr else 0
                for offset, number in numbers(whole(partition.log)).items():
                    if offset < end:
                        found.setdefault((tp, offset), set()).add(number)
        return found

    def spares(self, id: int, lossy: tuple[int, int] | None) -> bool:
        """Whether b`id` may lose data: all ISRs have another member, and the broker that lost data last."""
        partitions = [tp for tp in self.states.latest if tp.topic in INTERNAL_TOPICS]
        states = [self.states.latest.get(tp) for tp in [*self.ledger.partitions, *partitions]]
        if any(state is None or not set(state["isr"]) - {id} for state in states):
            return False
        return lossy is None or all(self._has_recovered(*lossy, state) for state in states if state)

    def _has_recovered(self, id: int, before: int, state: State) -> bool:
        return id in state["isr"] and bool(state["isr_epochs"].get(str(id), -1) > before)

    def _partitions(self, id: int) -> list[Partition]:
        hosted = self.cluster.nodes[id].broker.replicas.partitions
        return [hosted[tp] for tp in sorted(hosted)]

    def is_whole(self) -> bool:
        """Whether every broker serves and every replica of the topic is in its ISR."""
        states = [self.states.latest.get(tp) for tp in self.ledger.partitions]
        return len(self.cluster.nodes) == 3 and all(
            state is not None and len(state["isr"]) == 3 and state["leader"] != -1 for state in states
        )

"""Liveness under faults: a partition whose replicas reach each other and ZooKeeper must be served.

While the set of faults stays the same, a partition must acknowledge within a bound if enough members of its
ISR are up and reach each other and ZooKeeper, and its leader is one of them, or is so far gone that another
one will be elected. Faults in quick succession leave no time for that; those of the family `parted` do.
Left to others: what happens to links (`environment/network.py`), liveness after healing (`judging.py`).
"""

from __future__ import annotations

import asyncio
from itertools import combinations

from ...base.types import TopicPartition
from ..cluster import BROKERS, SimCluster
from ..trace import Violation
from .invariants import Checks
from .ledger import Ledger
from .states import State

LOOK_EVERY_S = 0.25
WITHIN_S = 8.0
"""Sessions end after 2 s, followers are late after 1.5 s, a controller in doubt resigns after 1 s."""
MIN_ISR = 2


class Liveness:
    """Checks that every partition that could be served is served."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, checks: Checks, patience_ms: int) -> None:
        """`patience_ms`: the producer's request timeout."""
        self.cluster, self.ledger, self.checks = cluster, ledger, checks
        self.patience_s = WITHIN_S + patience_ms / 1000
        self.judged = 0  # how many checks found a partition that had to be served, and was
        self._links: object = None
        self._since = 0.0
        self._able: set[TopicPartition] = set()

    def begin(self) -> None:
        """Check again and again until the world ends."""
        self.cluster.loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        try:
            self._look()
        except Violation as violation:
            self.cluster.trace.fail(violation)
            return
        self.begin()

    def _look(self) -> None:
        links = self.hindrances()
        now = self.cluster.loop.now
        if links != self._links:
            self._links, self._since = links, now
            self._able = {tp for tp in self.ledger.partitions if self._could_go_on(tp)}
            return
        for tp in sorted(self._able):
            waits_since = self.ledger.oldest_open(tp)
            since = max(self._since, self.ledger.answered_s.get(tp, 0.0))
            if waits_since is not None and now - max(since, waits_since) > self.patience_s:
                raise Violation(
                    f"liveness: {tp} has acknowledged nothing for {now - since:.1f} s, although "
                    f"{self._why(tp)}"
                )
            self.judged += self._since < now - self.patience_s

    def hindrances(self) -> object:
        """All that may hinder: which brokers run, which links are cut, which disks and sessions fail."""
        cluster = self.cluster
        network, now = cluster.loop.network, cluster.loop.now
        return (
            tuple((id, node.broker.incarnation) for id, node in sorted(cluster.nodes.items())),
            tuple(sorted(host.name for host in cluster.hosts.values() if host.stopped or host.is_leaving)),
            tuple(sorted(network.cuts)),
            tuple(sorted(network.refused)),
            tuple(sorted(network.vanished)),
            tuple(id for id, zk in sorted(cluster.zk_clients.items()) if zk.is_troubled(now)),
            tuple(id for id, disk in sorted(cluster.disks.items()) if disk.is_full or disk.is_troubled),
            tuple(sorted(cluster.loop.slow)),
            cluster.zookeeper.grace_s,
        )

    def _could_go_on(self, tp: TopicPartition) -> bool:
        state = self.checks.states.latest.get(tp)
        return state is not None and any(
            self._can_serve(tp, state, set(group))
            for size in (3, 2)
            for group in combinations(BROKERS, size)
            if all(self.is_well(id) for id in group) and self._reach_each_other(group)
        )

    def _can_serve(self, tp: TopicPartition, state: State, group: set[int]) -> bool:
        """Whether this group has enough of the ISR, and the leader is in it, or will be replaced."""
        checks, leader = self.checks, state["leader"]
        whole = {id for id in group & set(state["isr"]) if checks.holds(id, tp, state)}
        return len(whole) >= MIN_ISR and (leader in whole or self._will_be_replaced(leader))

    def is_well(self, id: int) -> bool:
        host, disk = self.cluster.hosts.get(id), self.cluster.disks[id]
        return (
            host is not None
            and id in self.cluster.nodes
            and not (host.stopped or host.is_leaving or host.name in self.cluster.loop.slow)
            and not (disk.is_full or disk.is_troubled)
            and self._reaches_zookeeper(id)
        )

    def _reaches_zookeeper(self, id: int) -> bool:
        zk = self.cluster.zk_clients[id]
        return not (zk.is_troubled(self.cluster.loop.now) or zk.is_cut())

    def _will_be_replaced(self, id: int) -> bool:
        """Whether its session will end. Not if it reads stale data, or is cut only from other brokers."""
        host = self.cluster.hosts.get(id)
        return host is None or host.stopped or self.cluster.zk_clients[id].is_cut()

    def _reach_each_other(self, group: tuple[int, ...]) -> bool:
        network = self.cluster.loop.network
        pairs = {(f"b{a}", f"b{b}") for a in group for b in group if a != b}
        return not (pairs & network.cuts or pairs & network.refused)

    def _why(self, tp: TopicPartition) -> str:
        state = self.checks.states.latest.get(tp)
        return f"nothing has changed since {self._since:.1f} s: {self._links}; its state is {state}"

    async def wait_served(self, within_s: float) -> None:
        """Wait until each partition with an intact ISR member has a leader that can be written to."""
        deadline = self.cluster.loop.now + within_s
        while unserved := [tp for tp in self.ledger.partitions if not self._is_served(tp)]:
            if self.cluster.loop.now > deadline:
                raise Violation(
                    f"liveness: {unserved[0]} has no leader to write to, although an intact ISR member is up"
                )
            await asyncio.sleep(0.1)

    def _is_served(self, tp: TopicPartition) -> bool:
        checks, nodes = self.checks, self.cluster.nodes
        state = checks.states.latest.get(tp)
        if state is None:
            return False
        able = [id for id in state["isr"] if id in nodes and checks.holds(id, tp, state)]
        leader = nodes[state["leader"]].broker.replicas.find(tp) if state["leader"] in nodes else None
        return not able or (leader is not None and leader.leading is not None and leader.offline is None)

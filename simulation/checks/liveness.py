"""Liveness under faults: a partition whose replicas reach each other and ZooKeeper must be served.

While the set of faults stays the same, a partition must acknowledge within a bound if enough members of its
ISR are up and reach each other and ZooKeeper, and its leader is one of them, or is so far gone that another
one will be elected. Faults in quick succession leave no time for that; those of the family `parted` do.
Left to others: what happens to links (`environment/network.py`), liveness after healing (`judging.py`).
"""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from .committed import Violation
from .states import State

if TYPE_CHECKING:
    from ..world import World

LOOK_EVERY_S = 0.25
WITHIN_S = 8.0
"""Sessions end after 2 s, followers are late after 1.5 s, a controller in doubt resigns after 1 s."""
BROKERS = (1, 2, 3)
MIN_ISR = 2


class Liveness:
    """Checks that every partition that could be served is served."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.judged = 0  # how many checks found a partition that had to be served, and was
        self._links: object = None
        self._since = 0.0
        self._able: set[TopicPartition] = set()
        self._acknowledged: dict[TopicPartition, float] = {}

    def begin(self) -> None:
        """Check again and again until the world ends."""
        self.world.loop.call_later(LOOK_EVERY_S, self._look_again)

    def acknowledged(self, tp: TopicPartition) -> None:
        """The producer has got an answer."""
        self._acknowledged[tp] = self.world.loop.now

    def _look_again(self) -> None:
        try:
            self._look()
        except Violation as violation:
            self.world.checks.fail(violation)
            return
        self.begin()

    def _look(self) -> None:
        links = self._picture()
        now = self.world.loop.now
        if links != self._links:
            self._links, self._since = links, now
            self._able = {tp for tp in self.world.workload.partitions if self._could_go_on(tp)}
            return
        patience_s = WITHIN_S + self.world.patience_ms / 1000
        for tp in sorted(self._able):
            waits_since = self.world.workload.oldest_open(tp)
            since = max(self._since, self._acknowledged.get(tp, 0.0))
            if waits_since is not None and now - max(since, waits_since) > patience_s:
                raise Violation(
                    f"liveness: {tp} has acknowledged nothing for {now - since:.1f} s, though {self._why(tp)}"
                )
            self.judged += self._since < now - patience_s

    def _picture(self) -> object:
        """All that may hinder: which brokers run, which links are cut, which disks and sessions fail."""
        world = self.world
        network, now = world.loop.network, world.loop.now
        return (
            tuple((id, node.broker.incarnation) for id, node in sorted(world.nodes.items())),
            tuple(sorted(host.name for host in world.hosts.values() if host.stopped or host.is_leaving)),
            tuple(sorted(network.cuts)),
            tuple(sorted(network.refused)),
            tuple(sorted(network.vanished)),
            tuple(id for id, zk in sorted(world.zk_clients.items()) if zk.is_troubled(now)),
            tuple(id for id, disk in sorted(world.disks.items()) if disk.is_full or disk.is_troubled),
            tuple(sorted(world.loop.slow)),
            world.zookeeper.grace_s,
        )

    def _could_go_on(self, tp: TopicPartition) -> bool:
        state = self.world.checks.states.latest.get(tp)
        return state is not None and any(
            self._can_serve(tp, state, set(group))
            for size in (3, 2)
            for group in combinations(BROKERS, size)
            if all(self._is_well(id) for id in group) and self._reach_each_other(group)
        )

    def _can_serve(self, tp: TopicPartition, state: State, group: set[int]) -> bool:
        """Whether this group has enough of the ISR, and the leader is in it, or will be replaced."""
        checks, leader = self.world.checks, state["leader"]
        whole = {id for id in group & set(state["isr"]) if checks.holds(id, tp, state)}
        return len(whole) >= MIN_ISR and (leader in whole or self._will_be_replaced(leader))

    def _is_well(self, id: int) -> bool:
        host, disk = self.world.hosts.get(id), self.world.disks[id]
        return (
            host is not None
            and id in self.world.nodes
            and not (host.stopped or host.is_leaving or host.name in self.world.loop.slow)
            and not (disk.is_full or disk.is_troubled)
            and self._reaches_zookeeper(id)
        )

    def _reaches_zookeeper(self, id: int) -> bool:
        zk = self.world.zk_clients[id]
        return not (zk.is_troubled(self.world.loop.now) or zk.is_cut())

    def _will_be_replaced(self, id: int) -> bool:
        """Whether its session will end. Not if it reads stale data, or is cut only from other brokers."""
        host = self.world.hosts.get(id)
        return host is None or host.stopped or self.world.zk_clients[id].is_cut()

    def _reach_each_other(self, group: tuple[int, ...]) -> bool:
        network = self.world.loop.network
        pairs = {(f"b{a}", f"b{b}") for a in group for b in group if a != b}
        return not (pairs & network.cuts or pairs & network.refused)

    def _why(self, tp: TopicPartition) -> str:
        state = self.world.checks.states.latest.get(tp)
        return f"since {self._since:.1f} s {self._links} stands; its state is {state}"

    async def wait_served(self, within_s: float) -> None:
        """Wait until each partition with an intact ISR member has a leader that can be written to."""
        deadline = self.world.loop.now + within_s
        while unserved := [tp for tp in self.world.workload.partitions if not self._is_served(tp)]:
            if self.world.loop.now > deadline:
                raise Violation(
                    f"liveness: {unserved[0]} is not served, and a directory's failure is no reason"
                )
            await asyncio.sleep(0.1)

    def _is_served(self, tp: TopicPartition) -> bool:
        checks, nodes = self.world.checks, self.world.nodes
        state = checks.states.latest.get(tp)
        if state is None:
            return False
        able = [id for id in state["isr"] if id in nodes and checks.holds(id, tp, state)]
        leader = nodes[state["leader"]].broker.replicas.find(tp) if state["leader"] in nodes else None
        return not able or (leader is not None and leader.leading is not None and leader.offline is None)

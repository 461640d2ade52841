"""Worlds in which the controller reaches nobody but ZooKeeper: the others must go on, untouched.

Its peers refuse it, or nothing passes in either direction; so it is for the clients. What others lead they go
on to acknowledge: judged while it lasts, not after everything has healed. (The lag time of a world is 1.5 s:
so long a record waits for a follower that is not heard any more.)
"""

import asyncio

import pytest

from strandline.base.types import TopicPartition
from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World

CUT_S = 60.0
GAP_S_MAX = 5.0
MIN_ISR = 2
LOOK_S = 0.05


class Minority(World):
    """Nothing else happens in it."""

    def __init__(self, seed: int, refuses: bool) -> None:
        super().__init__(seed, FAMILIES["plain"])
        self.refuses = refuses
        self.alone = 0
        self.gap_s: dict[TopicPartition, float] = {}  # the longest, of each partition
        self.leaders: list[dict[TopicPartition, int]] = []
        self.smallest = len(BROKERS)  # ISR of a partition that others lead
        self.terms = 0

    async def story(self) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        await self.workload.begin()
        self.checks.begin()
        await asyncio.sleep(5)
        self.alone = next(id for id, node in self.cluster.nodes.items() if node.broker.controller.active)
        before = self.epoch()
        self.cut()
        await self.watch(self.loop.now + CUT_S)
        self.terms = self.epoch() - before
        self.loop.network.heal()
        await self.judging.wait_healed(90)
        await self.workload.finish()
        await self.judging.judge()

    def cut(self) -> None:
        network, me = self.loop.network, f"b{self.alone}"
        for other in BROKERS:
            if other != self.alone:
                (network.refuse if self.refuses else network.cut)(me, f"b{other}")
        for client in ("producer", "reader", "admin"):
            network.cut(client, me)

    async def watch(self, until: float) -> None:
        told, told_at = dict[TopicPartition, int](), dict[TopicPartition, float]()
        while self.loop.now < until:
            latest = self.checks.states.latest
            self.leaders.append({q: latest[q]["leader"] for q in self.ledger.partitions})
            for q in self.ledger.partitions:
                if latest[q]["leader"] != self.alone:
                    self.smallest = min(self.smallest, len(latest[q]["isr"]))
                count = sum(place == q for place, _ in self.ledger.acknowledged)
                if count != told.get(q):
                    told[q], told_at[q] = count, self.loop.now
                self.gap_s[q] = max(self.gap_s.get(q, 0.0), self.loop.now - told_at[q])
            await asyncio.sleep(LOOK_S)

    def epoch(self) -> int:
        return int(self.cluster.zookeeper.nodes["/controller_epoch"].data)


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "silent"])
@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_is_cut_off_stops_nobody(seed: int, refuses: bool) -> None:
    world = Minority(seed, refuses)
    outcome = world.run()
    assert outcome.violation is None
    assert all(leaders == world.leaders[0] for leaders in world.leaders), "nobody was moved"
    led_by_others = [q for q, leader in world.leaders[0].items() if leader != world.alone]
    assert led_by_others
    for q in led_by_others:
        assert world.gap_s[q] < GAP_S_MAX, f"{q} stood still"
    assert world.smallest >= MIN_ISR
    assert 1 <= world.terms <= 2, "the role goes to one who reaches the others, and stays there"
    successor = world.cluster.zookeeper.nodes["/controller"].data
    assert f'"brokerid":{world.alone}' not in successor.decode().replace(" ", "")

"""A controller reaches one broker no more, though all others do, and ZooKeeper. It goes on to rule.

Cut off is a leader; then a third broker is killed. The controller takes it out of the ISR, in an epoch that
the leader is not told. When it is back, two brokers that reach each other and ZooKeeper hold what that leader
leads, and it is to be written, not only when the cut has healed. (The lag time of a world is 1.5 s.)
"""

import asyncio

import pytest

from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World

CUT_S = 40.0
SERVED_WITHIN_S = 12.0  # after the third is back
KILLED_AFTER_S = 2.0  # the controller knows by then that it does not reach the leader


class Partial(World):
    """Nothing else happens in it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, FAMILIES["plain"])
        self.acknowledged_by = 0  # the leader, in the last part of the cut
        self.leaders: set[int] = set()

    async def story(self) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        await self.workload.begin()
        self.checks.begin()
        await asyncio.sleep(5)
        ruler = next(id for id, node in self.cluster.nodes.items() if node.broker.controller.active)
        latest = self.checks.states.latest
        place = next(q for q in self.ledger.partitions if latest[q]["leader"] != ruler)
        leader = latest[place]["leader"]
        third = next(id for id in BROKERS if id not in (ruler, leader))
        self.loop.network.cut(f"b{ruler}", f"b{leader}")
        await asyncio.sleep(KILLED_AFTER_S)
        self.cluster.crash(third)
        self.cluster.forget_session(third)
        await asyncio.sleep(1)
        self.cluster.start(third)
        await asyncio.sleep(SERVED_WITHIN_S)
        before = self.count(place)
        await asyncio.sleep(CUT_S - SERVED_WITHIN_S)
        self.acknowledged_by = self.count(place) - before
        self.leaders = {latest[place]["leader"], leader}
        self.loop.network.heal()
        await self.judging.wait_healed(90)
        await self.workload.finish()
        await self.judging.judge()

    def count(self, place: object) -> int:
        return sum(q == place for q, _ in self.ledger.acknowledged)


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_the_controller_does_not_reach_leads_on_in_the_epoch_it_was_not_told(seed: int) -> None:
    world = Partial(seed)
    outcome = world.run()
    assert outcome.violation is None
    assert len(world.leaders) == 1, "nobody else was elected"
    assert world.acknowledged_by > 10

"""The demo's failover: a leader killed under load, and what clients see of it.

Times are seconds since the demo began to produce. Leaders and in-sync replicas are those in metadata.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...client.admin.admin import Admin
from ...client.admin.descriptions import TopicDescription
from ...local.cluster import LocalCluster
from .verdict import AckLog

WATCH_EVERY_S = 0.02
WATCH_AT_MOST_S = 30.0


@dataclass
class Gaps:
    """The longest time between two acknowledgements: of all partitions, and of those whose leader died."""

    all_s: float = 0.0
    struck_s: float = 0.0
    over_at: float = 0.0  # when the longest gap of the struck partitions ended
    struck: frozenset[int] = frozenset()
    _last: float | None = None
    _last_of_struck: float | None = None

    def acknowledged(self, partition: int, at_s: float) -> None:
        """Note an acknowledgement."""
        if self._last is not None:
            self.all_s = max(self.all_s, at_s - self._last)
        self._last = at_s
        if partition in self.struck:
            if self._last_of_struck is not None and at_s - self._last_of_struck > self.struck_s:
                self.struck_s, self.over_at = at_s - self._last_of_struck, at_s
            self._last_of_struck = at_s


@dataclass
class Accident:
    """One killed broker: when, who, and the ISR before, during and after."""

    topic: str
    cluster: LocalCluster
    controller_too: bool
    acks: AckLog
    began: float
    gaps: Gaps = field(default_factory=Gaps)
    victim: int = -1
    new_controller: int = -1
    events: list[tuple[float, str]] = field(default_factory=list)
    isr: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    killed_at: float = 0.0

    @property
    def now(self) -> float:
        return time.perf_counter() - self.began

    def note(self, what: str) -> None:
        self.events.append((self.now, what))

    def acknowledged(self, number: int, partition: int, offset: int) -> None:
        """An acknowledgement has come: write it to the file at once."""
        at_s = self.now
        self.acks.write(number, partition, offset, at_s)
        self.gaps.acknowledged(partition, at_s)

    async def choose(self, admin: Admin) -> None:
        """Choose the broker to kill: a leader other than the controller or, if drawn, the controller."""
        cluster = await admin.describe_cluster()
        (described,) = await admin.describe_topics([self.topic])
        leaders = {one.leader for one in described.partitions}
        others = sorted(leaders - {cluster.controller_id})
        self.victim = cluster.controller_id if self.controller_too else random.choice(others)
        self.gaps.struck = frozenset(p.partition for p in described.partitions if p.leader == self.victim)
        self.isr["before"] = isr_of(described)

    async def strike(self, admin: Admin) -> None:
        """Kill, and watch until every partition has a new leader."""
        await asyncio.to_thread(self.cluster.brokers[self.victim].kill)
        self.killed_at = self.now
        role = "controller and leader" if self.controller_too else "leader"
        self.note(f"broker {self.victim} killed with SIGKILL: {role} of {len(self.gaps.struck)} partitions")
        deadline = self.now + WATCH_AT_MOST_S
        while self.now < deadline:
            (described,) = await admin.describe_topics([self.topic])
            leaders = [one.leader for one in described.partitions]
            if self.victim not in leaders and min(leaders) >= 0:
                break
            await asyncio.sleep(WATCH_EVERY_S)
        self.note("every partition has a leader again")
        self.isr["during"] = isr_of(described)
        self.new_controller = (await admin.describe_cluster()).controller_id
        if self.controller_too:
            self.note(f"broker {self.new_controller} is the controller")

    async def recover(self, admin: Admin, wait_s: float = 60.0) -> bool:
        """Restart the killed broker, and wait until every ISR is full. False if that takes too long."""
        self.note(f"broker {self.victim} restarted")
        self.cluster.brokers[self.victim].start()
        deadline = self.now + wait_s
        while self.now < deadline:
            (described,) = await admin.describe_topics([self.topic])
            if all(len(one.isr) == len(one.replicas) for one in described.partitions):
                self.note("every ISR is full again")
                self.isr["after"] = isr_of(described)
                return True
            await asyncio.sleep(WATCH_EVERY_S)
        self.isr["after"] = isr_of(described)
        return False


def isr_of(described: TopicDescription) -> dict[int, tuple[int, ...]]:
    """The in-sync replicas of each partition, in order of their ids."""
    return {one.partition: tuple(sorted(one.isr)) for one in described.partitions}


def compact(isr: Iterable[tuple[int, ...]]) -> str:
    """Equal sets written once with their count: `1,2,3 ×12`."""
    sets = [",".join(map(str, one)) for one in isr]
    return "  ".join(f"{one} ×{sets.count(one)}" for one in sorted(set(sets)))

"""Where a cell is tried: a cluster of three broker processes, one of which is killed at the right moment.

Left to others: what is tried (features.py).
"""

import time
import uuid
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from driving import until

from strandline.broker.coordinator_partitions import partition_of
from strandline.client.sync import Admin
from strandline.testing import LocalCluster
from tests.conformance.matrix.declared import COORDINATOR, LEADER

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
INTERNAL_PARTITIONS = 50
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",  # the leader moves when we say so
}


class Scene:
    """A cell's own part of the cluster. `gap_s` is what the client saw of the kill."""

    def __init__(self, cluster: LocalCluster, driver: Any, ours: Any, event: str) -> None:
        self.cluster, self.driver, self.ours, self.event = cluster, driver, ours, event
        self.name = uuid.uuid4().hex[:12]
        self.struck_at: float | None = None
        self.gap_s: float | None = None

    @property
    def kills(self) -> bool:
        """Whether a broker dies in this cell."""
        return self.event in (LEADER, COORDINATOR)

    def topic(self, partitions: int) -> str:
        """A new topic on all three brokers."""
        name = f"matrix-{self.name}"
        self.ours.create_topic(name, partitions)
        return name

    def apart(self, topic: str, internal: str, name: str) -> str:
        """A name like this that is coordinated by another broker than leads partition 0 of the topic."""
        leader = self.cluster.leader(topic, 0)
        names = (f"{name}-{n}" for n in range(INTERNAL_PARTITIONS * 10))
        return next(
            one
            for one in names
            if self.cluster.leader(internal, partition_of(one, INTERNAL_PARTITIONS)) != leader
        )

    def strike(self, topic: str, internal: str, of: str) -> None:
        """Kill who leads partition 0 of the topic, or who coordinates `of`; return when another one does."""
        place = (topic, 0) if self.event == LEADER else (internal, partition_of(of, INTERNAL_PARTITIONS))
        if not self.kills:
            return
        victim = self.cluster.leader(*place)
        self.cluster.brokers[victim].kill()
        self.struck_at = time.monotonic()
        until(lambda: self.cluster.leader(*place) not in (victim, -1), "another broker leads")

    def done(self) -> None:
        """What the client was to do after the kill is done: the gap has ended."""
        if self.struck_at is not None:
            self.gap_s = time.monotonic() - self.struck_at

    def silent(self, lines: Iterable[Iterable[float]]) -> None:
        """The gap is the longest silence in any of these lines of events since the kill."""
        if self.struck_at is None:
            return
        since = self.struck_at
        silences = []
        for line in lines:
            times = [since, *sorted(at for at in line if at > since)]
            silences += [later - earlier for earlier, later in pairwise(times)]
        self.gap_s = max(silences, default=None)

    def heal(self) -> None:
        """Start who was killed, and wait until every replica is in sync again."""
        for broker in self.cluster.brokers.values():
            if not broker.alive:
                broker.start()
        self.cluster.wait_ready()
        with Admin(self.cluster.bootstrap) as admin:

            def whole() -> bool:
                topics = admin.describe_topics(admin.list_topics(internal=True))
                return all(set(one.isr) == set(one.replicas) for told in topics for one in told.partitions)

            until(whole, "every replica is in sync again")

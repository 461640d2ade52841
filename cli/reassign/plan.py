"""Plans a reassignment to given brokers with few moves, and reads and writes the plan as JSON. Pure.

A replica on a chosen broker stays; those of other brokers go to the chosen ones with fewest. Then, as long as
one broker has two replicas more than another, one moves from the fuller to the emptier, if possible of a
topic that becomes more even by it. Then preferred leaders are spread evenly. If all these brokers have racks,
the plan is as rack-aware as Kafka's algorithm for new topics (controller/planning/placement.py): a partition
is on as many racks as there are, or has a rack for each replica. Kafka's own tool would move everything.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base.types import TopicPartition
from ...controller.planning.placement import Racks, told_racks
from ..console import WrongUsage

Targets = dict[TopicPartition, tuple[int, ...]]


def proposed(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Iterable[int], racks: Racks | None = None
) -> Targets:
    """For each partition as many replicas as it has now, all on these brokers; `racks` by broker."""
    chosen = sorted(set(brokers))
    known = told_racks({broker: (racks or {}).get(broker) for broker in chosen})
    of = {broker: known.get(broker, "") for broker in chosen}
    most = max((len(replicas) for replicas in current.values()), default=0)
    if most > len(chosen):
        raise WrongUsage(
            f"{len(chosen)} brokers are to hold them: a partition with {most} replicas needs at least {most}"
        )
    spread = _Spread(of)
    for partition, replicas in sorted(current.items()):
        spread.keep(partition, replicas)
    for partition, replicas in sorted(current.items()):
        spread.fill(partition, len(replicas))
    spread.even_out()
    led: Counter[int] = Counter()
    plan: Targets = {}
    for partition, replicas in spread.kept.items():
        leader = min(replicas, key=lambda r: led[r])
        led[leader] += 1
        plan[partition] = (leader, *(r for r in replicas if r != leader))
    return plan


class _Spread:
    """Who holds what so far. `rack_of` has the chosen brokers."""

    def __init__(self, rack_of: Mapping[int, str]) -> None:
        self.kept: dict[TopicPartition, list[int]] = {}
        self._rack_of = rack_of
        self._racks = len(set(rack_of.values()))
        self._held = Counter(dict.fromkeys(rack_of, 0))
        self._of_topic: Counter[tuple[int, str]] = Counter()  # by broker and topic

    def keep(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Who may stay stays: on a chosen broker, and with no more on a rack than must be."""
        may_share = len(replicas) - min(len(replicas), self._racks)  # a rack with another replica
        used: set[str] = set()
        stays = self.kept[partition] = []
        for r in replicas:
            rack = self._rack_of.get(r)
            if rack is not None and (rack not in used or len(stays) - len(used) < may_share):
                self._place(partition, r)
                used.add(rack)

    def fill(self, partition: TopicPartition, count: int) -> None:
        """Give the partition so many replicas, on those who have fewest."""
        replicas = self.kept[partition]
        while len(replicas) < count:
            used = {self._rack_of[r] for r in replicas}
            free = (
                b
                for b, rack in self._rack_of.items()
                if b not in replicas and (rack not in used or len(used) == self._racks)
            )
            self._place(
                partition, min(free, key=lambda b: (self._held[b], self._of_topic[b, partition.topic], b))
            )

    def even_out(self) -> None:
        """Move single replicas until no broker has two more than another that could take one: first where
        that evens their topic out, too, then where its topic is no worse for it, at last anywhere.
        """
        for least in (2, 1, -len(self.kept)):
            while sum(self._relieve(partition, least) for partition in self.kept):
                pass

    def _relieve(self, partition: TopicPartition, least: int) -> bool:
        """Move a replica from a broker that has two more than another, and `least` more of the topic."""
        replicas = self.kept[partition]
        fewest = sorted(self._held, key=lambda b: (self._held[b], self._of_topic[b, partition.topic], b))
        for high in reversed([b for b in fewest if b in replicas]):
            for low in fewest:
                more = self._of_topic[high, partition.topic] - self._of_topic[low, partition.topic]
                if self._held[high] - self._held[low] < 2:
                    break
                if more >= least and self._may_take_over(replicas, high, low):
                    replicas.remove(high)
                    self._count(partition, high, -1)
                    self._place(partition, low)
                    return True
        return False

    def _may_take_over(self, replicas: Sequence[int], high: int, low: int) -> bool:
        if high not in replicas or low in replicas:
            return False
        racks = {self._rack_of[low], *(self._rack_of[r] for r in replicas if r != high)}
        return len(racks) >= min(len(replicas), self._racks)

    def _place(self, partition: TopicPartition, broker: int) -> None:
        self.kept[partition].append(broker)
        self._count(partition, broker, 1)

    def _count(self, partition: TopicPartition, broker: int, change: int) -> None:
        self._held[broker] += change
        self._of_topic[broker, partition.topic] += change


def written(targets: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The plan in the format of Kafka's tool."""
    entries = [
        {
            "topic": q.topic,
            "partition": q.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for q, replicas in sorted(targets.items())
    ]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":"))


def read(text: str, name: str) -> Targets:
    """Parse a plan in the format of Kafka's tool. Raises WrongUsage."""
    try:
        document = json.loads(text)
        targets = _targets(document)
    except (ValueError, KeyError, TypeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else error
        raise WrongUsage(f'{name} is not a plan: expected {{"version":1,"partitions":[…]}}: {why}') from None
    if not targets:
        raise WrongUsage(f"{name}: the plan has no partitions")
    return targets


def _targets(document: Any) -> Targets:
    targets: Targets = {}
    for entry in document["partitions"]:
        partition = TopicPartition(str(entry["topic"]), int(entry["partition"]))
        if partition in targets:
            raise ValueError(f"{partition} is in the plan twice")
        targets[partition] = tuple(int(replica) for replica in entry["replicas"])
    return targets

"""Plans a reassignment to given brokers with few moves, and reads and writes the plan as JSON. Pure.

A chosen broker that has a replica keeps it, up to its share; the other replicas go to the brokers with
fewest. Then preferred leaders are spread evenly. If all these brokers have racks, the plan is as rack-aware
as Kafka's algorithm for new topics (controller/planning/placement.py): a partition is on as many racks as
there are, or has a rack for each replica. Kafka's own tool would move everything for that.
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
    there = len(set(of.values()))
    most = max((len(replicas) for replicas in current.values()), default=0)
    if most > len(chosen):
        raise WrongUsage(
            f"--brokers names {len(chosen)} brokers: a partition with {most} replicas needs at least {most}"
        )
    share = -(-sum(len(replicas) for replicas in current.values()) // max(1, len(chosen)))
    held: Counter[int] = Counter()
    kept: dict[TopicPartition, list[int]] = {}
    for partition, replicas in sorted(current.items()):
        may_share = len(replicas) - min(len(replicas), there)  # a rack with another replica
        used: set[str] = set()
        stays = kept[partition] = []
        for r in replicas:
            if r in of and held[r] < share and (of[r] not in used or len(stays) - len(used) < may_share):
                stays.append(r)
                used.add(of[r])
        held.update(stays)
    for partition, replicas in kept.items():
        while len(replicas) < len(current[partition]):
            used = {of[r] for r in replicas}
            free = (b for b in chosen if b not in replicas and (of[b] not in used or len(used) == there))
            fewest = min(free, key=lambda b: (held[b], b))
            replicas.append(fewest)
            held[fewest] += 1
    led: Counter[int] = Counter()
    plan: Targets = {}
    for partition, replicas in kept.items():
        leader = min(replicas, key=lambda r: led[r])
        led[leader] += 1
        plan[partition] = (leader, *(r for r in replicas if r != leader))
    return plan


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
        raise WrongUsage(
            f'{name} is not a plan: expected {{"version":1,"partitions":[…]}}: {error!r}'
        ) from None
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

"""Which brokers get the replicas of new partitions, by Kafka's algorithm. Pure.

First replicas go round the brokers from a random one on. The others follow with a shift that grows with each
round, so that no two brokers share all their partitions. With racks the brokers are taken from one rack after
the other, and a partition's replicas are on as many racks as there are, or on a rack each.
Without the random start every topic would begin at the lowest id: thirty topics of one partition had all
their leaders on one broker.
Sources: AdminUtils.assignReplicasToBrokers and AdminZkClient.createNewPartitionsAssignment of Kafka 3.9, with
RackAwareMode.Safe: while not every broker says its rack, none counts, so that topics can be created while
racks are being introduced.
Left to others: replicas that a client chose, and moving ones (assignment.py), plans (cli/reassign/plan.py).
Why: docs/decisions/0046-replicas-on-racks.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...base.values import dataclass
from ...protocol.errors import InvalidPartitions, InvalidReplicationFactor
from .assignment import PARTITIONS_MAX, Replicas

Racks = Mapping[int, str | None]  # by broker


@dataclass(frozen=True, slots=True)
class PlacementStart:
    """Where to begin among the brokers: the place of the first replica of partition 0, and by how much the
    others are shifted against it at first."""

    first: int = 0
    shift: int = 0


AT_THE_FIRST = PlacementStart()


def anywhere(brokers: int, random_bytes: Callable[[int], bytes]) -> PlacementStart:
    """A random start among so many brokers, for a new topic."""

    def drawn() -> int:
        return int.from_bytes(random_bytes(8)) % max(brokers, 1)

    return PlacementStart(drawn(), drawn())


def where_it_stopped(brokers: Iterable[int], first_replica: int) -> PlacementStart:
    """The start of a topic that grows, as Kafka guesses it from the first replica of its partition 0."""
    ids = sorted(brokers)
    place = next((place for place, broker in enumerate(ids) if broker >= first_replica), 0)
    return PlacementStart(place, place)


def spread(
    racks: Racks, partitions: range, replication_factor: int, start: PlacementStart = AT_THE_FIRST
) -> Replicas:
    """Replicas for the partitions of this range. Raises InvalidPartitions, InvalidReplicationFactor."""
    if len(partitions) <= 0:
        raise InvalidPartitions("the number of partitions must be at least 1")
    if partitions.stop > PARTITIONS_MAX:
        raise InvalidPartitions(f"a topic has at most {PARTITIONS_MAX} partitions")
    if replication_factor <= 0:
        raise InvalidReplicationFactor("the replication factor must be at least 1")
    if replication_factor > len(racks):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} exceeds the {len(racks)} available brokers"
        )
    known = told_racks(racks)
    order = alternating(known) if known else sorted(racks)
    shift, found = start.shift, {}
    for number in partitions:
        if number > 0 and number % len(order) == 0:
            shift += 1
        found[number] = _replicas(
            order, known, (number + start.first) % len(order), shift, replication_factor
        )
    return found


def told_racks(racks: Racks) -> dict[int, str]:
    """The racks, if every broker says its own; else nothing."""
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    return known if len(known) == len(racks) else {}


def alternating(racks: Mapping[int, str]) -> list[int]:
    """The brokers in turn from each rack: with 0, 1, 2 in a, 3, 4 in b and 5 in c it is 0, 3, 5, 1, 4, 2."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = max((len(brokers) for brokers in by_rack.values()), default=0)
    return [
        by_rack[rack][turn] for turn in range(turns) for rack in sorted(by_rack) if turn < len(by_rack[rack])
    ]


def _replicas(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, factor: int
) -> tuple[int, ...]:
    """From the broker at place `first` on. A rack that has one is passed over until all racks have one."""
    rack_count = len(set(racks.values())) if racks else 1
    chosen = [order[first]]
    used = {racks[order[first]]} if racks else set()
    step = 0
    while len(chosen) < factor:
        behind = 1 + (shift * rack_count + step) % (len(order) - 1)
        broker = order[(first + behind) % len(order)]
        step += 1
        if broker in chosen or (racks and racks[broker] in used and len(used) < rack_count):
            continue
        chosen.append(broker)
        if racks:
            used.add(racks[broker])
    return tuple(chosen)

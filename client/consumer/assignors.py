"""Assignors: range, round robin, sticky, cooperative sticky. Pure.

A group's leader assigns partitions by one of them.
All take the members and the number of partitions per topic, and give every partition to exactly one of the
members that subscribe to its topic. The sticky ones leave partitions where they are as far as balance allows;
the cooperative one assigns a partition that has to move to nobody until its owner has revoked it.
Left to others: how members and assignments travel (group_protocol.py).
"""

from collections.abc import Callable, Iterable, Mapping

from ...base.types import TopicPartition
from ...base.values import dataclass

Assignment = dict[str, list[TopicPartition]]

STICKY, COOPERATIVE_STICKY = "sticky", "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """A member's subscription, as the group's leader knows it."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes = b""
    rack_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, each kind by name, as in Kafka."""
        return (True, self.member_id) if self.instance_id is None else (False, self.instance_id)


Assignor = Callable[[Iterable[SubscribedMember], Mapping[str, int]], Assignment]


def assign_range(members: Iterable[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Topic by topic: each member gets consecutive partitions; the first members get the remainder."""
    ordered = sorted(members, key=lambda member: member.order)
    given: Assignment = {member.member_id: [] for member in ordered}
    for topic in sorted(partitions):
        takers = [member for member in ordered if topic in member.topics]
        if not takers:
            continue
        share, rest = divmod(partitions[topic], len(takers))
        start = 0
        for place, member in enumerate(takers):
            end = start + share + (1 if place < rest else 0)
            given[member.member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return given


def assign_round_robin(members: Iterable[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Deal all partitions of all topics to the members in turn, skipping those that do not subscribe."""
    ordered = sorted(members, key=lambda member: member.order)
    given: Assignment = {member.member_id: [] for member in ordered}
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in ordered):
            continue
        for index in range(partitions[topic]):
            while topic not in ordered[turn % len(ordered)].topics:
                turn += 1
            given[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, index))
            turn += 1
    return given


def assign_sticky(members: Iterable[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Move as little as balance allows. All members have revoked what they had."""
    ordered = sorted(members, key=lambda member: member.order)
    given = _balance(ordered, partitions, _owners(ordered, partitions))
    return {member_id: sorted(mine) for member_id, mine in given.items()}


def assign_cooperative_sticky(
    members: Iterable[SubscribedMember], partitions: Mapping[str, int]
) -> Assignment:
    """Move as little as balance allows. What has to move is assigned to nobody for one generation."""
    ordered = sorted(members, key=lambda member: member.order)
    owners = _owners(ordered, partitions)
    given = _balance(ordered, partitions, owners)
    return {
        member_id: sorted(one for one in mine if owners.get(one, member_id) == member_id)
        for member_id, mine in given.items()
    }


def _owners(members: list[SubscribedMember], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who owns what now. If two members claim the same, the later generation wins; if equal, neither."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for one in member.owned:
            if one.topic not in member.topics or one.partition >= partitions.get(one.topic, 0):
                continue
            generation = best.get(one, (-2, None))[0]
            if member.generation > generation:
                best[one] = (member.generation, member.member_id)
            elif member.generation == generation:
                best[one] = (generation, None)
    return {one: owner for one, (_, owner) in best.items() if owner is not None}


def _balance(
    members: list[SubscribedMember], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[str, set[TopicPartition]]:
    given: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    rank = {member.member_id: place for place, member in enumerate(members)}
    takers = {topic: [one.member_id for one in members if topic in one.topics] for topic in partitions}
    homeless: list[TopicPartition] = []
    for topic in sorted(partitions):
        for index in range(partitions[topic]):
            one = TopicPartition(topic, index)
            if one in owners:
                given[owners[one]].add(one)
            elif takers[topic]:
                homeless.append(one)
    homeless.sort(key=lambda one: (len(takers[one.topic]), one))
    for one in homeless:
        given[min(takers[one.topic], key=lambda member: (len(given[member]), rank[member]))].add(one)
    while (move := _best_move(given, takers, rank)) is not None:
        one, source, target = move
        given[source].remove(one)
        given[target].add(one)
    return given


def _best_move(
    given: Mapping[str, set[TopicPartition]], takers: Mapping[str, list[str]], rank: Mapping[str, int]
) -> tuple[TopicPartition, str, str] | None:
    """A move that makes two members more equal: from the fullest to the emptiest that may take it."""
    for source in sorted(given, key=lambda member: (-len(given[member]), rank[member])):
        for target in sorted(given, key=lambda member: (len(given[member]), rank[member])):
            if len(given[source]) - len(given[target]) < 2:
                break
            movable = [one for one in given[source] if target in takers[one.topic]]
            if movable:
                return max(movable), source, target
    return None


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}
COOPERATIVE = frozenset({COOPERATIVE_STICKY})

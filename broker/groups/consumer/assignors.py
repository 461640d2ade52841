"""Assignors of the broker: who shall read which partitions. Pure, and the same input gives the same output.

`uniform` gives every member as many partitions as any other, and moves as few as it can. `range` gives each
member neighbouring partitions of every topic, so that topics with equally many partitions stay together.
A partition goes to a member that subscribes to its topic, to one only, and to one as long as there is any.
Left to others: when to assign (target.py). The assignors of groups whose members assign for themselves are in
client/consumer/assignors.py.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from ....base.values import dataclass
from .state import NO_PARTITIONS, Partitions

PASSES_MAX = 10  # over all topics, to balance members with different subscriptions

Partition: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member as assignors see it."""

    topics: frozenset[UUID]
    instance_id: str | None = None
    now: Partitions = NO_PARTITIONS  # its target so far


Assignor: TypeAlias = Callable[[Mapping[str, Assigned], Mapping[UUID, int]], dict[str, Partitions]]


def assign_range(members: Mapping[str, Assigned], counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    """Topic by topic: consecutive partitions for each member; the first members get the remainder."""
    ordered = sorted(members, key=lambda each: _order(each, members[each]))
    given: dict[str, list[Partition]] = {member_id: [] for member_id in ordered}
    for topic, count in counts.items():
        takers = [member_id for member_id in ordered if topic in members[member_id].topics]
        start = 0
        for place, member_id in enumerate(takers):
            end = start + count // len(takers) + (place < count % len(takers))
            given[member_id] += [(topic, number) for number in range(start, end)]
            start = end
    return {member_id: frozenset(mine) for member_id, mine in given.items()}


def assign_uniform(members: Mapping[str, Assigned], counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    """As equal as subscriptions allow, with as few moves as possible."""
    wanted = frozenset[UUID]().union(*(member.topics for member in members.values()))
    counts = {topic: count for topic, count in counts.items() if topic in wanted}
    given, free = _keep(members, counts)
    if len({member.topics for member in members.values()}) == 1:
        _level(given, free)
    else:
        takers = {topic: sorted(m for m in members if topic in members[m].topics) for topic in counts}
        _fill(given, free, takers)
        _even_out(given, takers)
    return {member_id: frozenset(mine) for member_id, mine in given.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _order(member_id: str, member: Assigned) -> tuple[bool, str]:
    """Static members first: their instance ids stay when they come back."""
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)


def _keep(
    members: Mapping[str, Assigned], counts: Mapping[UUID, int]
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """What each member may keep of what it has, and what nobody has, both in order."""
    taken: set[Partition] = set()
    given: dict[str, list[Partition]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        mine = [
            one
            for one in sorted(member.now)
            if one[0] in member.topics and one[1] < counts.get(one[0], 0) and one not in taken
        ]
        taken.update(mine)
        given[member_id] = mine
    everything = ((topic, number) for topic in sorted(counts) for number in range(counts[topic]))
    return given, [one for one in everything if one not in taken]


def _level(given: dict[str, list[Partition]], free: list[Partition]) -> None:
    """All members subscribe to the same topics: each gets the same share, some one partition more."""
    total = len(free) + sum(map(len, given.values()))
    share, rest = divmod(total, len(given))
    quota = dict.fromkeys(given, share)
    for member_id in sorted(given, key=lambda each: (-len(given[each]), each))[:rest]:
        quota[member_id] += 1  # those that have most keep most
    for member_id, mine in given.items():
        free += mine[quota[member_id] :]
        del mine[quota[member_id] :]
    hungry = [member_id for member_id in sorted(given) if len(given[member_id]) < quota[member_id]]
    for place, one in enumerate(sorted(free)):
        turn = place % len(hungry)
        member_id = hungry[turn]
        given[member_id].append(one)
        if len(given[member_id]) == quota[member_id]:
            del hungry[turn]


def _fill(given: dict[str, list[Partition]], free: list[Partition], takers: Mapping[UUID, list[str]]) -> None:
    """Give what is free to those that have least, topics with few takers first."""
    heaps = {topic: [(len(given[each]), each) for each in able] for topic, able in takers.items()}
    for heap in heaps.values():
        heapq.heapify(heap)
    for one in sorted(free, key=lambda each: (len(takers[each[0]]), each)):
        heap = heaps[one[0]]
        while heap:
            count, member_id = heap[0]
            if count == len(given[member_id]):
                given[member_id].append(one)
                heapq.heapreplace(heap, (count + 1, member_id))
                break
            heapq.heapreplace(heap, (len(given[member_id]), member_id))  # it got some of another topic


def _even_out(given: dict[str, list[Partition]], takers: Mapping[UUID, list[str]]) -> None:
    """Move partitions from members with more to members with less, as long as that makes them more equal."""
    for _ in range(PASSES_MAX):
        moved = False
        for topic, able in takers.items():
            owned = {each: [one for one in given[each] if one[0] == topic] for each in able}
            while owners := [each for each in able if owned[each]]:
                source = max(owners, key=lambda each: (len(given[each]), each))
                target = min(able, key=lambda each: (len(given[each]), each))
                if len(given[source]) - len(given[target]) < 2:
                    break
                one = owned[source].pop()
                given[source].remove(one)
                given[target].append(one)
                owned[target].append(one)
                moved = True
        if not moved:
            return

"""What a majority costs and what an in-sync set costs: every case of up to three deaths, counted.

A record is acknowledged by a set of replicas; then replicas die; then one of the living leads. Nothing is
lost if whoever may lead has the record, whoever acknowledged it and whoever died. This is arithmetic about
the two schemes, not about our code: what that does stands in the transcripts that docs/quorums.md names.
"""

from collections.abc import Iterable
from itertools import combinations

import pytest


def subsets(of: Iterable[int], size: int) -> list[frozenset[int]]:
    return [frozenset(each) for each in combinations(sorted(of), size)]


def majority_keeps(replicas: int, deaths: int) -> bool:
    """Acknowledged by a majority, led by the longest log of a majority: is the record there in every case?"""
    everybody, most = range(replicas), replicas // 2 + 1
    for has_it in subsets(everybody, most):
        for dead in subsets(everybody, deaths):
            electors = subsets(set(everybody) - dead, most)
            if not electors or not all(asked & has_it for asked in electors):
                return False
    return True


def in_sync_set_keeps(replicas: int, deaths: int) -> bool:
    """Acknowledged by all in sync, led by any of them that lives: somebody must."""
    has_it = frozenset(range(replicas))
    return all(has_it - dead for dead in subsets(has_it, deaths))


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_majority_needs_twice_as_many_copies_and_one(deaths: int) -> None:
    assert majority_keeps(2 * deaths + 1, deaths)
    assert not majority_keeps(2 * deaths, deaths), "nobody may lead, or somebody without the record may"


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_an_in_sync_set_needs_one_copy_more_than_die(deaths: int) -> None:
    assert in_sync_set_keeps(deaths + 1, deaths)
    assert not in_sync_set_keeps(deaths, deaths)


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_both_wait_for_as_many_followers(deaths: int) -> None:
    """To survive so many deaths a leader waits for so many others: of 2f+1 in all, or of f+1."""
    majority, in_sync = (2 * deaths + 1) // 2 + 1, deaths + 1
    assert majority - 1 == in_sync - 1 == deaths


def majority_waits_ms(followers: list[int]) -> int:
    """The leader has it at once; so many of the fastest make a majority with it."""
    return sorted(followers)[(len(followers) + 1) // 2 - 1]


def in_sync_set_waits_ms(followers: list[int], in_sync: set[int]) -> int:
    return max((ms for number, ms in enumerate(followers) if number in in_sync), default=0)


def test_a_majority_waits_for_the_fast_and_an_in_sync_set_for_its_slowest() -> None:
    """One follower of three replicas stands still: until it leaves the set, writes wait for it."""
    followers = [2, 12_000]
    assert majority_waits_ms(followers) == 2
    assert in_sync_set_waits_ms(followers, {0, 1}) == 12_000
    assert in_sync_set_waits_ms(followers, {0}) == 2, "and now there is one copy less"
    assert majority_waits_ms([2, 3, 4, 5]) == 3, "five copies are written, two answers are waited for"

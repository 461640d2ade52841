"""The throttle of followers: who counts, how long it waits, and a rate that changes."""

import pytest

from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.follower.throttle import UNLIMITED, Throttle

ME = BrokerId(3)
MOVES, STAYS = TopicPartition("t", 0), TopicPartition("t", 1)


def throttle(rate: int = 1_000, names: str = "0:3,1:2") -> Throttle:
    return Throttle(ME, rate, lambda topic: names if topic == "t" else "")


def test_a_replica_that_is_named_pays_for_what_it_takes() -> None:
    slow = throttle()
    assert slow.took(MOVES, 500, now=10.0)
    assert slow.wait_s(10.0) == pytest.approx(0.5)
    assert slow.took(MOVES, 1_500, now=10.2), "what comes before the debt is paid adds to it"
    assert slow.wait_s(10.2) == pytest.approx(1.8)
    assert slow.wait_s(12.0) == 0.0
    assert slow.took(MOVES, 100, now=60.0) and slow.wait_s(60.0) == pytest.approx(0.1), "time unused is lost"


@pytest.mark.parametrize(
    ("names", "counts"),
    [("0:3", True), ("*", True), ("1:3,0:3", True), ("", False), ("none", False), ("0:33,10:3", False)],
)
def test_who_is_named(names: str, counts: bool) -> None:
    assert throttle(names=names).took(MOVES, 1, 0.0) is counts


def test_others_do_not_count() -> None:
    slow = throttle()
    assert not slow.took(STAYS, 1 << 30, 0.0) and not slow.took(TopicPartition("u", 0), 1 << 30, 0.0)
    assert not throttle(UNLIMITED).took(MOVES, 1 << 30, 0.0)
    assert slow.wait_s(0.0) == 0.0


def test_the_debt_is_paid_at_the_new_rate() -> None:
    slow = throttle()
    slow.took(MOVES, 10_000, now=0.0)
    slow.set_rate(10_000, now=5.0)
    assert slow.wait_s(5.0) == pytest.approx(0.5)
    slow.set_rate(UNLIMITED, now=5.0)
    assert slow.wait_s(5.0) == 0.0

"""The throttle of moves: who counts, how long it waits, and a rate that changes."""

import pytest

from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.throttle import FOLLOWERS, IN_SYNC_S, LEADERS, UNLIMITED, Throttle

ME = BrokerId(3)
MOVES, STAYS = TopicPartition("t", 0), TopicPartition("t", 1)


def throttle(rate: int = 1_000, names: str = "0:3,1:2", side: str = FOLLOWERS) -> Throttle:
    return Throttle(ME, rate, side, lambda topic: {FOLLOWERS: names} if topic == "t" else {})


def test_a_replica_that_is_named_pays_for_what_it_takes() -> None:
    slow = throttle()
    assert slow.took(MOVES, 500, now=10.0, lags=True)
    assert slow.wait_s(10.0) == pytest.approx(0.5)
    assert slow.took(MOVES, 1_500, now=10.2, lags=True), "what comes before the debt is paid adds to it"
    assert slow.wait_s(10.2) == pytest.approx(1.8)
    assert slow.held_until(MOVES, 10.2) == pytest.approx(12.0)
    assert slow.wait_s(12.0) == slow.held_until(MOVES, 12.0) == 0.0
    assert slow.took(MOVES, 100, now=60.0, lags=True)
    assert slow.wait_s(60.0) == pytest.approx(0.1), "time unused is lost"


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ("0:3", True), ("*", True), ("1:3,0:3", True), ("", False), ("none", False), ("0:33,10:3", False),
        ("nonsense,:3,x:3,0:3", True),
    ],
)  # fmt: skip
def test_who_is_named(names: str, counts: bool) -> None:
    assert throttle(names=names).took(MOVES, 1, 0.0, lags=True) is counts


def test_others_do_not_count_and_do_not_wait() -> None:
    slow, unnamed = throttle(), TopicPartition("u", 0)
    assert not slow.took(STAYS, 1 << 30, 0.0, lags=True) and not slow.took(unnamed, 1 << 30, 0.0, lags=True)
    assert not throttle(UNLIMITED).took(MOVES, 1 << 30, 0.0, lags=True)
    assert not throttle(side=LEADERS).took(MOVES, 1 << 30, 0.0, lags=True), "each side has a list of its own"
    assert slow.wait_s(0.0) == 0.0
    assert slow.took(MOVES, 1 << 30, 0.0, lags=True)
    assert slow.held_until(STAYS, 0.0) == slow.held_until(unnamed, 0.0) == 0.0


def test_the_debt_is_paid_at_the_new_rate() -> None:
    slow = throttle()
    slow.took(MOVES, 10_000, now=0.0, lags=True)
    slow.set_rate(10_000, now=5.0)
    assert slow.wait_s(5.0) == pytest.approx(0.5)
    slow.set_rate(UNLIMITED, now=5.0)
    assert slow.wait_s(5.0) == 0.0


def test_a_replica_in_sync_counts_but_leaves_no_debt_of_hours() -> None:
    """A day under a throttle below what producers bring: who falls behind then must not wait for a day."""
    slow = throttle()
    assert slow.took(MOVES, 300, 0.0, lags=False) and slow.wait_s(0.0) == pytest.approx(0.3)
    for second in range(100):
        slow.took(MOVES, 2_000, float(second), lags=False)
    assert slow.wait_s(99.0) == pytest.approx(IN_SYNC_S)
    slow.took(MOVES, 5_000, 99.0, lags=True)
    slow.took(MOVES, 2_000, 99.0, lags=False)
    assert slow.wait_s(99.0) == pytest.approx(IN_SYNC_S + 5.0), "what others owe is neither more nor less"


def test_what_counts_is_told_as_a_rate_of_the_last_ten_seconds_and_as_a_total() -> None:
    slow = throttle()
    assert (slow.byte_rate(3.0), slow.nbytes) == (0.0, 0)
    for second in range(20):
        slow.took(MOVES, 600, second + 0.2, lags=True)
        slow.took(MOVES, 400, second + 0.9, lags=False)
        slow.took(STAYS, 1 << 30, second + 0.9, lags=True)
    assert slow.nbytes == 20_000, "who is not named does not count"
    assert slow.byte_rate(19.99) == pytest.approx(1_000, rel=0.01)
    assert slow.byte_rate(24.5) == pytest.approx(6_000 / 10.5), "the seconds 14 to 19, and those after them"
    assert slow.byte_rate(40.0) == 0.0 and slow.nbytes == 20_000
    slow.set_rate(UNLIMITED, 40.0)
    slow.took(MOVES, 600, 41.0, lags=True)
    assert (slow.byte_rate(41.0), slow.nbytes) == (0.0, 20_000), "nothing counts while there is no rate"

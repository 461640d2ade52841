"""A follower that takes much is answered at most every few milliseconds, unless waiting gains nothing."""

from strandline.broker.fetch.parked import BULK_BYTES, TRY_EVERY, VAIN_MAX, Pace

MS = 0.001
GATHER_S = 3 * MS


def test_what_little_there_is_leaves_at_once() -> None:
    pace = Pace(GATHER_S)
    assert not pace.holds_back(1.0)
    pace.answered(BULK_BYTES - 1, 1.0)
    assert not pace.holds_back(1.0)


def test_much_is_followed_by_a_pause_that_ends() -> None:
    pace = Pace(GATHER_S)
    pace.answered(BULK_BYTES, 1.0)
    assert pace.holds_back(1.0)
    assert pace.holds_back(1.0 + 2 * MS)
    assert not pace.holds_back(pace.until)
    pace.answered(100, pace.until)
    assert not pace.holds_back(pace.until), "the flood is over"


def test_no_pause_when_it_is_switched_off() -> None:
    pace = Pace(0.0)
    pace.answered(10 * BULK_BYTES, 1.0)
    assert not pace.holds_back(1.0)


def rounds(pace: Pace, count: int, *, more: bool) -> int:
    """So many answers of a flood; how many of them were held back. `more`: others came meanwhile."""
    held = 0
    for turn in range(count):
        now = 1.0 + turn
        if pace.holds_back(now):
            held += 1
            if more:
                pace.more_came()
        pace.answered(BULK_BYTES, now + MS)
        pace.until = now + 1 + GATHER_S if pace.until else 0.0
    return held


def test_a_producer_that_waits_for_each_acknowledgement_is_soon_not_held_up() -> None:
    pace = Pace(GATHER_S)
    assert rounds(pace, VAIN_MAX + 1, more=False) == VAIN_MAX
    assert rounds(pace, 10 * TRY_EVERY, more=False) <= 11, "one try in so many answers"


def test_pauses_return_when_they_are_worthwhile_again() -> None:
    pace = Pace(GATHER_S)
    rounds(pace, 2 * VAIN_MAX, more=False)
    rounds(pace, 2 * TRY_EVERY, more=True)
    assert rounds(pace, 10, more=True) == 10

"""A broker id that changes hands between Apache Kafka and us: whose fetch counts, whose is of the past."""

import pytest

from strandline.base.types import KAFKAS, Incarnation, Offset, broker_epoch, start_of
from strandline.replication.progress import Progress, is_earlier

OLDER, NEWER = KAFKAS + 5, KAFKAS + 900  # with places in ZooKeeper's history, which may be small


@pytest.mark.parametrize(
    ("told", "known", "is_past"),
    [
        (1, 2, True),
        (2, 2, False),
        (3, 2, False),
        (OLDER, NEWER, True),
        (NEWER, OLDER, False),
        (1, NEWER, False),
        (NEWER, 1, False),
        (-1, 2, False),
        (-1, NEWER, False),
        (2, -1, False),
    ],
)
def test_only_an_earlier_start_of_the_same_kind_is_past(told: int, known: int, is_past: bool) -> None:
    assert is_earlier(Incarnation(told), Incarnation(known)) is is_past


def test_a_broker_of_ours_goes_on_where_kafkas_has_stopped() -> None:
    """The leader does not change meanwhile: without this the new broker would never be in sync again."""
    progress = Progress(0.0)
    assert progress.fetched(Offset(10), Incarnation(NEWER), Offset(10), 1.0)
    assert progress.fetched(Offset(12), Incarnation(1), Offset(12), 2.0)
    assert (progress.end_offset, progress.incarnation, progress.last_caught_up) == (12, 1, 2.0)
    assert progress.fetched(Offset(14), Incarnation(NEWER + 7), Offset(14), 3.0), "and back again"
    assert not progress.fetched(Offset(10), Incarnation(NEWER), Offset(14), 4.0)


def test_a_start_and_what_it_tells() -> None:
    """An earlier version of ours does not say that it counts: its number counts all the same."""
    for epoch in (-1, 0, 7, 5 << 32):
        assert broker_epoch(start_of(epoch, counts_starts=True)) == epoch
        assert broker_epoch(start_of(epoch, counts_starts=False)) == epoch
    assert start_of(7, counts_starts=True) == 7 < KAFKAS <= start_of(7, counts_starts=False)
    assert start_of(-1, counts_starts=False) == -1

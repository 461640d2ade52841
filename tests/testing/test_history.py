"""The history checker: each anomaly is found under its name, and an honest history has none.

The cases are small ones of Jepsen's Kafka test, and those of the anomalies that it does not know.
"""

import sys
import threading
from collections.abc import Callable

import pytest

from strandline.base.types import TopicPartition
from strandline.testing.history import Anomaly, History, judge

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
Story = Callable[[History], None]


def sent(history: History, *offsets: int, first: int = 0, partition: TopicPartition = P) -> None:
    """Values from `first` on, each sent and acknowledged before the next one."""
    for value, offset in enumerate(offsets, first):
        history.sending(value, partition, 10.0 * value)
        history.acknowledged(value, offset, 10.0 * value + 1)


def lost(history: History) -> None:
    sent(history, 0, 1, 2)
    history.polled([(P, 0, 0)])
    history.moved()
    history.polled([(P, 2, 2)])


def lost_without_an_offset(history: History) -> None:
    sent(history, 0, -1, 2)
    history.read_whole(P, [(0, 0), (2, 2)])


def unseen(history: History) -> None:
    sent(history, 0, 1)
    history.read_whole(P, [(0, 0)])


def unseen_in_an_empty_partition(history: History) -> None:
    sent(history, 0)
    history.read_whole(P, [])


def read_twice(history: History) -> None:
    sent(history, 0)
    history.read_whole(P, [(0, 0), (1, 0)])


def elsewhere(history: History) -> None:
    sent(history, 0)
    history.read_whole(P, [(1, 0)])


def in_two_partitions(history: History) -> None:
    history.sending(0, P, 0.0)
    history.polled([(P, 0, 0), (Q, 0, 0)])


def diverged(history: History) -> None:
    history.polled([(P, 1, 8)], by="one")
    history.polled([(P, 1, 9)], by="other")


def reused(history: History) -> None:
    sent(history, 0, 0)


def aborted(history: History) -> None:
    history.sending(0, P, 0.0)
    history.refused(0, 1.0)
    history.polled([(P, 0, 0)])


def leaked(history: History) -> None:
    sent(history, 0)
    history.polled([(P, 0, 0), (P, 1, 7)])
    history.read_whole(P, [(0, 0)])


def reordered(history: History) -> None:
    for value in (0, 1):
        history.sending(value, P, float(value))
    history.acknowledged(0, 1, 5.0)
    history.acknowledged(1, 0, 6.0)


def backwards(history: History) -> None:
    history.polled([(P, 1, 1)])
    history.polled([(P, 0, 0)])


def backwards_at_once(history: History) -> None:
    history.polled([(P, 1, 1), (Q, 0, 9), (P, 1, 1)])


def skipped(history: History) -> None:
    history.polled([(P, 0, 0)])
    history.polled([(P, 2, 2)])
    history.polled([(P, 1, 1)], by="other")


def skipped_at_once(history: History) -> None:
    history.polled([(P, 0, 0), (P, 2, 2)])
    history.polled([(P, 1, 1)], by="other")


def overtaken(history: History) -> None:
    history.sending(0, P, 0.0, by="one")
    history.acknowledged(0, 5, 1.0)
    history.sending(1, P, 2.0, by="other")
    history.acknowledged(1, 3, 3.0)


def stale(history: History) -> None:
    sent(history, 0, 1)
    history.told_end(P, 1, asked_s=20.0)


CASES: list[tuple[Story, set[Anomaly]]] = [
    (lost, {Anomaly.LOST_WRITE}),
    (lost_without_an_offset, {Anomaly.LOST_WRITE}),
    (unseen, {Anomaly.UNSEEN}),
    (unseen_in_an_empty_partition, {Anomaly.UNSEEN}),
    (read_twice, {Anomaly.DUPLICATE}),
    (elsewhere, {Anomaly.DUPLICATE}),
    (in_two_partitions, {Anomaly.DUPLICATE}),
    (diverged, {Anomaly.INCONSISTENT_OFFSETS}),
    (reused, {Anomaly.OFFSET_REUSE, Anomaly.INCONSISTENT_OFFSETS, Anomaly.REALTIME_ORDER}),
    (aborted, {Anomaly.ABORTED_READ}),
    (leaked, {Anomaly.HW_LEAK}),
    (reordered, {Anomaly.NONMONOTONIC_SEND}),
    (backwards, {Anomaly.NONMONOTONIC_POLL}),
    (backwards_at_once, {Anomaly.INT_NONMONOTONIC_POLL}),
    (skipped, {Anomaly.POLL_SKIP}),
    (skipped_at_once, {Anomaly.INT_POLL_SKIP}),
    (overtaken, {Anomaly.REALTIME_ORDER}),
    (stale, {Anomaly.STALE_END}),
]


@pytest.mark.parametrize(("story", "expected"), CASES, ids=[story.__name__ for story, _ in CASES])
def test_an_anomaly_is_found_under_its_name(story: Story, expected: set[Anomaly]) -> None:
    history = History()
    story(history)
    found = set(judge(history).anomalies)
    assert expected <= found
    assert found <= expected | {Anomaly.NONMONOTONIC_SEND}, judge(history)


def test_every_anomaly_has_a_case() -> None:
    assert set().union(*(expected for _, expected in CASES)) == set(Anomaly)


def test_an_honest_history_has_none() -> None:
    history = History()
    sent(history, 0, 1, 3)  # an offset may be missing: nobody has seen a record there
    history.sending(3, P, 31.0)  # never answered, and not there
    history.sending(4, P, 32.0)  # never answered, and there all the same
    history.polled([(P, 0, 0), (P, 1, 1)])
    history.polled([(P, 3, 2)])
    history.moved()
    history.polled([(P, 1, 1)])
    history.told_end(P, 4, asked_s=40.0)
    history.read_whole(P, [(0, 0), (1, 1), (3, 2), (4, 4)])
    report = judge(history)
    assert report.good, report
    assert (report.acknowledged, report.read) == (3, 4)


def test_records_cut_off_by_retention_are_not_leaked() -> None:
    history = History()
    sent(history, 0, 1)
    history.polled([(P, 0, 0), (P, 1, 1)])
    history.read_whole(P, [(1, 1)])
    assert judge(history).good


def test_duplicates_are_allowed_to_producers_that_are_not_idempotent() -> None:
    history = History()
    read_twice(history)
    report = judge(history, idempotent=False)
    assert report.good
    assert Anomaly.DUPLICATE in report.allowed


def test_nothing_seen_is_not_good() -> None:
    assert not judge(History()).good


def test_gaps_are_those_of_the_slowest_partition() -> None:
    history = History()
    for value, (partition, at_s) in enumerate([(P, 1.0), (Q, 1.1), (P, 1.2), (Q, 4.0), (P, 4.1), (P, 4.3)]):
        history.sending(value, partition, at_s - 0.1)
        history.acknowledged(value, value, at_s)
    assert history.longest_gap_s() == pytest.approx(2.9)
    assert history.longest_gap_s([Q]) == pytest.approx(2.9)
    assert history.longest_gap_s(since_s=4.2) == pytest.approx(0.2)


def test_gaps_are_looked_for_while_another_thread_sends() -> None:
    """As drills do, whose load goes on meanwhile."""
    history, sent = History(), threading.Event()

    def send() -> None:
        for value in range(100_000):
            history.sending(value, P, value / 1000)
            history.acknowledged(value, value, value / 1000)
        sent.set()

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        sender = threading.Thread(target=send)
        sender.start()
        while not sent.is_set():
            assert history.longest_gap_s() < 1
        sender.join()
    finally:
        sys.setswitchinterval(usual)

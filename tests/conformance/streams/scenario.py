"""What happens to the word count, and what must hold at its end, on whosever brokers.

Left to others: what is written and expected (wordcount.py), on which brokers (test_word_count.py, beside.py).
"""

import re
import time

from tests.conformance.streams.jvm import KNOWN_IN_PEACE
from tests.conformance.streams.wordcount import ONCE_STOPPED, STOPWORDS, WordCount

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
KILLS_MAX = 5  # until one has hit a transaction that was open
CHANGELOG = {"cleanup.policy": "compact"}
INTERNAL = {  # of which Streams says how they are to be
    "words-repartition": {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": str(50 << 20),
        "message.timestamp.type": "CreateTime",
    },
    "counts-changelog": CHANGELOG,
    "open-store-changelog": CHANGELOG,
    "windows-changelog": {"cleanup.policy": "compact,delete", "retention.ms": "87010000"},
}


class Laps:
    """How long each step took, in seconds."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}
        self._at = time.monotonic()

    def lap(self, step: str) -> None:
        now = time.monotonic()
        self.taken[step], self._at = now - self._at, now


def whoever_dies(application: WordCount, lines: int) -> dict[str, float]:
    """An instance is killed with work to do, then the broker that coordinates the other one's transactions;
    both come back. After each step so many lines are written. Returns how long the steps took.
    """
    brokers, laps = application.brokers, Laps()
    application.start("a", "b")
    application.feed(lines)
    application.wait_counted()
    laps.lap("the first counts, from the start of two JVMs on")
    strange = [line for line in application.complaints() if not re.search(KNOWN_IN_PEACE, line)]
    assert not strange, strange
    for _ in range(KILLS_MAX):
        killed = application.feed_until_at_work(lines)
        application.kill(killed)
        laps.lap("more of them")
        application.wait_counted()
        laps.lap("an instance killed: until all was counted")
        if application.aborted() > 0:
            break
        application.start(killed)  # it had committed at the last moment: once more
        application.running(killed)
    other = application.feed_until_at_work(lines)
    victim = brokers.coordinator(TRANSACTIONS, application.transactional_id(other))
    brokers.kill(victim)
    laps.lap("more again")
    application.wait_counted()
    laps.lap("a broker killed: until all was counted")
    brokers.start(victim)
    application.start(killed)
    application.feed(lines)
    application.running(killed)
    application.wait_counted()
    laps.lap("both back")
    return laps.taken


def many_die(application: WordCount, lines: int, rounds: int) -> None:
    """In each round an instance or a broker is killed while lines are written, and comes back after them."""
    brokers = application.brokers
    application.start("a", "b")
    application.feed(lines)
    application.wait_counted()
    for number in range(rounds):
        for name in application.instances:
            application.running(name)
        name = application.feed_until_at_work(lines)
        if number % 3 == 0:
            application.kill(name)
            application.start(name)
        else:
            coordinated = (GROUPS, application.name), (TRANSACTIONS, application.transactional_id(name))
            victim = brokers.coordinator(*coordinated[number % 3 - 1])
            brokers.kill(victim)
            application.feed(lines)
            application.wait_counted(0.9)
            brokers.restart(victim)
        application.wait_counted()


def verify(application: WordCount) -> None:
    """Every count once and in order, each window once, stores and changelog alike, topics as wanted."""
    application.feed_the_last()
    application.wait_counted()
    assert application.windows_closed() == {name: [count] for name, count in application.windows.items()}
    wanted = {word: list(range(1, count + 1)) for word, count in application.expected.items()}
    assert application.counted() == wanted
    assert application.aborted() > 0, "who was killed had counted"
    assert set(ONCE_STOPPED) <= set(wanted), "what was taken back is no stopword"
    for name in application.instances:
        application.running(name)
    counts, stopwords = application.stores()
    assert counts == application.expected
    assert stopwords == [set(STOPWORDS)] * len(application.instances)
    application.wait_purged()
    made = application.internal_topics()
    assert {
        name: {key: config[key] for key in INTERNAL.get(name, ())} for name, config in made.items()
    } == INTERNAL
    application.close()
    assert application.changelog() == dict(application.expected)
    assert application.counted() == wanted, "nothing came after the end"

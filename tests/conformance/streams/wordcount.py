"""The word count: what is written for it, what must come of it, and its instances.

Left to others: who dies when (test_word_count.py), the program itself (WordCount.java).
"""

import json
import struct
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

from tests.conformance.streams.brokers import Brokers, Reading, all_written
from tests.conformance.streams.jvm import Jvm, complaints

PARTITIONS = 3
WINDOW_MS = 10_000
AFTER_GRACE_MS = 20 * 60_000
COUNTED_S_MAX = 180.0  # where the machine has much else to do
AT_WORK_S, FEEDS_MAX = 5.0, 10
STEP_MS = 50  # of record time between two lines
VOCABULARY = [f"word{number}" for number in range(60)]
STOPWORDS = ("the", "a", "of")
ONCE_STOPPED = ("gone", "back")  # stopwords that were taken back: they count
ALL_WORDS = [*VOCABULARY, *STOPWORDS, *ONCE_STOPPED]
LAST_WORDS = [f"last{number}" for number in range(40)]  # enough to come to every partition
SETTINGS = {  # three replicas; who is dead is noticed as soon as the brokers allow by default
    "main.consumer.session.timeout.ms": "6000",
    "main.consumer.heartbeat.interval.ms": "1000",
    "repartition.purge.interval.ms": "1000",
    "replication.factor": "3",
    "producer.transaction.timeout.ms": "5000",
    "commit.interval.ms": "1000",  # long enough to be seen, and killed, in the middle of a transaction
}


class WordCount:
    """One application, its topics and its instances."""

    def __init__(self, brokers: Brokers, folder: Path, classes: Path, name: str, **options: str) -> None:
        """`options` are settings of Streams: `replication_factor="3"`."""
        told = {key.replace("_", "."): value for key, value in options.items()}
        self.brokers, self.folder, self.classes, self.name = brokers, folder, classes, name
        self.options = [f"{key}={value}" for key, value in {**SETTINGS, **told}.items()]
        self.instances: dict[str, Jvm] = {}
        self.expected: Counter[str] = Counter()
        self.windows: Counter[str] = Counter()
        self._random, self._at_ms = Random(7), int(time.time() * 1000) // WINDOW_MS * WINDOW_MS
        self._make_topics()
        self.counts = Reading(brokers, f"{name}-counts", PARTITIONS)
        self.closed = Reading(brokers, f"{name}-closed", PARTITIONS)

    def _make_topics(self) -> None:
        for what in ("lines", "counts", "closed"):
            self.brokers.create(f"{self.name}-{what}", PARTITIONS)
        self.brokers.create(f"{self.name}-stopwords", 1, cleanup_policy="compact")
        said = [(word, "said", 0) for word in (*STOPWORDS, *ONCE_STOPPED)]
        again = [(word, f"said {number} times", 0) for number in range(200) for word in STOPWORDS]
        back = [(word, None, 0) for word in ONCE_STOPPED]
        now = [(word, value, self._at_ms) for word, value, _ in (*said, *again, *back)]
        self.brokers.write(f"{self.name}-stopwords", now)

    # ------------------------------------------------------------ its instances

    def start(self, *names: str) -> None:
        for name in names:
            arguments = [self.brokers.bootstrap, self.name, str(self.folder / f"state-{name}"), *self.options]
            self.instances[name] = Jvm(name, self.folder, "WordCount", arguments, self.classes)

    def kill(self, name: str) -> None:
        self.instances.pop(name).kill()

    def close(self) -> None:
        """All of them leave in peace."""
        while self.instances:
            self.instances.popitem()[1].close()

    def end(self) -> None:
        """Whatever runs is killed."""
        while self.instances:
            self.instances.popitem()[1].kill()
        self.counts.close()
        self.closed.close()

    def running(self, name: str) -> None:
        """Wait until an instance has all of its state."""
        one = self.instances[name]
        one.until(lambda: one.lines("state")[-1:] == ["RUNNING"], "running")

    def feed_until_at_work(self, lines: int) -> str:
        """Write lines until an instance has counted words in a transaction that is not decided: its name."""
        for _ in range(FEEDS_MAX):
            self.feed(lines)
            deadline = time.monotonic() + AT_WORK_S
            while time.monotonic() < deadline:
                undecided = self.brokers.open_partitions(f"{self.name}-counts", PARTITIONS)
                for name, one in self.instances.items() if undecided else ():
                    if undecided & {int(line.split()[1]) for line in one.answer("tasks", "those")}:
                        return name
        raise AssertionError("nobody was seen at work")

    def aborted(self) -> int:
        """How many counts were written and taken back."""
        written = all_written(self.brokers, f"{self.name}-counts", PARTITIONS)
        return written - self.expected.total()

    def transactional_id(self, instance: str) -> str:
        """Of the producer of an instance's only thread."""
        place = self.folder / f"state-{instance}" / self.name / "kafka-streams-process-metadata"
        return f"{self.name}-{json.loads(place.read_text())['processId']}-1"

    def stores(self, wait_s: float = 60.0) -> tuple[Counter[str], list[set[str]]]:
        """What the stores of all instances have together: counts; and the stopwords of each.

        A task that is on its way to another instance is waited for.
        """
        deadline = time.monotonic() + wait_s
        while True:
            told = [
                [line.split() for line in one.answer("dump", "dumped")] for one in self.instances.values()
            ]
            counts = Counter({row[1]: int(row[2]) for rows in told for row in rows if row[0] == "count"})
            if len(counts) >= len(self.expected) or time.monotonic() > deadline:
                return counts, [{row[1] for row in rows if row[0] == "stop"} for rows in told]

    def complaints(self) -> Counter[str]:
        """WARN and above in the logs of all instances, whether they run or not."""
        return complaints(*sorted(self.folder.glob("*.log")))

    # ------------------------------------------------------------ what is written, and what must come of it

    def feed(self, lines: int) -> None:
        """Write so many lines of words; each line is ten words or less."""
        records = []
        for _ in range(lines):
            words = self._random.choices(ALL_WORDS, k=self._random.randint(1, 10))
            records.append((words[0], " ".join(words), self._at_ms))
            self._expect(words)
            self._at_ms += STEP_MS
        self.brokers.write(f"{self.name}-lines", records)

    def feed_the_last(self) -> None:
        """Words from a time when no window of before is open."""
        self._at_ms += AFTER_GRACE_MS
        self._expect(LAST_WORDS)
        self.brokers.write(f"{self.name}-lines", [("", " ".join(LAST_WORDS), self._at_ms)])

    def _expect(self, words: list[str]) -> None:
        counted = [word for word in words if word not in STOPWORDS]
        self.expected.update(counted)
        start = self._at_ms // WINDOW_MS * WINDOW_MS
        self.windows.update(f"{word}@{start}" for word in counted if not word.startswith("last"))

    def wait_counted(self, share: float = 1.0, wait_s: float = COUNTED_S_MAX) -> float:
        """Wait until this share of all counts was read; how long it took, in seconds."""
        begun = time.monotonic()
        wanted = self.expected.total() * share
        while len(self.counts.more()) < wanted:
            for one in self.instances.values():
                assert one.alive and not one.lines("died"), f"{one.name}: {one.last_words()}"
            if time.monotonic() - begun > wait_s:
                last = "\n\n".join(one.last_words() for one in self.instances.values())
                raise AssertionError(f"{len(self.counts)} of {wanted} counts in {wait_s} s: {last}")
        return time.monotonic() - begun

    def counted(self) -> dict[str, list[int]]:
        """The counts of each word, in the order in which they were written."""
        return _numbers(self.counts.whole())

    def windows_closed(self, wait_s: float = 30.0) -> dict[str, list[int]]:
        """How often each word came in each window: once, when it was closed."""
        deadline = time.monotonic() + wait_s
        while len(self.closed.more()) < len(self.windows):
            assert time.monotonic() < deadline, f"{len(self.closed)} of {len(self.windows)} windows closed"
        return _numbers(self.closed.whole())

    def changelog(self) -> dict[str, int]:
        """The last count of each word in the changelog of the store."""
        with_history = Reading(self.brokers, f"{self.name}-counts-changelog", PARTITIONS)
        try:
            return {word: counts[-1] for word, counts in _numbers(with_history.whole()).items()}
        finally:
            with_history.close()

    def internal_topics(self) -> dict[str, dict[str, str]]:
        """Settings of the topics that Streams has made for itself, by names without the application's."""
        made = [name for name in self.brokers.topics() if name.startswith(self.name)]
        suffixes = ("-repartition", "-changelog")
        return {
            name.removeprefix(f"{self.name}-"): self.brokers.config(name)
            for name in made
            if name.endswith(suffixes)
        }

    def wait_purged(self, wait_s: float = 30.0) -> None:
        """Wait until what was read of the repartition topic has been deleted."""
        topic = f"{self.name}-words-repartition"
        deadline = time.monotonic() + wait_s
        while True:
            left = Reading(self.brokers, topic, PARTITIONS)
            try:
                records, bounds = len(left.whole()), left.bounds()
            finally:
                left.close()
            if records == 0 and all(low > 0 for low, _ in bounds):
                return
            assert time.monotonic() < deadline, f"{records} records are left of {topic}: {bounds}"


def _numbers(records: Reading) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for message in records:
        found[message.key().decode()].append(struct.unpack(">q", message.value())[0])
    return dict(found)

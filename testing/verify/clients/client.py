"""What all clients of a run have: a job, a name for this life, notes, chance, and fresh values.

Left to others: what they do with librdkafka (librdkafka.py) and with the bundled client (bundled.py).
"""

import json
import random
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from ...anomalies import HistoryWriter, Notes, Record

VALUES_OF_A_LIFE = 10_000_000
LIVES_OF_A_CLIENT = 1_000_000  # a week of kills has thousands
ABORTED_BY_CHOICE = 0.25
STOP = threading.Event()


@dataclass(frozen=True)
class Job:
    """What a client process is told when it starts."""

    kind: str
    library: str
    name: str
    life: int  # LIVES_OF_A_CLIENT numbers for each client, so that no value is sent twice
    bootstrap: str
    history: str
    seed: int
    prefix: str  # of transactional ids and groups, and in all names of topics
    topics: dict[str, int]  # their numbers of partitions
    to: str | None = None
    protocol: str = "classic"
    transaction_ms: int = 10_000

    def packed(self) -> str:
        """One word for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def unpacked(cls, word: str) -> Self:
        """What `packed` made."""
        return cls(**json.loads(word))


class Client:
    """One life of a client."""

    def __init__(self, job: Job) -> None:
        self.job, self.name, self.bootstrap = job, job.name, job.bootstrap
        number = job.life % LIVES_OF_A_CLIENT
        process = job.name if number == 1 else f"{job.name}/{number}"
        about = {"client": job.name, "seed": job.seed}
        self.notes = Notes(HistoryWriter(Path(job.history), about), process, job.name)
        self.random = random.Random(f"{job.seed} {job.name} {job.life}")
        self.next = job.life * VALUES_OF_A_LIFE
        self.topics = list(job.topics)

    @property
    def transactional_id(self) -> str:
        """The id of this client in all its lives."""
        return self.job.prefix + self.name

    @property
    def group(self) -> str:
        """The group of a subscriber, as its notes name it: without the prefix."""
        return self.name.rpartition("-")[0]

    def places(self) -> list[tuple[str, int]]:
        """All partitions of its topics."""
        return [(topic, each) for topic, count in self.job.topics.items() for each in range(count)]

    def value(self) -> int:
        """A value that nobody has sent."""
        self.next += 1
        return self.next

    def write(self, count: int, topic: str | None = None) -> list[Record]:
        """Records with fresh values, to drawn partitions of drawn topics, or of one."""
        return [self._fresh(topic or self.random.choice(self.topics)) for _ in range(count)]

    def _fresh(self, topic: str) -> Record:
        return Record(topic, self.random.randrange(self.job.topics[topic]), value=self.value())


def copiers(prefix: str, source: str) -> str:
    """The group of the copiers of a topic."""
    return f"{prefix}copiers-{source.removeprefix(prefix)}"


def bytes_of(record: Record) -> bytes:
    """A record's value on the wire."""
    return record.value.to_bytes(8, "big")


def value_in(value: bytes) -> int:
    """The value in what was read."""
    return int.from_bytes(value[:8], "big")

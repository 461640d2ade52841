"""What all clients of a run have: a name for this life, notes, chance, and fresh values.

Left to others: what they do with librdkafka (stock.py) and with the bundled client (worker.py).
"""

import random
import threading
from pathlib import Path

from strandline.testing.anomalies import HistoryWriter, Notes, Record

TOPICS = {"t": 6, "in": 3, "out": 3, "in8": 3, "out8": 3}
"""`in` is copied to `out` by a classic group, `in8` to `out8` by one of KIP-848; `t` has transactions."""
VALUES_OF_A_LIFE = 10_000_000
TRANSACTION_MS = 10_000
ABORTED_BY_CHOICE = 0.25
STOP = threading.Event()


class Client:
    """What all of them have: a name for this life, notes, chance, and fresh values."""

    def __init__(self, name: str, life: int, bootstrap: str, history: Path, seed: int) -> None:
        self.name, self.bootstrap = name, bootstrap
        process = name if life % 1000 == 1 else f"{name}/{life % 1000}"
        self.notes = Notes(HistoryWriter(history, {"client": name, "seed": seed}), process, name)
        self.random = random.Random(f"{seed} {name} {life}")
        self.next = life * VALUES_OF_A_LIFE

    def value(self) -> int:
        self.next += 1
        return self.next

    def write(self, topic: str, count: int) -> list[Record]:
        return [Record(topic, self.random.randrange(TOPICS[topic]), value=self.value()) for _ in range(count)]


def bytes_of(record: Record) -> bytes:
    return record.value.to_bytes(8, "big")

"""The demo's verdict: compares every partition with the acknowledgements that were logged to disk.

It shares nothing with the producer: it reads the file of acknowledgements and every partition from its first
offset, and compares record by record. A duplicate is a flight at two offsets.
"""

from dataclasses import dataclass, field
from pathlib import Path

from ...base.types import TopicPartition
from ...client.sync import Consumer

FLIGHT_NUMBER = slice(len(b'{"n":'), None)


class AckLog:
    """A file of acknowledgements, one per line: number, partition, offset, milliseconds since the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("w", buffering=1 << 16)
        self.count = 0

    def write(self, number: int, partition: int, offset: int, at_s: float) -> None:
        self.file.write(f"{number} {partition} {offset} {at_s * 1000:.1f}\n")
        self.count += 1

    def close(self) -> None:
        self.file.close()


@dataclass
class DemoVerdict:
    """What was acknowledged, what was found, and the differences."""

    acknowledged: int = 0
    read: int = 0
    lost: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # (flight, partition, offset) not found there
    duplicated: list[int] = field(default_factory=list)
    differing_replicas: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.differing_replicas) and self.acknowledged > 0


def judge(bootstrap: str, topic: str, partitions: int, acks: Path) -> DemoVerdict:
    """Read everything, and compare."""
    verdict, found, seen = DemoVerdict(), dict[tuple[int, int], int](), dict[int, int]()
    with Consumer(bootstrap) as consumer:
        for partition in range(partitions):
            for offset, value in _records(consumer, TopicPartition(topic, partition)):
                number = flight_number(value)
                found[partition, offset] = number
                seen[number] = seen.get(number, 0) + 1
                verdict.read += 1
    for line in acks.read_text().splitlines():
        number, partition, offset = map(int, line.split()[:3])
        verdict.acknowledged += 1
        if found.get((partition, offset)) != number:
            verdict.lost.append((number, partition, offset))
    verdict.duplicated = sorted(number for number, times in seen.items() if times > 1)
    return verdict


def flight_number(value: bytes) -> int:
    """The number `n`, which comes first in a flight's JSON."""
    return int(value[FLIGHT_NUMBER].split(b",", 1)[0])


def compare_replicas(data: list[Path], topic: str, partitions: int) -> list[str]:
    """Partitions whose segment files are not byte for byte the same on all brokers."""
    different = []
    for partition in range(partitions):
        copies = {_bytes_of(folder / f"{topic}-{partition}") for folder in data}
        if len(copies) > 1:
            different.append(f"{topic}-{partition}")
    return different


def _bytes_of(folder: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))


def _records(consumer: Consumer, partition: TopicPartition) -> "list[tuple[int, bytes]]":
    consumer.assign([partition])
    consumer.seek(partition, 0)
    end = consumer.end_offsets([partition])[partition]
    records: list[tuple[int, bytes]] = []
    while consumer.position(partition) < end:
        records += [(record.offset, record.value) for record in consumer.poll(1000, max_records=10_000)]
    return records

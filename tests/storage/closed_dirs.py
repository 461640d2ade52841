"""Closed log directories written by hand: batches, segments, indexes, and the small files beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from strandline.base.types import TopicPartition
from strandline.protocol.batches import headers, stamp
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import TopicConfig
from strandline.storage.directories.incarnation import CLEAN_MARKER, INCARNATION
from strandline.storage.disk import RealDisk
from strandline.storage.log import checkpoints
from strandline.storage.segment.file_names import INDEX, LOG, TIME_INDEX, file_name
from strandline.storage.segment.index import OFFSET_ENTRY, TIME_ENTRY

T0 = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
START_MS = 1_700_000_000_000
DISK = RealDisk()

Segments = Sequence[tuple[int, Sequence[bytes]]]


def batch(base: int, records: int = 2, epoch: int = 0, text: str = "", **options: Any) -> bytes:
    """A batch whose values say offset and epoch."""
    builder = BatchBuilder(**options)
    for offset in range(base, base + records):
        builder.append(START_MS + offset, b"k%d" % offset, f"{offset}@{epoch}{text}".encode("latin-1"), ())
    data = bytearray(builder.build())
    stamp(data, 0, base, epoch)
    return bytes(data)


def marker(base: int, producer: int, commit: bool, epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    builder = BatchBuilder(producer_id=producer, producer_epoch=0, transactional=True, control=True)
    builder.append(START_MS + base, b"\0\0\0" + bytes([commit]), b"\0\0\0\0\0\0", ())
    data = bytearray(builder.build())
    stamp(data, 0, base, epoch)
    return bytes(data)


def epochs_of(segments: Segments) -> list[tuple[int, int]]:
    """The history that batches tell."""
    found: list[tuple[int, int]] = []
    for _, batches in segments:
        for each in batches:
            for _, header in headers(each):
                if not found or header.leader_epoch > found[-1][0]:
                    found.append((header.leader_epoch, header.base_offset))
    return found


class Facts(NamedTuple):
    """What stands beside the segments."""

    high_watermark: int | None = None
    epochs: Sequence[tuple[int, int]] | None = None  # None: as the batches have it
    topic_id: UUID | None = TOPIC_ID
    start: int | None = None
    gaps: bool = False
    indexed: bool = True


NO_FACTS = Facts()


class ClosedBroker:
    """The log directory of one broker."""

    def __init__(self, root: Path, broker: int, cluster: str = "cluster", kafka: bool = False) -> None:
        self.path = root / f"data-{broker}"
        self.path.mkdir(parents=True)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.kafka = kafka
        self.own(broker, cluster)
        if not kafka:
            (self.path / INCARNATION).write_text("{}")

    def own(self, number: int = 1, cluster: str = "cluster") -> None:
        """Say whose directory it is."""
        properties = {"version": "0", "broker.id": str(number), "cluster.id": cluster}
        checkpoints.write_properties(DISK, str(self.path / checkpoints.META_PROPERTIES), properties)

    def put(self, segments: Segments, facts: Facts = NO_FACTS, tp: TopicPartition = T0) -> Path:
        """Write a partition."""
        folder = self.path / str(tp)
        folder.mkdir()
        for base, batches in segments:
            write_segment(folder, base, batches, facts.indexed)
        epochs = epochs_of(segments) if facts.epochs is None else facts.epochs
        checkpoints.write_epochs(DISK, str(folder / checkpoints.EPOCHS), epochs, sync=False)
        if facts.topic_id is not None:
            path = folder / checkpoints.PARTITION_METADATA
            checkpoints.write_partition_metadata(DISK, str(path), facts.topic_id)
        if not self.kafka:
            path = folder / checkpoints.TOPIC_CONFIG
            checkpoints.write_topic_config(DISK, str(path), TopicConfig(), facts.gaps)
        if facts.high_watermark is not None:
            self.high_watermarks[tp] = facts.high_watermark
        if facts.start is not None:
            self.starts[tp] = facts.start
        self.checkpoint()
        return folder

    def checkpoint(self) -> None:
        """Write what the broker knows of its partitions."""
        for name, offsets in (
            (checkpoints.HIGH_WATERMARKS, self.high_watermarks),
            (checkpoints.START_OFFSETS, self.starts),
        ):
            checkpoints.write_offsets(DISK, str(self.path / name), offsets)

    def close_cleanly(self) -> None:
        """As Kafka does."""
        (self.path / CLEAN_MARKER).write_text('{"version":0,"brokerEpoch":1}')


def write_segment(folder: Path, base: int, batches: Sequence[bytes], indexed: bool = True) -> None:
    """A segment with an entry for each batch but the first, as if batches were large."""
    (folder / file_name(base, LOG)).write_bytes(b"".join(batches))
    if not indexed:
        return
    offsets, times, position, newest = b"", b"", 0, -1
    for each in batches:
        for _, header in headers(each):
            if position:
                offsets += OFFSET_ENTRY.pack(header.last_offset - base, position)
            if header.max_timestamp > newest:
                newest = header.max_timestamp
                times += TIME_ENTRY.pack(newest, header.last_offset - base)
            position += header.size
    (folder / file_name(base, INDEX)).write_bytes(offsets)
    (folder / file_name(base, TIME_INDEX)).write_bytes(times)

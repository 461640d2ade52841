"""Logs on a real disk, batches to put into them, and a crash that forgets nothing but the process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.batches import read_header, stamp
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk
from strandline.storage.log.log import Log
from strandline.storage.log.pending_deletion import Deletion

T0 = TopicPartition("t", 0)
START_MS = 1_700_000_000_000


class FixedClock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START_MS

    def wall_ms(self) -> int:
        return self.now


def make_batch(
    *values: bytes, at: int = START_MS, base: int = 0, epoch: int = 0, pid: int = -1, seq: int = -1
) -> bytearray:
    """A batch with one record a value, a millisecond apart."""
    builder = BatchBuilder(producer_id=pid, producer_epoch=0 if pid >= 0 else -1, base_sequence=seq)
    for place, value in enumerate(values):
        builder.append(at + place, None, value, ())
    batch = bytearray(builder.build())
    stamp(batch, 0, base, epoch)
    return batch


def put(log: Log, *values: bytes, at: int = START_MS, epoch: int = 0, pid: int = -1, seq: int = -1) -> int:
    """Append as leader; returns the base offset."""
    batch = make_batch(*values, at=at, pid=pid, seq=seq)
    return log.append(memoryview(batch), read_header(batch), epoch, at)


class Place:
    """A log directory whose process can die and start again."""

    def __init__(self, root: Path, **settings: int) -> None:
        self.root = str(root)
        self.clock = FixedClock()
        self.config = StorageConfig(**settings)
        self.disk = RealDisk()
        self.doubts: list[str] = []
        self.logs = self._open(clean=False)
        self.log = self.logs.create(T0, None, TopicConfig.of(self.config))

    def _open(self, clean: bool) -> Logs:
        note: Callable[[TopicPartition, str], None] = lambda p, why: self.doubts.append(f"{p}: {why}")  # noqa: E731
        return Logs.open([self.root], self.disk, self.config, self.clock, clean=clean, before_loss=note)

    def stop(self) -> None:
        assert self.logs.close()

    def die(self) -> None:
        """kill -9: descriptors close, nothing is written."""
        self.logs.close(clean=False)

    def start(self, clean: bool = False) -> Log:
        self.logs = self._open(clean)
        self.log = self.logs.logs[T0]
        return self.log

    def retain(self, high_watermark: int) -> int:
        """A retention pass over the log; how many segments it took away."""
        return self.logs.retire(self.log, high_watermark, 1000)

    def purge(self, after_s: float = 1e6) -> None:
        """Delete what has been condemned, as of so many seconds later."""
        due = self.logs.condemned.due
        deletion = Deletion(self.disk, due(0.0) + due(after_s))
        while deletion:
            deletion.step(lambda: 0.0)

    def file(self, name: str) -> Path:
        return Path(self.root) / "t-0" / name


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Small segments and an index entry for nearly every batch."""
    here = Place(tmp_path / "data", segment_bytes=1000, index_interval_bytes=100)
    yield here
    here.die()

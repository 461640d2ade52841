"""A log without the broker's other logs around it: made and opened from its segments alone."""

from pathlib import Path

from strandline.base.types import TopicPartition
from strandline.protocol.batches import read_header
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.disk import Disk, RealDisk
from strandline.storage.log.leader_epochs import EpochHistory
from strandline.storage.log.log import Log
from strandline.storage.log.producer_state import ProducerStates
from strandline.storage.segment.open_files import OpenSegments
from strandline.storage.segment.segment import Segment
from tests.storage.conftest import START_MS, make_batch


class BareLog:
    """One log in `root` without a tail in memory, so that every read goes to the files."""

    def __init__(
        self, root: Path, opened: OpenSegments | None = None, disk: Disk | None = None, **settings: int
    ) -> None:
        self.root = root
        self.disk = disk or RealDisk()
        self.opened = opened or OpenSegments(1000)
        self.config = TopicConfig.of(StorageConfig(**settings))
        self.disk.mkdir(str(root))
        self.log = self._open([Segment(self.disk, str(root), 0, START_MS, create=True)], 0)

    def _open(self, segments: list[Segment], end: int) -> Log:
        return Log(
            self.disk, str(self.root), TopicPartition("t", 0), self.config, segments=segments, start_offset=0,
            end_offset=end, epochs=EpochHistory([(0, 0)]), producers=ProducerStates(10),
            open_segments=self.opened,
        )  # fmt: skip

    def reopen(self) -> Log:
        """As after a clean stop: segments are closed and their indexes are on the disk only."""
        end = self.log.end_offset
        self.log.close()
        bases = sorted(int(path.stem) for path in self.root.glob("*.log"))
        segments = [Segment(self.disk, str(self.root), base, START_MS, create=False) for base in bases]
        for segment in segments:
            segment.release()
        segments[-1].take_up()
        self.log = self._open(segments, end)
        return self.log

    def put(self, *values: bytes, at: int = START_MS) -> int:
        """Append as leader in epoch 0."""
        batch = make_batch(*values, at=at)
        return self.log.append(memoryview(batch), read_header(batch), 0, at)

    def fill(self, count: int, size: int = 100) -> None:
        """Append `count` batches of one record each."""
        for _ in range(count):
            self.put(b"x" * size)

"""Some log directories on a disk that fails on demand."""

from pathlib import Path
from uuid import UUID

from strandline.base.types import TopicPartition
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.log.log import Log
from tests.storage.conftest import T0, FixedClock
from tests.storage.faulty_disk import FaultyDisk

NAMES = ("a", "b")


class Dirs:
    """Some log directories on a disk that fails on demand."""

    def __init__(self, root: Path, names: tuple[str, ...] = ("a",), **settings: int) -> None:
        self.disk = FaultyDisk()
        self.paths = [str(root / name) for name in names]
        self.config = StorageConfig(**settings)
        self.clock = FixedClock()
        self.doubts: list[str] = []
        self.logs = self.open()

    def open(self, offline: dict[str, str] | None = None) -> Logs:
        self.logs = Logs.open(
            self.paths,
            self.disk,
            self.config,
            self.clock,
            clean=False,
            before_loss=lambda p, why: self.doubts.append(f"{p}: {why}"),
            offline=offline,
        )
        return self.logs

    def create(self, number: int = 0, is_new: bool = True) -> Log:
        partition = TopicPartition("t", number)
        return self.logs.create(partition, UUID(int=7), TopicConfig.of(self.config), is_new)

    def reopen(self) -> Log:
        self.logs.close(clean=False)
        self.disk.heal()
        return self.open().logs[T0]

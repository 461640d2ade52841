"""Logs of a broker with a cleaning over them, and no broker round it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast

from strandline.base.types import TopicPartition
from strandline.broker.replicas.replicas import Replicas
from strandline.broker.upkeep.cleaner_processes import Cleaners, ThreadCleaners
from strandline.broker.upkeep.compaction import Compactor
from strandline.protocol.batches import read_header
from strandline.protocol.columns import decode
from strandline.protocol.records import BatchBuilder
from strandline.storage.cleaning.checkpoint import CLEANER_OFFSETS
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError, RealDisk
from strandline.storage.log.checkpoints import read_offsets

T0 = TopicPartition("t", 0)
START_MS = 1_700_000_000_000
WAIT_S = 20.0


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), WAIT_S))

    return run


class Clock:
    """A wall clock that is moved by hand."""

    now = START_MS

    def wall_ms(self) -> int:
        return self.now


class NobodyHosted:
    """Replicas of a broker to which no controller has spoken."""

    def __init__(self) -> None:
        self.disk_errors: list[DiskError] = []

    def disk_failed(self, _partition: None, error: DiskError) -> None:
        self.disk_errors.append(error)

    def find(self, _partition: TopicPartition) -> None:
        return None


class Stage:
    """Logs of a broker and their cleaning, over a process's life."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = str(root)
        self.clock = Clock()
        self.config = StorageConfig(
            **{"segment_bytes": 2000, "cleanup_policy": "compact", "file_delete_delay_ms": 0, **settings}
        )
        self.failures: list[BaseException] = []
        self.replicas = NobodyHosted()
        self.open(clean=False)
        self.log = self.logs.create(T0, None, TopicConfig.of(self.config))

    def open(self, clean: bool, disk: Any = None) -> None:
        self.logs = Logs.open(
            [self.root], disk or RealDisk(), self.config, self.clock, clean=clean,
            before_loss=lambda tp, why: None,
        )  # fmt: skip

    def start_again(self, clean: bool, disk: Any = None) -> None:
        self.logs.close(clean=clean)
        self.open(clean, disk)
        self.log = self.logs.logs[T0]

    def put(self, count: int, keys: int, value: bytes | None = b"v" * 20, name: bytes = b"key") -> None:
        """Updates of `keys` keys in turn, committed at once."""
        for _ in range(count):
            number = self.log.end_offset
            builder = BatchBuilder()
            builder.append(self.clock.now, name + b"-%d" % (number % keys), value and b"%d:" % number + value)
            batch = bytearray(builder.build())
            self.log.append(memoryview(batch), read_header(batch), 0, self.clock.now)
        self.commit()

    def written_now(self) -> None:
        """All files were written to last when this clock says it is now."""
        for path in Path(self.root, "t-0").iterdir():
            os.utime(path, ns=(0, self.clock.now * 1_000_000))

    def commit(self) -> None:
        self.logs.high_watermarks[T0] = self.log.end_offset

    def records(self) -> list[tuple[int, bytes, bytes]]:
        found, at = [], self.log.start_offset
        while data := bytes(self.log.read(at, 1 << 20, self.log.end_offset)):
            columns = decode(data)
            found += [(r.offset, r.key or b"", r.value or b"") for r in columns.rows()]
            at = columns.next_offset
        return found

    def names(self) -> list[str]:
        return sorted(path.name for path in Path(self.root, "t-0").iterdir())

    def checkpoint(self) -> dict[TopicPartition, int]:
        return read_offsets(RealDisk(), f"{self.root}/{CLEANER_OFFSETS}")


@asynccontextmanager
async def cleaning(stage: Stage, cleaners: Cleaners | None = None) -> AsyncIterator[Compactor]:
    part = Compactor(
        stage.logs,
        cast(Replicas, stage.replicas),
        stage.clock,
        cleaners or ThreadCleaners(RealDisk()),
        lambda count: bytes(count),
        stage.replicas.disk_failed,
        stage.failures.append,
    )
    try:
        yield part
    finally:
        await part.stop()
        assert not stage.failures

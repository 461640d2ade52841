"""How long a start takes after a kill: seconds for a GiB of log that must be read, checked and indexed.

python -m bench.recovery [--scale 1.0] [--runs 3] [--without-kafka] [--dir DIRECTORY]
The log is warm in the page cache, its recovery point is 0. Beside it each Apache Kafka on a copy of the same
directory, as it tells of itself ("Completed load"). One partition has one thread in all.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import structlog

from strandline.base.clock import SystemClock
from strandline.base.types import TopicPartition
from strandline.protocol.batches import read_header
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk

from .kafka import RELEASES, Kafka

MIB, GIB = 1 << 20, 1 << 30
NAME = TopicPartition("t", 0)
SHAPES = {  # name: records a batch, bytes a record, MiB of log, a producer id or none
    "16 KiB batches": (16, 1000, 256, -1),
    "16 KiB batches, idempotent": (16, 1000, 256, 7),
    "1 record of 1000 B": (1, 1000, 64, -1),
    "1 record of 100 B": (1, 100, 64, -1),
    "1 record of 100 B, idempotent": (1, 100, 64, 7),
}
LOADED = re.compile(r"Completed load of .*t-0.* in (\d+)ms")


def opened(root: Path) -> Logs:
    """All logs of a directory whose process was killed."""
    return Logs.open(
        [str(root)], RealDisk(), StorageConfig(), SystemClock(), clean=False, before_loss=lambda *_: None
    )


def write(root: Path, shape: tuple[int, int, int, int], scale: float) -> int:
    """A log of that shape, left as by a kill; returns its bytes."""
    records, size, mib, producer = shape
    logs = opened(root)
    log = logs.create(NAME, None, TopicConfig.of(StorageConfig()))
    count = 0
    while log.size < mib * MIB * scale:
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=min(producer, 0), base_sequence=min(producer, 0)
        )
        for place in range(records):
            builder.append(1_700_000_000_000 + count + place, None, b"x" * size, ())
        batch = bytearray(builder.build())
        header = read_header(batch)
        for _ in range(1000):
            log.append(memoryview(batch), header, 0, 0)
        count += 1000 * records
    logs.close(clean=False)
    return log.size


def ours(root: Path) -> float:
    """Seconds of one recovery. The indexes that an earlier one has written are not looked at."""
    started = time.perf_counter()
    logs = opened(root)
    seconds = time.perf_counter() - started
    assert logs.recovered[0].scanned_bytes == logs.logs[NAME].size
    logs.close(clean=False)
    (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    return seconds


def kafkas(kind: type[Kafka], root: Path, folder: Path) -> float:
    """Seconds that Kafka says it took; it serves only when it has loaded everything."""
    system = kind(folder, 1, levels={"kafka.log": "INFO"})
    data = system.folder(1) / "data" / str(NAME)
    shutil.copytree(root / str(NAME), data)
    for path in data.glob("*.*index"):
        path.unlink()
    with system:
        said = (system.folder(1) / "broker.log").read_text()
    shutil.rmtree(folder)
    found = LOADED.search(said)
    assert found, f"Kafka did not load it: {said[-2000:]}"
    return int(found[1]) / 1000


def main() -> int:
    """Write each log once, recover it several times, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="recovery-", dir=options.dir) as name:
        for shape, facts in SHAPES.items():
            root = Path(name) / "log"
            per_gib = GIB / write(root, facts, options.scale)
            mine = statistics.median(ours(root) for _ in range(options.runs)) * per_gib
            row = f"{shape:32} strandline {mine:6.2f} s/GiB"
            for kind in () if options.without_kafka else RELEASES:
                times = [kafkas(kind, root, Path(name) / kind.name) for _ in range(options.runs)]
                row += f"   {kind.name} {statistics.median(times) * per_gib:6.2f} s/GiB"
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
            shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())

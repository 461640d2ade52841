"""What the log costs on this machine: appends, lookups, reads warm and cold, ten thousand partitions.

python -m bench.storage [--dir DIRECTORY] [--only append,lookup,read,cold,partitions] [--partitions 10000]
Everything runs in one process on one thread, as in the broker. Times are of the CPU; those of `cold` and
`partitions` are of the clock.
"""

import argparse
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time

from strandline.base.types import TopicPartition
from strandline.protocol.batches import BatchHeader, read_header
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.disk import RealDisk
from strandline.storage.log.leader_epochs import EpochHistory
from strandline.storage.log.log import Log
from strandline.storage.log.producer_state import ProducerStates
from strandline.storage.segment.file_names import LOG
from strandline.storage.segment.not_resident import Cold
from strandline.storage.segment.open_files import OpenSegments
from strandline.storage.segment.segment import Segment

MIB = 1 << 20
SHAPES = {"1 record": (1, 100), "16 KiB": (150, 100), "1 MiB": (1000, 1038)}
Row = tuple[str, str, str]


def batch_of(records: int, size: int) -> bytearray:
    """A batch of so many records of so many bytes."""
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, None, b"x" * size, ())
    return bytearray(builder.build())


def new_log(directory: Path, opened: OpenSegments, **settings: int) -> Log:
    """An empty log without a tail in memory."""
    directory.mkdir()
    return Log(
        RealDisk(), str(directory), TopicPartition(directory.name, 0),
        TopicConfig.of(StorageConfig(**settings)),
        segments=[Segment(RealDisk(), str(directory), 0, 0, create=True)], start_offset=0, end_offset=0,
        epochs=EpochHistory([(0, 0)]), producers=ProducerStates(10), open_segments=opened,
    )  # fmt: skip


def prepared(name: str) -> tuple[memoryview, BatchHeader]:
    """A batch of that shape, ready to be appended again and again."""
    batch = batch_of(*SHAPES[name])
    return memoryview(batch), read_header(batch)


def best_of(runs: int, work: Callable[[], int]) -> float:
    """The fewest microseconds of CPU per piece; `work` says how many pieces it did."""
    times = []
    for _ in range(runs):
        began = process_time()
        pieces = work()
        times.append((process_time() - began) / pieces)
    return min(times) * 1e6


def appends(root: Path) -> Iterator[Row]:
    """Leader appends of opaque batches to one log; the page cache is warm after the first run."""
    for name in SHAPES:
        batch, header = prepared(name)
        count = max(64 * MIB // len(batch) if len(batch) > 1000 else 40_000, 1)
        runs = iter(range(100))

        def work() -> int:
            log = new_log(root / f"append-{len(batch)}-{next(runs)}", OpenSegments(1000))  # noqa: B023
            for _ in range(count):  # noqa: B023
                log.append(batch, header, 0, 0)  # noqa: B023
            log.abandon()
            for path in Path(log.directory).iterdir():
                path.unlink()
            return count  # noqa: B023

        each = best_of(5, work)
        yield f"append, {name} batches", f"{each:.2f} µs/batch", f"{each * MIB / len(batch):.0f} µs/MiB"


def lookups(root: Path) -> Iterator[Row]:
    """Finding a batch among ten thousand tiny segments."""
    batch, header = prepared("1 record")
    log = new_log(root / "lookup", OpenSegments(20_000), segment_bytes=4 * len(batch))
    for _ in range(40_000):
        log.append(batch, header, 0, 0)
    count = len(log.segments)
    places = [(place * 7919) % log.end_offset for place in range(20_000)]
    each = best_of(5, lambda: [log._chain.place_of(offset) for offset in places].__len__())
    yield f"which of {count:,} segments", f"{each:.2f} µs", ""
    for wait in (True, False):

        def read(wait: bool = wait) -> int:
            for offset in places:
                log.read(offset, 1, log.end_offset, wait=wait)
            return len(places)

        each = best_of(3, read)
        yield (
            f"one batch out of {count:,} segments, {'may wait' if wait else 'not waiting'}",
            f"{each:.2f} µs",
            "",
        )
    log.abandon()


def reads(root: Path) -> Iterator[Row]:
    """A reader that goes through a closed segment, from the page cache."""
    for name in ("1 record", "16 KiB"):
        batch, header = prepared(name)
        log = new_log(root / f"read-{len(batch)}", OpenSegments(1000))
        while log.size < 64 * MIB:
            log.append(batch, header, 0, 0)
        log.roll(0)
        for ask in (64 << 10, MIB):
            for wait in (True, False):

                def work(wait: bool = wait, ask: int = ask) -> int:
                    offset, read = 0, 0
                    while offset < log.end_offset:  # noqa: B023
                        found = log.read(offset, ask, log.end_offset, wait=wait)  # noqa: B023
                        read += found.nbytes
                        offset += found.nbytes // len(batch) * (header.last_offset_delta + 1)  # noqa: B023
                    return read // MIB

                how = "may wait" if wait else "not waiting"
                yield f"read {ask >> 10} KiB of {name} batches, {how}", "", f"{best_of(3, work):.0f} µs/MiB"
        log.abandon()


def cold(root: Path) -> Iterator[Row]:
    """The same after the page cache has been emptied: how long a thread reads, how long the loop is held."""
    batch, header = prepared("16 KiB")
    log = new_log(root / "cold", OpenSegments(1000))
    while log.size < 128 * MIB:
        log.append(batch, header, 0, 0)
    log.roll(0)
    log.flush()
    segment = log.segments[0]
    for wait in (True, False):
        fd = os.open(segment.path(LOG), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        held, warmed = [], []
        offset = 0
        while offset < log.segments[1].base_offset:
            began = perf_counter()
            try:
                found = log.read(offset, MIB, log.end_offset, wait=wait)
                offset += found.nbytes // len(batch) * (header.last_offset_delta + 1)
            except Cold as trip:
                held.append(perf_counter() - began)
                began = perf_counter()
                trip.warm()
                warmed.append(perf_counter() - began)
                began = perf_counter()
                trip.settle()
            held.append(perf_counter() - began)
        how = "the loop reads" if wait else f"a thread reads ({len(warmed)} trips)"
        worst = f"longest {max(held) * 1e3:.2f} ms"
        yield f"cold 1 MiB reads, {how}", f"{statistics.median(held) * 1e6:.0f} µs of the loop", worst
    log.abandon()


def partitions(root: Path, count: int) -> Iterator[Row]:
    """So many logs of one process, each written to in turn, with half of its descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    opened = OpenSegments(1000, files_max=limit // 10)
    batch, header = prepared("1 record")
    before = resident()
    began = perf_counter()
    logs = [new_log(root / f"p-{place}", opened) for place in range(count)]
    yield f"{count:,} logs created", f"{(perf_counter() - began) / count * 1e6:.0f} µs each", ""
    for files_max in (limit // 10, limit // 2):
        opened.files_max = files_max
        rounds = []
        for _ in range(3):
            began = perf_counter()
            for log in logs:
                log.append(batch, header, 0, 0)
            rounds.append((perf_counter() - began) / count * 1e6)
        descriptors = len(os.listdir("/proc/self/fd"))
        assert descriptors < limit, "it fits"
        what = f"an append to each in turn, at most {files_max:,} files of ulimit -n {limit:,}"
        yield what, f"{min(rounds):.1f} µs", f"{descriptors:,} descriptors held"
    yield "memory", f"{(resident() - before) / 1024:.0f} MiB", f"{(resident() - before) / count:.1f} KiB each"


def resident() -> int:
    """KiB of this process in memory that belong to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])
    return 0


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--only", default="append,lookup,read,cold,partitions")
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], Iterator[Row]]] = {
        "append": appends, "lookup": lookups, "read": reads, "cold": cold,
        "partitions": lambda root: partitions(root, options.partitions),
    }  # fmt: skip
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=options.dir) as root:
            for what, figure, more in parts[name](Path(root)):
                print(f"{what:<62}{figure:>22}{more:>26}")


if __name__ == "__main__":
    main()

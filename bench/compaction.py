"""How fast a log is compacted: MB of log a second through our cleaner, in its helper process.

python -m bench.compaction [--megabytes 256] [--runs 3] [--codec none|lz4|zstd] [--kafka]

Three shapes: records of 1 KiB and of 100 bytes in batches of about 16 KiB with a tenth of the records living,
and single-record batches, which are the hardest. All of the log is dirty and read twice. With `--kafka` the
same is produced to each Apache Kafka, whose cleaner says in its log how fast it was.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.protocol.batches import read_header, stamp
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder
from strandline.storage.cleaning.job import Job, dump_job
from strandline.storage.disk import RealDisk
from strandline.storage.segment.file_names import LOG, file_name
from strandline.storage.segment.segment_swap import discard

from . import kafka_compaction
from .kafka import RELEASES

SEGMENT_BYTES = kafka_compaction.SEGMENT_BYTES
LIVING = 10  # one of so many records is its key's last
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    """What the records of a log look like."""

    name: str
    value_bytes: int
    batch_records: int


SHAPES = (Shape("1 KiB", 1024, 16), Shape("100 B", 100, 160), Shape("100 B, single", 100, 1))


def main() -> int:
    """Write each log once, clean it several times, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Codec], default="none")
    options = parser.parse_args()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="compaction-") as directory:
            sources, end, count = write_log(
                Path(directory), shape, options.megabytes << 20, Codec[options.codec.upper()]
            )
            job = job_of(directory, sources, end)
            runs = [clean(job) for _ in range(options.runs)]
            seconds = statistics.median(run["seconds"] for run in runs)
            cpu_s = statistics.median(run["cpu_s"] for run in runs)
            megabytes = sum(size for _, size in sources) / 1e6
            sys.stdout.write(
                f"{shape.name:14} {options.codec:6} {megabytes:7.0f} MB {count:9,} records  "
                f"{megabytes / seconds:7.1f} MB/s  {megabytes / cpu_s:7.1f} MB/CPU-s  "
                f"{count / seconds:11,.0f} records/s  "
                f"kept {runs[0]['written'] / 1e6:.0f} MB  peak {runs[0]['rss'] / 1e6:.0f} MB\n"
            )
            sys.stdout.flush()
            for kind in RELEASES if options.kafka else ():
                for said in kafka_compaction.clean(kind, Path(directory), shape.name, sources):
                    sys.stdout.write(f"{shape.name:14} {kind.name}: {said}\n")
                sys.stdout.flush()
    return 0


def write_log(
    directory: Path, shape: Shape, nbytes: int, codec: Codec
) -> tuple[list[tuple[int, int]], int, int]:
    """Segments on disk: their base offsets and sizes, the end offset and the number of records."""
    sources: list[tuple[int, int]] = []
    offset = written = 0
    while written < nbytes:
        base, size = offset, 0
        with (directory / file_name(base, LOG)).open("wb", buffering=1 << 20) as file:
            for batch in batches(shape, offset, codec, keys_of(shape, nbytes)):
                file.write(batch)
                size += len(batch)
                offset = read_header(batch).next_offset
                if size >= min(SEGMENT_BYTES, nbytes - written):
                    break
        sources.append((base, size))
        written += size
    return sources, offset, offset


def keys_of(shape: Shape, nbytes: int) -> int:
    return max(nbytes // (shape.value_bytes + 30) // LIVING, 1)


def batches(shape: Shape, offset: int, codec: Codec, keys: int) -> Iterator[bytearray]:
    """Updates of keys drawn at random."""
    draw = random.Random(offset)
    pool = draw.randbytes(1 << 20)
    while True:
        builder = BatchBuilder(codec)
        for _ in range(shape.batch_records):
            start = draw.randrange(len(pool) - shape.value_bytes)
            value = pool[start : start + shape.value_bytes // 2] + b"v" * (
                shape.value_bytes - shape.value_bytes // 2
            )
            builder.append(NOW_MS, b"key-%012d" % draw.randrange(keys), value)
        batch = bytearray(builder.build())
        stamp(batch, 0, offset, 0)
        yield batch
        offset += shape.batch_records


def job_of(directory: str, sources: list[tuple[int, int]], end: int) -> Job:
    return Job(
        directory=directory,
        sources=sources,
        later=[],
        first_dirty=0,
        upper=end,
        committed=end,
        now_ms=NOW_MS,
        delete_retention_ms=1000,
        segment_bytes=SEGMENT_BYTES,
        index_bytes_max=10 << 20,
        index_interval_bytes=4096,
        map_bytes=128 << 20,
        load_factor=0.9,
        bytes_per_second=1e300,
        producers=[],
        secret="00" * 16,
    )


def clean(job: Job) -> dict[str, float]:
    """One cleaning in a fresh helper that is warm: the time of its work alone."""
    helper = subprocess.Popen(
        [sys.executable, "-m", "strandline.storage.cleaning.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert helper.stdin is not None and helper.stdout is not None
    began = time.perf_counter()
    helper.stdin.write(dump_job(job))
    helper.stdin.flush()
    report: dict[str, float] = {}
    for line in helper.stdout:
        report = json.loads(line)
        if report["kind"] != "cleaned":
            break
    seconds = time.perf_counter() - began
    cpu_s = (
        sum(int(ticks) for ticks in Path(f"/proc/{helper.pid}/stat").read_text().split()[13:15]) / TICKS_PER_S
    )
    status = Path(f"/proc/{helper.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    helper.stdin.close()
    helper.wait()
    discard(RealDisk(), job.directory)
    assert report["kind"] == "done", report
    return {"seconds": seconds, "cpu_s": cpu_s, "written": report["bytes_written"], "rss": peak * 1024}


if __name__ == "__main__":
    sys.exit(main())

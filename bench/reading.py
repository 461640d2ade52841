"""How fast a log directory is read without a broker: rows a second, as records and as Arrow.

python -m bench.reading [--rows 500000] [--value-bytes 100] [--runs 3]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from strandline.base.types import TopicPartition
from strandline.protocol.batches import stamp
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder
from strandline.storage.reader import Reader

PARTITION = TopicPartition("reading", 0)
ROWS_PER_BATCH = 160  # 16 KiB of values, as a producer's batch.size has it


def main() -> int:
    """Write one segment for each codec and print the medians of reading it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        with tempfile.TemporaryDirectory() as place:
            write(Path(place), codec, options.rows, options.value_bytes)
            logs = Reader(place)
            ways: dict[str, Callable[[], int]] = {
                "records": lambda logs=logs: sum(1 for _ in logs.records(PARTITION)),
                "arrow": lambda logs=logs: sum(b.num_rows for b in logs.arrow_batches(PARTITION)),
            }
            for name, read in ways.items():
                rates = [rate(read, options.rows) for _ in range(options.runs)]
                median, least, most = statistics.median(rates), min(rates), max(rates)
                line = (
                    f"{codec.name.lower():5} {name:8} {median:12,.0f} rows/s [{least:,.0f} … {most:,.0f}]\n"
                )
                sys.stdout.write(line)
                sys.stdout.flush()
    return 0


def write(root: Path, codec: Codec, rows: int, value_bytes: int) -> None:
    """A segment of batches with random values, half of each compressible."""
    directory = root / str(PARTITION)
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as log:
        for base in range(0, rows, ROWS_PER_BATCH):
            builder = BatchBuilder(codec=codec)
            for number in range(base, min(base + ROWS_PER_BATCH, rows)):
                value = os.urandom(value_bytes // 2) + bytes(value_bytes - value_bytes // 2)
                builder.append(1_700_000_000_000 + number, b"%08d" % (number % 10_000), value)
            batch = bytearray(builder.build())
            stamp(batch, 0, base, 0)
            log.write(batch)


def rate(read: Callable[[], int], rows: int) -> float:
    """Rows per second of one pass."""
    start = time.perf_counter()
    assert read() == rows, "every row is read"
    return rows / (time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())

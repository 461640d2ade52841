"""How many records a second become Arrow: by numpy, by the compiled kernel, on one core.

python -m bench.decoding [--rounds 9] [--records 300000] [--ways]

Const: 100-byte values without keys. Var: keys of 16 bytes, values of 20 to 180. Headers: the same with two
headers each, which are decoded too. Batches of 16 KiB and of 1 MB, as fetches bring them, 4 MiB at a time;
the CRC is verified. All decoders take turns; the median counts. With `--ways`, each of numpy's ways to the
starts of the records is tried beside the one that is chosen.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from strandline.protocol import column_arrow, column_baseline, column_fields, columns, kernel
from strandline.protocol.batches import headers, stamp
from strandline.protocol.records import BatchBuilder, Header

CHUNK_BYTES = 4 << 20
BATCHES = {"16 KiB": 16 << 10, "1 MB": 1_000_000}
KINDS = ("const", "var", "headers")


def dataset(kind: str, batch_bytes: int, records: int) -> list[bytes]:
    """Fetches of about 4 MiB with so many records in all."""
    source = random.Random(1)
    pool = source.randbytes(1 << 20)

    def content(size: int) -> bytes:
        at = source.randrange(len(pool) - size)
        return pool[at : at + size]

    chunks, chunk, builder, base = [], bytearray(), BatchBuilder(), 0
    for nth in range(records):
        key, value = (
            (None, content(100)) if kind == "const" else (content(16), content(source.randint(20, 180)))
        )
        pairs: list[Header] = [("trace", content(16)), ("source", b"web")] if kind == "headers" else []
        builder.append(1_700_000_000_000 + (nth if key else 0), key, value, pairs)
        if builder.size >= batch_bytes or nth == records - 1:
            batch = bytearray(builder.build())
            stamp(batch, 0, base, 1)
            chunk += batch
            base, builder = nth + 1, BatchBuilder()
        if len(chunk) >= CHUNK_BYTES or nth == records - 1:
            chunks.append(bytes(chunk))
            chunk = bytearray()
    return [each for each in chunks if each]


def to_arrow(chunks: list[bytes], include_headers: bool) -> int:
    """Decode all; how many rows there are."""
    rows = 0
    for chunk in chunks:
        for piece in columns.runs(chunk):
            rows += column_arrow.to_arrow(piece, "topic", 0, include_headers).num_rows
    return rows


def ways() -> dict[str, Callable[..., object]]:
    """How numpy can find the starts of records, and how it chooses."""
    return {
        "chosen": column_fields.record_starts,
        "lockstep": lambda data, array, sections: column_fields.lockstep(array, sections),
        "strides": column_fields.strides,
        "loop": loop,
    }


def loop(
    data: bytes, array: column_fields.Bytes, sections: list[column_fields.Section]
) -> column_fields.Ints:
    """Only the plain loop over the lengths."""
    run = column_fields._run
    column_fields._run = lambda *_: (0, 0)
    try:
        return column_fields.strides(data, array, sections)
    finally:
        column_fields._run = run


def decoders(with_ways: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """What to switch to before a run, by name."""
    compiled = kernel.built().kernel

    def choose(with_kernel: object, starts: Callable[..., object]) -> None:
        kernel.compiled = lambda: with_kernel  # type: ignore[assignment, return-value]
        column_baseline.record_starts = starts  # type: ignore[assignment]

    for name, way in ways().items():
        if with_ways or name == "chosen":
            yield "numpy" if name == "chosen" else f"numpy, {name}", partial(choose, None, way)
    if compiled is not None:
        yield "compiled", partial(choose, compiled, column_fields.record_starts)


def main() -> int:
    """Measure each dataset, print a line for each decoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--ways", action="store_true")
    options = parser.parse_args()
    sys.stdout.write(f"load average {os.getloadavg()[0]:.2f}; kernel: {kernel.built().why}\n")
    for kind in KINDS:
        for name, size in BATCHES.items():
            chunks = dataset(kind, size, options.records)
            counts = [sum(1 for _ in headers(chunk)) for chunk in chunks]
            sys.stdout.write(f"{kind}, {name}: {sum(counts)} batches, {sum(map(len, chunks)) / 1e6:.0f} MB\n")
            measure(chunks, kind == "headers", options)
    return 0


def measure(chunks: list[bytes], include_headers: bool, options: argparse.Namespace) -> None:
    """Each decoder in turn, as many times as there are rounds, after one that does not count."""
    seconds: dict[str, list[float]] = {}
    for nth in range(options.rounds + 1):
        for name, choose in decoders(options.ways):
            choose()
            began = time.process_time()
            assert to_arrow(chunks, include_headers) == options.records
            if nth:
                seconds.setdefault(name, []).append(time.process_time() - began)
    size = sum(map(len, chunks))
    for name, runs in seconds.items():
        rates = sorted(options.records / run for run in runs)
        sys.stdout.write(
            f"    {name:16} {statistics.median(rates) / 1e6:6.2f} M rows/s "
            f"[{rates[0] / 1e6:.2f} … {rates[-1] / 1e6:.2f}] "
            f"{size / statistics.median(runs) / 1e6:6.0f} MB/s\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

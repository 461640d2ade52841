"""`strandline dump`: prints segments, indexes, snapshots and checkpoints, as Kafka's DumpLogSegments does.

It reads the files of a stopped or a running broker, Strandline's or Kafka's; it changes none and takes no
lock. The flags are those of DumpLogSegments, with one dash or two. It finds files (files.py), turns them into
rows (segment.py, index.py, small_files.py), and prints the rows (text.py).
Left to others: how a lookup goes (explain.py), records for programs (storage/reader.py).
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from ...storage.segment.file_names import INDEX, LOG, TIME_INDEX
from ...storage.segment_files import Damaged
from ..console import WrongUsage, clear_errors
from .decoders import DECODERS, decoder, offsets_decoder
from .explain import explain
from .files import Expanded, expand, kind_of
from .index import index_rows, time_index_rows
from .rows import BAD, Decode, Findings, Row, Wanted
from .segment import segment_rows
from .small_files import SMALL
from .text import printer
from .transaction_decoder import transaction_decoder

HELP = "Print segments, indexes, snapshots and checkpoints, or explain a lookup: DIRECTORY or --files F,G."
INT32_MAX = (1 << 31) - 1
MESSAGE_BYTES_MAX = 5 << 20
REFUSED = {
    "cluster-metadata-decoder": "metadata is in ZooKeeper, not in a log: use strandline zookeeper get PATH",
    "remote-log-metadata-decoder": "tiered storage is not supported",
}
FLAGS = {
    "print-data-log": "also print keys and values; any decoder option implies it",
    "deep-iteration": "print one line per record; --print-data-log implies it",
    "skip-record-metadata": "print only the key and value of each record",
    "index-sanity-check": "run only the check that decides at startup whether an index is rebuilt",
    "verify-index-only": "compare indexes with their segments and print only mismatches",
    "offsets-decoder": "decode records of __consumer_offsets",
    "transaction-log-decoder": "decode records of __transaction_state",
    "json": "print one JSON object per line",
}

Rows = Callable[[Path, Wanted, Findings], Iterator[Row]]
OF_A_SEGMENT: dict[str, Rows] = {LOG: segment_rows, INDEX: index_rows, TIME_INDEX: time_index_rows}


def main(arguments: Sequence[str]) -> int:
    """Dump the named files. Returns 0, or 1 if something is damaged or cannot be read."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # records may hold what the terminal cannot show
    with clear_errors():
        return _dump(_parser().parse_args(list(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("strandline dump", description=HELP, allow_abbrev=False)
    parser.add_argument("paths", nargs="*", help="files, partition directories or log directories")

    def add(name: str, **facts: object) -> None:
        parser.add_argument(f"-{name}", f"--{name}", **facts)  # type: ignore[arg-type]

    add("files", default="", help="files to print, separated by commas")
    for name, text in FLAGS.items():
        add(name, action="store_true", help=text)
    add(
        "max-message-size",
        type=int,
        default=MESSAGE_BYTES_MAX,
        help="largest batch to read when following an index entry, in bytes",
    )
    add("max-bytes", type=int, default=INT32_MAX, help="read at most this many bytes of each segment")
    for of in ("key", "value"):
        add(
            f"{of}-decoder-class",
            nargs="?",
            const="string",
            help=f"decoder of record {of}s: one of {', '.join(DECODERS)}, or the name of Kafka's class",
        )
    for name, why in REFUSED.items():
        add(name, action="store_true", help=f"not supported: {why}")
    add(
        "format",
        choices=("3.9", "0.11"),
        default="3.9",
        help="output format; 0.11 is the older one, with one record per line",
    )
    add("explain", type=int, metavar="OFFSET", help="show how OFFSET is looked up in a partition's directory")
    add("explain-time", metavar="TIME", help="show how a time is looked up: ms since 1970, or ISO 8601")
    return parser


def _dump(options: argparse.Namespace) -> int:
    for name, why in REFUSED.items():
        if getattr(options, name.replace("-", "_")):
            raise WrongUsage(f"--{name}: {why}")
    names = [name for name in options.files.split(",") if name] + options.paths
    if not names:
        raise WrongUsage("nothing to dump: give --files F,G or a directory")
    wanted = _wanted(options)
    show = printer(options.format, options.json, wanted.records)
    damaged = False
    for row in _rows(names, options, wanted):
        damaged |= row["kind"] in BAD or row.get("isvalid") is False
        text, stream = show(row)
        if text is not None:
            getattr(sys, stream).write(text + "\n")
    return 1 if damaged else 0


def _rows(names: Sequence[str], options: argparse.Namespace, wanted: Wanted) -> Iterator[Row]:
    if options.explain is not None or options.explain_time is not None:
        yield from explain(names, options.explain, options.explain_time)
        return
    findings = Findings()
    for found in expand(names):
        yield from _file(found, wanted, findings)
    yield from findings.rows()


def _wanted(options: argparse.Namespace) -> Wanted:
    internal = options.offsets_decoder or options.transaction_log_decoder
    decoding = internal or options.key_decoder_class or options.value_decoder_class
    contents = bool(options.print_data_log or decoding)
    return Wanted(
        contents=contents,
        records=contents or options.deep_iteration,
        metadata=not options.skip_record_metadata,
        sanity_only=options.index_sanity_check,
        verify_only=options.verify_index_only,
        bytes_max=options.max_bytes,
        cut=options.max_bytes != INT32_MAX,
        message_bytes_max=options.max_message_size,
        decode=_decode(options),
    )


def _decode(options: argparse.Namespace) -> Decode:
    if options.offsets_decoder:
        return offsets_decoder
    if options.transaction_log_decoder:
        return transaction_decoder
    return decoder(options.key_decoder_class or "string", options.value_decoder_class or "string")


def _file(found: Expanded, wanted: Wanted, findings: Findings) -> Iterator[Row]:
    """The rows of one file. Files found in a directory may be of an unknown kind, or gone by now."""
    path, kind = found.path, kind_of(found.path)
    rows = OF_A_SEGMENT.get(kind) or SMALL.get(kind)
    if not found.listed and not path.is_file():
        yield {"kind": "missing", "file": str(path)}
        return
    if rows is None and found.listed:
        yield {"kind": "passed_over", "file": str(path)}
        return
    yield {"kind": "file", "file": str(path)}
    if rows is None:
        yield {"kind": "misnamed" if path.suffix in OF_A_SEGMENT else "unknown", "file": str(path)}
        return
    try:
        yield from rows(path, wanted, findings)
    except Damaged as error:
        problem = {"file": error.path, "position": error.position, "problem": error.problem}
        yield {"kind": "damage", **problem}
    except FileNotFoundError:
        yield {"kind": "gone" if found.listed else "missing", "file": str(path)}
    except OSError as error:
        yield {"kind": "damage", "file": str(path), "position": 0, "problem": error.strerror or str(error)}

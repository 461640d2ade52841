"""What Kafka's own dump tool, `kafka.tools.DumpLogSegments`, makes of the log directories of stopped brokers.

It reads every file of a log: it checks each batch, and each index against its segment. What it finds in the
replicas of a partition is compared: batches with their checksums, transactions that were aborted, and the
last state of producers, which brokers of both kinds write for themselves. Left to others: the logs byte for
byte (verify/replicas.py).
"""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from ....base.types import TopicPartition
from ....local.embedded_zookeeper import java
from ..replicas import holds_log
from .base import PlaceProblem

MAIN = "kafka.tools.DumpLogSegments"
FLAGS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m%n
"""
INDEXES = (".index", ".timeindex")
FILES = (".log", *INDEXES, ".snapshot", ".txnindex")
BATCH, RECORD = "baseOffset: ", "| offset: "
COMPLAINTS = (
    "mismatch", "out of order", "non-consecutive", "not found", "isvalid: false", "warn", "error",
    "exception",
)  # fmt: skip
BEGINS = re.compile(r"Dumping (.+)")
WITHIN_S = 300.0
AT_ONCE = 400  # files: a command line has an end
OF_PLACE = re.compile(r" position: \d+")
PRODUCER = re.compile(r"producerId: (\d+) producerEpoch: (-?\d+) .*currentTxnFirstOffset: (\S+)")
LAST_BATCH = re.compile(r"firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+)")
STABLE = re.compile(r" lastStableOffset: \d+")
OFFSETS = "__consumer_offsets-"
SHOWN = 300


def examined(
    libs: Path,
    folder: Path,
    places: Mapping[int, Path],
    holders: Mapping[TopicPartition, Sequence[int]],
    unindexed: Iterable[int] = (),
) -> list[str]:
    """A sentence for what the tool complains of, and for each partition of whose replicas it tells different
    things. `libs` holds its jars, `folder` gets its settings. Indexes of the brokers `unindexed` are left
    out. Raises PlaceProblem if it does not run.
    """
    files = sorted(
        path
        for id, data in places.items()
        for log in data.iterdir()
        if holds_log(log)
        for path in log.iterdir()
        if path.suffix in FILES and not (id in unindexed and path.suffix in INDEXES)
    )
    told = dict(sections(dumped(libs, folder, files)))
    missing = [str(path) for path in files if path not in told]
    found = [f"Kafka's dump tool says nothing of {path}" for path in missing]
    found += [
        f"Kafka's dump tool says of {path}: {line[:SHOWN]}"
        for path, lines in told.items()
        for line in complaints(lines)
    ]
    for tp, brokers in sorted(holders.items()):
        found += differences(tp, {id: places[id] / str(tp) for id in brokers if id in places}, told)
    return found


def dumped(libs: Path, folder: Path, files: Sequence[Path]) -> str:
    """All that it says of these files. Raises PlaceProblem."""
    settings = folder / "dump-log4j.properties"
    settings.write_text(LOGGING)
    said = []
    for begin in range(0, len(files), AT_ONCE):
        names = ",".join(map(str, files[begin : begin + AT_ONCE]))
        line = [java(), *FLAGS, f"-Dlog4j.configuration=file:{settings}", "-cp", f"{libs}/*", MAIN]
        done = subprocess.run(
            [*line, "--deep-iteration", "--files", names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=WITHIN_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise PlaceProblem(f"{MAIN} ended with status {done.returncode}: {done.stdout[-1000:]}")
        said.append(done.stdout)
    return "".join(said)


def sections(said: str) -> Iterator[tuple[Path, list[str]]]:
    """What stands behind the name of each file."""
    path, lines = None, list[str]()
    for line in said.splitlines():
        if begins := BEGINS.fullmatch(line):
            if path is not None:
                yield path, lines
            path, lines = Path(begins[1]), []
        elif path is not None:
            lines.append(line)
    if path is not None:
        yield path, lines


def complaints(lines: Iterable[str]) -> list[str]:
    """The lines that are no plain reading."""
    return [
        line
        for line in lines
        if not line.startswith(RECORD) and any(word in line.lower() for word in COMPLAINTS)
    ]


def differences(
    tp: TopicPartition, folders: Mapping[int, Path], told: Mapping[Path, Sequence[str]]
) -> Iterator[str]:
    """A sentence for each kind of thing of which it tells differently of two replicas."""
    for what, read in (
        ("batches", batches), ("aborted transactions", aborted), ("producers", producers),
    ):  # fmt: skip
        read_of = {id: read(folder, told) for id, folder in sorted(folders.items())}
        for (one, mine), (other, its) in pairwise(read_of.items()):
            if mine != its:
                only = [line for line in mine if line not in set(its)][:1]
                its_only = [line for line in its if line not in set(mine)][:1]
                yield (
                    f"{tp}: Kafka's dump tool finds other {what} at broker {one} than at broker {other}: "
                    f"{len(mine)} and {len(its)}, first {only} and {its_only}"
                )


def batches(folder: Path, told: Mapping[Path, Sequence[str]]) -> list[str]:
    """Each batch of all segments, wherever in its segment it stands."""
    lines = (line for path in of_kind(folder, ".log", told) for line in told[path])
    return [OF_PLACE.sub("", line) for line in lines if line.startswith(BATCH)]


def aborted(folder: Path, told: Mapping[Path, Sequence[str]]) -> list[str]:
    """The transactions that were aborted; without the stable offset, which is another one in Kafka's replicas
    if a follower has got the marker and what comes after it at once.
    """
    lines = (line for path in of_kind(folder, ".txnindex", told) for line in told[path])
    return [STABLE.sub("", line) for line in lines]


def producers(folder: Path, told: Mapping[Path, Sequence[str]]) -> list[str]:
    """What is known of each producer as of the end of the log: its epoch, where its open transaction begins,
    and its last numbered batch. Coordinators of groups number nothing (ours), or begin anew with each batch
    (Kafka's), so that is not asked of their logs.
    """
    is_numbered = not folder.name.startswith(OFFSETS)
    found = []
    for line in (line for path in of_kind(folder, ".snapshot", told)[-1:] for line in told[path]):
        if known := PRODUCER.match(line):
            last = LAST_BATCH.search(line)
            found.append((*known.groups(), *(last.groups() if last and is_numbered else ())))
    return [" ".join(one) for one in sorted(found)]


def of_kind(folder: Path, suffix: str, told: Mapping[Path, Sequence[str]]) -> list[Path]:
    """The files of a log, in order."""
    return sorted(path for path in told if path.parent == folder and path.suffix == suffix)

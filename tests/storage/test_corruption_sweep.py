"""The corruption sweep: every byte of every file of a small log directory is flipped, one at a time.

After each flip the broker starts and is asked everything. Either the answers are those of the undamaged
log, or the start is refused, or the replica is said to be doubtful and what is left of it is right, or the
question is refused (the partition goes offline), or whoever reads the batch finds its checksum wrong. What
is wrong and goes unnoticed stands in `UNDETECTED`, and so in docs/formats/undetected.md, with its reason;
nothing else may.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from strandline.protocol.batches import headers
from strandline.storage.directories.incarnation import WrongDirectory
from strandline.storage.directories.log_manager import Obstructed
from tests.storage.small_directory import (
    CHECKSUM,
    END,
    FIRST_RECORD,
    REFUSED,
    START,
    Files,
    Observed,
    Started,
    Stop,
    build,
    observe,
    start,
)

Field = tuple[str, str]  # kind of file, what stands there

UNSCANNED = frozenset({Stop.CRASH_FLUSHED, Stop.CLEAN})
EVER = frozenset(Stop)
STOPS = {EVER: "any stop", UNSCANNED: "recovery point at the end, or clean stop"}


@dataclass(frozen=True)
class Undetected:
    """What is wrong after a flip in a field that nobody notices, after which stops, and why that is so."""

    wrong: frozenset[str]
    stops: frozenset[Stop]
    reason: str


def _undetected(wrong: str, stops: frozenset[Stop], reason: str) -> Undetected:
    return Undetected(frozenset(wrong.split(", ")), stops, reason)


READER = "sealed segments are not read at a start; whoever reads the batch finds its checksum wrong"
TIME = f"{READER}, but a lookup by time may have passed it by its header"
FIRST_EPOCH = "no batch before it contradicts it, and batches are believed before the epoch file"
LAST_OF_EPOCH = "the last batch of an epoch may claim the next: batches are believed before the epoch file"
NO_CHECKSUM = "Kafka's format has no checksum: "
INSIDE = " of the batch inside which the log begins"

UNDETECTED: dict[Field, Undetected] = {
    **{
        (".log", what): _undetected("checksum", UNSCANNED, READER)
        for what in (
            "checksum", "attributes", "base timestamp", "producer id", "producer epoch", "base sequence",
            "record count", "records",
        )
    },
    (".log", "max timestamp"): _undetected("checksum, times", UNSCANNED, TIME),
    (".log", "leader epoch"): _undetected("epochs, places, times", EVER, LAST_OF_EPOCH),
    (".log", f"leader epoch{INSIDE}"): _undetected("epochs, places, times", EVER, FIRST_EPOCH),
    **{
        ("log-start-offset-checkpoint", what): _undetected(
            "bounds", EVER, f"{NO_CHECKSUM}records are hidden, or deleted ones seen again"
        )
        for what in ("topic", "partition", "offset")
    },
    ("replication-offset-checkpoint", "offset"): _undetected(
        "high watermark", EVER, f"{NO_CHECKSUM}no log is cut by it, and it is never beyond the log's end"
    ),
    ("cleaner-offset-checkpoint", "topic"): _undetected(
        "cleaned, gaps", EVER, f"{NO_CHECKSUM}what counts as compacted may have gaps"
    ),
    ("partition.metadata", "topic id"): _undetected(
        "topic id", EVER, f"{NO_CHECKSUM}the log is set aside when the controller tells another id, and kept"
    ),
}  # fmt: skip
FIELDS = (
    (8, "base offset"), (12, "batch length"), (16, "leader epoch"), (17, "magic"), (21, "checksum"),
    (23, "attributes"), (27, "last offset delta"), (35, "base timestamp"), (43, "max timestamp"),
    (51, "producer id"), (53, "producer epoch"), (57, "base sequence"), (61, "record count"),
)  # fmt: skip

ENTRY = {(2, 0): "topic", (2, 1): "partition", (2, 2): "offset"}
WORDS = {
    "log-start-offset-checkpoint": ENTRY,
    "replication-offset-checkpoint": ENTRY,
    "cleaner-offset-checkpoint": ENTRY,
    "partition.metadata": {(1, 1): "topic id"},
}


def fields_of(path: str, data: bytes) -> Iterator[Field]:
    """What stands at each byte of a file."""
    name = path.rpartition("/")[2]
    suffix = name[20:] if name[:20].isdigit() else ""
    if suffix == ".log":
        for _, header in headers(data):
            inside = header.base_offset < START < header.next_offset
            for place in range(header.size):
                what = next((what for end, what in FIELDS if place < end), "records")
                yield suffix, what + INSIDE * (inside and what == "leader epoch")
    else:
        line = word = 0
        for byte in data:
            yield suffix or name, WORDS.get(name, {}).get((line, word), "")
            line, word = (line + 1, 0) if byte == ord("\n") else (line, word + (byte == ord(" ")))


def flips(files: Files, bits: Sequence[int]) -> Iterator[tuple[str, int, Field, Files]]:
    """The files with one bit changed, in each byte one after the other."""
    for path, data in sorted(files.items()):
        for position, field in enumerate(fields_of(path, data)):
            # an epoch may also be turned into that of its neighbour
            for bit in {*bits, 1} if field[1].startswith("leader epoch") else bits:
                damaged = bytearray(data)
                damaged[position] ^= 1 << bit
                yield path, position, field, {**files, path: bytes(damaged)}


def unnoticed(files: Files, original: Observed) -> set[str]:
    """What is wrong after a start on damaged files without anybody being told."""
    try:
        started = start(files)
    except (WrongDirectory, Obstructed):
        return set()
    answers = observe(started)
    assert are_genuine(answers, original), "records that were never written"
    if started.doubted:
        return set()
    if answers["bounds"] not in (original["bounds"], REFUSED):
        return {"bounds"}  # then other answers differ, too
    return {
        "checksum" if answer == CHECKSUM else name
        for name, answer in answers.items()
        if not right(name, answer, original[name], started)
    }


def right(name: str, answer: object, wanted: object, started: Started) -> bool:
    if name == "gaps":
        return answer == wanted or started.repaired  # what cannot be read is not claimed
    if name == "topic id":
        return answer in (wanted, None)  # the controller tells it again
    if name == "high watermark":
        return answer <= wanted  # type: ignore[operator]
    return answer in (wanted, REFUSED)


def are_genuine(answers: Observed, original: Observed) -> bool:
    """Whether all records that can be read have been written so, whatever else is wrong."""
    records = answers.get("records", ())
    return records in (REFUSED, CHECKSUM) or set(records) <= {FIRST_RECORD, *original["records"]}  # type: ignore


@pytest.fixture
def silent() -> Iterator[None]:
    """Thousands of starts with something to report."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


def sweep(stop: Stop, bits: Sequence[int]) -> dict[Field, set[str]]:
    """For each field in which a flip went unnoticed, what was wrong then."""
    files = build(stop)
    sane = start(files)
    original = observe(sane)
    assert not sane.doubted and not sane.repaired
    assert original["bounds"] == (START, END)
    assert len(original["records"]) == END - START  # type: ignore[arg-type]
    found: dict[Field, set[str]] = defaultdict(set)
    for path, position, field, damaged in flips(files, bits):
        try:
            lies = unnoticed(damaged, original)
        except Exception as error:
            raise AssertionError(f"{path}@{position} ({field}) after a {stop.value}: {error!r}") from error
        if lies:
            found[field] |= lies
    return dict(found)


def expected(stop: Stop) -> dict[Field, set[str]]:
    return {field: set(each.wrong) for field, each in UNDETECTED.items() if stop in each.stops}


@pytest.mark.slow
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("stop", Stop)
def test_nothing_is_wrong_and_unnoticed_but_what_is_listed(stop: Stop) -> None:
    found = sweep(stop, [0])
    assert found == expected(stop)


@pytest.mark.long
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("bit", range(1, 8))
@pytest.mark.parametrize("stop", Stop)
def test_nor_with_any_other_bit(stop: Stop, bit: int) -> None:
    listed = expected(stop)
    found = {field: lies - listed.get(field, set()) for field, lies in sweep(stop, [bit]).items()}
    assert {field: lies for field, lies in found.items() if lies} == {}


def test_the_list_is_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs/formats/undetected.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        f"| `{kind}` | {field} | {', '.join(sorted(each.wrong))} | {STOPS[each.stops]} | {each.reason} |"
        for (kind, field), each in UNDETECTED.items()
    ]

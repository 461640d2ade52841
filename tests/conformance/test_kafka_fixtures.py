"""Files that Apache Kafka 3.9 wrote (tests/fixtures/kafka), read and written again by our own code.

What we write where Kafka writes, we write byte for byte as it does; what it wrote, we read as its own
client did (records.json, groups.json).
"""

import json
import shutil
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups import offset_records
from strandline.broker.groups.offset_records import GroupMetadataKey, OffsetCommitKey
from strandline.protocol.batches import read_header
from strandline.protocol.records import Record, iterate
from strandline.storage.config import StorageConfig
from strandline.storage.directories.incarnation import CleanMarker
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DirectoryLocked, RealDisk
from strandline.storage.log import checkpoints
from strandline.storage.log.log import Log
from strandline.storage.log.producer_state import ProducerStates
from strandline.storage.segment.index import OffsetIndex, TimeIndex
from tests.storage.transactions import Truth, raw, seen_by_a_reader

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "kafka"
CLEAN, KILLED = FIXTURES / "clean", FIXTURES / "killed"
DISK = RealDisk()
RECORDS: dict[str, list[list[Any]]] = json.loads((FIXTURES / "records.json").read_text())
GROUPS: dict[str, dict[str, list[Any]]] = json.loads((FIXTURES / "groups.json").read_text())
INTERVAL = 256  # index.interval.bytes of the topics whose indexes are looked at
END_OF_TEXT = "\0"  # confluent-kafka stores one behind the metadata, and hides it when it reads
BIG_SIZE = 1 << 30


class Stopped:
    """A wall clock that stands still."""

    def wall_ms(self) -> int:
        return 1_800_000_000_000


class Opened:
    """Kafka's log directory, opened by us."""

    def __init__(self, data: Path, clean: bool) -> None:
        self.doubts: list[str] = []
        self.logs = Logs.open(
            [str(data)],
            DISK,
            StorageConfig(index_interval_bytes=INTERVAL),
            Stopped(),
            clean=clean,
            before_loss=lambda partition, reason: self.doubts.append(f"{partition}: {reason}"),
        )

    def log(self, name: str) -> Log:
        topic, _, number = name.rpartition("-")
        return self.logs.logs[TopicPartition(topic, int(number))]


@pytest.fixture(params=[False, True], ids=["scanned", "believed"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """A copy, once scanned from end to end and once trusted as after a clean stop."""
    shutil.copytree(CLEAN, tmp_path / "data")
    if not request.param:
        (tmp_path / "data" / checkpoints.RECOVERY_POINTS).unlink()
    here = Opened(tmp_path / "data", request.param)
    yield here
    here.logs.close(clean=False)


def files(where: Path, suffix: str) -> list[Any]:
    found = sorted(where.rglob(f"*{suffix}"))
    assert found
    return [pytest.param(path, id=str(path.relative_to(where))) for path in found]


def users(log: Log, start: int | None = None) -> Iterator[Record]:
    """All records but markers, from `start` or the log's start on, fetch by fetch."""
    offset = first = log.start_offset if start is None else start
    while offset < log.end_offset:
        data = b"".join(map(bytes, log.read(offset, 1 << 20, log.end_offset).parts))
        if not data:  # the rest of the log was compacted away
            return
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control:
                yield from (r for r in iterate(data[at : at + header.size]) if r.offset >= first)
            at, offset = at + header.size, header.next_offset


def row(record: Record) -> list[Any]:
    """A record as records.json has it."""
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, _text(record.key), _text(record.value), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


# -- small files


@pytest.mark.parametrize("path", files(CLEAN, "-offset-checkpoint"))
def test_an_offset_checkpoint_is_written_as_kafka_writes_it(path: Path, tmp_path: Path) -> None:
    """Kafka's order is that of a hash map; ours is sorted. The lines are the same."""
    again = tmp_path / path.name
    checkpoints.write_offsets(DISK, str(again), checkpoints.read_offsets(DISK, str(path)))
    ours, theirs = again.read_bytes().splitlines(True), path.read_bytes().splitlines(True)
    assert ours[:2] == theirs[:2]
    assert sorted(ours[2:]) == sorted(theirs[2:])


@pytest.mark.parametrize("path", files(CLEAN, "leader-epoch-checkpoint"))
def test_a_history_of_epochs_is_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    again = tmp_path / path.name
    entries = checkpoints.read_epochs(DISK, str(path))
    assert entries is not None
    checkpoints.write_epochs(DISK, str(again), entries, sync=False)
    assert again.read_bytes() == path.read_bytes()


def test_there_are_several_epochs_among_them() -> None:
    entries = checkpoints.read_epochs(DISK, str(CLEAN / "epochs-0" / "leader-epoch-checkpoint"))
    assert entries == [(0, 0), (2, 1), (4, 3)]


@pytest.mark.parametrize("path", files(CLEAN, "partition.metadata"))
def test_a_topic_id_is_written_byte_for_byte(path: Path, tmp_path: Path) -> None:
    again = tmp_path / path.name
    topic_id = checkpoints.read_partition_metadata(DISK, str(path))
    assert topic_id is not None
    checkpoints.write_partition_metadata(DISK, str(again), topic_id)
    assert again.read_bytes() == path.read_bytes()


def test_the_owner_of_a_directory_is_written_line_for_line(tmp_path: Path) -> None:
    """But for the date, which Kafka writes as a comment."""
    path, again = CLEAN / "meta.properties", tmp_path / "meta.properties"
    found = checkpoints.read_properties(DISK, str(path))
    assert found is not None and {"broker.id", "version", "cluster.id"} <= set(found)
    checkpoints.write_properties(DISK, str(again), found)
    assert again.read_text().splitlines() == [
        line for line in path.read_text().splitlines() if not line.startswith("#")
    ]


def test_a_clean_marker_is_written_byte_for_byte() -> None:
    data = (CLEAN / ".kafka_cleanshutdown").read_bytes()
    assert CleanMarker.model_validate_json(data).model_dump_json().encode() == data


# -- indexes and snapshots


@pytest.mark.parametrize("path", files(CLEAN, ".index"))
def test_an_offset_index_is_written_byte_for_byte(path: Path) -> None:
    index = OffsetIndex.load(path.read_bytes())
    assert index.plausible(BIG_SIZE) or "-delete" in str(path)
    assert index.dump() == path.read_bytes()


@pytest.mark.parametrize("path", files(CLEAN, ".timeindex"))
def test_a_time_index_is_written_byte_for_byte(path: Path) -> None:
    times = TimeIndex.load(path.read_bytes())
    assert times.plausible(BIG_SIZE) or "-delete" in str(path)
    assert times.dump() == path.read_bytes()


@pytest.mark.parametrize("path", files(CLEAN, ".snapshot"))
def test_a_producer_snapshot_is_written_byte_for_byte(path: Path) -> None:
    states = ProducerStates(1000)
    states.restore(path.read_bytes())
    assert states.snapshot() == path.read_bytes()


@pytest.mark.parametrize(
    "name", ["codecs-0", "codecs-1", "codecs-2", "codecs-3", "codecs-4", "idempotent-0", "times-0"]
)
def test_indexes_built_from_the_data_are_those_that_kafka_built(name: str, tmp_path: Path) -> None:
    shutil.copytree(CLEAN / name, tmp_path / name)
    for path in [*(tmp_path / name).glob("*.index"), *(tmp_path / name).glob("*.timeindex")]:
        path.unlink()
    here = Opened(tmp_path, clean=False)
    assert here.logs.close()
    for theirs in sorted([*(CLEAN / name).glob("*.index"), *(CLEAN / name).glob("*.timeindex")]):
        assert (tmp_path / name / theirs.name).read_bytes() == theirs.read_bytes(), theirs.name


# -- logs


def test_every_record_is_read_as_kafkas_client_read_it(opened: Opened) -> None:
    assert opened.doubts == []
    for name, rows in RECORDS.items():
        assert [row(record) for record in users(opened.log(name))] == rows, name


@pytest.mark.parametrize("content", [b"", b"?"], ids=["empty", "damaged"])
def test_gaps_that_kafka_left_are_no_loss_though_nothing_tells_of_them(
    tmp_path: Path, content: bytes
) -> None:
    """Neither the cleaner's checkpoint, which Kafka makes empty, nor a file of our own."""
    shutil.copytree(CLEAN, tmp_path / "data")
    (tmp_path / "data" / checkpoints.RECOVERY_POINTS).unlink()
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_bytes(content)
    here = Opened(tmp_path / "data", clean=False)
    assert here.doubts == []
    assert [row(record) for record in users(here.log("compacted-0"))] == RECORDS["compacted-0"]
    here.logs.close(clean=False)


def test_offsets_in_gaps_lead_to_the_next_record(opened: Opened) -> None:
    log, offsets = opened.log("compacted-0"), [found[0] for found in RECORDS["compacted-0"]]
    assert offsets[0] > 0 and len(offsets) < log.end_offset - 50
    for offset in range(log.end_offset):
        found = next(users(log, offset)).offset
        assert found == offsets[bisect_left(offsets, offset)]


def test_times_lead_to_the_first_record_that_is_as_late(opened: Opened) -> None:
    log, rows = opened.log("times-0"), RECORDS["times-0"]
    for ms in range(min(r[1] for r in rows) - 10, max(r[1] for r in rows) + 20, 41):
        expected = next(((r[1], r[0]) for r in rows if r[1] >= ms), None)
        found = log.find_timestamp(ms, log.end_offset)
        assert (found and found[:2]) == expected, ms


def test_producers_known_from_headers_are_those_of_the_snapshot(opened: Opened) -> None:
    log = opened.log("idempotent-0")
    states = ProducerStates(1000)
    states.restore((CLEAN / "idempotent-0" / "00000000000000000120.snapshot").read_bytes())
    assert len(states) == len(log.producers) == 3
    for number, segment in enumerate(log.segments):
        for _, header in segment.headers():
            known = log.producers.get(header.producer_id)
            assert known is not None, number
            if header.last_sequence == known.last_sequence:
                found = log.producers.check(header)
                assert found is not None and found.base_offset == header.base_offset
                assert found == states.check(header)


def test_what_kafka_left_when_it_was_killed_is_read_to_the_end(tmp_path: Path) -> None:
    shutil.copytree(KILLED, tmp_path / "data")
    here = Opened(tmp_path / "data", clean=False)
    kept = ("times-0", "idempotent-0")  # of all that its checkpoints name
    assert not [doubt for doubt in here.doubts if doubt.startswith(kept)]
    assert all(doubt.endswith("its directory is missing") for doubt in here.doubts)
    times = [row(record) for record in users(here.log("times-0"))]
    assert [found[0] for found in times] == list(range(300))
    assert times[60:150] == RECORDS["times-0"]
    assert [found[1:] for found in times[210:]] == [found[1:] for found in RECORDS["times-0"]]
    assert [record.offset for record in users(here.log("idempotent-0"))] == list(range(240))
    assert here.logs.close()


def test_a_partition_that_kafka_was_deleting_is_not_opened(opened: Opened) -> None:
    (gone,) = (path.name for path in CLEAN.iterdir() if path.name.endswith("-delete"))
    assert gone.startswith("gone-0.")
    assert TopicPartition("gone", 0) not in opened.logs.logs


def test_what_kafka_aborted_is_known_and_its_index_written_byte_for_byte(opened: Opened) -> None:
    """Scanned, the index is made from the markers; believed, it is Kafka's own."""
    log, (index,) = opened.log("transactions-0"), (CLEAN / "transactions-0").glob("*.txnindex")
    assert Path(log.directory, index.name).read_bytes() == index.read_bytes()
    (entry,) = log.aborts.entries(log.end_offset)
    assert log.aborted(0, log.end_offset) == [(entry.producer_id, entry.first_offset)]
    truth = Truth(raw(log))
    assert set(log.aborted(0, log.end_offset)) == truth.aborted(0, log.end_offset) != set()
    assert dict(log.producers.open_transactions()) == truth.open
    assert log.last_stable_offset(log.end_offset) == truth.last_stable(log.end_offset)
    seen = seen_by_a_reader(raw(log), log.aborted(0, log.end_offset), 0)
    assert seen == {record.offset for record in users(log)} - truth.aborted_offsets


def test_producers_of_transactions_are_those_of_kafkas_snapshot(opened: Opened) -> None:
    log, states = opened.log("transactions-0"), ProducerStates(1000)
    newest = max((CLEAN / "transactions-0").glob("*.snapshot"))
    states.restore(newest.read_bytes())
    assert int(newest.stem) == log.end_offset
    for producer_id, theirs in states.items():
        ours = log.producers.get(producer_id)
        assert ours is not None
        for field in ("epoch", "coordinator_epoch", "transaction_first_offset", "last_timestamp"):
            assert getattr(ours, field) == getattr(theirs, field), (producer_id, field)
        assert ours.last_sequence == theirs.last_sequence


def test_an_index_of_aborted_transactions_stays_as_long_as_its_segment(tmp_path: Path) -> None:
    shutil.copytree(CLEAN / "transactions-0", tmp_path / "transactions-0")
    (index,) = (tmp_path / "transactions-0").glob("*.txnindex")
    orphan = index.with_name(f"{99:020d}.txnindex")
    shutil.copy(index, orphan)
    Opened(tmp_path, clean=False).logs.close(clean=False)
    assert index.exists() and not orphan.exists()


TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as FileChannel.tryLock of a JVM
    except BlockingIOError:
        sys.exit(7)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_directory_is_locked_for_kafka_as_for_us(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held, line = DISK.lock(str(path)), [sys.executable, "-c", TRY_LOCK, str(path)]
    assert subprocess.run(line, stdin=subprocess.DEVNULL, check=False).returncode == 7
    held.release()
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kafka:
        assert kafka.stdout is not None and kafka.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryLocked):
            DISK.lock(str(path))
        kafka.communicate()
    DISK.lock(str(path)).release()


def test_what_groups_committed_is_read_and_written_byte_for_byte(opened: Opened) -> None:
    committed: dict[str, dict[str, list[Any]]] = {}
    groups = 0
    for record in users(opened.log("__consumer_offsets-0")):
        assert record.key is not None and record.value is not None
        key = offset_records.read_key(record.key)
        if isinstance(key, OffsetCommitKey):
            value = offset_records.read_offset(record.value)
            name = f"{key.topic}-{key.partition}"
            committed.setdefault(key.group, {})[name] = [value.offset, value.metadata.rstrip(END_OF_TEXT)]
            assert offset_records.offset_key(key.group, key.topic, key.partition) == record.key
            assert offset_records.offset_value(value) == record.value
        else:
            assert isinstance(key, GroupMetadataKey)
            groups += 1
            assert offset_records.group_key(key.group) == record.key
            assert offset_records.group_value(offset_records.read_group(record.value)) == record.value
    assert committed == GROUPS
    assert groups >= 2

"""`strandline dump` beside Apache Kafka 3.9's DumpLogSegments: of the same files the same lines."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest
from kafka_peer import java

from strandline.base.types import TopicPartition
from strandline.broker.groups import offset_records
from strandline.broker.groups.offset_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from strandline.cli.dump.command import main
from strandline.client.consumer.group_protocol import encode_assignment, encode_subscription
from strandline.protocol.batches import ATTRIBUTES, ATTRIBUTES_AT, read_header, seal, stamp, stamp_append_time
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk

KAFKA = Path(__file__).resolve().parents[1] / "fixtures" / "kafka"
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
START_MS = 1_700_000_000_000
DELETE_HORIZON = 0x40


class Stopped:
    """A wall clock that stands still."""

    def wall_ms(self) -> int:
        return START_MS


def batch_of(
    base: int,
    count: int = 5,
    *,
    key: bytes | None = b"\xc3\xa9\xff",
    value: bytes | None = b"v",
    **facts: int,
) -> bytearray:
    builder = BatchBuilder(**facts)
    for number in range(count):
        builder.append(
            START_MS + base + number, [key, None][number % 2], value, [("h", b"1"), ("i", None)][: number % 3]
        )
    batch = bytearray(builder.build())
    stamp(batch, 0, base, 2)
    return batch


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log of ours with every codec, idempotent producers, several segments, indexes and snapshots."""
    root = tmp_path_factory.mktemp("dump")
    storage = StorageConfig(segment_bytes=3000, index_interval_bytes=200)
    logs = Logs.open([str(root)], RealDisk(), storage, Stopped(), clean=True, before_loss=lambda _p, _r: None)
    log = logs.create(TopicPartition("ours", 0), None, TopicConfig.of(storage))
    for number in range(30):
        producer = {"producer_id": 5, "producer_epoch": 1, "base_sequence": number * 5}
        batch = batch_of(0, codec=number % 5, value=b"value %d " % number * 4, **producer)
        log.append(memoryview(batch), read_header(batch), 2, START_MS)
    logs.close()
    write_oddities(root / "odd-0")
    write_groups(root / "groups-0")
    yield root


def write_oddities(place: Path) -> None:
    """Control batches, append time, a delete horizon, gaps, a wrong checksum, a torn tail, wrong indexes."""
    place.mkdir()
    builder = BatchBuilder(control=True, transactional=True, producer_id=9, producer_epoch=0)
    builder.append(START_MS, b"\0\0\0\1", b"\0\0\0\0\0\5")
    commit = bytearray(builder.build())
    stamped = batch_of(3)
    stamp_append_time(stamped, 0, START_MS + 99)
    horizon = batch_of(10, value=None)
    ATTRIBUTES.pack_into(horizon, ATTRIBUTES_AT, DELETE_HORIZON)
    seal(horizon, 0, len(horizon))
    flipped = batch_of(20)
    flipped[-3] ^= 1
    last = batch_of(30, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2)
    batches = [commit, stamped, horizon, flipped, last]
    (place / "00000000000000000000.log").write_bytes(b"".join(batches) + b"torn")
    second = len(commit)
    offsets, times = Struct(">ii").pack, Struct(">qi").pack
    (place / "00000000000000000000.index").write_bytes(offsets(7, second) + offsets(9, second) + bytes(64))
    entries = times(START_MS + 99, 7), times(START_MS + 9, 14), times(START_MS + 9, 15), times(START_MS, 99)
    (place / "00000000000000000000.timeindex").write_bytes(b"".join(entries) + bytes(48))
    (place / "00000000000000000100.log").write_bytes(b"")
    for suffix in (".index", ".timeindex"):
        (place / f"00000000000000000100{suffix}").write_bytes(b"")


def write_groups(place: Path) -> None:
    """Records of `__consumer_offsets`, with a generation of two kinds of groups."""
    place.mkdir()
    owned = [TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)]
    subscription = encode_subscription(["t", "u"], owned, 4), encode_assignment(owned)
    builder = BatchBuilder()
    offset = OffsetCommitValue(offset=5, leader_epoch=2, metadata='a "b" é', commit_timestamp=START_MS)
    key = offset_records.offset_key("g", "t", 0)
    builder.append(START_MS, key, offset_records.offset_value(offset))
    builder.append(START_MS, key, None)
    for kind in ("consumer", "connect"):
        members = [
            MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout=9,
                rebalance_timeout=8,
                subscription=subscription[0],
                assignment=subscription[1],
            )
        ]
        group = GroupMetadataValue(
            protocol_type=kind, generation=4, protocol="range", leader="m", members=members
        )
        builder.append(START_MS, offset_records.group_key(kind), offset_records.group_value(group))
    builder.append(START_MS, b"\0\x63x", b"v")
    (place / "00000000000000000000.log").write_bytes(builder.build())


FLAGS = {
    "batches": (),
    "records": ("--print-data-log",),
    "contents": ("--print-data-log", "--skip-record-metadata"),
    "cut": ("--deep-iteration", "--max-bytes", "700"),
    "indexes": ("--verify-index-only",),
}


def files_of(directory: Path) -> list[Path]:
    found = [*directory.rglob("*"), *KAFKA.rglob("*")]
    # where Kafka has only allocated an index, its own tool breaks down
    return sorted(path for path in found if path.suffix in SUFFIXES and "gone" not in str(path))


def compare(
    directory: Path, files: list[Path], flags: tuple[str, ...], told: pytest.CaptureFixture[str]
) -> int:
    """Both outputs, line by line. The tool tells its findings file by file in an order of its own."""
    words = ["--files", ",".join(map(str, files)), *flags]
    theirs = java(directory / "jvm", "kafka.tools.DumpLogSegments", *words)
    theirs[1:1] = ["-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    done = subprocess.run(theirs, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    told.readouterr()
    main(words)
    out, err = told.readouterr()
    assert out.splitlines() == done.stdout.splitlines()
    findings = [
        line for line in err.splitlines() if not line.startswith("strandline: ")
    ]  # ours is more severe
    assert sorted(findings) == sorted(done.stderr.splitlines())
    return out.count("\n")


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_lines(directory: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(directory, files_of(directory), flags, capsys) > 300


def test_records_of_groups(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [*directory.glob("groups-0/*.log"), *KAFKA.glob("clean/__consumer_offsets-*/*.log")]
    assert compare(directory, files, ("--offsets-decoder",), capsys) > 10


def test_records_of_transactions(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [*KAFKA.glob("clean/__transaction_state-*/*.log")]
    assert compare(directory, files, ("--transaction-log-decoder",), capsys) > 20


def test_sanity(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [path for path in files_of(directory) if "index" in path.suffix and "clean" in path.parts]
    compare(directory, [*good, *directory.glob("ours-0/*index")], ("--index-sanity-check",), capsys)

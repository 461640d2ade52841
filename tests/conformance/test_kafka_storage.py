"""One log directory, two systems: Apache Kafka 3.9 on what we wrote, and we on what Kafka wrote.

Each starts on a copy of the other's log directories, with the other's znodes, as after moving house, and must
serve the same records, timestamps and committed offsets, and know a producer's batch that it has already.
Kafka's own dump tool reads every file of ours. Left to others: single files (test_kafka_fixtures.py).
Why: docs/decisions/0028-moving-between-kafka-and-strandline.md
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_workload as workload
import pytest
from kafka_peer import dump, partitions_of, place, read_all, read_groups, wait_led
from kafka_takeover import (
    DIRS,
    OURS,
    Kafkas,
    Ours,
    Served,
    cluster_on,
    described,
    gone,
    opened,
    put_znodes,
    send_again,
    truncated,
)  # fmt: skip

from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import Zookeeper
from strandline.storage.log.segments import RETIRED
from strandline.storage.segment.file_names import DELETED, GONE
from strandline.testing.nursery import forked

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "kafka"
SEGMENT_FILES = (".log", ".index", ".timeindex", ".snapshot")
COMPLAINTS = (
    "mismatch",
    "out of order",
    "non-consecutive",
    "not found",
    "isvalid: false",
    "warn",
    "error",
    "exception",
)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeeper]:
    server = Zookeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, zookeeper: Zookeeper) -> Ours:
    return Ours(tmp_path_factory.mktemp("ours"), f"{zookeeper.address}/ours")


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory, ours: Ours) -> Kafkas:
    return Kafkas(tmp_path_factory.mktemp("kafkas"), ours)


@pytest.fixture(scope="module")
def to_be_dumped(tmp_path_factory: pytest.TempPathFactory, ours: Ours) -> list[Path]:
    """Every file of a stopped broker, of a killed one after recovery, and of a truncated log."""
    folder = tmp_path_factory.mktemp("dump")
    shutil.copytree(ours.killed, folder / "recovered")
    assert opened(*(folder / "recovered" / name for name in DIRS)).close()
    truncated(folder / "truncated")
    found = sorted(path for one in (ours.stopped, folder) for path in one.rglob("*.*"))
    found = [path for path in found if path.suffix in SEGMENT_FILES]
    assert {path.suffix for path in found} == set(SEGMENT_FILES)
    return found


def complaints(said: str) -> list[str]:
    """The lines of the tool that are no plain reading. Of every compacted log it says that it has gaps."""
    lines = [line for line in said.splitlines() if not line.startswith("| offset: ")]
    lines = [line for line in lines if not (line.startswith("Non-consecutive") and "/compacted-0/" in line)]
    return [line for line in lines if any(word in line.lower() for word in COMPLAINTS)]


def test_kafkas_dump_tool_checks_our_indexes(to_be_dumped: list[Path], tmp_path: Path) -> None:
    said = dump(tmp_path, to_be_dumped, "--index-sanity-check")
    indexes = [path for path in to_be_dumped if path.suffix in (".index", ".timeindex")]
    passed = said.count(" passed sanity check.") + said.count(".index is empty.")
    assert (complaints(said), passed) == ([], len(indexes))


def test_kafkas_dump_tool_finds_in_our_logs_what_our_indexes_say(
    to_be_dumped: list[Path], tmp_path: Path
) -> None:
    assert complaints(dump(tmp_path, to_be_dumped, "--verify-index-only")) == []


def test_kafkas_dump_tool_reads_every_record_and_producer(
    to_be_dumped: list[Path], ours: Ours, tmp_path: Path
) -> None:
    said = dump(tmp_path, to_be_dumped, "--deep-iteration", "--print-data-log")
    batches = [line for line in said.splitlines() if line.startswith("baseOffset: ")]
    records = [line for line in said.splitlines() if line.startswith("| offset: ")]
    producers = [line for line in said.splitlines() if line.startswith("producerId: ")]
    assert complaints(said) == []
    assert "Non-consecutive offsets" in said, "our cleaner has been at work"
    assert len(records) > sum(map(len, ours.served.records.values())) > 900
    assert all(line.endswith("isvalid: true") for line in batches)
    assert {f"compresscodec: {codec}" for codec in workload.CODECS} <= {
        " ".join(line.split()[-6:-4]) for line in batches
    }
    assert len(producers) >= 3


def test_the_dump_tool_would_complain(ours: Ours, tmp_path: Path) -> None:
    """One entry of each index is wrong: the words that the other tests look for are said."""
    (times_0,) = ours.stopped.glob("*/times-0")
    shutil.copytree(times_0, tmp_path / "times-0")
    index, times = (tmp_path / "times-0" / f"{0:020d}{suffix}" for suffix in (".index", ".timeindex"))
    for path, at in ((index, 3), (times, 7)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    said = dump(tmp_path, [index, times], "--deep-iteration")
    assert len(complaints(said)) >= 2, said


def test_our_cleaner_keeps_what_kafkas_keeps(ours: Ours) -> None:
    """Of the same records; Kafka's are those of the fixtures."""
    theirs = json.loads((FIXTURES / "records.json").read_text())["compacted-0"]
    assert ours.served.records["compacted-0"] == theirs
    assert len(theirs) < 200


def test_kafka_serves_what_we_wrote(ours: Ours, kafkas: Kafkas) -> None:
    assert vars(kafkas.found) == vars(ours.served)


def test_kafka_believes_all_our_files(kafkas: Kafkas) -> None:
    """It recovers nothing that our marker vouches for, drops no snapshot, is silent about files of ours."""
    said = kafkas.log.splitlines()
    recovered = {line.split("partition=")[1].split(",")[0] for line in said if "Recovering unflushed" in line}
    assert recovered >= set(kafkas.scanned) - {"__consumer_offsets-0"}
    assert not any("disks/believed" in line for line in said if "Recovering" in line)
    alarms = [line for line in said if " WARN " in line or " ERROR " in line]
    alarms = [line for line in alarms if "kafka.log" in line or "storage" in line]
    strays = [line for line in alarms if "Loaded stray log" in line]
    assert alarms == strays and len(strays) == len(DIRS)
    loaded = kafkas.log.count("Loading producer state from snapshot file")
    assert loaded >= len(kafkas.ours.served.names)


def test_kafka_deletes_what_was_to_be_deleted(kafkas: Kafkas) -> None:
    """What a truncation or retention has taken out of a log has a name of ours, with Kafka's at its end."""
    assert {path.name[20:] for path in kafkas.going} == {f"{suffix}{GONE}{DELETED}" for suffix in RETIRED}
    assert gone(*(kafkas.data / name for name in DIRS)) == []


def test_a_directory_that_kafka_runs_on_is_locked_for_us(kafkas: Kafkas) -> None:
    assert kafkas.locked == [True, True]


def test_kafka_knows_a_batch_that_our_snapshot_names(kafkas: Kafkas) -> None:
    error, answered, written = kafkas.again
    assert (error, answered) == (0, written)


def test_we_serve_what_kafka_wrote_behind_ours(tmp_path: Path, kafkas: Kafkas) -> None:
    cluster = cluster_on(tmp_path, kafkas.ours.zookeeper)
    shutil.copytree(kafkas.data, tmp_path / "disks")
    try:
        cluster.start()
        assert vars(Served(cluster.bootstrap, kafkas.left.names)) == vars(kafkas.left)
        error, answered, written = send_again(cluster.bootstrap, kafkas.data, "idempotent-0")
        assert (error, answered) == (0, written)
        workload.produce(cluster.bootstrap, "epochs", [(b"fourth", b"ours again")])
    finally:
        cluster.kill()


def test_we_serve_a_directory_that_only_kafka_ever_saw(tmp_path: Path, zookeeper: Zookeeper) -> None:
    """The fixtures: Kafka's log directory and Kafka's znodes."""
    records: dict[str, Any] = json.loads((FIXTURES / "records.json").read_text())
    put_znodes(zookeeper.address, "/kafka", json.loads((FIXTURES / "znodes.json").read_text()))
    cluster = forked(LocalCluster(tmp_path, 1, settings=OURS, zookeeper=f"{zookeeper.address}/kafka"))
    shutil.copytree(FIXTURES / "clean", cluster.brokers[1].directory / "data")
    try:
        cluster.start()
        wait_led(cluster.bootstrap, records)
        assert partitions_of(cluster.bootstrap) == sorted(records)
        assert read_all(cluster.bootstrap, records) == records
        groups = json.loads((FIXTURES / "groups.json").read_text())
        assert read_groups(cluster.bootstrap, groups, records) == groups
        for back in (1, 11, 21):  # the last batch of each producer: Kafka's snapshot tells of no other
            error, answered, written = send_again(cluster.bootstrap, FIXTURES / "clean", "idempotent-0", back)
            assert (error, answered) == (0, written)
        assert described(cluster.bootstrap, "settings")["segment.index.bytes"] == "480"
        for name in records:
            workload.produce(cluster.bootstrap, place(name).topic, [(b"key", b"ours")], place(name).partition)
    finally:
        cluster.kill()

"""`strandline dump`: segments, indexes and checkpoints of a running broker, in Kafka's format and as JSON."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

BATCH = re.compile(
    r"baseOffset: \d+ lastOffset: \d+ count: \d+ baseSequence: -?\d+ lastSequence: -?\d+ producerId: -?\d+ "
    r"producerEpoch: -?\d+ partitionLeaderEpoch: \d+ isTransactional: false isControl: false "
    r"deleteHorizonMs: OptionalLong.empty position: \d+ CreateTime: \d+ size: \d+ magic: 2 "
    r"compresscodec: (none|gzip|snappy|lz4|zstd) crc: \d+ isvalid: true"
)
RECORD = (
    "| offset: 0 CreateTime: {} keySize: 1 valueSize: 5 sequence: {} headerKeys: [] key: k payload: value"
)


@pytest.fixture
def folder(strandline, topic: str) -> Path:
    """A partition's directory with several segments."""
    strandline("produce", topic, "--key", "k", given="value\n")
    for _ in range(2):
        strandline("produce", topic, "--key", "k", given="".join(f"{i:0100}\n" for i in range(150)))
    return Path(strandline.directory / "cluster" / "broker-1" / "data" / f"{topic}-0")


def rows(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.lines]


def test_segments(strandline, folder: Path) -> None:
    first = folder / "00000000000000000000.log"
    told = strandline("dump", "-files", first, "-print-data-log")
    assert told.lines[:2] == [f"Dumping {first}", "Log starting offset: 0"]
    assert BATCH.fullmatch(told.lines[2])
    time = re.search(r"CreateTime: (\d+)", told.lines[2])[1]
    assert told.lines[3] == RECORD.format(time, 0)
    plain = strandline("dump", "--files", first).lines
    assert all(BATCH.fullmatch(line) for line in plain[2:])
    every = sorted(folder.glob("*.log"))
    assert len(every) > 1, "the records fill more than one segment"
    found = rows(strandline("dump", "--files", ",".join(map(str, every)), "--print-data-log", "--json"))
    assert [row["offset"] for row in found if row["kind"] == "record"] == list(range(301))
    assert all(row["isvalid"] for row in found if row["kind"] == "batch")


def test_indexes_and_checkpoints(strandline, folder: Path) -> None:
    last = max(folder.glob("*.index")).stem
    (end,) = rows(strandline("dump", "--files", folder / f"{last}.timeindex", "--json"))[-1:]
    assert end["kind"] == "timeindex" and end["offset"] >= int(last)
    for row in rows(strandline("dump", "--files", folder / f"{last}.index", "--json")):
        assert row["kind"] == "empty" or row["offset"] > int(last)
    epochs = strandline("dump", "--files", folder / "leader-epoch-checkpoint")
    assert epochs.lines[1] == "epoch: 0 startOffset: 0"
    snapshot = max(folder.glob("*.snapshot"))
    assert "producerEpoch: 0" in strandline("dump", "--files", snapshot).lines[1]


def test_damage_is_told(strandline, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "00000000000000000000.log"
    data = (folder / copy.name).read_bytes()
    copy.write_bytes(data + b"torn")
    assert "torn_bytes: 4 isvalid: false" in strandline("dump", "--files", copy, expect=1).out
    copy.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
    assert "isvalid: false" in strandline("dump", "--files", copy, "--print-data-log", expect=1).out
    copy.write_bytes(b"\xff" * 500)
    strandline("dump", "--files", copy, "--print-data-log", expect=1)
    for name in ("00000000000000000000.snapshot", "leader-epoch-checkpoint", "other.txt"):
        (tmp_path / name).write_bytes(b"0\n5\nx\n")
        strandline("dump", "--files", tmp_path / name, expect=1)
    shutil.copy(folder / "00000000000000000000.log", tmp_path / "copy.log")
    assert "first offset" in strandline("dump", "--files", tmp_path / "copy.log", expect=1).err
    assert "is not a file" in strandline("dump", "--files", tmp_path / "none.log", expect=1).err
    strandline("dump", expect=2)

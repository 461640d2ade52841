"""`strandline dump`: segments, indexes and checkpoints of a running broker, in Kafka's format and as JSON."""

import json
import re
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


OLD_RECORD = re.compile(
    r"offset: 0 position: 0 CreateTime: \d+ isvalid: true keysize: 1 valuesize: 5 magic: 2 "
    r"compresscodec: NONE producerId: -?\d+ producerEpoch: -?\d+ sequence: -?\d+ isTransactional: false "
    r"headerKeys: \[\] key: k payload: value"
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
    old = strandline("dump", "-files", first, "--print-data-log", "--format", "0.11").lines
    assert old[1] == "Starting offset: 0" and OLD_RECORD.fullmatch(old[2])


def test_indexes_and_checkpoints(strandline, folder: Path) -> None:
    last = sorted(folder.glob("*.index"))[-2].stem  # of the active segment little may be written yet
    (end,) = rows(strandline("dump", "--files", folder / f"{last}.timeindex", "--json"))[-1:]
    assert end["kind"] == "timeindex" and end["offset"] >= int(last)
    for row in rows(strandline("dump", "--files", folder / f"{last}.index", "--json")):
        assert row["kind"] in ("file", "empty") or row["offset"] > int(last)
    epochs = strandline("dump", "--files", folder / "leader-epoch-checkpoint")
    assert epochs.lines[1] == "epoch: 0 startOffset: 0"
    snapshot = max(folder.glob("*.snapshot"))
    assert "producerEpoch: 0" in strandline("dump", "--files", snapshot).lines[1]


def test_explanations_of_a_running_broker(strandline, folder: Path) -> None:
    (found,) = rows(strandline("dump", folder, "--explain", 200, "--json"))
    assert found["record"]["offset"] == 200 and found["answer"].startswith("this record")
    asked = found["record"]["timestamp"]
    (timed,) = rows(strandline("dump", folder, "--explain-time", asked, "--json"))
    assert timed["record"]["timestamp"] >= asked and timed["record"]["offset"] <= 200
    every = strandline("dump", folder.parent, "--deep-iteration")
    assert sum(line.startswith("| offset") for line in every.lines) >= 301


def test_trouble_is_one_sentence(strandline, tmp_path: Path) -> None:
    (tmp_path / "copy.log").write_bytes(b"")
    assert "first offset" in strandline("dump", "--files", tmp_path / "copy.log", expect=1).err
    assert "is neither a file nor" in strandline("dump", "--files", tmp_path / "none.log", expect=1).err
    strandline("dump", expect=2)
    strandline("dump", tmp_path, "--explain", 5, expect=2)
    told = strandline("dump", tmp_path / "none-0", "--explain", 5, expect=1).err
    assert f"{tmp_path / 'none-0'} is neither a file nor a directory" in told

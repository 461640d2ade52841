"""`strandline dump` on files: both forms of its lines, JSON, decoders, lookups explained, damage told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
import typer

from strandline.base.types import TopicPartition
from strandline.broker.groups import offset_records
from strandline.broker.groups.offset_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from strandline.broker.transactions.records import transaction_key, transaction_value
from strandline.broker.transactions.state import ProducerIdentity, Standing, TransactionState
from strandline.cli.dump.command import main
from strandline.cli.dump.explain import searched
from strandline.client.consumer.group_protocol import encode_assignment, encode_subscription
from strandline.protocol.batches import ATTRIBUTES, ATTRIBUTES_AT, read_header, seal, stamp, stamp_append_time
from strandline.protocol.records import BatchBuilder
from strandline.storage.segment.file_names import file_name

KAFKA = Path(__file__).resolve().parents[1] / "fixtures" / "kafka" / "clean"
AT = 1_700_000_000_000
Row = tuple[bytes | None, bytes | None]
Dump = Callable[..., Any]


class Told:
    """What the command wrote."""

    def __init__(self, out: str, err: str) -> None:
        self.out, self.err = out, err
        self.lines = out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    """Run the command in this process; its exit status must be the expected one."""

    def run(*words: object, expect: int = 0) -> Told:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except typer.Exit as leaving:
            status = leaving.exit_code
        told = Told(*capsys.readouterr())
        assert status == expect, told.out + told.err
        return told

    return run


def batch_of(*records: Row, base: int = 0, headers: Any = (), at: int = AT, **facts: Any) -> bytearray:
    builder = BatchBuilder(**facts)
    for place, (key, value) in enumerate(records):
        builder.append(at + place, key, value, headers)
    batch = bytearray(builder.build())
    stamp(batch, 0, base, 3)
    return batch


def write(directory: Path, *batches: bytes, base: int = 0, suffix: str = ".log") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_name(base, suffix)
    path.write_bytes(b"".join(batches))
    return path


IDEMPOTENT = {"producer_id": 7, "producer_epoch": 1, "base_sequence": (1 << 31) - 1}


def test_the_lines_of_both_forms(dump: Dump, tmp_path: Path) -> None:
    batch = batch_of(
        (b"k", b"v"), (None, b"w"), (b"x", None), headers=[("a", b""), ("b", None)], **IDEMPOTENT
    )
    path = write(tmp_path, batch)
    crc = read_header(batch).crc
    told = dump("-files", path, "-print-data-log").lines
    assert told == [
        f"Dumping {path}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 2147483647 lastSequence: 1 producerId: 7 "
        "producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: "
        f"OptionalLong.empty position: 0 CreateTime: {AT + 2} size: {len(batch)} magic: 2 "
        f"compresscodec: none crc: {crc} isvalid: true",
        f"| offset: 0 CreateTime: {AT} keySize: 1 valueSize: 1 sequence: 2147483647 headerKeys: [a,b] "
        "key: k payload: v",
        f"| offset: 1 CreateTime: {AT + 1} keySize: -1 valueSize: 1 sequence: 0 headerKeys: [a,b] payload: w",
        f"| offset: 2 CreateTime: {AT + 2} keySize: 1 valueSize: -1 sequence: 1 headerKeys: [a,b] key: x",
    ]
    assert dump("--files", path, "--print-data-log", "--skip-record-metadata").lines[3:] == [
        "| key: k payload: v",
        " payload: w",
        "| key: x",
    ]
    old = dump("--files", path, "--print-data-log", "--format", "0.11").lines
    assert old[1:3] == [
        "Starting offset: 0",
        f"offset: 0 position: 0 CreateTime: {AT} isvalid: true keysize: 1 valuesize: 1 magic: 2 "
        "compresscodec: NONE producerId: 7 producerEpoch: 1 sequence: 2147483647 isTransactional: false "
        "headerKeys: [a,b] key: k payload: v",
    ]
    shallow = dump("--files", path, "--format", "0.11").lines
    assert shallow[2].startswith("baseOffset: 0 lastOffset: 2 baseSequence: 2147483647 ")
    assert shallow[2].endswith(f"isvalid: true size: {len(batch)} magic: 2 compresscodec: NONE crc: {crc}")
    assert len(dump("--files", path, "--max-bytes", 10).lines) == 2


def test_control_batches_append_time_and_the_horizon(dump: Dump, tmp_path: Path) -> None:
    commit = batch_of((b"\0\0\0\1", b"\0\0\0\0\0\5"), control=True, transactional=True)
    change = batch_of((b"\0\0\0\2", b""), base=1, control=True)
    stamped = batch_of((b"k", b"v"), base=2)
    stamp_append_time(stamped, 0, 5)
    horizon = batch_of((b"k", None), base=3)
    ATTRIBUTES.pack_into(horizon, ATTRIBUTES_AT, 0x40)
    seal(horizon, 0, len(horizon))
    told = dump("--print-data-log", write(tmp_path, commit, change, stamped, horizon)).lines
    assert told[3].endswith("headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 5")
    assert told[5].endswith("headerKeys: [] controlType: LEADER_CHANGE(2)")
    assert " LogAppendTime: 5 size" in told[6] and told[7].startswith("| offset: 2 LogAppendTime: 5 ")
    assert f"deleteHorizonMs: OptionalLong[{AT}] position" in told[8]


def test_decoders(dump: Dump, tmp_path: Path) -> None:
    numbers = (b"\0\0\0\7", b"\xff\xff\xff\xff\xff\xff\xff\xfe")
    path = write(tmp_path, batch_of(numbers, (b"k", "é".encode())))
    kafka = "org.apache.kafka.tools.api."
    told = dump(
        "--files", path, "--key-decoder-class", f"{kafka}IntegerDecoder", "--value-decoder-class=long"
    )
    assert told.lines[3].endswith("key: 7 payload: -2")
    assert told.lines[4].endswith("key: (1 bytes, expected 4: 0x6b) payload: (2 bytes, expected 8: 0xc3a9)")
    assert dump("--files", path, "--value-decoder-class", "hex").lines[4].endswith("payload: c3a9")
    assert dump("--files", path, "--value-decoder-class").lines[4].endswith("payload: é")
    assert "is a Java class" in dump("--files", path, "--key-decoder-class", "com.example.Mine", expect=2).err
    for flag in ("cluster-metadata-decoder", "remote-log-metadata-decoder"):
        assert f"--{flag}:" in dump("--files", path, f"--{flag}", expect=2).err


def test_records_of_transactions(dump: Dump, tmp_path: Path) -> None:
    standing = Standing(
        producer=ProducerIdentity(7, 3),
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        started_ms=AT,
        updated_ms=AT,
    )
    key = transaction_key("tx")
    batch = batch_of((key, transaction_value(standing)), (key, None), (b"\0\7x", b""), (None, b""))
    told = dump("--transaction-log-decoder", write(tmp_path, batch)).lines
    assert told[3].endswith(
        "key: transaction_metadata::transactionalId=tx payload: producerId:7,producerEpoch:3,state=Ongoing,"
        f"partitions=[t-0,t-1],txnLastUpdateTimestamp={AT},txnTimeoutMs=60000"
    )
    assert told[4].endswith("key: transaction_metadata::transactionalId=tx payload: <DELETE>")
    assert "Error at offset 2, skipping." in told[5] and "Error at offset 3, skipping." in told[6]


def test_records_of_groups(dump: Dump, tmp_path: Path) -> None:
    owned = [TopicPartition("t", 1)]
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=9,
        subscription=encode_subscription(["t"], owned, 4),
        assignment=encode_assignment(owned),
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=4, members=[member])
    offset = OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=AT)
    key = offset_records.offset_key("g", "t", 0)
    batch = batch_of(
        (key, offset_records.offset_value(offset)),
        (key, None),
        (offset_records.group_key("g"), offset_records.group_value(group)),
        (b"\0\x1fx", b""),
        (None, b""),
        (b"\0\1\0", b""),
    )
    rows = dump("--offsets-decoder", "--json", write(tmp_path, batch)).rows[3:]
    keys, values = [row["key"] for row in rows], [row["payload"] for row in rows]
    assert keys[0] == keys[1] == '{"type":"1","data":{"group":"g","topic":"t","partition":0}}'
    assert values[0] == (
        '{"version":"3","data":{"offset":5,"leaderEpoch":2,"metadata":"",' + f'"commitTimestamp":{AT}}}}}'
    )
    assert values[1] == "<DELETE>" and keys[2] == '{"type":"2","data":{"group":"g"}}'
    told = json.loads(values[2])["data"]["members"][0]
    assert told["subscription"] == {
        "topics": ["t"],
        "userData": None,
        "ownedPartitions": [{"topic": "t", "partitions": [1]}],
        "generationId": 4,
    }
    assert told["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [1]}]
    assert keys[3] == "Unknown record type 31 at offset 3, skipping."
    assert keys[4].startswith("Error at offset 4, skipping.") and keys[5].startswith("Error at offset 5")


def explained(dump: Dump, directory: Path, offset: int) -> Any:
    return dump(directory, "--explain", offset, "--json").rows[0]


def test_how_an_offset_is_found(dump: Dump, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    first = [batch_of((b"a", b"v"), (b"b", b"v"), base=base) for base in (0, 2, 4)]
    write(directory, *first)
    index = Struct(">ii").pack(3, len(first[0]))
    write(directory, index + bytes(80), suffix=".index")
    write(directory, batch_of((b"c", b"v"), base=9), batch_of((b"d", b"v"), base=20), base=9)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    found = explained(dump, directory, 5)
    (step,) = found["steps"]
    assert found["search"] == {"segments": 2, "compared": [9, 0]} and found["answer"] == "this record"
    assert step["index"]["floor"] == {"offset": 3, "position": len(first[0])}
    assert step["scan"]["from"] == len(first[0]) and step["scan"]["batches"] == 2
    assert (found["batch"]["position"], found["record"]["offset"]) == (len(first[0]) * 2, 5)
    assert explained(dump, directory, 0)["steps"][0]["index"]["floor"] is None
    for gap, following in ((7, 9), (15, 20)):
        assert explained(dump, directory, gap)["answer"].startswith(
            f"compacted away: the next record is at offset {following}"
        )
    assert "high watermark 20" in explained(dump, directory, 20)["answer"]
    assert explained(dump, directory, 21)["answer"].startswith("nothing yet")
    assert explained(dump, directory, 22)["answer"].startswith("OFFSET_OUT_OF_RANGE: the log ends at 21")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    assert explained(dump, directory, 3)["answer"] == "OFFSET_OUT_OF_RANGE: the log starts at 4"
    text = dump(directory, "--explain", 5).out
    for words in (
        "compared with 9, 0",
        f"offset 3, position {len(first[0])}",
        "offsets 4 to 5",
        "this record",
    ):
        assert words in text
    assert searched(list(range(0, 80, 10)), 35) == (3, [40, 20, 30])


def test_how_a_time_is_found(dump: Dump, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    batches = [batch_of((b"a", b"v"), base=base, at=AT + base) for base in range(6)]
    write(directory, *batches[:2])
    write(directory, Struct(">qi").pack(AT + 1, 1), suffix=".timeindex")
    write(directory, *batches[2:], base=2)
    write(directory, Struct(">qi").pack(AT + 3, 1), suffix=".timeindex", base=2)
    write(directory, Struct(">ii").pack(1, len(batches[2])), suffix=".index", base=2)
    (found,) = dump(directory, "--explain-time", AT + 4, "--json").rows
    assert found["search"]["skipped"] == [{"segment": file_name(0, ".log"), "latest": AT + 1}]
    (step,) = found["steps"]
    assert step["timeIndex"]["floor"] == {"offset": 3, "time": AT + 3}
    assert step["scan"]["from"] == len(batches[2]) and found["record"]["offset"] == 4
    told = dump(directory, "--explain-time", "2023-11-14T22:13:20.001+00:00")
    assert f"answer    offset 1, time {AT + 1}" in told.out
    assert "no record has this time or a later one" in dump(directory, "--explain-time", "2100-01-01").out
    assert "expected ms" in dump(directory, "--explain-time", "noon", expect=2).err
    dump(directory, "--explain-time", 5, "--explain", 5, expect=2)
    dump(tmp_path, "--explain", 5, expect=2)


def test_explanations_of_what_kafka_wrote(dump: Dump) -> None:
    assert explained(dump, KAFKA / "codecs-3", 100)["record"]["offset"] == 100
    assert explained(dump, KAFKA / "compacted-0", 5)["answer"].startswith("compacted away")
    assert explained(dump, KAFKA / "transactions-0" / file_name(0, ".log"), 7)["answer"].startswith(
        "a control batch"
    )


def test_a_whole_log_directory_of_kafka(dump: Dump) -> None:
    told = dump(KAFKA, "--json").rows
    files = [Path(row["file"]) for row in told if row["kind"] == "file"]
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
    assert {"meta.properties", "partition.metadata", "leader-epoch-checkpoint"} <= {
        path.name for path in files
    }
    assert all(row["isvalid"] for row in told if row["kind"] == "batch")
    (aborted,) = (row for row in told if row["kind"] == "aborted")
    assert aborted["firstOffset"] < aborted["lastOffset"]


def test_damaged_segments(dump: Dump, tmp_path: Path) -> None:
    batches = [
        batch_of((b"k", b"v" * 40), base=base, codec=codec) for base, codec in ((0, 0), (1, 1), (2, 0))
    ]
    whole, at = b"".join(batches), len(batches[0])
    path = write(tmp_path, whole, b"torn")
    assert dump("--files", path).lines[-1] == f"Found 4 invalid bytes at the end of {path.name}"
    write(tmp_path, base=3)
    told = dump("--files", path, expect=1)
    assert f"{path}, position {len(whole)}: the last 4 bytes are not a whole batch" in told.err
    path = write(tmp_path / "b", whole[: at + 70], b"\xff\xff", whole[at + 72 :])
    told = dump("--files", path, "--print-data-log", expect=1)
    assert "isvalid: false" in told.out
    assert f"{path}, position {at}: cannot decode the batch at offset 1" in told.err
    path = write(tmp_path / "c", batches[0], b"\xff" * 200)
    told = dump("--files", path, "--deep-iteration", expect=1)
    assert "| offset: 0" in told.out and f"{path}, position {at}: cannot read a batch" in told.err
    zeros = write(tmp_path / "d", bytes(500))
    assert "position 0: cannot read a batch: batch of magic 0" in dump("--files", zeros, expect=1).err
    told = dump("--files", zeros, "--json", expect=1).rows[-1]
    assert (told["kind"], told["file"], told["position"]) == ("damage", str(zeros), 0)
    assert "cannot read a batch" in dump(zeros.parent, "--explain", 3, expect=1).err


def test_damaged_indexes(dump: Dump, tmp_path: Path) -> None:
    batches = [batch_of((b"k", b"v"), base=base, at=AT + base) for base in range(3)]
    write(tmp_path, *batches)
    size = len(batches[0])
    pack, pack_time = Struct(">ii").pack, Struct(">qi").pack
    good = write(tmp_path, pack(1, size) + bytes(80), suffix=".index")
    assert dump("--files", good).lines[1:] == [f"offset: 1 position: {size}"]
    assert dump("--files", good, "--verify-index-only").lines[1:] == []
    assert dump("--files", good, "--index-sanity-check").lines[1:] == [f"{good} passed sanity check."]
    assert dump("--files", write(tmp_path, suffix=".index")).lines[1] == f"{good} is empty."
    write(tmp_path, pack(0, size) + pack(5, size * 2), suffix=".index")
    assert dump("--files", good, expect=1).err.splitlines() == [
        f"Mismatches in :{good}",
        "  Index offset: 5, log offset: 2",
        "  Index offset: 0, log offset: 1",
    ]
    write(tmp_path, pack(1, size + 1), suffix=".index")
    assert "where no batch starts" in dump("--files", good, expect=1).err
    write(tmp_path, pack(-1, size), suffix=".index")
    assert "less than the base offset 0" in dump("--files", good, "--index-sanity-check", expect=1).err
    write(tmp_path, pack(1, size), b"x", suffix=".index")
    assert "nor a multiple of 8" in dump("--files", good, "--index-sanity-check", expect=1).err
    bad = [pack_time(AT + 9, 1), pack_time(AT + 2, 2), pack_time(AT + 3, 7)]
    times = write(tmp_path, *bad, suffix=".timeindex")
    assert dump("--files", times, expect=1).err.splitlines() == [
        f"Found timestamp mismatch in :{times}",
        f"  Index timestamp: {AT + 9}, log timestamp: {AT + 1}",
        f"Found out of order timestamp in :{times}",
        f"  Index timestamp: {AT + 2}, Previously indexed timestamp: {AT + 9}",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 7, found log offset: -1",
    ]
    assert "is less than the first timestamp" in dump("--files", times, "--index-sanity-check", expect=1).err
    alone = write(tmp_path / "alone", pack(1, 5), suffix=".index")
    assert "cannot check the entries: their segment" in dump("--files", alone, expect=1).err


def test_damaged_small_files(dump: Dump, tmp_path: Path) -> None:
    snapshot = next(KAFKA.glob("idempotent-0/*.snapshot"))
    told = dump("--files", snapshot).lines[1]
    assert told.startswith("producerId: ") and "currentTxnFirstOffset: OptionalLong.empty" in told
    assert " lastSequence: " in dump("--files", snapshot, "--format", "0.11").lines[1]
    copy = tmp_path / snapshot.name
    data = snapshot.read_bytes()
    cases = {
        data[:5]: "header of 10 bytes",
        b"\0\7" + data[2:]: "unknown file version 7",
        data[:-1] + b"\1": "CRC is no longer valid",
    }
    for content, words in cases.items():
        copy.write_bytes(content)
        assert words in dump("--files", copy, expect=1).err
    texts = {
        "leader-epoch-checkpoint": b"0\n1\nx\n",
        "replication-offset-checkpoint": b"0\n5\n",
        "meta.properties": b"\xff",
        "directory.properties": b"\xff",
        "partition.metadata": b"x",
        "incarnation.json": b"{",
    }
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
        assert f"{tmp_path / name}, position " in dump("--files", tmp_path / name, expect=1).err
    (tmp_path / "other.txt").write_bytes(b"")
    assert "Ignoring unknown file" in dump("--files", tmp_path / "other.txt", expect=1).err
    told = dump("--files", f"{tmp_path / 'gone.log'},{snapshot}", expect=1)
    assert "gone.log is neither a file" in told.err and "producerId" in told.out
    for mark in (".deleted", ".gone.deleted"):
        parked = tmp_path / f"{file_name(0, '.log')}{mark}"
        shutil.copy(KAFKA / "codecs-0" / file_name(0, ".log"), parked)
        assert "baseOffset: 0" in dump("--files", parked).out


def test_nothing_is_changed_or_locked(dump: Dump, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(KAFKA, copy)
    for path in copy.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    dump(copy, "--print-data-log")
    dump(copy / "codecs-0", "--explain", 5)
    assert before == {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    for path in [copy, *copy.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)

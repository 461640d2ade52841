"""Option `logDirs`: closed log directories as Spark reads them, and what is refused.

The directories are written by hand, or were written by Kafka (tests/fixtures/kafka); test_offline_cluster.py
has those of real brokers.
"""

import json
import logging
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.base.types import TopicPartition
from strandline.client.spark.helpers import compare, take_snapshot
from strandline.client.spark.offline.reading import Unseen
from strandline.client.spark.option_table import COLUMNS, FILE, METADATA_COLUMNS, Side
from strandline.client.spark.options import OptionError, parse
from strandline.client.spark.plan import DataLoss, PlanError
from strandline.client.spark.reader import StrandlineReader
from strandline.client.spark.source import StrandlineDataSource
from strandline.protocol.compression import Codec
from strandline.storage.segment.file_names import LOG, file_name
from tests.client.spark.closed import offsets, options_of, refusal, rows, values
from tests.storage.closed_dirs import START_MS, T0, ClosedBroker, Facts, batch, marker

KAFKA = Path(__file__).resolve().parents[2] / "fixtures" / "kafka"


pytestmark = pytest.mark.usefixtures("heard_anew")
COMMON = [batch(0), batch(2), batch(4), batch(6)]


@pytest.fixture
def trio(tmp_path: Path) -> list[ClosedBroker]:
    """1 led epoch 0 and committed up to 6. Cut off, it went on; 2 led epoch 1 from 6 on. 3 lags."""
    brokers = [ClosedBroker(tmp_path, number) for number in (1, 2, 3)]
    brokers[0].put([(0, [*COMMON, batch(8, text=" cut")])], Facts(high_watermark=6))
    brokers[1].put([(0, [*COMMON[:3], batch(6, 4, epoch=1)])], Facts(high_watermark=8))
    brokers[2].put([(0, COMMON[:2])], Facts(high_watermark=2))
    return brokers


# ------------------------------------------------------------ what is committed


def test_what_all_prove_together_is_read(trio: list[ClosedBroker]) -> None:
    one, two, three = trio
    assert values(*trio) == [*(f"{n}@0" for n in range(6)), "6@1", "7@1"]
    assert offsets(one) == list(range(6)) and offsets(three) == [0, 1]
    assert offsets(one, three) == list(range(6)), "what the third cannot prove, the first can"
    assert offsets(three, replica=3) == [0, 1]
    assert offsets(*trio, replica=3) == [0, 1, 2, 3], "all prove, one serves: what it has"
    assert offsets(*trio, replica=1) == list(range(6)), "up to where it agrees"
    assert values(two, three) == values(*trio)


def test_one_replica_is_read_as_it_stands(trio: list[ClosedBroker]) -> None:
    assert values(*trio, replica=1, upto="leo")[6:] == ["6@0", "7@0", "8@0 cut", "9@0 cut"]
    assert values(*trio, replica=2, upto="leo")[6:] == ["6@1", "7@1", "8@1", "9@1"]
    assert offsets(trio[2], upto="LEO") == [0, 1, 2, 3], "one broker need not be named"
    assert "choose it by the option replica, from 1, 2, 3" in refusal(*trio, upto="leo")
    assert offsets(*trio, replica=1, upto="leo", endingOffsets='{"t": {"0": 9}}') == list(range(9))


def test_rows_say_where_they_are_from(trio: list[ClosedBroker]) -> None:
    wanted = "offset,servedBy,leaderEpoch,highWatermark,batchBaseOffset,file"
    found = [tuple(row.values()) for row in rows(*trio, columns=wanted)]
    segment = str(trio[1].path / "t-0" / file_name(0, LOG))
    assert found[0] == (0, 2, 0, 8, 0, segment) and found[-1] == (7, 2, 1, 8, 6, segment)
    everything = parse(options_of(*trio, metadataColumns="true"))
    assert everything.columns[len(COLUMNS) - 1 :] == (*METADATA_COLUMNS, FILE)


def test_a_superseded_commit_is_told(trio: list[ClosedBroker], caplog: pytest.LogCaptureFixture) -> None:
    """An unclean election: broker 1 had committed up to 8."""
    trio[0].high_watermarks[T0] = 8
    trio[0].checkpoint()
    assert values(*trio)[6:] == ["6@1", "7@1"]
    (said,) = [each.getMessage() for each in caplog.records if "superseded" in each.getMessage()]
    assert "broker=1 start=6 end=8" in said


def test_a_replica_without_a_high_watermark_proves_nothing_and_says_so(
    trio: list[ClosedBroker], caplog: pytest.LogCaptureFixture
) -> None:
    (trio[0].path / "replication-offset-checkpoint").unlink()
    with caplog.at_level(logging.WARNING):
        assert offsets(trio[0]) == []
    assert [text for text in caplog.messages if "high_watermark_not_found" in text and "broker=1" in text]


def test_damage_is_made_good_by_another_replica_and_told_once(
    trio: list[ClosedBroker], caplog: pytest.LogCaptureFixture
) -> None:
    path = trio[1].path / "t-0" / file_name(0, LOG)
    data = bytearray(path.read_bytes())
    data[len(COMMON[0]) + 70] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        found = rows(*trio, metadataColumns="servedBy")
        assert [row["value"].decode() for row in found] == [*(f"{n}@0" for n in range(6)), "6@1", "7@1"]
        assert [row["servedBy"] for row in found] == [2, 2, 1, 1, 1, 1, 2, 2]
    said = [each.getMessage() for each in caplog.records if "replica_passed_over" in each.getMessage()]
    assert len(said) == 1 and f"{path}, position {len(COMMON[0])}" in said[0]
    with pytest.raises(DataLoss) as error:
        rows(trio[1])
    assert str(error.value).startswith(
        f"t-0: records [2, 4) cannot be read: {path}, position {len(COMMON[0])}:"
    )
    assert offsets(trio[1], failOnDataLoss="false") == [0, 1, 4, 5, 6, 7]


def test_as_it_stands_is_with_epochs_that_contradict_the_history(tmp_path: Path) -> None:
    """The checksum does not cover the epoch."""
    broker = ClosedBroker(tmp_path, 1)
    odd = [(0, [batch(0, epoch=1), batch(2, epoch=9), batch(4, epoch=1)])]
    broker.put(odd, Facts(high_watermark=6, epochs=[(1, 0)]))
    with pytest.raises(DataLoss, match="has leader epoch 9: expected 1, by leader-epoch-checkpoint"):
        rows(broker)
    assert values(broker, replica=1, upto="leo") == ["0@1", "1@1", "2@9", "3@9", "4@1", "5@1"]


def test_what_is_committed_and_not_there_is_lost(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, COMMON)], Facts(high_watermark=10))
    with pytest.raises(DataLoss, match=r"records \[8, 10\) cannot be read: .*below its high watermark 10"):
        rows(broker)
    assert offsets(broker, failOnDataLoss="false") == list(range(8))


def test_read_committed_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    def sent(base: int, producer: int) -> bytes:
        return batch(base, producer_id=producer, producer_epoch=0, base_sequence=base, transactional=True)

    batches = [sent(0, 7), sent(2, 8), marker(4, 7, commit=False), batch(5), marker(7, 8, commit=True)]
    batches += [sent(8, 7), batch(10), marker(12, 7, commit=True)]
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, batches[:3]), (5, batches[3:])], Facts(high_watermark=13))
    committed = {"kafka.isolation.level": "read_committed"}
    for most in (3, 100):
        assert offsets(broker, **committed, maxRecordsPerPartition=most) == [2, 3, 5, 6, 8, 9, 10, 11]
    assert offsets(broker) == [0, 1, 2, 3, 5, 6, 8, 9, 10, 11]
    broker.high_watermarks[T0] = 12
    broker.checkpoint()
    assert offsets(broker, **committed) == [2, 3, 5, 6]


# ------------------------------------------------------------ options


def test_bounds_and_splits_are_as_ever(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, [batch(n, 5, codec=Codec(n // 5 % 5)) for n in range(0, 50, 5)]),
                (50, [batch(n, 5) for n in range(50, 100, 5)])], Facts(high_watermark=90))  # fmt: skip
    assert offsets(broker, startingOffsets='{"t":{"0":33}}', endingOffsets='{"t":{"0":77}}') == [
        *range(33, 77)
    ]
    assert offsets(broker, startingTimestamp=START_MS + 48, endingTimestamp=START_MS + 61) == [*range(48, 61)]
    assert offsets(broker, startingTimestamp=START_MS + 85, endingTimestamp=START_MS + 95) == [*range(85, 90)]
    assert "no record is at or after the starting timestamp" in refusal(
        broker, startingTimestamp=START_MS + 90
    )
    for split in ("minPartitions", "maxRecordsPerPartition", "splitBytes"):
        parsed = parse(options_of(broker, **{split: 7 if split != "splitBytes" else 300}))
        parts = StrandlineReader(parsed, ["offset"]).partitions()
        assert len(parts) >= 7, split
        assert offsets(broker, **{split: 7 if split != "splitBytes" else 300}) == list(range(90)), split
    with pytest.raises(DataLoss, match="the ending offset 95 is out of range"):
        offsets(broker, endingOffsets='{"t":{"0":95}}')
    assert offsets(broker, endingOffsets='{"t":{"0":95}}', failOnDataLoss="false") == list(range(90))
    headers = rows(broker, includeHeaders="true", columns="headers,offset", maxRecordsPerPartition=50)
    assert len(headers) == 90


def test_topics_are_chosen_as_ever(tmp_path: Path) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    for broker, numbers in ((one, (0, 2)), (two, (1,))):
        for number in numbers:
            broker.put([(0, [batch(0)])], Facts(high_watermark=2), TopicPartition("t", number))
    internal = TopicPartition("__consumer_offsets", 0)
    one.put([(0, [batch(0)])], Facts(high_watermark=2), internal)
    assert {(row["topic"], row["partition"]) for row in rows(one, two)} == {("t", n) for n in range(3)}
    assert {row["topic"] for row in rows(one, two, subscribePattern=".*")} == {"t"}
    assert {row["partition"] for row in rows(one, two, assign='{"t": [1]}')} == {1}
    assert "t lacks partitions 1: add the log directories of their brokers" in refusal(one)
    assert {row["partition"] for row in rows(one, replica=1)} == {0, 2}
    assert {row["partition"] for row in rows(one, failOnDataLoss="false")} == {0, 2}
    assert "no such topic or partition: u" in refusal(one, two, assign='{"u": [0]}')


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"logDirs": "data/1"}, "must be absolute paths: data/1"),
        ({"logDirs": " , "}, "must name at least one log directory"),
        ({"commitOffsetsToGroup": "g"}, "commitOffsetsToGroup needs brokers"),
        ({"upto": "end"}, "must be one of committed, leo"),
        ({"replica": "-1"}, "must be at least 0"),
        ({"replica": "9"}, "replica=9: the directories are those of brokers 1, 2, 3"),
        ({"startingOffsets": "latest"}, "must not be latest"),
    ],
)
def test_contradictions_are_told(trio: list[ClosedBroker], given: dict[str, str], told: str) -> None:
    with pytest.raises((PlanError, OptionError), match=told):
        StrandlineReader(parse({**options_of(*trio), **given}), ["offset"]).partitions()


def test_what_asks_brokers_is_harmless_and_what_needs_directories_is_refused(
    trio: list[ClosedBroker],
) -> None:
    asking = {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "c", "fetchOffset.numRetries": "1"}
    notes = parse({**options_of(*trio), **asking}).notes
    assert sorted(notes) == [
        f"{name} has no effect: with logDirs no broker is asked" for name in sorted(asking)
    ]
    for odd in ({"replica": "1"}, {"upto": "leo"}, {"columns": "file"}, {"metadataColumns": "file"}):
        with pytest.raises(OptionError, match="needs logDirs"):
            parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **odd})
    with pytest.raises(OptionError, match="logDirs is not supported: the logs of logDirs are closed"):
        parse(options_of(*trio), Side.STREAM)


def test_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    old, new = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    old.put([(0, COMMON)], Facts(high_watermark=8))
    new.put([(0, COMMON[:1])], Facts(high_watermark=2, topic_id=UUID(int=8)))
    told = refusal(old, new)
    assert "topic t was deleted and created again" in told
    assert f"{old.path}/t-0 has {UUID(int=7)}, {new.path}/t-0 has {UUID(int=8)}" in told
    assert offsets(old, new, replica=2) == [0, 1] and offsets(old, new, replica=1) == list(range(8))


def test_a_snapshot_repeats_a_read(trio: list[ClosedBroker], tmp_path: Path) -> None:
    taken = take_snapshot(options_of(*trio))
    (span,) = json.loads(taken)["partitions"]
    assert (span["start"], span["end"], span["topicId"]) == (0, 8, str(UUID(int=7)))
    trio[1].high_watermarks[T0] = 10
    trio[1].checkpoint()
    assert len(offsets(*trio)) == 10
    assert offsets(*trio, snapshot=taken) == list(range(8))
    with pytest.raises(DataLoss, match=r"records \[0, 8\) are not all there: \[0, 6\) can be read"):
        offsets(trio[0], snapshot=taken)
    assert offsets(trio[0], snapshot=taken, failOnDataLoss="false") == list(range(6))
    other = ClosedBroker(tmp_path, 5)
    other.put([(0, COMMON)], Facts(high_watermark=8, topic_id=UUID(int=8)))
    with pytest.raises(DataLoss, match="topic t was deleted and created again since"):
        offsets(other, snapshot=taken)


def test_a_worker_that_does_not_see_the_files_says_so(trio: list[ClosedBroker]) -> None:
    parsed = parse(options_of(trio[0]))
    reader = StrandlineReader(parsed, ["offset"])
    (part,) = reader.partitions()
    (trio[0].path / "t-0").rename(trio[0].path / "hidden")
    with pytest.raises(Unseen, match=r"cannot read the files: .* mount them there under the same paths"):
        list(reader.read(part))
    several = StrandlineReader(parse(options_of(*trio[1:])), ["offset"])
    (part,) = several.partitions()
    (trio[2].path / "t-0").rename(trio[2].path / "hidden")
    assert sum(records.num_rows for records in several.read(part)) == 8, "another one has them"


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_replica_that_is_not_seen_may_have_what_is_damaged_in_another(
    trio: list[ClosedBroker], strict: str
) -> None:
    reader = StrandlineReader(parse(options_of(*trio, failOnDataLoss=strict)), ["offset"])
    (part,) = reader.partitions()
    log = trio[1].path / "t-0" / file_name(0, LOG)
    data = bytearray(log.read_bytes())
    data[len(COMMON[0]) + 70] ^= 1
    log.write_bytes(data)
    (trio[0].path / "t-0").rename(trio[0].path / "hidden")
    (trio[2].path / "t-0" / file_name(0, LOG)).unlink()
    with pytest.raises(Unseen, match=r"the checksum .* does not match; .*No such file or directory"):
        list(reader.read(part))
    (trio[0].path / "hidden").rename(trio[0].path / "t-0")
    assert sum(records.num_rows for records in reader.read(part)) == 8, "elsewhere, or later, it is seen"
    (trio[0].path / "t-0" / file_name(0, LOG)).unlink()
    if strict == "false":
        assert sum(records.num_rows for records in reader.read(part)) == 6, "the folders are seen"


def state_of(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path): (path.stat().st_mtime_ns, sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
    }


def test_nothing_is_written(trio: list[ClosedBroker], tmp_path: Path) -> None:
    before = state_of(tmp_path)
    for options in ({}, {"replica": 1, "upto": "leo"}, {"kafka.isolation.level": "read_committed"}):
        assert rows(*trio, **options, startingTimestamp=START_MS)
    assert state_of(tmp_path) == before


# ------------------------------------------------------------ Kafka's own


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA / "clean", tmp_path / "kafka"))


def kafkas(name: str, before: int) -> list[tuple[Any, ...]]:
    """What a consumer of Kafka's got: offset, timestamp, key, value."""
    return [
        tuple(each[:4]) for each in json.loads((KAFKA / "records.json").read_text())[name] if each[0] < before
    ]


@pytest.mark.parametrize(
    "name", ["codecs-0", "codecs-3", "compacted-0", "append-time-0", "times-0", "epochs-0"]
)
def test_directories_of_kafkas_are_read(kafka: Path, name: str) -> None:
    topic, _, number = name.rpartition("-")
    for options in ({}, {"minPartitions": 4}, {"replica": 1, "upto": "leo"}):
        found = rows(kafka, assign=json.dumps({topic: [int(number)]}), **options)
        assert [
            (
                row["offset"],
                int(row["timestamp"].timestamp() * 1000 + 0.5),
                *(None if text is None else text.decode() for text in (row["key"], row["value"])),
            )
            for row in found
        ] == kafkas(name, 400)


def test_transactions_of_kafkas_are_told_apart(kafka: Path) -> None:
    chosen = {"assign": '{"transactions": [0]}'}
    assert offsets(kafka, **chosen) == [each[0] for each in kafkas("transactions-0", 13)]
    committed = {**chosen, "kafka.isolation.level": "read_committed"}
    assert offsets(kafka, **committed) == [0, 1, 2, 8, 9, 10, 12], "4 to 6 were aborted"


# ------------------------------------------------------------ in Spark


def load(spark: SparkSession, *brokers: ClosedBroker, **options: Any) -> DataFrame:
    return spark.read.format("strandline").options(**options_of(*brokers, **options)).load()


@pytest.mark.spark
def test_spark_reads_closed_logs(spark: SparkSession, trio: list[ClosedBroker]) -> None:
    frame = load(spark, *trio, minPartitions=3, snapshot="load", subscribe="t")
    assert frame.rdd.getNumPartitions() >= 3
    assert sorted(bytes(row.value).decode() for row in frame.collect())[-1] == "7@1"
    assert frame.alias("a").join(frame.alias("b"), "offset").count() == 8
    assert load(spark, *trio, columns="offset,file").where("file like '%/t-0/%.log'").count() == 8


@pytest.mark.spark
def test_spark_tells_in_a_sentence(spark: SparkSession, trio: list[ClosedBroker], tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="is no directory, as seen from here"):
        spark.read.format("strandline").option("logDirs", str(tmp_path / "no")).option(
            "subscribe", "t"
        ).load()
    with pytest.raises(PySparkException, match="are closed, so nothing will come"):
        stream = spark.readStream.format("strandline").options(**options_of(*trio)).load()
        stream.writeStream.format("noop").start().processAllAvailable()


@pytest.mark.spark
def test_replicas_are_compared(spark: SparkSession, trio: list[ClosedBroker], tmp_path: Path) -> None:
    found = compare(spark, [str(each.path) for each in trio], "t").orderBy("offset", "servedBy").collect()
    said = [(row.offset, row.servedBy, row.leaderEpoch, bytes(row.value).decode()) for row in found]
    assert said[:4] == [(4, 1, 0, "4@0"), (4, 2, 0, "4@0"), (5, 1, 0, "5@0"), (5, 2, 0, "5@0")]
    assert said[4:6] == [(6, 1, 0, "6@0"), (6, 2, 1, "6@1")] and said[-1] == (9, 2, 1, "9@1")
    assert {tuple(row.absentFrom) for row in found} == {(3,)}
    assert compare(spark, [str(trio[0].path)], "t").count() == 0
    with pytest.raises(PlanError, match="no log of topic u"):
        compare(spark, [str(trio[0].path)], "u")
    other = ClosedBroker(tmp_path, 4)
    other.put([(0, COMMON)], Facts(topic_id=UUID(int=8)))
    with pytest.raises(PlanError, match="topic t was deleted and created again, its ids differ"):
        compare(spark, [str(trio[0].path), str(other.path)], "t")


def test_the_source_knows_the_column(trio: list[ClosedBroker]) -> None:
    source = StrandlineDataSource(options_of(*trio, metadataColumns="file"))
    assert source.schema().fieldNames()[-1] == "file"

"""What a task makes of a span: rows that are the records, or an error that says where the trouble is."""

import logging
import os
import socket
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.base.types import TopicPartition
from strandline.client.spark import StrandlineDataSource, client
from strandline.client.spark.client import cluster_for
from strandline.client.spark.options import SourceOptions, parse
from strandline.client.spark.plan import Span
from strandline.client.spark.reader import StrandlineReader, read_part
from strandline.client.spark.rows import ROWS_MAX
from strandline.client.spark.telling import NO_TRACEBACK
from strandline.protocol.batches import CONTROL
from strandline.protocol.compression import Codec
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder
from strandline.testing.waiting import until
from tests.client.spark.fetch_harness import Patience
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)


@pytest.fixture
def options(double: Any) -> SourceOptions:
    return parse({"bootstrap.servers": double.servers, "subscribe": "t"})


def read(options: SourceOptions, end: int, *columns: str) -> list[pa.RecordBatch]:
    return list(read_part(options, columns, (Span(T0, 0, end).plain(), True)))


@pytest.mark.parametrize("ms", [1 << 60, -(1 << 60)])
def test_a_timestamp_that_spark_cannot_hold_is_told_and_never_wraps(
    double: Any, options: SourceOptions, ms: int
) -> None:
    """A producer that writes nanoseconds, say."""
    double.log("t").add([(1000, None, b"x", []), (ms, None, b"x", [])])
    with pytest.raises(OverflowError, match=f"t-0: the record at offset 1 has timestamp {ms} ms"):
        read(options, 2, "offset", "timestamp")
    (rows,) = read(options, 2, "offset", "value")
    assert rows["offset"].to_pylist() == [0, 1]
    (rows,) = read(options, 1, "timestamp")
    assert rows.num_rows == 1, "a record that is not read does no harm"


@pytest.mark.usefixtures("heard_anew")
@pytest.mark.parametrize("harm", ["a timestamp", "a batch"])
def test_what_a_record_is_to_blame_for_is_told_without_a_traceback(
    double: Any, options: SourceOptions, harm: str
) -> None:
    log = double.log("t")
    log.add([(1 << 60, None, b"x", [])])
    if harm == "a batch":
        log.batches[0] = log.batches[0][:16] + b"\1" + log.batches[0][17:]
    reader = StrandlineReader(options, ["timestamp"])
    (part,) = reader.partitions()
    os.environ.pop(NO_TRACEBACK, None)
    with pytest.raises((OverflowError, Malformed)):
        list(reader.read(part))
    assert os.environ[NO_TRACEBACK] == "1"


def test_planning_outlives_an_outage_and_load_tells_it_at_once(
    double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.log("t").add([(1000, None, b"x", [])] * 9)
    given = CaseInsensitiveDict({"bootstrap.servers": double.servers, "subscribe": "t"})
    source = StrandlineDataSource(given)
    cluster, patience = cluster_for(parse(given).cluster), Patience()
    monkeypatch.setattr(cluster, "now", patience.now)
    monkeypatch.setattr(cluster, "sleep", patience.sleep)
    reader = source.reader(source.schema())
    double.close()
    with pytest.raises(ConnectionError, match="no broker can be reached"):
        source.schema()
    assert patience.slept == []
    with pytest.raises(ConnectionError, match="no broker can be reached"):
        reader.partitions()
    assert 60 < patience.seconds < 63
    patience.then = lambda seconds: double.revive(1) if seconds > 100 and not double.brokers else None
    (part,) = reader.partitions()
    assert patience.seconds > 100 and sum(rows.num_rows for rows in reader.read(part)) == 9


def test_what_a_query_has_left_open_is_closed_by_the_next_one(
    double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's workers outlive queries, and nobody asks for the connections of one that has ended."""
    double.log("t").add([(1000, None, b"x", [])])
    given = {"bootstrap.servers": double.servers, "subscribe": "t"}
    ended, other = (parse({**given, "kafka.client.id": name}) for name in ("ended", "other"))

    def served() -> set[socket.socket]:
        every = [each for broker in double.brokers.values() for each in broker.connections]
        return {each for each in every if each.fileno() != -1}

    assert read(ended, 1, "offset")
    left = served()
    assert left and read(other, 1, "offset")
    assert left < served(), "it may be there again soon"
    monkeypatch.setattr(client, "IDLE_SECONDS_MAX", 0.0)  # a minute later
    assert read(other, 1, "offset")
    until(lambda: not left & served(), HANG_S, "its connections are closed")


def grouped(double: Any, **more: str) -> StrandlineReader:
    given = {"bootstrap.servers": double.servers, "subscribe": "t", "commitOffsetsToGroup": "seen"}
    return StrandlineReader(parse({**given, **more}), ["offset"])


def test_a_group_hears_of_a_range_when_all_of_it_was_read(double: Any, options: SourceOptions) -> None:
    log = double.log("t")
    for _ in range(2):
        log.add([(1000, None, b"x", [])] * 4)
    reader = grouped(double)
    (part,) = reader.partitions()
    rows = reader.read(part)
    next(rows)
    assert double.committed == {}
    assert list(rows) is not None and double.committed == {("seen", T0): 8}


def test_a_group_hears_nothing_of_a_range_that_several_tasks_read(
    double: Any, options: SourceOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one may end first, or alone: the rows of another one that fails were never read."""
    double.log("t").add([(1000, None, b"x", [])] * 9)
    reader = grouped(double, minPartitions="3")
    with caplog.at_level(logging.WARNING):
        parts = reader.partitions()
    assert len(parts) == 3
    for part in reversed(parts):
        assert sum(rows.num_rows for rows in reader.read(part)) == 3
        assert double.committed == {}
    (said,) = [text for text in caplog.messages if text.startswith("offsets_not_committed")]
    assert "group=seen partitions=t-0" in said and "leave out minPartitions" in said


def test_a_batch_of_very_many_records_comes_in_pieces(double: Any, options: SourceOptions) -> None:
    count = 200_000
    builder = BatchBuilder(codec=Codec.ZSTD)
    for number in range(count):
        builder.append(1000, None, b"%d" % number if number % 1000 == 0 else None, [])
    double.log("t").add_batch(builder.build())
    found = read(options, count - 5, "offset", "value", "batchBaseOffset", "topic")
    assert [rows.num_rows for rows in found] == [ROWS_MAX] * 3 + [count - 5 - 3 * ROWS_MAX]
    table = pa.Table.from_batches(found)
    assert table["offset"].to_pylist() == list(range(count - 5))
    assert [value for value in table["value"].to_pylist() if value is not None] == [
        b"%d" % number for number in range(0, count - 5, 1000)
    ]
    assert set(table["batchBaseOffset"].to_pylist()) == {0}


def test_a_damaged_batch_is_named(double: Any, options: SourceOptions) -> None:
    log = double.log("t")
    log.add([(1000, None, b"x", [])] * 3)
    log.add([(1000, None, b"y", [])])
    whole = log.batches[1]
    log.batches[1] = whole[:-3] + b"?" + whole[-2:]
    with pytest.raises(CorruptMessage, match="t-0: the batch at offset 3 fails its CRC"):
        read(options, 4, "offset")
    log.batches[1] = whole[:16] + b"\1" + whole[17:]
    with pytest.raises(Malformed, match="t-0: between offsets 0 and 4: batch of magic 1"):
        read(options, 4, "offset")
    log.batches[1] = whole[:22] + bytes([whole[22] | CONTROL]) + whole[23:]
    with pytest.raises(CorruptMessage, match="t-0: the batch at offset 3 fails its CRC"):
        read(options, 4, "offset")

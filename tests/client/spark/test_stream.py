"""A real Spark session runs streams: batches, limits, progress, and trouble in one sentence."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from strandline.client.spark.admission import HAS_ADMISSION_CONTROL

pytestmark = pytest.mark.spark

LIMITED = pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="one batch for all there is, before 4.2")

WAIT_S = 300


def add(log: Any, count: int) -> None:
    for _ in range(count):
        log.add([(1000, None, b"x", [])])


def stream(spark: SparkSession, double: Any, **options: Any) -> DataFrame:
    reader = spark.readStream.format("strandline").option("kafka.bootstrap.servers", double.servers)
    return reader.options(**{"subscribe": "t", "startingOffsets": "earliest", **options}).load()


class Batches:
    """What came, batch by batch: partition and offset."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = frame.select("partition", "offset").collect()
        self.rows[batch] = sorted((row.partition, row.offset) for row in found)

    @property
    def all(self) -> list[tuple[int, int]]:
        return [row for batch in sorted(self.rows) for row in self.rows[batch]]

    @property
    def sizes(self) -> list[int]:
        return [len(self.rows[batch]) for batch in sorted(self.rows)]


def start(frame: DataFrame, path: Path, sink: Callable[..., None], **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(path))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(frame: DataFrame, path: Path, sink: Callable[..., None]) -> StreamingQuery:
    query = start(frame, path, sink)
    assert query.awaitTermination(WAIT_S)
    return query


@LIMITED
def test_a_run_that_ends_by_itself_keeps_to_the_limit(
    spark: SparkSession, double: Any, tmp_path: Path
) -> None:
    add(double.log("t"), 25)
    frame = stream(spark, double, maxOffsetsPerTrigger=10)
    batches = Batches()
    query = run(frame, tmp_path, batches)
    assert batches.sizes == [0, 10, 10, 5], "the first one keeps the initial offset"
    assert batches.all == [(0, offset) for offset in range(25)]
    lags = []
    for progress in query.recentProgress:
        (source,) = progress["sources"]
        latest, end = (json.loads(source[name])["t"]["0"] for name in ("latestOffset", "endOffset"))
        lags.append(latest - end)
    assert lags[:4] == [25, 15, 5, 0]
    add(double.log("t"), 3)
    run(frame, tmp_path, batches)
    assert batches.rows[4] == [(0, 25), (0, 26), (0, 27)]


def test_a_query_that_goes_on_reads_what_comes(spark: SparkSession, double: Any, tmp_path: Path) -> None:
    add(double.log("t"), 5)
    batches = Batches()
    query = start(stream(spark, double), tmp_path, batches, processingTime="0 seconds")
    try:
        for upto in (5, 9):
            deadline = time.monotonic() + WAIT_S
            while sum(batches.sizes) < upto:
                assert query.isActive and time.monotonic() < deadline, query.exception()
                time.sleep(0.05)
            add(double.log("t"), 4)
    finally:
        query.stop()
    assert batches.all[:9] == [(0, offset) for offset in range(9)]


def test_a_query_that_is_run_again_with_a_wrong_option_says_so(
    spark: SparkSession, double: Any, tmp_path: Path
) -> None:
    """Its last batch had not ended: that is planned again before anything else is asked."""
    add(double.log("t"), 5)

    def die(frame: DataFrame, batch: int) -> None:
        raise RuntimeError("the sink is away")

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        run(stream(spark, double), tmp_path, die)
    with pytest.raises(StreamingQueryException) as error:
        run(stream(spark, double, endingOffsets="latest"), tmp_path, Batches())
    assert "endingOffsets is not supported: a stream has no end" in str(error.value).splitlines()[0]


def test_trouble_of_a_stream_is_one_sentence(spark: SparkSession, double: Any, tmp_path: Path) -> None:
    add(double.log("t"), 5)
    with pytest.raises(PySparkException, match="did you mean maxOffsetsPerTrigger"):
        stream(spark, double, maxOffsetPerTrigger=10)
    with pytest.raises(StreamingQueryException) as error:
        run(stream(spark, double, endingOffsets="latest"), tmp_path / "end", Batches())
    assert "endingOffsets is not supported: a stream has no end" in str(error.value)
    assert "Traceback (most recent call last)" not in str(error.value)
    run(stream(spark, double), tmp_path / "cut", Batches())
    del double.log("t").batches[2:]
    double.elect(2)
    with pytest.raises(StreamingQueryException) as error:
        run(stream(spark, double, **{"fetchOffset.retryIntervalMs": 10}), tmp_path / "cut", Batches())
    assert "t-0: records [2, 5) are gone, the log was truncated at 2" in str(error.value).splitlines()[0]

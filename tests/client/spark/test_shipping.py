"""How the source comes to Spark: found by its name, sent by value, and through Spark Connect.

Each in a Spark of its own, for a session that runs has looked its sources up already.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

import pyspark_strandline
from strandline.client.spark.snapshot import of_json
from strandline.client.spark.source import StrandlineDataSource
from strandline.client.spark.stream import StrandlineStreamReader
from tests.spark_sessions import spark_home
from tests.storage.closed_dirs import ClosedBroker, Facts, batch, marker

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 600

READ = """
import json, sys, tempfile
from pyspark.sql import SparkSession

def session(builder):
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    return builder.config("spark.ui.enabled", "false").getOrCreate()

def told(trouble):
    return str(trouble).splitlines()[0]

def read(spark):
    options = {"bootstrap.servers": sys.argv[1], "subscribe": "t", "startingOffsets": "earliest"}
    batch = spark.read.format("strandline").options(**options)
    found = {
        "columns": batch.load().columns,
        "offsets": sorted(row.offset for row in batch.option("minPartitions", 3).load().collect()),
        "loaded": batch.option("snapshot", "load").option("metadataColumns", "servedBy").load().count(),
    }
    closed = {"logDirs": sys.argv[2], "subscribe": "t", "kafka.isolation.level": "read_committed"}
    closed = spark.read.format("strandline").options(**closed, minPartitions=3).load()
    found["closed"] = sorted(row.offset for row in closed.collect())
    rows = batch.load().select("value")
    try:
        batch.option("minPartition", 3).load().columns
    except Exception as trouble:
        found["trouble"] = told(trouble)
    stream = spark.readStream.format("strandline").options(**options, maxOffsetsPerTrigger=6).load()
    with tempfile.TemporaryDirectory() as folder:
        writer = stream.select("offset").writeStream.format("parquet").option("path", folder + "/rows")
        writer = writer.option("checkpointLocation", folder + "/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        found["streamed"] = sorted(row.offset for row in spark.read.parquet(folder + "/rows").collect())
    into = {"bootstrap.servers": sys.argv[1], "topic": "out"}
    rows.write.format("strandline").options(**into).mode("append").save()
    with tempfile.TemporaryDirectory() as folder:
        writer = stream.select("value").writeStream.format("strandline").options(**into)
        writer = writer.option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()
    try:
        rows.write.format("strandline").options(**into, topik="x").mode("append").save()
    except Exception as trouble:
        found["write_trouble"] = told(trouble)
    print("FOUND", json.dumps(found))
"""
FOUND_BY_NAME = (
    READ
    + """
read(session(SparkSession.builder.master("local[2]")))
"""
)
BY_VALUE = (
    READ
    + """
from pyspark import cloudpickle
import pyspark_strandline
cloudpickle.register_pickle_by_value(pyspark_strandline)
spark = session(SparkSession.builder.master("local[2]"))
spark.dataSource.register(pyspark_strandline.DefaultSource)
try:
    spark.range(1).rdd.map(lambda row: __import__("strandline")).count()
    raise SystemExit("strandline is installed for the workers: this shows nothing")
except Exception as trouble:
    assert "No module named 'strandline'" in str(trouble), trouble
read(spark)
"""
)
THROUGH_CONNECT = (
    READ
    + """
spark = SparkSession.builder.remote("local[2]").getOrCreate()
read(spark)
"""
)


def closed_logs(tmp_path: Path) -> Path:
    """A log directory with nine committed records, and two of a transaction that was aborted."""
    broker = ClosedBroker(tmp_path, 1)
    aborted = batch(4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    batches = [batch(0, 4), aborted, marker(6, 7, commit=False), batch(7, 5)]
    broker.put([(0, batches)], Facts(high_watermark=12))
    return broker.path


def run(script: str, double: Any, tmp_path: Path, workers: str, **environment: str) -> dict[str, Any]:
    """What the script has found, with an interpreter for Spark's own processes."""
    log, out = double.log("t"), double.log("out")
    for _ in range(20):
        log.add([(1000, None, b"x", [])])
    names = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    ours = {
        "PYSPARK_PYTHON": workers,
        "PYTHONPATH": str(ROOT / ".src"),
        "SPARK_HOME": spark_home(tmp_path / "home"),
    }
    ended = subprocess.run(
        [sys.executable, "-c", script, double.servers, str(closed_logs(tmp_path))],
        env={**names, **ours, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("FOUND ")]
    assert ended.returncode == 0 and lines, ended.stdout[-2000:] + ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    found["written"], found["stderr"] = out.values(), ended.stderr
    return found


def assert_all_of_it(found: dict[str, Any]) -> None:
    assert found["columns"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert found["offsets"] == found["streamed"] == list(range(20))
    assert found["loaded"] == 20
    assert found["closed"] == [*range(4), *range(7, 12)]
    assert "unknown option minpartition; did you mean minPartitions?" in found["trouble"]
    assert found["written"] == [b"x"] * 40
    assert "unknown option topik; did you mean topic?" in found["write_trouble"]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_finds_the_source_by_its_name(double: Any, tmp_path: Path) -> None:
    assert_all_of_it(run(FOUND_BY_NAME, double, tmp_path, sys.executable))


COPY = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(name, "127.0.0.1")
servers = {"bootstrap.servers": sys.argv[1]}
rows = builder.getOrCreate().read.format("strandline").options(**servers, subscribe="t").load()
rows.select("value").write.format("strandline").options(**servers, topic="out").mode("append").save()
print("FOUND {}")
"""


@pytest.mark.spark
@pytest.mark.slow
def test_what_was_planned_and_written_is_told_if_that_is_wanted(double: Any, tmp_path: Path) -> None:
    """In processes of Spark's, where nobody configures logging."""
    found = run(COPY, double, tmp_path, sys.executable, SPARK_STRANDLINE_LOG="info")
    (planned,) = re.findall(r"^read_planned snapshot=(.+)$", found["stderr"], re.MULTILINE)
    assert [(span.start, span.end) for span in of_json(planned)] == [(0, 20)]
    (written,) = re.findall(r"^rows_written (.+)$", found["stderr"], re.MULTILINE)
    assert written.startswith("rows=20 bytes=") and "'out-0': [20, 0, 19]" in written


@pytest.mark.spark
@pytest.mark.long
def test_the_source_is_sent_to_where_it_is_not_installed(double: Any, tmp_path: Path) -> None:
    """Spark's Python processes have the requirements, and no Strandline."""
    bare = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    bare.write_text(
        f'#!/bin/sh\nPYTHONPATH="$(echo "$PYTHONPATH" | sed "s#{ROOT}/.src##"):{packages}" '
        f'exec "{getattr(sys, "_base_executable", sys.executable)}" "$@"\n'
    )
    bare.chmod(0o755)
    assert_all_of_it(run(BY_VALUE, double, tmp_path, str(bare)))


@pytest.mark.spark
@pytest.mark.long
def test_spark_connect_finds_the_source_too(double: Any, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    assert_all_of_it(run(THROUGH_CONNECT, double, tmp_path, sys.executable))


def test_the_module_that_spark_looks_for_is_light() -> None:
    """It is imported in every session with Python sources, also by those who do not use this one."""
    loaded = "import sys, pyspark_strandline; print(*(m for m in sys.modules if m.startswith('strandline')))"
    ended = subprocess.run(
        [sys.executable, "-c", loaded],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
    )
    assert ended.stdout.strip() == ""


def test_what_is_sent_is_small_and_whole() -> None:
    archive = pyspark_strandline.Code().__reduce__()[1][0]
    assert len(archive) < 1 << 20
    again = pyspark_strandline.Code(archive).__reduce__()[1][0]
    assert again is archive, "whoever was sent it can send it on"


def test_a_task_on_closed_logs_is_of_built_in_values(tmp_path: Path) -> None:
    """Spark's processes hand it on, and need not know Strandline."""
    options = {
        "logDirs": str(closed_logs(tmp_path)),
        "subscribe": "t",
        "kafka.isolation.level": "read_committed",
    }
    source = pyspark_strandline.DefaultSource(CaseInsensitiveDict(options))
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    waiting, kinds = [part.value], set[type]()
    while waiting:
        each = waiting.pop()
        kinds.add(type(each))
        waiting += each if isinstance(each, tuple) else ()
    assert kinds <= {tuple, str, int, bytes, bool}
    sent = cloudpickle.loads(cloudpickle.dumps((reader, part)))
    assert sum(rows.num_rows for rows in sent[0].read(sent[1])) == 9


def test_the_readers_of_the_module_are_the_real_ones(double: Any) -> None:
    log = double.log("t")
    log.add([(1000, None, b"x", [])] * 3)
    options = CaseInsensitiveDict({"bootstrap.servers": double.servers, "subscribe": "t"})
    source = pyspark_strandline.DefaultSource(options)
    schema = source.schema()
    assert schema == StrandlineDataSource(options).schema()
    reader = cloudpickle.loads(cloudpickle.dumps(source.reader(schema)))
    (part,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(part)) == 3
    stream = source.streamReader(schema)
    assert isinstance(stream.real, StrandlineStreamReader)
    missing = set(vars(StrandlineStreamReader)) - set(vars(pyspark_strandline.StreamReader))
    assert {name for name in missing if not name.startswith("_")} == set()
    stream.stop()
    wanted = {"pyspark_strandline." + name for name in ("Writer", "StreamWriter")}
    into = pyspark_strandline.DefaultSource(CaseInsensitiveDict({**options, "topic": "t"}))
    for made in (into.writer(schema, False), into.streamWriter(schema, False)):
        sent = cloudpickle.loads(cloudpickle.dumps(made))
        message = sent.write(iter(()))
        wanted.discard(f"{type(sent).__module__}.{type(sent).__name__}")
        assert type(message) is pyspark_strandline.Message and message.plain["partitions"] == []
    assert not wanted

"""A cluster of machines: a Spark master and two workers as processes, each with a Python of its own.

How the source comes to the executors, one test for each way that docs/spark.md names; and what a user hears
if executors have no way to a broker that the driver can reach.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strandline.local.standalone_spark import StandaloneSpark

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 900
BATCHES, ROWS_EACH = 24, 50
ELSEWHERE = ".elsewhere.test"

SESSION = """
import json, sys
from pyspark.sql import SparkSession

master, servers = sys.argv[1:]
settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)

def reader(spark, topic="t", parts=8):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "minPartitions": parts}
    return spark.read.format("strandline").options(**options)

def where(batches):
    import sys
    import pyarrow
    try:
        import strandline
        place = strandline.__file__
    except ImportError:
        place = "nowhere"
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [place], "rows": [batch.num_rows]})

def rows_by_place(frame):
    places = frame.select("offset").mapInArrow(where, "place string, rows bigint")
    return dict(map(tuple, places.groupBy("place").sum("rows").collect()))
"""

OWN = (
    SESSION
    + """
spark = builder.getOrCreate()
found = {"places": rows_by_place(reader(spark).load())}
try:
    reader(spark, "u").option("kafkaConsumer.pollTimeoutMs", 2000).load().collect()
except Exception as trouble:
    found["trouble"] = str(trouble)
spark.stop()
print("FOUND", json.dumps(found))
"""
)
SENT = (
    SESSION
    + """
import os
import pyspark_strandline
from pyspark import cloudpickle
from strandline.client.spark import StrandlineDataSource

spark = builder.config("spark.python.worker.reuse", "false").getOrCreate()
found = {"places before": rows_by_place(spark.range(0, 2, 1, 2).withColumnRenamed("id", "offset"))}
cloudpickle.register_pickle_by_value(pyspark_strandline)
spark.dataSource.register(pyspark_strandline.DefaultSource)
found["by value"] = reader(spark, parts=2).load().count()
spark.sparkContext.addPyFile(os.environ["STRANDLINE_ZIP"])
spark.dataSource.register(StrandlineDataSource)
found["places"] = rows_by_place(reader(spark, parts=2).load())
spark.stop()
print("FOUND", json.dumps(found))
"""
)
ARCHIVE = (
    SESSION
    + """
spark = builder.config("spark.archives", "environment.tar.gz#environment").getOrCreate()
found = {"places": rows_by_place(reader(spark).load())}
spark.stop()
print("FOUND", json.dumps(found))
"""
)

RESOLVES = f"""
import socket
real = socket.getaddrinfo
def getaddrinfo(host, *rest, **more):
    return real("127.0.0.1" if str(host).endswith({ELSEWHERE!r}) else host, *rest, **more)
socket.getaddrinfo = getaddrinfo
"""


class Machines(NamedTuple):
    """Spark, and the Python environments of the driver, of its workers, and one without Strandline."""

    spark: StandaloneSpark
    driver: Path
    workers: tuple[Path, ...]
    bare: Path
    wheel: Path


def build_wheel(folder: Path) -> Path:
    """Of a copy: a build writes beside its sources."""
    source = folder / "source"

    def left_out(folder: str, names: list[str]) -> list[str]:
        beside = ("tests", "docs", "bench", "build") if Path(folder) == ROOT else ()
        return [name for name in names if name in beside or name.startswith((".", "__pycache__"))]

    shutil.copytree(ROOT, source, ignore=left_out)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(source)],
        check=True,
        timeout=WAIT_S,
    )
    (wheel,) = folder.glob("strandline-*.whl")
    return wheel


def environment(folder: Path, wheel: Path | None) -> Path:
    """A Python of its own: the requirements come from here, Strandline from the wheel if at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=WAIT_S)
    packages = site_packages(folder)
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if wheel is not None:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(packages)
    return folder


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("machines")
    wheel = build_wheel(folder)
    driver = environment(folder / "driver", wheel)
    (site_packages(driver) / "sitecustomize.py").write_text(RESOLVES)
    workers = tuple(environment(folder / f"python-{number}", wheel) for number in (1, 2))
    bare = environment(folder / "bare", None)
    paths = {
        number: {"PATH": f"{each / 'bin'}:{os.environ['PATH']}"} for number, each in enumerate(workers, 1)
    }
    with StandaloneSpark(folder / "spark", 2, cores=1, environments=paths) as spark:
        yield Machines(spark, driver, workers, bare, wheel)


def run(machines: Machines, script: str, double: Any, folder: Path, workers: str, **more: str) -> Any:
    """What the script has found; `workers` is the interpreter that Spark is told to use."""
    log = double.log("t")
    for _ in range(BATCHES):
        log.add([(1000, None, b"x", [])] * ROWS_EACH)
    names = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV"))
    }
    ended = subprocess.run(
        [str(machines.driver / "bin" / "python"), "-c", script, machines.spark.url, double.servers],
        env={
            **names,
            "PATH": f"{machines.driver / 'bin'}:{names['PATH']}",
            "PYSPARK_PYTHON": workers,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **more,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("FOUND ")]
    assert ended.returncode == 0 and lines, ended.stdout[-2000:] + ended.stderr[-4000:]
    return json.loads(lines[0].removeprefix("FOUND "))


def packages_of(places: dict[str, int]) -> set[str]:
    return {str(Path(place).parents[1]) for place in places}


def test_each_worker_has_the_source_in_its_own_python(
    machines: Machines, double: Any, tmp_path: Path
) -> None:
    """`python3` is another one on each. A broker that executors cannot reach is told with the remedy."""
    double.log("u", leader=2).add([(1000, None, b"x", [])] * ROWS_EACH)
    double.advertised[2] = (f"broker-2{ELSEWHERE}", double.ports[2])
    found = run(machines, OWN, double, tmp_path, "python3")
    assert sum(found["places"].values()) == BATCHES * ROWS_EACH
    assert packages_of(found["places"]) == {str(site_packages(each)) for each in machines.workers}
    assert "Traceback" not in found["trouble"]
    assert f"cannot connect to broker 2 at broker-2{ELSEWHERE}:{double.ports[2]}" in found["trouble"]
    assert "set its advertised.listeners to an address that" in found["trouble"]


def test_the_source_is_sent_by_value_or_as_a_file(machines: Machines, double: Any, tmp_path: Path) -> None:
    """Where executors have the requirements and no Strandline. A wheel is a zip file."""
    sent = tmp_path / "shipped.zip"
    shutil.copy(machines.wheel, sent)
    python = str(machines.bare / "bin" / "python")
    found = run(machines, SENT, double, tmp_path, python, STRANDLINE_ZIP=str(sent))
    assert found["places before"].keys() == {"nowhere"}
    assert found["by value"] == BATCHES * ROWS_EACH
    assert sum(found["places"].values()) == BATCHES * ROWS_EACH
    assert all("/shipped.zip/" in place for place in found["places"])


def test_an_environment_is_sent_as_an_archive(machines: Machines, double: Any, tmp_path: Path) -> None:
    """Each executor unpacks it for itself. The driver's own Spark processes want one at the same path."""
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(machines.workers[0], ".")
    (tmp_path / "environment").symlink_to(machines.driver)
    found = run(machines, ARCHIVE, double, tmp_path, "./environment/bin/python")
    assert sum(found["places"].values()) == BATCHES * ROWS_EACH
    assert len(packages_of(found["places"])) == 2
    assert all("/environment/" in place for place in found["places"])

"""What all tests share: a real ZooKeeper and a real Spark session, each started when first wanted."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from strandline.local.embedded_zookeeper import Zookeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples each time: a run that fails by luck hinders who did not cause it. Others are looked for
# with `pytest --hypothesis-profile=default`, and by `make storage-long`. How long they take says more of the
# machine's load than of the examples.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


ALONE = tuple(
    f"tests/{folder}/" for folder in ("bench", "cli", "conformance", "docker", "integration", "testing")
)
"""Where tests start brokers as processes, and look at how soon something happens."""

FILES = tuple(f"tests/conformance/test_{name}.py" for name in ("dump_like_kafka", "kafka_fixtures"))
"""Those among them that only read files."""

SPARK = "tests/client/spark/"
"""Where tests share one Spark session. How soon something happens is nothing that they look at."""


class InTurn(LoadFileScheduling):
    """Files side by side. Spark comes first, in one process; what wants the machine for itself comes last."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SPARK):
            return "spark"
        return "alone" if wants_the_machine(nodeid) else str(super()._split_scope(nodeid))


def wants_the_machine(nodeid: str) -> bool:
    """Whether nothing else should run beside this test."""
    return nodeid.startswith(ALONE) and not nodeid.startswith(FILES)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InTurn:
    """For `make test`."""
    return InTurn(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is run when it is asked for: `make storage-long`, `simulate-long`, `faults`,
    `spark-matrix`, `spark-long`."""
    for marker in ("long", "faults", "matrix"):
        if marker not in config.option.markexpr:
            config.hook.pytest_deselected(items=[each for each in items if each.get_closest_marker(marker)])
            items[:] = [item for item in items if item.get_closest_marker(marker) is None]
    items.sort(key=lambda each: wants_the_machine(each.nodeid) - each.nodeid.startswith(SPARK))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper for the whole run; each test takes a chroot or names of its own."""
    server = Zookeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def kafka_source(request: pytest.FixtureRequest) -> tuple[list[Path], str]:
    """The jars of Spark's own Kafka source, if a test wants them; else why they are not there."""
    if not any("both" in getattr(item, "fixturenames", ()) for item in request.session.items):
        return [], "no test wants them"
    import pyspark

    from bench.jars import JarsMissing
    from bench.spark import source_jars

    try:
        return source_jars(pyspark.__version__), ""
    except JarsMissing as error:
        return [], str(error)


@pytest.fixture(scope="session")
def spark(kafka_source: tuple[list[Path], str]) -> "Iterator[SparkSession]":
    """Two cores, nothing heard outside of this machine, and workers with this interpreter."""
    from pyspark.sql import SparkSession

    from strandline.client.spark import register

    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraClassPath", ":".join(map(str, kafka_source[0])))
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()
    if before is None:
        del os.environ["PYSPARK_PYTHON"]
    else:
        os.environ["PYSPARK_PYTHON"] = before

"""What all tests share: a real ZooKeeper and a real Spark session, each started when first wanted."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from strandline.local.embedded_zookeeper import Zookeeper
from strandline.local.owned import mark
from tests import default_ports
from tests.spark_sessions import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples each time: a run that fails by luck hinders who did not cause it. Others are looked for
# with `pytest --hypothesis-profile=default`, and by `make storage-long`. How long they take says more of the
# machine's load than of the examples.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


ROOT = Path(__file__).resolve().parent.parent

SHARED = {
    "spark": re.compile(r"\b(spark|both): SparkSession|\bstrandline_cluster: Any"),
    "conformance": re.compile(
        r"\b(running|healed): LocalCluster|\b(drivers|driver|administrator|ours): (Any|dict)"
    ),
    "mixed": re.compile(r"\bpair: KafkaPlace"),
}
"""What is started once and shared by many files, and how a file of tests asks for it."""

LONGEST = (
    "group:conformance", "group:spark", "group:docker", "mixed", "group:mixed", "group:cli", "upgrade",
    "simulation/test_seeds.py", "integration/test_operations_page.py", "client/spark/test_oldest_pyspark.py",
    "bench/test_systems.py", "integration/test_kills.py", "conformance/differential",
    "conformance/test_leader_moves.py", "testing/verify/test_short.py", "conformance", "web", "fuzzing",
    "integration/test_recovery.py", "integration/test_why.py", "client/spark/test_shipping.py", "suites",
    "storage/test_corruption_sweep.py", "integration", "testing/test_embedded.py", "observability",
    "protocol/test_kernel_build.py", "protocol/test_columns.py", "simulation",
)  # fmt: skip
"""What takes a quarter of a minute or more, in the order in which it is begun; everything else follows."""


class Side(LoadFileScheduling):
    """Files side by side, in processes; but what shares a Spark session, or a cluster, in one of them."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@cache
def shared_by(file: str) -> str | None:
    """The group to which a file of tests belongs, if it belongs to one."""
    folder = file.split("/")[1]
    group = folder if folder in SHARED else "spark"
    text = (ROOT / file).read_text()
    return f"group:{group}" if SHARED[group].search(text) else None


def scope_of(nodeid: str) -> str:
    """What is run in one process, in order: the files that share something, else each file."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/cli/"):
        return "group:cli"
    if file.startswith("tests/docker/"):  # one cluster at a time: its ports are those that users have
        return "group:docker"
    if file.startswith(("tests/client/spark/", "tests/conformance/", "tests/mixed/")):
        return shared_by(file) or file
    return file


def turn_of(nodeid: str) -> int:
    """When it is begun."""
    scope = scope_of(nodeid).removeprefix("tests/")
    begun = (turn for turn, name in enumerate(LONGEST) if scope == name or scope.startswith(f"{name}/"))
    return next(begun, len(LONGEST))


WATCH = pytest.StashKey[default_ports.Watch]()


def pytest_configure(config: pytest.Config) -> None:
    """What is begun here ends with this process, also if that is killed: ZooKeeper, clusters, JVMs.

    In `make test` one process watches the default ports, for all that it starts. A run of a few files would
    be in the way of a cluster that has them.
    """
    os.environ.update(mark())
    if config.getoption("numprocesses", None) and default_ports.VARIABLE not in os.environ:
        config.stash[WATCH] = default_ports.Watch()
        config.stash[WATCH].start()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if (watch := session.config.stash.get(WATCH, None)) is not None:
        watch.stop()
        if watch.callers:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (watch := config.stash.get(WATCH, None)) is not None and watch.callers:
        terminalreporter.section("ports that users have were dialled: tests/default_ports.py", red=True)
        for told in watch.callers:
            terminalreporter.write_line(told)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Side:
    """For `make test`."""
    return Side(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is run when it is asked for: `make storage-long`, `simulate-long`, `faults`,
    `spark-matrix`, `spark-long`, `conformance-long`, `verify-long`, `docker-long`, `mixed`, `upgrades`,
    `pipeline-test`.
    """
    for marker in ("long", "faults", "matrix"):
        if marker not in config.option.markexpr:
            config.hook.pytest_deselected(items=[each for each in items if each.get_closest_marker(marker)])
            items[:] = [item for item in items if item.get_closest_marker(marker) is None]
    items.sort(key=lambda each: turn_of(each.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Hardly anything of what is made now is garbage, and to look for it took a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: no later collection of garbage walks through all of it."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_go_where_they_went() -> Iterator[None]:
    """A test that configures structlog, and puts the old settings back, leaves it configured all the same.
    Then the client's logs went to standard output, in whatever test came next in this process.
    """
    was_configured = structlog.is_configured()
    yield
    if structlog.is_configured() and not was_configured:
        structlog.reset_defaults()


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
def spark(
    kafka_source: tuple[list[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[SparkSession]":
    """Two cores, nothing heard outside of this machine, and workers with this interpreter."""
    from pyspark.sql import SparkSession

    from strandline.client.spark import register

    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": spark_home(tmp_path_factory.mktemp("spark") / "home"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ours.items():
            patch.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.log.level", "ERROR")
            .config("spark.driver.extraClassPath", ":".join(map(str, kafka_source[0])))
            .getOrCreate()
        )
        register(session)
        yield session
        session.stop()

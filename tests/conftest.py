"""What all tests share: a real ZooKeeper and a real Spark session, each started when first wanted."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from strandline.cli.zookeeper import Zookeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples each time: a run that fails by luck hinders who did not cause it. Others are looked for
# with `pytest --hypothesis-profile=default`, and by `make storage-long`. How long they take says more of the
# machine's load than of the examples.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


TESTS = Path(__file__).parent
ALONE = ("cli", "conformance", "docker", "integration", "testing")
"""Folders whose tests start brokers as processes, and look at how soon something happens."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is run when it is asked for: `make storage-long`, `simulate-long`, `faults`.

    The others run side by side, file by file; those that want the machine for themselves come last, in turn.
    """
    for marker in ("long", "faults"):
        if marker not in config.option.markexpr:
            config.hook.pytest_deselected(items=[each for each in items if each.get_closest_marker(marker)])
            items[:] = [item for item in items if item.get_closest_marker(marker) is None]
    items.sort(key=_wants_all)  # else as they were
    for item in items:
        group = "alone" if _wants_all(item) else ".".join(item.path.relative_to(TESTS).with_suffix("").parts)
        item.add_marker(pytest.mark.xdist_group(group))


def _wants_all(item: pytest.Item) -> bool:
    return item.path.relative_to(TESTS).parts[0] in ALONE or item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper for the whole run; each test takes a chroot or names of its own."""
    server = Zookeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
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
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()
    if before is None:
        del os.environ["PYSPARK_PYTHON"]
    else:
        os.environ["PYSPARK_PYTHON"] = before

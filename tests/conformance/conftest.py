"""Unmodified Kafka clients against one cluster of three brokers, shared by all of these tests."""

import gc
import os
import shutil
import sys
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import LocalCluster
from strandline.testing.nursery import forked

sys.path.insert(0, str(Path(__file__).parent))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python, in the clients' own code
    from drive_aiokafka import AioKafka
    from drive_confluent import Confluent
    from drive_kafka_python import KafkaPython
    from drive_kcat import Kcat
    from drive_strandline import Strandline

DRIVERS: dict[str, Any] = {one.name: one for one in (Confluent, AioKafka, KafkaPython, Kcat)}
THEIRS = (*DRIVERS,)
DRIVERS[Strandline.name] = Strandline


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A client may leave sockets to the collector (kafka-python does, to a dead broker)."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


MOVES_TOLD: list[str] = []


@pytest.fixture
def moves_told() -> list[str]:
    """Lines about leader moves for the end of the run."""
    return MOVES_TOLD


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MOVES_TOLD:
        terminalreporter.section("leader moves: longest silence in ms, producer/consumer")
        for told in MOVES_TOLD:
            terminalreporter.write_line(told)


@pytest.fixture(autouse=True)
def _leave_nothing_to_others() -> Iterator[None]:
    """Collect what a client forgot while its warnings are still ignored."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The cluster. A dead broker is noticed within two seconds; a first member waits for nobody; members of
    consumer groups are heard often; the transaction of a dead producer ends soon after its time.
    """
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "min.insync.replicas": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    local = forked(LocalCluster(tmp_path_factory.mktemp("conformance"), 3, settings=settings))
    local.start()
    yield local
    local.kill()


@pytest.fixture(scope="session")
def drivers(running: LocalCluster) -> dict[str, Any]:
    """A driver for each client, by its name."""
    return {name: driver(running.bootstrap) for name, driver in DRIVERS.items()}


@pytest.fixture(params=THEIRS)
def driver(request: pytest.FixtureRequest, drivers: dict[str, Any]) -> Any:
    """Each foreign client in turn."""
    if request.param == "kcat":
        need_kcat()
    return drivers[request.param]


@pytest.fixture(params=[name for name, one in DRIVERS.items() if name in THEIRS and "admin" in one.can])
def administrator(request: pytest.FixtureRequest, drivers: dict[str, Any]) -> Any:
    """Each foreign client that can create topics and ask about groups."""
    return drivers[request.param]


@pytest.fixture
def ours(drivers: dict[str, Any]) -> Any:
    """The bundled client."""
    return drivers[Strandline.name]


@pytest.fixture
def topic(ours: Any) -> str:
    """A topic of the test's own, three partitions on three brokers."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    ours.create_topic(name, 3)
    return name


def need_kcat() -> None:
    """Skip where kcat is not installed, but never in CI."""
    if shutil.which("kcat") is None:
        assert not os.environ.get("CI"), "kcat is missing: CI must install it (apt-get install kcat)"
        pytest.skip("kcat is missing: apt-get install kcat")

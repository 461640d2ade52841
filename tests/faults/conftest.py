"""The fault matrix: clusters whose brokers live in namespaces of their own, and what they showed.

make faults                                   # all of them, about an hour
make faults ONLY=F8,F12                       # some of them
FAULTS_JSON=faults.json make faults           # the rows in another file than .faults/results.json
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "integration")]

from strandline.local.cluster import LocalCluster  # noqa: E402
from strandline.testing.namespaces import Field, leave_the_network  # noqa: E402
from tests.faults.drill import Drill, assert_tidy, wait_purged  # noqa: E402
from tests.faults.matrix import chosen, fault_of  # noqa: E402
from tests.faults.table import Table  # noqa: E402

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "1000",  # there to be damaged
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "1000",
}
TABLE = Table()
KEPT = Path(__file__).resolve().parents[2] / ".faults" / "results.json"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Scenarios are run with `-m faults` only, and of these the faults that FAULTS_ONLY names."""
    try:
        wanted = chosen(os.environ.get("FAULTS_ONLY", ""))
    except ValueError as problem:
        raise pytest.UsageError(f"FAULTS_ONLY: {problem}") from None
    dropped = []
    for item in items:
        if Path(__file__).parent in item.path.parents and (fault := fault_of(item.name)):
            item.add_marker(pytest.mark.faults)
            if fault not in wanted:
                dropped.append(item)
    items[:] = [item for item in items if item not in dropped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TABLE.rows:
        terminalreporter.section("fault matrix")
        terminalreporter.write_line(TABLE.text())


@pytest.fixture(autouse=True)
def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each scenario, whatever comes next, its row is in the file."""
    yield
    if fault_of(request.node.name):
        save()


def save() -> None:
    if TABLE.rows:
        TABLE.save(Path(os.environ.get("FAULTS_JSON") or KEPT))


@pytest.fixture(scope="session")
def table() -> Table:
    return TABLE


@pytest.fixture(scope="session")
def no_network() -> str | None:
    """Why links cannot be cut here, or None. The whole run moves to a network of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        return leave_the_network()


@pytest.fixture(scope="session")
def field(tmp_path_factory: pytest.TempPathFactory, no_network: str | None) -> Iterator[Field]:
    places = Field(tmp_path_factory.mktemp("field"), apart=no_network is None)
    yield places
    places.close()


@pytest.fixture
def links(field: Field, no_network: str | None) -> Field:
    """For those that cut links."""
    if no_network is not None:
        pytest.skip(no_network)
    return field


@pytest.fixture(scope="module")
def start(field: Field, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalCluster]]:
    """Start a cluster; when the module ends it is stopped in order, and what it leaves is looked at."""
    started: list[LocalCluster] = []
    before = len(TABLE.rows)

    def start(
        brokers: int, prepare: Callable[[LocalCluster], object] | None = None, **settings: str
    ) -> LocalCluster:
        """`prepare` is called before the brokers start."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        cluster = field.cluster(tmp_path_factory.mktemp("cluster"), brokers, SETTINGS | given)
        started.append(cluster)
        if prepare is not None:
            prepare(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        try:
            wait_purged(cluster)
            cluster.stop()
            assert_tidy(cluster)
        except BaseException as failure:
            for row in TABLE.rows[before:]:
                row.passed = False
                row.remark = f"the audit after all had stopped: {str(failure)[:200]}; {row.remark}"
            save()
            raise
        finally:
            cluster.kill()


@pytest.fixture
def drill(cluster: LocalCluster, table: Table, field: Field) -> Callable[..., Drill]:
    def begin(fault: str, what: str, leaders: Iterable[int], lasts_s: float = 0.0) -> Drill:
        return Drill(cluster, table, fault, what, leaders, field.heal, lasts_s)

    return begin

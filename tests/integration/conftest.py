"""What the integration tests share: clusters in directories of their own, on the one ZooKeeper of the run."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from strandline.local.cluster import LocalCluster

Starter = Callable[..., LocalCluster]


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Brokers find their modules compiled, as an installed package has them, whatever the caller's habits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(scope="module")
def start_cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Start a cluster of `brokers` brokers with `settings`; killed when the module ends."""
    started: list[LocalCluster] = []

    def start(brokers: int = 3, settings: Mapping[str, str] | None = None) -> LocalCluster:
        directory = tmp_path_factory.mktemp("cluster")
        cluster = LocalCluster(
            directory,
            brokers,
            settings=settings,
            zookeeper=f"{zookeeper}/{directory.name}-{len(started)}",
            owned=True,
        )
        started.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.kill()

"""What the integration tests share: clusters in directories of their own, on the one ZooKeeper of the run."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked

Starter = Callable[..., LocalCluster]


@pytest.fixture(scope="module")
def start_cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Start a cluster of `brokers` brokers with `settings`; killed when the module ends.

    Its brokers are forked, which spares most of their start, if `is_forked`; the exit status of such a broker
    is not known.
    """
    started: list[LocalCluster] = []

    def start(
        brokers: int = 3, settings: Mapping[str, str] | None = None, is_forked: bool = True
    ) -> LocalCluster:
        directory = tmp_path_factory.mktemp("cluster")
        cluster = LocalCluster(
            directory,
            brokers,
            settings=settings,
            zookeeper=f"{zookeeper}/{directory.name}-{len(started)}",
            owned=True,
        )
        started.append(forked(cluster) if is_forked else cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.kill()

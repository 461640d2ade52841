"""A pytest plugin: the fixture `strandline_cluster`, a running cluster of three brokers."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def strandline_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One `LocalCluster` for the whole session: each test should use its own topics."""
    from ..local.cluster import LocalCluster

    local = LocalCluster(tmp_path_factory.mktemp("strandline"), 3)
    local.start()
    yield local
    local.kill()

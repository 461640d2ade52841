"""What all tests share: a real ZooKeeper, started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.zookeeper import Zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper for the whole run; each test takes a chroot or names of its own."""
    server = Zookeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    yield server.address
    server.stop()

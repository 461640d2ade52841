"""The commands of docs/operations.md for a new version, and for the way back, run as they stand there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.local.cluster import LocalCluster, find
from strandline.testing.workload import Workload
from tests.integration.support import assert_kept
from tests.integration.test_operations_page import WARM, blocks, shell
from tests.upgrade.versions import command_of, sources_of

EARLIER = "42e8567"  # the earlier version must have the commands of the page
WITHOUT_BALANCE = {"auto.leader.rebalance.enable": "false"}
"""A controller of the earlier version may forget to tell of an ISR that grows while it gives leaderships back
(5 s after its election): no broker's metadata is right until the next change, and `health` waits in vain.
"""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return sources_of(EARLIER, tmp_path / "sources")


@pytest.fixture
def home(earlier: Path, tmp_path: Path) -> Iterator[Path]:
    """The home of somebody whose `strandline` is the earlier one, with the new one beside it."""
    command_of(earlier, tmp_path / "bin")
    command_of(None, tmp_path / "strandline-new" / "bin")
    cluster = LocalCluster(tmp_path / ".strandline", 3, settings=WITHOUT_BALANCE)
    for broker in cluster.brokers.values():
        broker.environment["PYTHONPATH"] = str(earlier)
    cluster.start()
    cluster.save()
    try:
        yield tmp_path
    finally:
        find(tmp_path / ".strandline").kill()
        cluster.kill()


def versions(home: Path, earlier: Path) -> set[bool]:
    """Of the brokers that run now: whether each is of the earlier version."""
    pids = [broker.pid for broker in find(home / ".strandline").brokers.values()]
    return {str(earlier).encode() in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids}


@pytest.mark.long
def test_a_new_version_and_the_way_back_lose_nothing(home: Path, earlier: Path) -> None:
    there, back = blocks("### A new version")
    path = f"export PATH={home}/bin:$PATH\n"
    shell(f"{path}strandline topics create orders --partitions 3 --replication-factor 3", home)
    assert versions(home, earlier) == {True}
    with Workload(find(home / ".strandline").bootstrap, "orders", 3) as load:
        load.wait_acknowledged(WARM)
        shell(path + there, home)
        assert versions(home, earlier) == {False}
        load.wait_acknowledged_everywhere()
        shell(path + back, home)
        assert versions(home, earlier) == {True}
        load.wait_acknowledged_everywhere()
    assert_kept(load)

"""F14: links with a delay, resets, and little room, by proxies between brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.client.sync import Producer
from strandline.local.cluster import LocalCluster
from strandline.testing.faults.links import Links, Quality
from strandline.testing.namespaces import Field
from tests.faults.conftest import SETTINGS
from tests.faults.drill import Drill, assert_tidy
from tests.integration.support import create

SLOW_S = 15.0
DELAY_S, RESETS = 0.2, 0.05
NARROW = 1_000_000 / 8  # bytes per second of 1 Mbit/s
LOAD_BYTES, LOAD_EVERY_S = 100_000, 0.2


@pytest.fixture(scope="module")
def linked(field: Field, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Links]]:
    directory: Path = tmp_path_factory.mktemp("linked")
    place = f"{field.ensemble.address}/{directory.name}"
    cluster = LocalCluster(directory, 3, settings=SETTINGS, zookeeper=place, owned=True)
    links = Links(cluster)
    try:
        cluster.start()
        yield cluster, links
        cluster.stop()
        assert_tidy(cluster)
    finally:
        cluster.kill()
        links.close()


@pytest.fixture
def drill(linked: tuple[LocalCluster, Links], table: Any) -> Callable[..., Drill]:
    cluster, links = linked
    return lambda fault, what, leaders: Drill(cluster, table, fault, what, leaders, links.heal)


def test_f14_delays_and_resets(linked: tuple[LocalCluster, Links], drill: Callable[..., Drill]) -> None:
    cluster, links = linked
    everybody = sorted(cluster.brokers)
    with drill(
        "F14", f"{DELAY_S:g} s more between brokers, {RESETS:.0%} of segments reset", everybody * 2
    ) as it:
        it.warm()
        links.set(everybody, everybody, Quality(delay_s=DELAY_S, resets=RESETS), reset=False)
        time.sleep(SLOW_S)
        it.resumed()


def test_f14_a_narrow_link(linked: tuple[LocalCluster, Links], drill: Callable[..., Drill]) -> None:
    cluster, links = linked
    controller = cluster.controller()
    leader, follower = (b for b in sorted(cluster.brokers) if b != controller)
    with (
        drill("F14", "1 Mbit/s from the leader to one follower, 4 Mbit/s are written", [leader] * 3) as it,
        Producer(cluster.bootstrap) as producer,
    ):
        it.warm()
        create(cluster, f"{it.topic}-load", [leader]).admin.close()
        links.set([leader], [follower], Quality(bytes_per_s=NARROW), reset=False)
        ends = time.monotonic() + SLOW_S
        while time.monotonic() < ends:
            producer.send(f"{it.topic}-load", bytes(LOAD_BYTES)).result(60)
            time.sleep(LOAD_EVERY_S)
        it.resumed()

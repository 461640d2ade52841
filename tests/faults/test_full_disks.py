"""F17: disks without room, under the leader, under a follower, under all."""

from collections.abc import Callable, Iterator

import pytest

from strandline.local.cluster import LocalCluster
from tests.faults.disks import fill, make_room, mount_small
from tests.faults.drill import Drill
from tests.integration.support import until

MOUNT_MB = 48
SMALL = {
    "log_segment_bytes": "1048576",
    "strandline_log_dir_room_reserve_bytes": "2097152",
    "offsets_topic_num_partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(start, no_network: str | None) -> LocalCluster:
    if no_network is not None:
        pytest.skip(no_network)
    settings = {name.replace("_", "."): value for name, value in SMALL.items()}
    return start(3, lambda cluster: mount_small(cluster, MOUNT_MB), **settings)


@pytest.fixture(autouse=True)
def room(cluster: LocalCluster) -> Iterator[None]:
    yield
    for broker in cluster.brokers.values():
        make_room(broker)


@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_f17_one_disk_is_full(cluster: LocalCluster, drill: Callable[..., Drill], whose: str) -> None:
    controller = cluster.controller()
    victim, other = (b for b in sorted(cluster.brokers) if b != controller)
    with drill("F17", f"the disk of the {whose} is full", [victim if whose == "leader" else other] * 3) as it:
        it.warm()
        fill(cluster.brokers[victim])
        it.resumed()
        if whose == "leader":
            it.view.wait_led_without(victim, 30)
        gap_s = it.gap_s()
        assert cluster.brokers[victim].alive
        make_room(cluster.brokers[victim])
        it.row.remark = f"acks were back after {gap_s:.1f} s"
        it.heal()


def test_f17_all_disks_are_full(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    with drill("F17", "all disks are full", sorted(cluster.brokers)) as it:
        it.warm()
        before = it.load.acknowledged
        for broker in cluster.brokers.values():
            fill(broker)
        until(
            lambda: it.load.refused or not is_growing(it), 30, "nothing is acknowledged any more", every_s=1
        )
        assert all(broker.alive for broker in cluster.brokers.values())
        for broker in cluster.brokers.values():
            make_room(broker)
        it.resumed()
        it.row.remark = f"{it.load.acknowledged - before} acknowledged since"


def is_growing(it: Drill) -> bool:
    """Whether something was acknowledged within the last seconds."""
    before = it.load.acknowledged
    try:
        it.load.wait_acknowledged(1, 3)
    except AssertionError:
        return False
    return it.load.acknowledged > before

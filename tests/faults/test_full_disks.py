"""F17: disks without room, under the leader, under a follower, under all."""

from collections.abc import Callable, Iterator

import pytest

from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ErrorCode
from tests.faults.disks import fill, make_room, mount_small
from tests.faults.drill import Drill
from tests.faults.looks import read, send
from tests.integration.support import View, Wire, create, produce_request, produced, until

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
        until(lambda: is_out_of_sync(victim, it.view), 30, "who has no room is not in sync")
        gap_s = it.gap_s()
        assert cluster.brokers[victim].alive
        make_room(cluster.brokers[victim])
        it.row.remark = f"acks were back after {gap_s:.1f} s"
        it.heal()


def test_f17_all_disks_are_full(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    with (
        drill("F17", "all disks are full", sorted(cluster.brokers)) as it,
        create(cluster, f"{it.topic}-read", [cluster.controller()]) as kept,
    ):
        send(cluster, kept.topic, [b"before"])
        it.warm()
        before = it.load.acknowledged
        for broker in cluster.brokers.values():
            fill(broker)
        until(
            lambda: it.load.refused or not is_growing(it), 30, "nothing is acknowledged any more", every_s=1
        )
        assert all(broker.alive for broker in cluster.brokers.values())
        until(lambda: is_refused(cluster, kept), 30, "who leads says that its disk is full", every_s=0.2)
        assert read(cluster, kept.topic)[:1] == [b"before"], "reads go on"
        for broker in cluster.brokers.values():
            make_room(broker)
        it.resumed()
        it.row.remark = f"{it.load.acknowledged - before} acknowledged since"


def is_out_of_sync(broker: int, view: View) -> bool:
    partitions = view.partitions()
    return bool(partitions) and not any(broker in partition.isr for partition in partitions)


def is_refused(cluster: LocalCluster, view: View) -> bool:
    """Whether the leader of the only partition has no room for a record."""
    leader = cluster.brokers[view.leaders()[0]]
    with Wire(leader.port, host=leader.host) as wire:
        code, _ = produced(wire.ask(produce_request(view.topic, 0, bytes(1000), acks=1), 9))
    return code == ErrorCode.KAFKA_STORAGE_ERROR


def is_growing(it: Drill) -> bool:
    """Whether something was acknowledged within the last seconds."""
    before = it.load.acknowledged
    try:
        it.load.wait_acknowledged(1, 3)
    except AssertionError:
        return False
    return it.load.acknowledged > before

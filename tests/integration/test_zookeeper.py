"""ZooKeeper gone for longer than a session: records go on, nobody exits, and afterwards all is as before."""

import time
from collections.abc import Iterator

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ApiError, TopicAlreadyExists
from strandline.testing.nursery import forked
from strandline.testing.workload import Workload
from tests.integration.support import (
    DURABLE,
    View,
    assert_kept,
    assert_no_traceback,
    create,
    until,
    wait_alike,
)

SESSION_S = 2.0


@pytest.fixture
def cluster(tmp_path) -> Iterator[LocalCluster]:
    """With a ZooKeeper of its own, which may be killed."""
    quick = {"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}
    cluster = forked(LocalCluster(tmp_path, 3, settings=DURABLE | quick))
    cluster.start()
    yield cluster
    cluster.kill()


def test_an_outage_stops_no_record(cluster: LocalCluster) -> None:
    topic = "outage"
    assert cluster.own_zookeeper is not None
    with create(cluster, topic, sorted(cluster.brokers)) as view:
        with Workload(cluster.bootstrap, topic, 3) as load:
            load.wait_acknowledged(100)
            cluster.own_zookeeper.kill()
            gone_s = time.monotonic()
            while time.monotonic() < gone_s + 2 * SESSION_S:
                load.wait_acknowledged_everywhere()
                assert all(broker.alive for broker in cluster.brokers.values())
            gap_s = load.history.longest_gap_s(since_s=gone_s)
            cluster.own_zookeeper.start()
            until(lambda: created(view, "afterwards"), 30, "topics can be created again")
            cluster.wait_ready()
            view.wait_full_isr()
            load.wait_acknowledged_everywhere()
            print(f"\nZooKeeper gone for {2 * SESSION_S:g} s: longest gap {gap_s:.2f} s")
            victim = view.leaders()[0]
            cluster.brokers[victim].kill()
            load.wait_acknowledged_everywhere()
            view.wait_led_without(victim)
            cluster.brokers[victim].start()
            view.wait_full_isr()
        assert gap_s < machine_is_slower()
        assert_kept(load)
        wait_alike(cluster, topic, 3)
    assert_no_traceback(cluster)


def created(view: View, name: str) -> bool:
    try:
        view.admin.create_topic(name, 3, 3, timeout_ms=5000)
    except TopicAlreadyExists:
        return True
    except ApiError:
        return False
    return True

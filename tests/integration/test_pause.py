"""A leader that stands still beyond its session (SIGSTOP) and wakes as a zombie.

While it slept, others were elected. What clients had sent to it lies in its sockets and is the first thing it
sees. It may not acknowledge any of that with acks=all, and what it took with acks=1 must go.
"""

import time

import pytest
from kazoo.client import KazooClient

from strandline.base.types import TopicPartition
from strandline.client.sync import Admin, Consumer
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ErrorCode
from strandline.testing.workload import Workload
from tests.integration.support import (
    DURABLE,
    Wire,
    assert_kept,
    assert_no_traceback,
    create,
    incarnation,
    produce_request,
    produced,
    until,
    wait_alike,
)
from tests.patience import HANG_S

SESSION_S = 2.0
QUICK = {
    **DURABLE,
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "2000",
}
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(3, QUICK)


@pytest.mark.parametrize("role", ["leader", "controller and leader"])
def test_f8_a_zombie_acknowledges_nothing_and_comes_back(cluster: LocalCluster, role: str) -> None:
    topic = f"pause-{role.replace(' ', '-')}"
    controller = cluster.controller()
    victim = controller if "controller" in role else next(b for b in cluster.brokers if b != controller)
    broker = cluster.brokers[victim]
    with create(cluster, topic, [victim] * PARTITIONS) as view, Wire(broker.port, 30) as wire:
        with Workload(cluster.bootstrap, topic, PARTITIONS) as load:
            load.wait_acknowledged(100)
            before = incarnation(broker)
            broker.pause()
            paused_s = time.monotonic()
            try:
                wire.send(produce_request(topic, 0, b"zombie: one replica", acks=1), 9)
                wire.send(produce_request(topic, 0, b"zombie: all replicas", acks=-1), 9)
                view_of_the_living(cluster, victim, topic)
                load.wait_acknowledged_everywhere()
                gap_s = load.history.longest_gap_s(since_s=paused_s)
            finally:
                broker.resume()
            resumed_s = time.monotonic()
            by_itself, _ = produced(wire.receive())
            by_all, _ = produced(wire.receive())
            assert by_all != ErrorCode.NONE, "nobody follows a zombie: nothing is held by all"
            stepped_down_s = time.monotonic() - resumed_s
            until(lambda: incarnation(broker) > before, HANG_S, "a new session, one incarnation later")
            full_s = view.wait_full_isr()
            load.wait_acknowledged(100)
        print(
            f"\n{role} paused: longest gap {gap_s:.2f} s; acks=1 answered {by_itself}, acks=all {by_all} "
            f"{stepped_down_s:.2f} s after SIGCONT; ISR full {full_s:.2f} s later"
        )
        wait_alike(cluster, topic, PARTITIONS)
        assert not zombie_words(cluster, topic)
        assert_kept(load)
    assert_no_traceback(cluster)


def view_of_the_living(cluster: LocalCluster, sleeper: int, topic: str) -> None:
    """Wait until all partitions are led by others, as the brokers that are awake tell it."""
    awake = ",".join(b.address for b in cluster.brokers.values() if b.id != sleeper)
    with Admin(awake, request_timeout_ms=3000) as admin:

        def moved() -> bool:
            (described,) = admin.describe_topics([topic])
            return all(p.leader not in (sleeper, -1) for p in described.partitions)

        until(moved, 10 + 2 * SESSION_S, "leadership has moved")


def zombie_words(cluster: LocalCluster, topic: str) -> list[bytes]:
    """Records of the zombie's clients that consumers are shown."""
    tp = TopicPartition(topic, 0)
    found: list[bytes] = []
    with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            found += [r.value for r in consumer.poll(500) if r.value.startswith(b"zombie")]
    return found


def test_f10_a_paused_follower_leaves_the_isr_and_comes_back(cluster: LocalCluster) -> None:
    topic = "pause-follower"
    sleeper = next(b for b in cluster.brokers if b != cluster.controller())
    leaders = [b for b in cluster.brokers if b != sleeper]
    with create(cluster, topic, leaders) as view:
        with Workload(cluster.bootstrap, topic, len(leaders)) as load:
            load.wait_acknowledged(100)
            paused_s = time.monotonic()
            cluster.brokers[sleeper].pause()
            try:
                load.wait_acknowledged_everywhere()
                gap_s = load.history.longest_gap_s(since_s=paused_s)
            finally:
                cluster.brokers[sleeper].resume()
            view.wait_full_isr()
            load.wait_acknowledged(100)
        print(f"\nfollower paused: longest gap {gap_s:.2f} s")
        assert_kept(load)
        wait_alike(cluster, topic, len(leaders))
    assert_no_traceback(cluster)


def registered(cluster: LocalCluster, broker: int) -> bool:
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        return client.exists(f"/brokers/ids/{broker}") is not None
    finally:
        client.stop()
        client.close()


def test_a_fenced_leader_takes_nothing_that_came_while_it_slept(start_cluster) -> None:
    """leader.fence.on.zk.loss, acks=1: the first thing that the woken process sees, before any timer."""
    cluster = start_cluster(1, {**QUICK, "leader.fence.on.zk.loss": "true"})
    (broker,) = cluster.brokers.values()
    with create(cluster, "fenced", [broker.id]), Wire(broker.port, 30) as wire:
        assert produced(wire.ask(produce_request("fenced", 0, b"awake", acks=1), 9))[0] == ErrorCode.NONE
        before = incarnation(broker)
        broker.pause()
        try:
            wire.send(produce_request("fenced", 0, b"asleep", acks=1), 9)
            until(lambda: not registered(cluster, broker.id), 5 * SESSION_S, "its session is over")
        finally:
            broker.resume()
        assert produced(wire.receive())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        until(lambda: incarnation(broker) > before, HANG_S, "a new session, one incarnation later")
        until(
            lambda: produced(wire.ask(produce_request("fenced", 0, b"again", acks=1), 9)) == (0, 1),
            HANG_S,
            "it leads again",
        )
    assert_no_traceback(cluster)

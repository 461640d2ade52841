"""Brokers killed with SIGKILL under load: what was acknowledged stays, and the others go on.

One cluster lives through all stories; each has a topic of its own and leaves everybody alive.
"""

import signal
import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pyarrow as pa
import pytest

from strandline.base.types import TopicPartition
from strandline.broker.metadata.doubts import HOLD_S
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.local.processes import machine_is_slower
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.testing.workload import Workload
from tests.integration.support import (
    DURABLE,
    View,
    Wire,
    assert_kept,
    assert_no_traceback,
    create,
    incarnation,
    revive,
    until,
    wait_alike,
)
from tests.patience import HANG_S

GAP_S_MAX = 3.0  # what a bad day of the machine may cost; the figure itself is printed
WARM = 150
NOTICED_S = 0.05  # until a broker's own connections to a dead one have ended
METADATA_VERSION = 9


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    """Exit statuses, and how long brokers take to start, are looked at."""
    return start_cluster(3, DURABLE, is_forked=False)


@pytest.fixture(autouse=True)
def healthy(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run before and after each story, and none has logged a traceback."""
    cluster.wait_ready()
    yield
    revive(cluster)
    assert_no_traceback(cluster)


def others(cluster: LocalCluster, *brokers: int) -> list[int]:
    return [id for id in sorted(cluster.brokers) if id not in brokers]


def answers_well(cluster: LocalCluster, topic: str) -> bool:
    """Whether who is asked, a moment after a leader was killed, names the next one.

    An answer that does name the dead leader (a slow machine elects late) was held back as long as it may be.
    """
    controller = cluster.controller()
    victim, witness = others(cluster, controller)
    question = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    with create(cluster, topic, [victim]), Wire(cluster.brokers[witness].port) as wire:
        cluster.brokers[victim].kill()
        killed = asked = time.monotonic()
        while asked - killed < NOTICED_S:  # its connections end one after the other
            asked = time.monotonic()
            answer = wire.ask(question, METADATA_VERSION)
            if answer.topics[0].partitions[0].leader_id in (witness, controller):
                return True
        return time.monotonic() - asked > HOLD_S * 0.9


def test_the_first_answer_after_a_kill_names_the_next_leader(cluster: LocalCluster) -> None:
    """Whoever asks a broker that has noticed hears of the next leader: the answer waits for that.

    On a busy machine it may have had no time to notice, so one of three is enough: who waits for nothing
    names the dead leader each time.
    """
    for attempt in range(3):
        if answers_well(cluster, f"first-answer-{attempt}"):
            return
        revive(cluster)
    pytest.fail("three answers at once that name a leader who is dead")


def cast(cluster: LocalCluster, role: str) -> tuple[int, list[int]]:
    """Who dies in a role, and the leaders of the six partitions of that story."""
    controller = cluster.controller()
    first, second = others(cluster, controller)
    if role == "leader":
        return first, [first, second, controller] * 2
    if role == "follower":
        return first, [second, controller] * 3
    if role == "controller":
        return controller, [first, second] * 3
    return controller, [controller, first, second] * 2


@pytest.mark.parametrize("role", ["leader", "follower", "controller", "controller and leader"])
def test_f1_f2_f3_a_killed_broker_costs_nothing_that_was_acknowledged(
    cluster: LocalCluster, role: str
) -> None:
    victim, leaders = cast(cluster, role)
    topic = f"kill-{role.replace(' ', '-')}"
    with create(cluster, topic, leaders) as view:
        with Workload(cluster.bootstrap, topic, len(leaders)) as load:
            load.wait_acknowledged(WARM)
            killed_s = time.monotonic()
            cluster.brokers[victim].kill()
            load.wait_acknowledged_everywhere()
            view.wait_led_without(victim)
            gap_s = load.history.longest_gap_s(since_s=killed_s)
            cluster.brokers[victim].start()
            full_s = view.wait_full_isr()
            load.wait_acknowledged(WARM)
        print(f"\n{role} killed: longest gap {gap_s:.2f} s; ISR full {full_s:.2f} s after its restart")
        assert_kept(load)
        wait_alike(cluster, topic, len(leaders))
        if "controller" in role:
            assert cluster.controller() in others(cluster, victim)
        if role != "follower":
            assert gap_s < GAP_S_MAX * machine_is_slower()


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_f5_all_killed_at_once_lose_nothing(cluster: LocalCluster, order: tuple[int, ...]) -> None:
    topic = f"all-{''.join(map(str, order))}"
    with create(cluster, topic, sorted(cluster.brokers) * 2) as view:
        with Workload(cluster.bootstrap, topic, 6) as load:
            load.wait_acknowledged(WARM)
            for broker in cluster.brokers.values():
                broker.kill()
            before = load.acknowledged
            for broker in order:
                cluster.brokers[broker].start()
            began = time.monotonic()
            load.wait_acknowledged_everywhere(within_s=45)
            print(f"\nall killed after {before} receipts: acks again in {time.monotonic() - began:.2f} s")
            view.wait_full_isr()
        assert_kept(load)
        wait_alike(cluster, topic, 6)


def test_f6_killed_and_started_at_once_it_takes_its_old_session_up(cluster: LocalCluster) -> None:
    """The session of the killed process (18 s) still holds its registration when it comes back."""
    topic = "bounced"
    victim = others(cluster, cluster.controller())[0]
    broker = cluster.brokers[victim]
    with create(cluster, topic, sorted(cluster.brokers)) as view:
        with Workload(cluster.bootstrap, topic, 3) as load:
            load.wait_acknowledged(WARM)
            before, began = incarnation(broker), time.monotonic()
            broker.kill()
            broker.start()
            until(lambda: incarnation(broker) > before, HANG_S, "a new incarnation")
            until(lambda: knows_all(cluster, victim), HANG_S, "it knows the cluster again")
            view.wait_full_isr()
            took_s = time.monotonic() - began
            load.wait_acknowledged_everywhere()
        print(f"\nkilled and started at once: back in every ISR after {took_s:.2f} s")
        assert incarnation(broker) == before + 1
        assert took_s < 5 * machine_is_slower()
        assert_kept(load)
        wait_alike(cluster, topic, 3)


def knows_all(cluster: LocalCluster, broker: int) -> bool:
    try:
        with Admin(cluster.brokers[broker].address, request_timeout_ms=2000) as admin:
            return len(admin.describe_cluster().brokers) == len(cluster.brokers)
    except OSError:
        return False


def test_a_controlled_shutdown_hands_leadership_over(cluster: LocalCluster) -> None:
    topic = "handed-over"
    victim = others(cluster, cluster.controller())[0]
    broker = cluster.brokers[victim]
    with create(cluster, topic, [victim] * 3 + others(cluster, victim)) as view:
        with Workload(cluster.bootstrap, topic, 5) as load:
            load.wait_acknowledged(WARM)
            asked_s = time.monotonic()
            broker.stop()
            stopped_s = time.monotonic() - asked_s
            assert broker.child is not None
            assert broker.child.returncode == 0
            assert (broker.directory / "data" / ".kafka_cleanshutdown").exists()
            assert victim not in view.leaders()
            load.wait_acknowledged_everywhere()
            gap_s = load.history.longest_gap_s(since_s=asked_s)
            began = time.monotonic()
            broker.start()
            until(lambda: knows_all(cluster, victim), HANG_S, "it knows the cluster again")
            started_s = time.monotonic() - began
            view.wait_full_isr()
            load.wait_acknowledged(WARM)
        print(
            f"\ncontrolled shutdown: {stopped_s:.2f} s, longest gap {gap_s:.2f} s, "
            f"ready {started_s:.2f} s after its start"
        )
        assert gap_s < GAP_S_MAX * machine_is_slower()
        assert started_s < 5 * machine_is_slower()
        assert_kept(load)
        wait_alike(cluster, topic, 5)


def test_all_stopped_together_wait_for_nobody(cluster: LocalCluster) -> None:
    """Nobody is left to take over: each ends at once, clean, and all is there when they come back."""
    topic = "stopped-together"
    with create(cluster, topic, sorted(cluster.brokers)) as view:
        with Workload(cluster.bootstrap, topic, 3) as load:
            load.wait_acknowledged(WARM)
            began = time.monotonic()
            for broker in cluster.brokers.values():
                broker.signal(signal.SIGTERM)
            for broker in cluster.brokers.values():
                assert broker.wait(30)
            took_s = time.monotonic() - began
            for broker in cluster.brokers.values():
                assert broker.child is not None
                assert broker.child.returncode == 0
                assert (broker.directory / "data" / ".kafka_cleanshutdown").exists()
            print(f"\nall stopped together in {took_s:.2f} s")
            assert took_s < 4 * machine_is_slower()
            for broker in cluster.brokers.values():
                broker.start()
            load.wait_acknowledged_everywhere(within_s=45)
            view.wait_full_isr()
        assert_kept(load)
        wait_alike(cluster, topic, 3)


LISTED = 9_000


def test_a_list_survives_its_leader(cluster: LocalCluster) -> None:
    """A leader is killed while a list is on its way; librdkafka reads each record once, in order, as told."""
    topic, values = "listed", [b"%d" % n * 20 for n in range(LISTED)]
    keys = [b"k%d" % (n % 1000) if n % 3 else None for n in range(LISTED)]
    with (
        create(cluster, topic, sorted(cluster.brokers)),
        Producer(cluster.bootstrap, list_batch_size=4_000, buffer_memory=200_000) as producer,
    ):
        killer = threading.Timer(0.02, cluster.brokers[2].kill)
        killer.start()
        receipts = producer.send_many(topic, values, keys=keys)
        killer.join()
        more = producer.send_arrow(topic, pa.table({"value": values[:1000]}), partition=1)
    read = read_by_librdkafka(cluster, topic, LISTED + 1000)
    assert len(read) == LISTED + 1000
    told: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for value, key, receipt in zip(values, keys, receipts, strict=True):
        assert read[receipt.partition, receipt.offset] == (key, value)
        told[receipt.partition].append(receipt.offset)
    for value, receipt in zip(values, more, strict=False):
        assert read[receipt.partition, receipt.offset] == (None, value)
    assert all(offsets == sorted(offsets) for offsets in told.values()), "the order of the list"


def read_by_librdkafka(
    cluster: LocalCluster, topic: str, count: int
) -> dict[tuple[int, int], tuple[bytes | None, bytes | None]]:
    """All records of a topic by partition and offset, until so many are there, and a moment longer."""
    alone = {"group.id": "lists", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, **alone})
    reader.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(3)])
    found: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        messages = reader.consume(10_000, 0.5)
        for one in messages:
            assert one.error() is None, one.error()
            found[one.partition(), one.offset()] = (one.key(), one.value())
        if len(found) >= count and not messages:
            break
    reader.close()
    return found


def test_a_killed_coordinator_loses_no_committed_offset(cluster: LocalCluster) -> None:
    topic, group = "committed", "readers"
    with create(cluster, topic, sorted(cluster.brokers)):
        with Producer(cluster.bootstrap) as producer:
            for partition in range(3):
                producer.send_many(topic, [b"%d" % n for n in range(300)], partition=partition)
        promised: dict[TopicPartition, int] = {}
        seen: set[tuple[int, int]] = set()
        with Consumer(
            cluster.bootstrap, group=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe([topic])
            read_and_commit(consumer, promised, seen, rounds=3)
            coordinator = coordinator_of(cluster, group)
            began = time.monotonic()
            cluster.brokers[coordinator].kill()
            read_and_commit(consumer, promised, seen, rounds=1)
            print(f"\ncoordinator killed: next commit after {time.monotonic() - began:.2f} s")
            with Admin(cluster.bootstrap) as admin:
                kept = {tp: found.offset for tp, found in admin.list_group_offsets(group).items()}
            assert {tp: kept.get(tp) for tp in promised} == promised
            assert coordinator_of(cluster, group) != coordinator
            deadline = time.monotonic() + 30
            while len(seen) < 900:
                assert time.monotonic() < deadline, f"{900 - len(seen)} records were not handed out"
                read_and_commit(consumer, promised, seen, rounds=1)
        with Admin(cluster.bootstrap) as admin:
            kept = {tp: found.offset for tp, found in admin.list_group_offsets(group).items()}
        assert kept == promised == {TopicPartition(topic, partition): 300 for partition in range(3)}


def read_and_commit(
    consumer: Consumer, promised: dict[TopicPartition, int], seen: set[tuple[int, int]], rounds: int
) -> None:
    """Read some records and commit, so many times; `promised` are the offsets whose commit has returned."""
    deadline = time.monotonic() + 30
    while rounds:
        assert time.monotonic() < deadline, "no records, or no commit, within 30 s"
        records = consumer.poll(500, max_records=40)
        if not records:
            continue
        for record in records:
            assert (record.partition, record.offset) not in seen, "nobody else reads: nothing comes twice"
            seen.add((record.partition, record.offset))
        offsets = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
        consumer.commit(offsets)
        promised.update(offsets)
        rounds -= 1


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """The leader of the group's partition of __consumer_offsets."""
    java = 0
    for letter in group:
        java = (31 * java + ord(letter)) & 0xFFFFFFFF
    with View(cluster, "__consumer_offsets") as view:
        partitions = view.partitions()
        return partitions[(java & 0x7FFFFFFF) % len(partitions)].leader

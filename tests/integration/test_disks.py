"""Disks that are full or fail under brokers that run: nothing acknowledged is lost, whoever can goes on.

Each broker of the first cluster has a small tmpfs of its own as its log directory, mounted by the test. No
device that fails can be had everywhere, so in the second one the kernel refuses to let files grow
(RLIMIT_FSIZE), which is an error of the disk as far as a broker can see.
"""

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.client.sync import Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess
from strandline.testing.workload import Workload
from tests.integration.support import (
    DURABLE,
    View,
    assert_kept,
    assert_no_traceback,
    create,
    incarnation,
    revive,
    strandline,
    until,
    wait_alike,
)

WARM = 100
MOUNT_MB = 16
SETTINGS = DURABLE | {
    "replica.lag.time.max.ms": "2000",
    "log.segment.bytes": "1048576",
    "strandline.log.dir.room.reserve.bytes": "2097152",
    "offsets.topic.num.partitions": "1",
}
LIMIT_BYTES = 600_000
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def mount(directory: Path, limit: str = f"size={MOUNT_MB}m") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "tmpfs", str(directory)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip() or 'mount failed'}")


@pytest.fixture(scope="module")
def small(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers, each on a disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    directory = tmp_path_factory.mktemp("small-disks")
    cluster = LocalCluster(directory, 3, settings=SETTINGS, zookeeper=f"{zookeeper}/{directory.name}")
    mounted: list[Path] = []
    try:
        for broker in cluster.brokers.values():
            mount(broker.directory / "data")
            mounted.append(broker.directory / "data")
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
        for path in mounted:
            subprocess.run(["umount", str(path)], check=False)


def data(broker: BrokerProcess) -> Path:
    return broker.directory / "data"


def fill(broker: BrokerProcess) -> None:
    """Leave no byte on the broker's disk."""
    with (data(broker) / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def make_room(broker: BrokerProcess) -> None:
    (data(broker) / "ballast").unlink()


def logged(broker: BrokerProcess, event: str) -> int:
    return broker.log.read_text(errors="replace").count(f'"event": "{event}"')


@pytest.fixture
def disks(small: LocalCluster) -> Iterator[LocalCluster]:
    """All brokers run, with room, before and after each story; none of them ended meanwhile."""
    small.wait_ready()
    yield small
    for broker in small.brokers.values():
        (data(broker) / "ballast").unlink(missing_ok=True)
    revive(small)
    assert_no_traceback(small)


def in_every_isr(view: View, broker: int) -> bool:
    return all(broker in partition.isr for partition in view.partitions())


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_full_disk_costs_nothing_and_comes_back_by_itself(disks: LocalCluster, role: str) -> None:
    topic, victim = f"full-{role}", disks.brokers[2]
    leaders = [2, 2, 3] if role == "leader" else [1, 3, 1]
    with create(disks, topic, leaders) as view:
        with Workload(disks.bootstrap, topic, 3) as load:
            load.wait_acknowledged(WARM)
            fill(victim)
            until(lambda: logged(victim, "log_dir_full"), 20, "the broker finds its disk full")
            view.wait_led_without(2)
            load.wait_acknowledged_everywhere()
            until(lambda: not in_every_isr(view, 2), 20, "the full follower has left an ISR")
            told = json.loads(strandline("status", "-b", disks.bootstrap, "--json").stdout)
            assert [one["state"] for one in told["log_dirs"]] == ["ok", "full", "ok"]
            make_room(victim)
            view.wait_full_isr()
            load.wait_acknowledged_everywhere()
        assert_kept(load)
        wait_alike(disks, topic, 3)
    assert victim.alive and "not_intact" not in victim.log.read_text()


def test_three_full_disks_serve_reads_and_go_on_when_there_is_room(disks: LocalCluster) -> None:
    topic, brokers = "all-full", list(disks.brokers.values())
    with create(disks, topic, [1, 2, 3]) as view:
        before = {broker.id: logged(broker, "log_dir_full") for broker in brokers}
        with Workload(disks.bootstrap, topic, 3) as load:
            load.wait_acknowledged(WARM)
            for broker in brokers:
                fill(broker)
            until(
                lambda: all(logged(b, "log_dir_full") > before[b.id] for b in brokers), 30, "all find no room"
            )
            acknowledged = (
                load.acknowledged
            )  # a retry may still come through before its partition is full, too
            assert reads_all(disks, topic, acknowledged) >= acknowledged
            brokers[0].kill()
            brokers[0].start()
            disks.wait_ready()
            until(lambda: view.leaders() and min(view.leaders()) > 0, 30, "all partitions have leaders")
            acknowledged = load.acknowledged
            assert reads_all(disks, topic, acknowledged) >= acknowledged
            assert all(broker.alive for broker in brokers)
            for broker in brokers:
                make_room(broker)
            load.wait_acknowledged_everywhere(within_s=60)
            view.wait_full_isr()
        assert_kept(load)
        wait_alike(disks, topic, 3)
    for broker in brokers:
        remembered = json.loads((data(broker) / "incarnation.json").read_text())
        assert not remembered["lost_note"] and remembered["intact_since"] < remembered["last_k"] + 1


def reads_all(cluster: LocalCluster, topic: str, count: int) -> int:
    """How many records a reader gets, from the first one on; it stops when it has `count`."""
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        got = 0

        def enough() -> bool:
            nonlocal got
            got += len(consumer.poll(200, max_records=100_000))
            return got >= count

        until(enough, 30, "what was acknowledged can be read")
    return got


# -- several directories, one of which fails


@pytest.fixture(scope="module")
def pair(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with two log directories each."""
    directory = tmp_path_factory.mktemp("two-dirs")
    cluster = LocalCluster(directory, 3, settings=SETTINGS, zookeeper=f"{zookeeper}/{directory.name}")
    for broker in cluster.brokers.values():
        broker.settings["log.dirs"] = f"{broker.directory / 'data'},{broker.directory / 'more'}"
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def test_a_torn_log_on_a_full_disk_waits_for_room_and_nothing_else_does(disks: LocalCluster) -> None:
    """What is torn off is kept aside, and there is no place for it: one replica is not there, the rest is.

    The victim leads nothing: what a dead leader had alone is cut when it returns, and wants a place, too.
    """
    topic, victim = "torn-and-full", disks.brokers[2]
    aside = data(victim).with_name("data.aside")
    with create(disks, topic, [1, 3, 1]) as view:
        with Workload(disks.bootstrap, topic, 3) as load, ExitStack() as undo:
            load.wait_acknowledged(WARM)
            victim.kill()
            (torn,) = (data(victim) / f"{topic}-0").glob("*.log")
            with torn.open("ab") as file:
                file.write(b"\xff" * 100)
            mount(aside, "nr_inodes=1")
            undo.callback(subprocess.run, ["umount", "--lazy", str(aside)], check=True)
            fill(victim)
            victim.start()
            until(lambda: logged(victim, "log_not_opened"), 20, "there is no room to mend it")
            until(lambda: list(view.partitions()[0].offline) == [2], 20, "that replica is offline")
            make_room(victim)
            until(lambda: sum(2 in p.isr for p in view.partitions()) == 2, 30, "the other replicas are whole")
            load.wait_acknowledged_everywhere()
            undo.close()
            view.wait_full_isr()
            load.wait_acknowledged_everywhere()
        assert_kept(load)


def held_in(broker: BrokerProcess, name: str, topic: str) -> list[int]:
    return sorted(int(p.name.rpartition("-")[2]) for p in (broker.directory / name).glob(f"{topic}-*"))


def stuff(cluster: LocalCluster, topic: str, partitions: list[int]) -> None:
    """Let the segments of these partitions grow beyond the limit."""
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        sent = [producer.send(topic, bytes(100_000), partition=p) for p in partitions for _ in range(8)]
        producer.flush()
        assert all(receipt.result().offset >= 0 for receipt in sent)


def limit(broker: BrokerProcess, bytes_max: int) -> None:
    """From now on no file of this process grows beyond that."""
    assert broker.pid is not None
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (bytes_max, bytes_max))


def test_a_failed_directory_takes_its_replicas_offline_and_no_others(pair: LocalCluster) -> None:
    topic, victim = "one-fails", pair.brokers[1]
    with create(pair, topic, [1, 1, 1, 1]) as view:
        lost, kept = held_in(victim, "data", topic), held_in(victim, "more", topic)
        assert lost and kept and len(lost) + len(kept) == 4
        stuff(pair, topic, lost[:1])
        with Workload(pair.bootstrap, topic, 4) as load:
            load.wait_acknowledged(WARM)
            limit(victim, LIMIT_BYTES)
            until(lambda: logged(victim, "log_dir_offline"), 20, "the directory goes offline")
            until(
                lambda: [p.leader == 1 for p in view.partitions()] == [n in kept for n in range(4)],
                20,
                "others lead what was there, and only that",
            )
            load.wait_acknowledged_everywhere()
            assert [list(p.offline) for p in view.partitions()] == [
                [1] if n in lost else [] for n in range(4)
            ]
            dirs = view.admin.describe_log_dirs()
            assert [(one.is_offline, one.is_full) for one in dirs[1]] == [(True, False), (False, False)]
            shown = strandline("status", "-b", pair.bootstrap).stdout
            assert "offline: its replicas are not available" in " ".join(shown.split())
            note = json.loads((victim.directory / "more" / "incarnation.json").read_text())
            assert note["lost_note"]
            victim.kill()
            victim.start()
            pair.wait_ready()
            view.wait_full_isr(60)
            load.wait_acknowledged_everywhere()
        assert not load.refused and not load.troubles
    assert_no_traceback(pair)
    text = victim.log.read_text()
    assert '"a log directory failed"' in text[text.rindex('"event": "broker_registered"') - 500 :]


def test_without_any_directory_the_broker_ends_with_one_sentence(pair: LocalCluster) -> None:
    topic, victim = "all-fail", pair.brokers[2]
    with create(pair, topic, [2, 2]) as view:
        stuff(pair, topic, [0, 1])
        assert held_in(victim, "data", topic) and held_in(victim, "more", topic)
        limit(victim, LIMIT_BYTES)
        with Workload(pair.bootstrap, topic, 2) as load:
            assert victim.wait(30), "a broker without a log directory ends"
            view.wait_led_without(2)
            load.wait_acknowledged_everywhere()
            assert victim.child is not None and victim.child.returncode == 1
            said = [line for line in victim.log.read_text().splitlines() if line.startswith("strandline:")]
            assert "every log directory has failed" in said[-1]
            before = incarnation(victim)
            victim.start()
            pair.wait_ready()
            view.wait_full_isr(60)
            assert incarnation(victim) > before
            load.wait_acknowledged_everywhere()
        assert not load.refused and not load.troubles
    assert_no_traceback(pair)

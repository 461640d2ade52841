"""Clusters that tests break: links cut in one direction, slow disks, and what a killed test leaves behind."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from strandline.client.admin.admin import Admin, NewTopic
from strandline.client.producer.producer import Producer
from strandline.local.processes import machine_is_slower
from strandline.local.reaper import VARIABLE, owned
from strandline.protocol.errors import ApiError
from strandline.testing import CLIENTS, Cluster, LocalCluster, cluster
from strandline.testing.nursery import Forked
from strandline.testing.waiting import until
from tests.patience import HANG_S

SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "1000",
    "zookeeper.session.timeout.ms": "6000",
}
ROOT = Path(__file__).resolve().parents[2]
SLOW_S = 2.0  # more than a busy machine adds by itself
BEGINS = """
import asyncio
from strandline.testing import cluster
async def main():
    async with cluster(brokers=1) as c:
        print(c.local.directory, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""

A_TEST = """
import time
def test_waits(zookeeper):
    print("a test waits", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def broken(zookeeper: str) -> Iterator[Cluster]:
    """One cluster for all stories; each of them heals what it broke."""
    with asyncio.Runner() as runner:
        started = cluster(
            3, settings=SETTINGS, zookeeper=f"{zookeeper}/embedded", network_faults=True, disk_faults=True
        )
        yield runner.run(started.__aenter__())
        runner.run(started.__aexit__(None, None, None))


async def isr(admin: Admin, topic: str) -> set[int]:
    (described,) = await admin.describe_topics([topic])
    return set(described.partitions[0].isr)


async def until_isr(c: Cluster, topic: str, wanted: set[int], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s * machine_is_slower()
    async with Admin(c.bootstrap) as admin:
        while (found := await isr(admin, topic)) != wanted:
            assert time.monotonic() < deadline, f"{found}, not {wanted}"
            await asyncio.sleep(0.1)


async def create(c: Cluster, topic: str, replicas: list[int]) -> None:
    async with Admin(c.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, assignments={0: replicas})])
    await until_isr(c, topic, set(replicas))


async def test_a_link_is_cut_in_one_direction(broken: Cluster) -> None:
    async with Admin(broken.bootstrap) as admin:
        other = (await admin.describe_cluster()).controller_id  # the follower hears of the ISR from it
    leader, follower = (id for id in (1, 2, 3) if id != other)
    await create(broken, "one-way", [leader, follower, other])
    async with Producer(broken.bootstrap) as producer:
        await broken.partition_network([leader], [follower], both_ways=False)
        receipt = await producer.send("one-way", b"without 2", partition=0)
        assert receipt.offset == 0
        await until_isr(broken, "one-way", {leader, other})
        await broken.heal_network()
        await until_isr(broken, "one-way", {leader, follower, other})


async def test_clients_are_cut_off_and_come_back(broken: Cluster) -> None:
    await create(broken, "no-clients", [1, 2, 3])
    async with Producer(broken.bootstrap, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as producer:
        await producer.send("no-clients", b"before", partition=0)
        await broken.partition_network([1], [CLIENTS], reset=True)
        with pytest.raises(ApiError):
            await producer.send("no-clients", b"meanwhile", partition=0)
        await broken.heal_network()
    async with Producer(broken.bootstrap) as producer:
        assert (await producer.send("no-clients", b"after", partition=0)).offset >= 1


async def test_a_link_is_slow(broken: Cluster) -> None:
    await create(broken, "slow-link", [2, 1, 3])
    async with Producer(broken.bootstrap) as producer:
        await producer.send("slow-link", b"warm", partition=0)
        await broken.slow_network([CLIENTS], [2], delay_s=SLOW_S, both_ways=False)
        begun = time.monotonic()
        await producer.send("slow-link", b"slow", partition=0)
        assert time.monotonic() - begun >= SLOW_S
        await broken.heal_network()


async def test_a_disk_is_slow(broken: Cluster) -> None:
    await create(broken, "slow-disk", [3, 1, 2])
    async with Producer(broken.bootstrap) as producer:
        await producer.send("slow-disk", b"warm", partition=0)
        await broken.slow_disk(3, SLOW_S)
        begun = time.monotonic()
        await producer.send("slow-disk", b"slow", partition=0)
        assert time.monotonic() - begun >= SLOW_S
        await broken.slow_disk(3, 0)


async def test_what_was_not_asked_for_at_the_start_is_refused(tmp_path: Path) -> None:
    plain = Cluster(LocalCluster(tmp_path, 1))
    with pytest.raises(ValueError, match="network_faults=True"):
        await plain.partition_network([1], [2])
    with pytest.raises(ValueError, match="disk_faults=True"):
        await plain.slow_disk(1, 0.5)
    with pytest.raises(ValueError, match="there is no broker 7"):
        await plain.slow_disk(7, 0.5)
    for act in (plain.kill, plain.stop, plain.pause, plain.resume, plain.restart):
        with pytest.raises(ValueError, match="there is no broker 7: there are 1"):
            await act(7)
    with pytest.raises(ValueError, match="brokers=0"):
        async with cluster(brokers=0):
            pass


async def test_wrong_nodes_and_qualities_are_named(broken: Cluster) -> None:
    with pytest.raises(ValueError, match="there is no 'zoo': brokers are 1, 2, 3"):
        await broken.partition_network([1], ["zoo"])
    with pytest.raises(ValueError, match="resets=2"):
        await broken.slow_network([1], [2], resets=2)
    with pytest.raises(ValueError, match="delay_s"):
        await broken.slow_disk(1, -1)


def test_a_broker_that_was_forked_is_waited_for() -> None:
    child = subprocess.Popen(["sleep", "600"])
    forked = Forked(child.pid)
    try:
        assert forked.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            forked.wait(0.01)
    finally:
        child.kill()
    assert forked.wait(HANG_S) == -1
    assert forked.poll() == forked.returncode == -1
    child.wait()
    assert Forked(child.pid).poll() == -1, "it is long gone"


async def test_brokers_that_were_forked_die_and_come_back() -> None:
    async with cluster(1) as c:
        async with Producer(c.bootstrap) as producer:
            await producer.send("forked", b"1", partition=0)
        await c.kill(1)
        assert not c.local.brokers[1].alive
        await c.restart(1)
        await c.stop(1)
        assert (c.local.brokers[1].directory / "data" / ".kafka_cleanshutdown").exists()


def test_nothing_outlives_a_test_that_is_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", BEGINS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        directory = Path(child.stdout.readline().decode().strip())
        token = directory.name.removeprefix("strandline-").rpartition("-")[0]
        assert len(owned(token)) >= 2, "a broker and ZooKeeper, at least"
        child.kill()
        until(lambda: not owned(token) and not directory.exists(), HANG_S, "nothing is left")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_nothing_outlives_a_run_of_tests_that_is_killed(tmp_path: Path) -> None:
    """The ZooKeeper that its tests share."""
    story = tmp_path / "test_story.py"
    story.write_text(A_TEST)
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-s",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        story,
    ]
    child = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert any(b"a test waits" in told for told in child.stdout)
        (token,) = {token for token in tokens() if token.startswith(f"{child.pid}-")}
        child.kill()
        until(lambda: not owned(token), HANG_S, "nothing is left")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def tokens() -> Iterator[str]:
    """Those in the environments of all processes."""
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            told = dict(word.partition(b"=")[::2] for word in place.read_bytes().split(b"\0"))
            if (token := told.get(VARIABLE.encode())) is not None:
                yield token.decode()

"""The commands of docs/operations.md that are marked as a shell's (```sh) are run as they stand there.

In the order of the page, against a cluster of `strandline up` under load; nothing acknowledged is lost.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.reassign.copies import OF_ITS_OWN
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster, find
from strandline.testing.workload import Workload
from tests.integration.support import assert_kept

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
WARM = 100
PATIENCE_S = 300


def blocks(title: str) -> list[str]:
    """The shell's blocks between a title, or the beginning of a paragraph, and the next title."""
    text = PAGE.read_text()
    begin = text.index(title)
    found = BLOCK.findall(text[begin : text.index("\n##", begin + len(title))])
    assert found, f"{title}: no commands"
    return found


def shell(commands: str, home: Path) -> str:
    """Run them as a person would; what they print."""
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=home,
        env={**os.environ, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of somebody who has said `strandline up`, and created a topic."""
    cluster = LocalCluster(tmp_path / ".strandline", 3)
    cluster.start()
    cluster.save()
    create = "topics create orders --partitions 3 --replication-factor 3 --config min.insync.replicas=2"
    try:
        shell(f"strandline {create}", tmp_path)
        yield tmp_path
    finally:
        find(tmp_path / ".strandline").kill()  # those that the commands have started
        cluster.kill()


def test_a_rolling_restart_and_a_new_disk_lose_nothing(home: Path) -> None:
    cluster = find(home / ".strandline")
    restart, disk = blocks("**A rolling restart**")[0], blocks("### A disk fails")[0]
    with Workload(cluster.bootstrap, "orders", 3) as load:
        load.wait_acknowledged(WARM)
        shell(restart, home)
        load.wait_acknowledged(WARM)
        shell(disk, home)
        load.wait_acknowledged(WARM)
    assert_kept(load)


def test_a_broker_joins_gets_its_share_and_leaves_again(home: Path) -> None:
    join, leave = blocks("### Add a broker")[0], blocks("### Take a broker out")[0]
    with Workload(find(home / ".strandline").bootstrap, "orders", 3) as load:
        load.wait_acknowledged(WARM)
        shell(join, home)
        grown = find(home / ".strandline")
        assert [len(holders) for holders in holders_of(grown)] == [3, 3, 3]
        assert sum(4 in holders for holders in holders_of(grown)) == 2, "nine replicas on four brokers"
        load.wait_acknowledged_everywhere()
        with pytest.raises(AssertionError, match=r"broker 4 still holds 2 replicas \(orders-"):
            shell("strandline remove 4", home)
        load.wait_acknowledged_everywhere()
        shell(leave, home)
        load.wait_acknowledged_everywhere()
    assert_kept(load)
    left = find(home / ".strandline")
    assert left.brokers.keys() == {1, 2, 3} and holders_of(left) == [{1, 2, 3}] * 3
    assert (home / ".strandline" / "broker-4.removed" / "data").is_dir()
    with Admin(left.bootstrap) as admin:
        told = [
            admin.describe_configs(topic="orders"),
            *(admin.describe_configs(broker=b) for b in (1, 2, 3)),
        ]
    throttles = [entry for entries in told for entry in entries if "throttled" in entry.name]
    assert not any(one.value and one.source in OF_ITS_OWN for one in throttles), "it was taken back"


def holders_of(cluster: LocalCluster) -> list[set[int]]:
    """The brokers with a replica of each partition of the topic."""
    with Admin(cluster.bootstrap) as admin:
        (topic,) = admin.describe_topics(["orders"])
    return [set(one.replicas) for one in sorted(topic.partitions)]


def test_a_topic_is_saved_and_brought_back(home: Path) -> None:
    bootstrap = find(home / ".strandline").bootstrap
    save, restore = blocks("### Save a topic, and bring it back")
    sent = [(number % 3, b"key-%d" % number, bytes([number, 0, 255, 10])) for number in range(60)]
    with Producer(bootstrap) as producer:
        for partition, key, value in sent:
            producer.send("orders", value, key=key, partition=partition, headers={"n": key}).result(60)
    with Consumer(bootstrap, topics=["orders"], group="billing", auto_offset_reset="earliest") as consumer:
        before = taken(consumer, 45)
        consumer.commit()
    shell(save, home)
    with Admin(bootstrap) as admin:
        admin.delete_topics(["orders"])
    shell(restore, home)
    with Consumer(bootstrap, topics=["orders"], group="billing", auto_offset_reset="earliest") as consumer:
        after = taken(consumer, 15)
    assert sorted(before + after) == sorted(sent), "the group goes on where it was"


def taken(consumer: Consumer, count: int) -> list[tuple[int, bytes, bytes]]:
    """Just so many records, with key and headers checked."""
    found: list[tuple[int, bytes, bytes]] = []
    while len(found) < count:
        for record in consumer.poll(timeout_ms=1000, max_records=count - len(found)):
            assert dict(record.headers)["n"] == record.key
            found.append((record.partition, record.key, record.value))
    return found

"""Power lost by all, last members of an ISR, leaders on request: who leads when nobody has proof of its data.

Power cannot be cut here. Its trace can be left instead: between two starts, the files in which a broker keeps
what it knows about itself are made to name another boot of the machine, so its data counts as doubtful.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from tests.integration.support import View, assert_no_traceback, revive, strandline, until
from tests.patience import HANG_S

CHECKPOINT = "replication-offset-checkpoint"
LOSSLESS_ALONE = {
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",  # leaders go back here when somebody asks for it
    "zookeeper.session.timeout.ms": "4000",  # how long nobody may lead after all were killed at once
}


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(3, LOSSLESS_ALONE)


@pytest.fixture(autouse=True)
def healthy(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run before and after each story, and none has logged a traceback."""
    cluster.wait_ready()
    yield
    revive(cluster)
    assert_no_traceback(cluster)


def lose_power(cluster: LocalCluster, *brokers: int) -> None:
    """What a loss of power leaves behind: data that nobody has seen reach the medium."""
    for id in brokers:
        file: Path = cluster.brokers[id].directory / "data" / "incarnation.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot_id": "a boot before this one"}))


def created(cluster: LocalCluster, name: str, replicas: list[int], **configs: str) -> View:
    view = View(cluster, name)
    view.admin.create_topics([NewTopic(name, assignments={0: replicas}, configs=configs)])
    view.wait_full_isr()
    return view


def fill(cluster: LocalCluster, topic: str, first: int, count: int) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(first, first + count)]
        for receipt in sent:
            receipt.result(30)


def contents(cluster: LocalCluster, topic: str) -> list[int]:
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            found += [int(record.value) for record in consumer.poll(500)]
    return found


def read_on(cluster: LocalCluster, topic: str, count: int) -> list[int]:
    """The next `count` records of a group, from where it has committed; it commits them."""
    found: list[int] = []
    options = {"group": f"readers of {topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(cluster.bootstrap, topics=[topic], **options) as consumer:
        until(
            lambda: len(found) >= count or found.extend(int(r.value) for r in consumer.poll(500)),
            HANG_S,
            f"{count} records are read",
        )
        consumer.commit()
    return found


def outlive(cluster: LocalCluster, view: View, dying: list[int], step: int) -> None:
    """One after the other of `dying` is killed, and each time the ISR of those left takes more records."""
    for times, victim in enumerate(dying, start=1):
        cluster.brokers[victim].kill()
        until(lambda victim=victim: victim not in view.partitions()[0].isr, 30, f"{victim} has left the ISR")
        view.wait_led_without(victim)
        fill(cluster, view.topic, times * step, step)


def reports(cluster: LocalCluster, topic: str) -> list[str]:
    """What the brokers have said about lost records of the topic."""
    lines = [
        line for b in cluster.brokers.values() for line in b.log.read_text(errors="replace").splitlines()
    ]
    return [line for line in lines if "potential_data_loss" in line and f"{topic}-0" in line]


def test_all_lose_power_and_the_longest_log_leads(cluster: LocalCluster) -> None:
    first, second, last = sorted(cluster.brokers)
    with created(cluster, "dark", [first, second, last]) as view:
        fill(cluster, "dark", 0, 50)
        outlive(cluster, view, [first, second], 50)
        cluster.brokers[last].kill()
        lose_power(cluster, first, second, last)
        for early in (first, second):
            cluster.brokers[early].start()
        until(lambda: view.leaders() == [-1], 30, "nobody leads while the last of the ISR is away")
        assert view.partitions()[0].isr == (last,), "the ISR names those who may end this"
        cluster.brokers[last].start()
        until(lambda: view.leaders() == [last], 30, "the longest log leads")
        assert contents(cluster, "dark") == list(range(150))
        until(lambda: reports(cluster, "dark"), HANG_S, "the doubt is said aloud")
        view.wait_full_isr()
        controller = cluster.controller()
        metrics = view.admin.inspect(controller, "metrics")["replication"]
        assert metrics["PotentialDataLoss"] >= 1


def test_the_last_of_an_isr_loses_power_and_one_outside_has_what_it_lost(cluster: LocalCluster) -> None:
    first, second, last = sorted(cluster.brokers)
    with created(cluster, "alone", [second, last, first]) as view:
        fill(cluster, "alone", 0, 50)
        for victim in (first, last):
            cluster.brokers[victim].kill()
            until(lambda victim=victim: victim not in view.partitions()[0].isr, 30, f"{victim} has left")
        cluster.brokers[second].kill()
        lose_power(cluster, second)
        segment = next((cluster.brokers[second].directory / "data" / "alone-0").glob("*.log"))
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
        cluster.brokers[second].start()
        until(lambda: view.leaders() == [-1], 30, "it does not lead for being there first")
        for late in (first, last):
            cluster.brokers[late].start()
        view.wait_full_isr()
        assert contents(cluster, "alone") == list(range(50)), "what it lost is not lost"
        assert reports(cluster, "alone"), "nobody could know that"


def rob(log: Path) -> None:
    shutil.rmtree(log)


def rename(log: Path) -> None:
    """Its topic id is another one, as a flipped bit may make it: the file has no checksum."""
    metadata = log / "partition.metadata"
    text = metadata.read_text()
    letter = text.index("topic_id: ") + len("topic_id: ")
    metadata.write_text(text[:letter] + ("A" if text[letter] != "A" else "B") + text[letter + 1 :])


@pytest.mark.parametrize("harm", [rob, rename])
def test_a_replica_whose_log_is_gone_leads_nobody_until_it_is_whole(
    cluster: LocalCluster, harm: Callable[[Path], None]
) -> None:
    topic = f"{harm.__name__}bed"
    first, second, last = sorted(cluster.brokers)
    with created(cluster, topic, [first, second, last]) as view:
        fill(cluster, topic, 0, 50)
        data = [cluster.brokers[first].directory / "data" / name for name in (f"{topic}-0", CHECKPOINT)]
        until(
            lambda: data[1].exists() and f"{topic} 0 50" in data[1].read_text(),
            20,
            "the checkpoint names the log",
        )
        for id in sorted(cluster.brokers, reverse=True):
            cluster.brokers[id].kill()
        harm(data[0])
        cluster.brokers[first].start()
        until(lambda: view.leaders() == [-1], 30, "it does not lead for being there first")
        for late in (second, last):
            cluster.brokers[late].start()
        view.wait_full_isr()
        assert contents(cluster, topic) == list(range(50))


def test_leadership_goes_back_on_request(cluster: LocalCluster) -> None:
    first, second, last = sorted(cluster.brokers)
    with created(cluster, "away", [first, second, last]) as view:
        cluster.brokers[first].kill()
        view.wait_led_without(first)
        partition = TopicPartition("away", 0)
        refused = view.admin.elect_leaders("preferred", [partition])[partition]
        assert isinstance(refused, PreferredLeaderNotAvailable), refused
        cluster.brokers[first].start()
        view.wait_full_isr()
        told = strandline(
            "elect-leaders", "--preferred", "--topic", "away", "-b", cluster.bootstrap, "--json"
        )
        assert told.returncode == 0, told.stderr
        (row,) = json.loads(told.stdout)
        assert (row["outcome"], row["leader"]) == ("elected", first)
        again = view.admin.elect_leaders("preferred", [partition])[partition]
        assert isinstance(again, ElectionNotNeeded)
        assert partition not in view.admin.elect_leaders("preferred"), (
            "of all, only what was not well led is told"
        )


@pytest.mark.parametrize("node", ["preferred_replica_election", "preferred-replica-election"])
def test_leadership_goes_back_by_the_znode_of_old_tools(cluster: LocalCluster, node: str) -> None:
    first, second, last = sorted(cluster.brokers)
    with created(cluster, node, [second, first, last]) as view:
        cluster.brokers[second].kill()
        view.wait_led_without(second)
        cluster.brokers[second].start()
        view.wait_full_isr()
        zookeeper = KazooClient(cluster.zookeeper)
        zookeeper.start()
        path = f"/admin/{node}"
        wish = {
            "version": 1,
            "partitions": [{"topic": node, "partition": 0}, {"topic": "none", "partition": 7}],
        }
        try:
            zookeeper.create(path, json.dumps(wish).encode())
            until(lambda: zookeeper.exists(path) is None, 20, "the node is removed when all is done")
        finally:
            zookeeper.stop()
            zookeeper.close()
        until(lambda: view.leaders() == [second], HANG_S, "the preferred replica leads")


def test_an_operator_gives_up_on_those_who_do_not_come_back(cluster: LocalCluster) -> None:
    first, second, last = sorted(cluster.brokers)
    strategy = {"unclean.recovery.strategy": "manual"}
    with created(cluster, "given-up", [first, second, last], **strategy) as view:
        fill(cluster, "given-up", 0, 20)
        outlive(cluster, view, [last, second], 20)
        cluster.brokers[first].kill()
        for early in (second, last):
            cluster.brokers[early].start()
        until(lambda: view.leaders() == [-1], 30, "nobody leads")
        told = strandline(
            "elect-leaders", "--unclean", "--topic", "given-up", "--partition", "0", "-b", cluster.bootstrap
        )
        assert told.returncode == 0, told.stderr + told.stdout
        assert view.leaders() == [second], "of those who are there, it has the longest log"
        assert contents(cluster, "given-up") == list(range(40))
        assert reports(cluster, "given-up")


def test_a_group_that_has_read_what_an_unclean_election_gave_up_reads_what_was_written_instead(
    cluster: LocalCluster,
) -> None:
    """Its commit bears the epoch of what it has read, so what was written anew is not passed over."""
    first, second, last = sorted(cluster.brokers)
    strategy = {"unclean.recovery.strategy": "manual"}
    with created(cluster, "rewritten", [first, second, last], **strategy) as view:
        fill(cluster, "rewritten", 0, 20)
        assert read_on(cluster, "rewritten", 20) == list(range(20))
        outlive(cluster, view, [last, second], 20)
        assert read_on(cluster, "rewritten", 40) == list(range(20, 60))
        cluster.brokers[first].kill()
        for early in (second, last):
            cluster.brokers[early].start()
        until(lambda: view.leaders() == [-1], 30, "nobody leads")
        view.admin.elect_leaders("unclean", [TopicPartition("rewritten", 0)])
        fill(cluster, "rewritten", 100, 60)
        revive(cluster)  # the group's offsets were on the first alone
        view.wait_full_isr()
        assert contents(cluster, "rewritten") == [*range(40), *range(100, 160)]
        assert read_on(cluster, "rewritten", 60) == list(range(100, 160))


def test_wrong_usage_is_told(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap):
        assert strandline("elect-leaders", "--all").returncode == 2
        assert strandline("elect-leaders", "--preferred", "--unclean", "--all").returncode == 2
        assert strandline("elect-leaders", "--preferred").returncode == 2

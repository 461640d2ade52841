"""`strandline why`, `lost` and the metrics of `status`: asked of brokers that were stopped and killed."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.why_answers import not_visible
from strandline.cli.why.command import asked_of
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.messages.inspection import InspectRequest
from strandline.protocol.schema import spec_of
from strandline.storage.decision_log import read_rings
from strandline.storage.disk import RealDisk
from tests.integration.support import View, create, revive, strandline, until
from tests.patience import HANG_S

LAG_S = 8.0  # a command asked meanwhile is a process that starts, on a machine that may be busy
ASK_EVERY_S = 0.3  # each time is a process
SETTINGS = {
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "zookeeper.session.timeout.ms": "18000",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> LocalCluster:
    started: LocalCluster = start_cluster(3, SETTINGS)
    return started


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run again after each story."""
    yield
    for broker in cluster.brokers.values():
        if broker.alive:
            broker.signal(signal.SIGCONT)
    revive(cluster)


def data(cluster: LocalCluster, broker: int) -> Path:
    return cluster.brokers[broker].directory / "data"


def ask(cluster: LocalCluster, *words: str, text: bool = False) -> Any:
    """The command's answer, by a process of its own: its text, or what its JSON says."""
    done = strandline(*words, "-b", cluster.bootstrap, *([] if text else ["--json"]))
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout if text else json.loads(done.stdout)


def ask_at_once(cluster: LocalCluster, record: str) -> Any:
    """`why not-visible`, of a moment that may have passed before a process of its own has begun."""
    name, _, offset = record.rpartition("@")
    topic, _, partition = name.rpartition("-")
    evidence = asked_of(cluster.bootstrap, TopicPartition(topic, int(partition)))
    return not_visible(evidence, int(offset)).as_dict("not-visible", name)


def send(cluster: LocalCluster, topic: str, *values: bytes, acks: Any = "all") -> None:
    with Producer(cluster.bootstrap, acks=acks) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result(20)


def test_a_stopped_follower_keeps_a_record_invisible_and_then_leaves(cluster: LocalCluster) -> None:
    with create(cluster, "slow", [1]):
        send(cluster, "slow", b"a", b"b")
        assert "is visible" in ask(cluster, "why", "not-visible", "slow-0@1", text=True)
        cluster.brokers[3].signal(signal.SIGSTOP)
        until(lambda: parked_no_more(cluster, 1, 3), HANG_S, "the parked fetch of broker 3 is answered")
        send(cluster, "slow", b"c", acks=1)
        seen = ask_at_once(cluster, "slow-0@2")
        assert (seen["leader"], seen["watermark"], seen["end"], seen["visible"]) == (1, 2, 3, False)
        (waits,) = [each for each in seen["waits_for"] if each["broker"] == 3]
        assert waits["end"] == 2 and waits["in_isr"] and waits["registered"]
        assert "waits for broker 3, log end offset 2" in seen["answer"] + " ".join(seen["because"])
        left = until(
            lambda: (answer := ask(cluster, "why", "left-isr", "slow-0", "3"))["missing"] and answer,
            30,
            "broker 3 leaves the ISR",
            ASK_EVERY_S,
        )
        assert left["missing"] == [3]
        proposal = left["left"][0]["departure"]["proposal"]
        assert proposal["follower"]["end"] == 2 and proposal["leader_end"] == 3
        assert proposal["follower"]["caught_up_ago_s"] >= proposal["lag_max_s"] == LAG_S
        assert "its log end offset was 2, the leader's 3" in left["answer"]
        until(
            lambda: ask(cluster, "why", "not-visible", "slow-0@2")["visible"],
            30,
            "the record is visible",
            ASK_EVERY_S,
        )
        cluster.brokers[3].signal(signal.SIGCONT)
        until(
            lambda: not ask(cluster, "why", "left-isr", "slow-0", "3")["missing"],
            30,
            "it is back, as its leader says: others may not have heard yet that it was away",
            ASK_EVERY_S,
        )
        told = ask(cluster, "why", "left-isr", "slow-0", "3", text=True)
        assert "it last left it" in told and "is in the ISR" in told
    assert ", is 3" in ask(cluster, "why", "not-visible", "slow-0@99", text=True)


def parked_no_more(cluster: LocalCluster, leader: int, follower: int) -> bool:
    """Nothing is on its way to a stopped follower: its last fetch is long ago."""
    with Admin(cluster.brokers[leader].address) as admin:
        told = admin.inspect(leader, "partition", topic="slow", partition=0)
    (seen,) = [f for f in told["replica"]["leading"]["followers"] if f["broker"] == follower]
    return bool(seen["fetched_ago_s"] > 0.6)


def test_a_killed_leader_why_the_next_one_leads(cluster: LocalCluster) -> None:
    with create(cluster, "led", [2]) as view:
        send(cluster, "led", b"a")
        assert "since its creation" in ask(cluster, "why", "leader", "led-0", text=True)
        cluster.brokers[2].kill()
        view.wait_led_without(2)
        seen = until(
            lambda: (answer := ask(cluster, "why", "leader", "led-0")).get("leader") in (1, 3) and answer,
            30,
            "the new leader says so",
            ASK_EVERY_S,
        )
        leader = seen["leader"]
        election = seen["election"]
        assert election["leader_before"] == 2 and election["epoch"] == seen["epoch"]
        assert (
            election["candidates"]["2"] != "electable" and election["candidates"][str(leader)] == "electable"
        )
        assert "broker 2" in seen["answer"] + seen["because"][0] and "was elected" in seen["answer"]
        assert "the preferred leader is broker 2" in " ".join(seen["because"])
        kept = read_rings(RealDisk(), str(data(cluster, 2)))  # what the dead one had noted is on its disk
        assert kept is not None and "became_leading" in [each.what for each in kept.of("led-0")]
        revive(cluster)
        view.wait_full_isr()
        left = ask(cluster, "why", "left-isr", "led-0", "2")["left"][0]["departure"]
        assert left["what"] in ("elected", "isr_reduced") and left["cause"]


def test_all_members_of_an_isr_dead_why_nobody_leads(cluster: LocalCluster) -> None:
    with View(cluster, "gone") as view:
        view.admin.create_topics([NewTopic("gone", assignments={0: [1, 2]})])
        view.wait_full_isr()
        assert "is not offline" in ask(cluster, "why", "offline", "gone-0", text=True)
        for broker in (1, 2):
            cluster.brokers[broker].kill()
        seen = until(
            lambda: (answer := ask(cluster, "why", "offline", "gone-0")).get("since_ms") and answer,
            60,
            "the controller has taken the partition offline",
            ASK_EVERY_S,
        )
        assert seen["offline"] and set(seen["candidates"]) == {"1", "2"}
        assert "electable" not in seen["candidates"].values()
        assert "no member of its ISR" in seen["answer"]
        assert any(line.startswith("broker 1: ") for line in seen["because"])
        assert "offline" in ask(cluster, "why", "not-visible", "gone-0@0", text=True)
        status = ask(cluster, "status")
        numbers = status["metrics"]["3"]["replication"]
        assert numbers["ActiveControllerCount"] == 1 and numbers["OfflinePartitionsCount"] >= 1
        dead = [str(data(cluster, broker)) for broker in (1, 2)]
        read = strandline("why", "left-isr", "gone-0", "--json", *(w for d in dead for w in ("--dir", d)))
        assert read.returncode == 0, read.stderr


def test_what_a_returning_leader_cuts_is_listed_with_its_records(cluster: LocalCluster) -> None:
    with create(cluster, "cut", [1]) as view:
        send(cluster, "cut", b"everybody")
        for broker in (2, 3):
            cluster.brokers[broker].signal(signal.SIGSTOP)
        with Admin(cluster.brokers[1].address) as admin:

            def silent() -> bool:
                told = admin.inspect(1, "partition", topic="cut", partition=0)
                return all(f["fetched_ago_s"] > 0.6 for f in told["replica"]["leading"]["followers"])

            until(silent, HANG_S, "no fetch of a follower is parked")
        with Producer(cluster.brokers[1].address, acks=1) as producer:
            for value in (b"only-here", b"and-this"):
                producer.send("cut", value, partition=0).result(HANG_S)
        cluster.brokers[1].kill()
        for broker in (2, 3):
            cluster.brokers[broker].signal(signal.SIGCONT)
        view.wait_led_without(1, 20)
        send(cluster, "cut", b"new")
        cluster.brokers[1].start()
        view.wait_full_isr()
        (removal,) = ask(cluster, "lost", "cut-0")
        assert (removal["broker"], removal["from_offset"], removal["end_offset"]) == (1, 1, 3)
        assert removal["cause"] == "truncation" and removal["below_watermark"] == 0
        (read,) = ask(cluster, "lost", "cut-0", "--records")
        assert [r["value"] for r in read["records"]] == ["only-here", "and-this"]
        told = strandline("lost", "cut-0", "--records", "--dir", str(data(cluster, 1)))
        assert "offsets 1 to 2" in told.stdout and "b'and-this'" in told.stdout
        assert "at most acknowledged to acks=1" in told.stdout
        decision = ask(cluster, "why", "not-visible", "cut-0@2", text=True)
        assert "had an offset 2 and truncated it" in decision


def test_status_tells_the_numbers_of_row_90(cluster: LocalCluster) -> None:
    with create(cluster, "counted", [1, 2, 3]):
        metrics = ask(cluster, "status")["metrics"]
    assert set(metrics) == {"1", "2", "3"}
    for told in metrics.values():
        assert told["replication"].keys() >= {
            "UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount",
            "OfflineReplicaCount", "IsrShrinks", "IsrExpands", "FailedIsrUpdates", "MaxLag",
            "ActiveControllerCount", "LeaderElections", "UncleanLeaderElections",
            "TruncatedBelowHighWatermark",
        }  # fmt: skip
        assert told["cleaner"]["uncleanable-partitions-count"] == 0
        assert told["replication"]["UncleanLeaderElections"] == 0
        assert told["replication"]["TruncatedBelowHighWatermark"] == 0
    controllers = [m for m in metrics.values() if m["replication"]["ActiveControllerCount"]]
    assert len(controllers) == 1
    assert controllers[0]["replication"].keys() >= {
        "OfflinePartitionsCount",
        "PreferredReplicaImbalanceCount",
    }


def test_no_client_is_told_of_the_private_request(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        connection = next(iter(admin._inner._cluster.links._open.values()))
        assert connection.versions and spec_of(InspectRequest).key not in connection.versions


def test_a_sentence_for_what_makes_no_sense(cluster: LocalCluster) -> None:
    for words, status in (
        (("not-visible", "slow-0"), 2),
        (("leader", "slow"), 2),
        (("leader", "nowhere-0"), 0),
    ):
        done = strandline("why", *words, "-b", cluster.bootstrap)
        assert done.returncode == status and "Traceback" not in done.stderr, done


def test_a_failover_is_replayed_from_brokers_and_from_their_files(cluster: LocalCluster) -> None:
    with create(cluster, "replayed", [3]) as view:
        send(cluster, "replayed", b"a")
        cluster.brokers[3].kill()
        view.wait_led_without(3)
        leader = view.leaders()[0]
        told = ask(cluster, "replay", "replayed-0")
        assert "does not answer" in told["silent"].get("3", "does not answer")
        election = next(each for each in told["moments"] if each["what"] == "elected")
        assert election["as_controller"] and election["values"]["leader"] == leader
        files = [word for id in cluster.brokers for word in ("--dir", str(data(cluster, id)))]
        led = next(
            each
            for each in ask(cluster, "replay", "replayed-0", *files)["moments"]
            if each["what"] == "became_leading" and each["broker"] == leader
        )
        state = ask(cluster, "replay", "replayed-0", *files, "--at", str(led["number"]))["state"]
        known = state["partitions"]["replayed-0"]
        assert known["leader"] == leader and known["replicas"][str(leader)]["role"] == "leading"
        assert known["replicas"]["3"]["epoch"] < known["epoch"], "a dead broker has heard of nothing"
        assert state["brokers"]["3"]["state"] == "suspected"
        text = ask(cluster, "replay", "replayed-0", *files, "--at", str(led["number"]), text=True)
        assert f"has not heard of epoch {known['epoch']}, of broker {leader}, if it still runs" in text

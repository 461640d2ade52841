"""`strandline doctor` against real clusters that something is wrong with, and one that is well."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import time
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.doctor.collect import Wishes, collect
from strandline.cli.doctor.findings import Finding
from strandline.cli.doctor.judge import judge, problems
from strandline.client.admin.admin import NewTopic
from strandline.client.admin.configs import ConfigChange
from strandline.client.sync import Admin, Consumer, Producer
from strandline.local.cluster import LocalCluster
from strandline.local.ports import free_ports
from tests.integration.support import create, revive, strandline, until

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "4000",
    "zookeeper.session.timeout.ms": "6000",
}
OF_THE_MACHINE = ("log_dir_room", "memory_scarce", "swapped", "container_memory", "clock", "zookeeper_slow")
"""What the machine of the test may be short of."""


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> LocalCluster:
    """Not forked: the doctor knows a broker's process by its command line."""
    started: LocalCluster = start_cluster(3, SETTINGS, is_forked=False)
    return started


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run again after each story."""
    yield
    for broker in cluster.brokers.values():
        broker.signal(signal.SIGCONT)
    revive(cluster)


def examined(cluster: LocalCluster, bootstrap: str | None = None, **of: Any) -> dict[str, Finding]:
    """The findings by their kind; not those about the machine."""
    places = []
    for address in (bootstrap or cluster.bootstrap).split(","):
        host, _, port = address.rpartition(":")
        places.append((host, int(port)))
    wishes = {"wait_s": 5.0, "watch_s": 3.0, "directory": None, **of}
    found = judge(asyncio.run(collect(Wishes(tuple(places), **wishes))))
    return {one.check: one for one in found if one.check not in OF_THE_MACHINE}


def wrong(found: dict[str, Finding]) -> set[str]:
    return {one.check for one in problems(found.values())}


def test_a_healthy_cluster_is_well_and_the_command_says_so(cluster: LocalCluster) -> None:
    with create(cluster, "well", [1, 2]), Producer(cluster.bootstrap) as producer:
        producer.send_many("well", [b"a"] * 10)
    found = until(lambda: (seen := examined(cluster)) and not wrong(seen) and seen, 30, "all is well")
    assert set(found) == {"zookeeper_standalone"}
    done = strandline("doctor", "-b", cluster.bootstrap, "--json")
    told = json.loads(done.stdout)
    assert told["checked"]["brokers"] == 3 and set(told["clocks"]) == {"1", "2", "3"}
    assert done.returncode == (0 if told["healthy"] else 1)
    assert strandline("doctor", "-b", "no port").returncode == 2


def test_min_insync_replicas_is_judged_by_topic(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic("all-of-them", 1, 3, {"min.insync.replicas": "3"}),
                NewTopic("one-may-do", 1, 3, {"min.insync.replicas": "1"}),
                NewTopic("alone", 1, 1),
            ]
        )
        found = until(
            lambda: "min_isr_one" in (seen := examined(cluster)) and seen, 20, "the topics are seen"
        )
        assert found["min_isr_equals_rf"].values["topics"] == ["all-of-them"]
        assert found["min_isr_one"].values["topics"] == ["one-may-do"]
        assert found["min_isr_above_rf"].values["topics"] == ["alone"], "two in sync, of one replica"
        assert "alone" in found["rf_one"].values["topics"]
        admin.delete_topics(["all-of-them", "one-may-do", "alone"])


def test_a_dead_follower_and_what_it_stops(cluster: LocalCluster) -> None:
    with create(cluster, "follower", [1]) as view:
        view.wait_full_isr()
        cluster.brokers[3].kill()
        found = until(
            lambda: "broker_missing" in (seen := examined(cluster)) and seen, 40, "broker 3 is missed"
        )
        assert "broker 3 has" in found["broker_missing"].problem
        under = found["under_replicated"]
        assert under.subject == "broker 3" and "follower-0" in under.values["partitions"]
        assert any("broker 3" in line and "left the ISR" in line for line in under.because), under.because
        assert "start broker 3" in under.remedy
        with_directory = examined(cluster, f"127.0.0.1:{cluster.brokers[3].port},{cluster.bootstrap}")
        assert "bootstrap_refused" in with_directory


def test_a_stopped_process_accepts_connections_and_answers_nothing(cluster: LocalCluster) -> None:
    cluster.brokers[2].signal(signal.SIGSTOP)
    cluster.save()  # so that the doctor finds the processes
    began = time()
    found = examined(cluster, cluster.brokers[1].address, wait_s=2.0, directory=cluster.directory)
    assert time() - began < 60, "every wait has a deadline"
    assert "advertised_silent" in found or "broker_missing" in found, list(found)
    one = found.get("advertised_silent") or found["broker_missing"]
    assert one.subject == "broker 2" and "SIGSTOP" in one.because[0]


def test_no_broker_at_all(cluster: LocalCluster, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    dead = f"127.0.0.1:{port}"
    (found,) = examined(cluster, dead).values()
    assert found.check == "bootstrap_refused" and found.subject == dead
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        (found,) = examined(cluster, silent, wait_s=1.0).values()
        assert found.check == "bootstrap_silent"
    (found,) = examined(cluster, "no-such-host.invalid:9092", wait_s=5.0).values()
    assert found.check == "bootstrap_unresolved"
    done = strandline("doctor", "-b", dead, "--dir", str(tmp_path))
    assert done.returncode == 1 and "refused" in done.stdout and "do: " in done.stdout


def test_a_group_whose_member_commits_nothing_and_one_without_members(cluster: LocalCluster) -> None:
    with create(cluster, "read", [1]), Producer(cluster.bootstrap) as producer:
        producer.send_many("read", [b"a"] * 20, partition=0)
        options: dict[str, Any] = {
            "auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": "lazy",
        }  # fmt: skip
        with Consumer(cluster.bootstrap, group_id="stuck", **options) as consumer:
            consumer.subscribe(["read"])
            assert consumer.poll(20_000)
            consumer.commit({TopicPartition("read", 0): 5})
            found = examined(cluster)
            assert wrong(found) == {"group_no_progress"}
            stuck = found["group_no_progress"]
            assert stuck.values["lag"] == {"read-0": 15} and "its member lazy" in stuck.problem
        found = examined(cluster)
        assert wrong(found) == {"group_without_members"}
        with Admin(cluster.bootstrap) as admin:
            admin.delete_records({TopicPartition("read", 0): 10})
            found = examined(cluster)
            assert wrong(found) == {"offset_deleted"}
            assert "committed 5, the log has 10 to 20" in found["offset_deleted"].because[0]
            admin.delete_groups(["stuck"])


def test_a_hanging_transaction_and_the_reader_behind_it(cluster: LocalCluster) -> None:
    """Its producer sent a batch without announcing the partition, and nobody verified it."""
    verification = "transaction.partition.verification.enable"
    where = TopicPartition("held", 0)
    with create(cluster, "held", [1]), Admin(cluster.bootstrap) as admin:
        admin.incremental_alter_configs([ConfigChange(verification, "false")], all_brokers=True)
        with Producer(cluster.bootstrap, transactional_id="hangs") as producer:
            producer.init_transactions()
            producer.begin()
            transactions: Any = producer._inner._transactions
            transactions.rules.added.add(where)
            an_hour_ago = int(time() * 1000) - 3_600_000
            producer.send("held", b"nobody ends it", timestamp_ms=an_hour_ago).result(30)
        found = until(
            lambda: "transaction_hanging" in (seen := examined(cluster)) and seen, 20, "it is found"
        )
        hanging = found["transaction_hanging"]
        assert hanging.remedy == "strandline transactions abort held 0 --start-offset 0"
        done = strandline(*hanging.remedy.split()[1:], "-b", cluster.bootstrap)
        assert done.returncode == 0, "the remedy is one"
        assert "transaction_hanging" not in examined(cluster)


def test_a_listener_that_leads_to_another_broker_and_one_that_leads_nowhere(start_cluster: Any) -> None:
    cluster: LocalCluster = start_cluster(2, {"offsets.topic.num.partitions": "1"})
    first, second = cluster.brokers[1], cluster.brokers[2]

    def advertise(address: str, check: str) -> dict[str, Finding]:
        internal = f"INTERNAL://127.0.0.1:{second.internal_port}"
        second.settings["advertised.listeners"] = f"CLIENT://{address},{internal}"
        second.stop()
        second.start()
        return until(lambda: check in (seen := examined(cluster, first.address)) and seen, 60, address)

    nowhere = advertise("no-such-host.invalid:9092", "advertised_unresolved")
    assert "no-such-host.invalid:9092" in nowhere["advertised_unresolved"].problem
    (free,) = free_ports(1)
    refused = advertise(f"127.0.0.1:{free}", "advertised_refused")
    assert "nothing listens there" in refused["advertised_refused"].remedy
    twice = advertise(first.address, "other_broker_answers")
    assert "where broker 1 answers" in twice["other_broker_answers"].problem
    assert twice["advertised_twice"].values["brokers"] == [1, 2]

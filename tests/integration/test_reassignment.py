"""Partitions move between brokers under load: nothing acknowledged is lost, nothing old stays behind."""

import json
import time
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.throttle import FOLLOWERS, LEADERS, UNLIMITED
from strandline.cli.reassign.copies import RATES
from strandline.client.admin.admin import NewTopic
from strandline.client.admin.configs import AlterConfigOp, ConfigChange
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from strandline.testing.workload import Workload
from tests.integration.support import (
    DURABLE,
    View,
    assert_kept,
    assert_no_traceback,
    revive,
    strandline,
    until,
)
from tests.patience import HANG_S

WARM = 150


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(4, DURABLE)


def create(cluster: LocalCluster, name: str, *assignments: list[int]) -> View:
    view = View(cluster, name)
    view.admin.create_topics([NewTopic(name, assignments=dict(enumerate(assignments)))])
    view.wait_full_isr()
    return view


def held(cluster: LocalCluster, name: str) -> dict[str, list[int]]:
    """Who has which directory on disk, but for what is doomed, or was set aside by a broker that was away."""
    found: dict[str, list[int]] = {}
    for id, broker in sorted(cluster.brokers.items()):
        for path in sorted((broker.directory / "data").glob(f"{name}-[0-9]*")):
            if not path.name.endswith(("-delete", "-stray")):
                found.setdefault(path.name, []).append(id)
    return found


def test_a_partition_moves_under_load_while_the_old_leader_and_the_controller_die(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with create(cluster, "moved", [1, 2, 3], [2, 3, 4]) as view:
        with Workload(cluster.bootstrap, "moved", 2) as load:
            load.wait_acknowledged(WARM)
            plan = tmp_path / "plan.json"
            entry = {"topic": "moved", "partition": 0, "replicas": [4, 2, 3], "log_dirs": ["any"] * 3}
            plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
            done = strandline("reassign", "--execute", str(plan), "--wait", "-b", cluster.bootstrap)
            assert done.returncode == 0, done.stderr
            assert held(cluster, "moved") == {"moved-0": [2, 3, 4], "moved-1": [2, 3, 4]}
            load.wait_acknowledged(WARM)

            view.admin.alter_partition_reassignments({TopicPartition("moved", 0): [1, 2, 3]})
            cluster.brokers[cluster.controller()].kill()
            revive(cluster)
            until(lambda: not moving(view.admin), 20, "the move ends after the death of its controller")
            view.wait_full_isr()
        assert_kept(load)
        (first, second) = view.partitions()
        assert (first.replicas, sorted(first.isr)) == ((1, 2, 3), [1, 2, 3])
        assert second.replicas == (2, 3, 4)
    until(
        lambda: held(cluster, "moved") == {"moved-0": [1, 2, 3], "moved-1": [2, 3, 4]},
        HANG_S,
        "no old directory",
    )
    assert_no_traceback(cluster)


def moving(admin: Admin) -> dict[TopicPartition, object] | None:
    try:
        return dict(admin.list_partition_reassignments())
    except OSError:
        return {TopicPartition("?", 0): None}


def test_a_move_to_a_broker_that_dies_waits_is_cancelled_and_leaves_a_stray_at_most(
    cluster: LocalCluster,
) -> None:
    with create(cluster, "waits", [1, 2, 3]) as view:
        q = TopicPartition("waits", 0)
        if cluster.controller() == 4:  # the one that was killed before is succeeded by any
            cluster.brokers[4].kill()
            until(lambda: cluster.controller() in (1, 2, 3), 20, "another broker is controller")
            revive(cluster)
        cluster.brokers[4].pause()  # it is alive for the controller, and copies nothing
        view.admin.alter_partition_reassignments({q: [4, 2, 3]})
        cluster.brokers[4].kill()
        described = strandline("topics", "describe", "waits", "--json", "-b", cluster.bootstrap)
        (row,) = json.loads(described.stdout)
        assert (row["replicas"], row["adding"], row["removing"]) == ([4, 2, 3, 1], [4], [1])
        listed = strandline("reassign", "--list", "--json", "-b", cluster.bootstrap)
        assert json.loads(listed.stdout) == [
            {"topic": "waits", "partition": 0, "replicas": [4, 2, 3, 1], "adding": [4], "removing": [1]}
        ]
        done = strandline("reassign", "--cancel", "all", "-b", cluster.bootstrap)
        assert done.returncode == 0 and "1 move cancelled." in done.stdout, (done.stdout, done.stderr)
        assert view.partitions()[0].replicas == (1, 2, 3)
        with pytest.raises(NoReassignmentInProgress):
            view.admin.alter_partition_reassignments({q: None})
        with pytest.raises(InvalidReplicaAssignment, match="not available"):
            view.admin.alter_partition_reassignments({q: [4, 2, 3]})
        with pytest.raises(UnknownTopicOrPartition):
            view.admin.alter_partition_reassignments({TopicPartition("waits", 9): [1]})
        revive(cluster)
    until(lambda: held(cluster, "waits").get("waits-0") == [1, 2, 3], HANG_S, "the addition is not served")
    assert_no_traceback(cluster)


def test_a_plan_is_made_and_verified_on_the_command_line(cluster: LocalCluster, tmp_path: Path) -> None:
    with create(cluster, "planned", [1, 2], [1, 2], [2, 1]):
        made = strandline(
            "reassign", "--generate", "--topics", "planned", "--brokers", "3,4", "-b", cluster.bootstrap
        )
        assert made.returncode == 0, made.stderr
        plan = tmp_path / "plan.json"
        plan.write_text(made.stdout)
        assert all(set(one["replicas"]) == {3, 4} for one in json.loads(made.stdout)["partitions"])
        before = strandline("reassign", "--verify", str(plan), "-b", cluster.bootstrap)
        assert before.returncode == 1 and "held by 1,2" in before.stdout
        assert (
            strandline("reassign", "--execute", str(plan), "--wait", "-b", cluster.bootstrap).returncode == 0
        )
        after = strandline("reassign", "--verify", str(plan), "--json", "-b", cluster.bootstrap)
        assert after.returncode == 0 and {row["is"] for row in json.loads(after.stdout)} == {"moved"}


RATE = 1 << 20
COPIED = 4 << 20


def settings(view: View, name: str, **of: object) -> str | None:
    (found,) = [each.value for each in view.admin.describe_configs(**of) if each.name == name]
    return found


def test_a_new_broker_is_filled_at_the_rate_that_it_is_given_and_emptied_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with create(cluster, "slowly", [1, 2, 3]) as view:
        with Producer(cluster.bootstrap) as producer:
            producer.send_many("slowly", [bytes(1 << 16)] * (COPIED >> 16), partition=0)
        plan = tmp_path / "plan.json"
        words = ("reassign", "--generate", "--topics", "slowly", "-b", cluster.bootstrap)
        plan.write_text(strandline(*words, "--brokers", "2,3,4").stdout)
        began = time.monotonic()
        execute = ("reassign", "--execute", str(plan), "--throttle", str(RATE), "-b", cluster.bootstrap)
        assert strandline(*execute).returncode == 0
        assert settings(view, LEADERS, topic="slowly") == "0:1,0:2,0:3"
        assert settings(view, FOLLOWERS, topic="slowly") == "0:4"
        rates = [(broker, rate) for broker in cluster.brokers for rate in RATES]
        assert {settings(view, rate, broker=broker) for broker, rate in rates} == {str(RATE)}
        verify = ("reassign", "--verify", str(plan), "--json", "-b", cluster.bootstrap)
        (row,) = json.loads(strandline(*verify).stdout)
        assert row["is"] == "moving" and row["copied"].endswith("%") and row["copied"] != "100%"
        until(lambda: not moving(view.admin), 60, "the copy is complete")
        assert time.monotonic() - began >= COPIED / RATE - 1, "one response may come at once"
        (row,) = json.loads(strandline(*verify).stdout)
        assert row["is"] == "moved"
        assert settings(view, LEADERS, topic="slowly") == settings(view, FOLLOWERS, topic="slowly") == ""
        assert {settings(view, rate, broker=broker) for broker, rate in rates} == {str(UNLIMITED)}

        plan.write_text(strandline(*words, "--without", "4").stdout)
        done = strandline("reassign", "--execute", str(plan), "--wait", "-b", cluster.bootstrap)
        assert done.returncode == 0, done.stderr
        assert held(cluster, "slowly") == {"slowly-0": [1, 2, 3]}
        refused = strandline(*words, "--without", "1,2,3,4")
        assert refused.returncode == 2 and "no other broker is running" in refused.stderr


SENT, SENDS = 10 << 20, 4 << 20
RESPONSE = 1 << 20  # replica.fetch.max.bytes: so much comes at once


def test_a_leader_sends_at_its_rate_to_who_lags_and_at_once_to_the_isr(cluster: LocalCluster) -> None:
    q = TopicPartition("sent", 0)
    with View(cluster, "sent") as view:
        view.admin.create_topics([NewTopic("sent", assignments={0: [1, 2]}, configs={LEADERS: "0:1"})])
        view.wait_full_isr()
        with Producer(cluster.bootstrap, acks="all") as producer:
            producer.send_many("sent", [bytes(1 << 16)] * (SENT >> 16), partition=0)
            view.admin.incremental_alter_configs([ConfigChange(RATES[0], str(SENDS))], broker=1)
            began = time.monotonic()
            view.admin.alter_partition_reassignments({q: [1, 2, 3]})
            acknowledged = 0
            while moving(view.admin):
                producer.send("sent", b"at once", partition=0)
                producer.flush()
                acknowledged += 1
            took_s = time.monotonic() - began
        assert took_s >= (SENT - RESPONSE) / SENDS, f"{SENT} bytes were there after {took_s:.2f} s"
        assert acknowledged, "producers go on meanwhile"
        assert sorted(view.partitions()[0].isr) == [1, 2, 3]
        view.admin.incremental_alter_configs([ConfigChange(RATES[0], None, AlterConfigOp.DELETE)], broker=1)

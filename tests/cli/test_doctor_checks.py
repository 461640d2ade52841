"""The checks of `strandline doctor`: facts in, findings out. One story for each finding, and none for a
healthy cluster.
"""

from dataclasses import replace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.why_answers import Evidence
from strandline.cli.doctor.ask_zookeeper import read_srvr, servers_of
from strandline.cli.doctor.checks_groups import standing_still
from strandline.cli.doctor.collect import is_elsewhere
from strandline.cli.doctor.facts import (
    BrokerFacts,
    Clock,
    Dial,
    Directory,
    Ends,
    Facts,
    GroupFacts,
    LocalProcess,
    Member,
    OpenTransaction,
    Opinion,
    PartitionFacts,
    Reach,
    Sample,
    TopicFacts,
    ZkFacts,
    ZkServer,
)
from strandline.cli.doctor.findings import Finding, Severity, named, size
from strandline.cli.doctor.judge import judge, problems

TP = TopicPartition("orders", 0)
IDS = (1, 2, 3)
PROCESS = {
    "version": "0.1.0", "open_files": 100, "open_files_max": 100_000, "maps": 300, "maps_max": 65_530,
    "resident_bytes": 60 << 20, "cgroup_bytes_max": 512 << 20, "swapped_bytes": 0,
    "memory_bytes": 8 << 30, "memory_available_bytes": 4 << 30, "registry_connected": True,
}  # fmt: skip


def dialled(port: int, reach: Reach = Reach.ANSWERS, **other: Any) -> Dial:
    about = {"ips": ("127.0.0.1",), "cluster_id": "abc", **other}
    return Dial(about.pop("address", f"127.0.0.1:{port}"), reach, **about)


def broker(id: int, **other: Any) -> BrokerFacts:
    facts = BrokerFacts(
        id,
        dialled(9091 + id, broker=id),
        Opinion(1, frozenset(IDS), {TP: (1, 4)}),
        {0: (0, 11), 1: (0, 17)},
        {"inter.broker.protocol.version": "3.9", "zookeeper.connect": "127.0.0.1:2181"},
        (Directory("/data", False, False, 100 << 30, 50 << 30),),
        PROCESS,
        Clock(3.0, 2.0, "an answer"),
        True,
    )
    return replace(facts, **other)


def topic(name: str = "orders", replicas: tuple[int, ...] = IDS, min_isr: int = 2, **of: Any) -> TopicFacts:
    partition = PartitionFacts(of.get("leader", 1), 4, replicas, of.get("isr", replicas))
    configs = {"min.insync.replicas": str(min_isr), **of.get("configs", {})}
    return TopicFacts(name, name.startswith("__"), {0: partition}, configs)


def healthy(**other: Any) -> Facts:
    facts = Facts(
        (dialled(9092),),
        {id: broker(id) for id in IDS},
        {"orders": topic(), "__consumer_offsets": topic("__consumer_offsets", min_isr=1)},
        zookeeper=ZkFacts(
            "127.0.0.1:2181",
            (ZkServer("127.0.0.1:2181", Reach.ANSWERS, words=True, version="3.9.2", mode="follower"),),
            session_s=0.1,
            cluster_id="abc",
            controller=1,
            registered={id: (f"CLIENT://127.0.0.1:{9091 + id}",) for id in IDS},
        ),
    )
    return replace(facts, **other)


def with_broker(id: int = 2, **other: Any) -> Facts:
    """A healthy cluster, but for one broker."""
    brokers = {each: broker(each, **(other if each == id else {})) for each in IDS}
    return healthy(brokers=brokers)


def only(facts: Facts, check: str) -> Finding:
    """The finding of this kind; it is the only one that is wrong."""
    found = judge(facts)
    assert [each.check for each in found] == [check], [each.problem for each in found]
    assert found[0].remedy and "\n" not in found[0].remedy, "a remedy is one line"
    return found[0]


def one_of(facts: Facts, check: str) -> Finding:
    found = [each for each in judge(facts) if each.check == check]
    assert len(found) == 1, [each.check for each in judge(facts)]
    return found[0]


def test_nothing_is_found_in_a_healthy_cluster() -> None:
    assert judge(healthy()) == []


# --- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reach", "remedy"),
    [
        (Reach.UNRESOLVED, "advertise a name"),
        (Reach.REFUSED, "nothing listens there"),
        (Reach.TIMEOUT, "firewall"),
        (Reach.UNREACHABLE, "route"),
        (Reach.SILENT, "kill -CONT"),
        (Reach.FOREIGN, "TLS"),
    ],
)
def test_an_advertised_address_that_does_not_answer(reach: Reach, remedy: str) -> None:
    facts = with_broker(dial=dialled(9093, reach, detail="so it is", address="kafka-2:9092"), opinion=None)
    found = only(facts, f"advertised_{reach.name.lower()}")
    assert found.severity is Severity.CRITICAL and remedy in found.remedy
    assert "broker 2 cannot be reached from here at kafka-2:9092" in found.problem
    assert "so it is" in found.problem
    if reach is Reach.UNRESOLVED:
        assert "looks like the name of a container" in found.because[0]


def test_a_private_address_that_times_out_is_perhaps_a_containers() -> None:
    dial = dialled(1, Reach.TIMEOUT, address="172.18.0.4:9092", ips=("172.18.0.4",))
    assert "container" in only(with_broker(dial=dial, opinion=None), "advertised_timeout").because[0]


def test_addresses_that_lead_to_others() -> None:
    found = only(with_broker(dial=dialled(9099, broker=1)), "other_broker_answers")
    assert "where broker 1 answers" in found.problem
    clusters = only(with_broker(dial=dialled(9093, broker=2, cluster_id="xyz")), "several_clusters")
    assert "cluster xyz at 127.0.0.1:9093" in clusters.problem
    twice = only(with_broker(dial=dialled(9092, broker=2)), "advertised_twice")
    assert "broker 1, broker 2 advertise" in twice.problem
    anywhere = with_broker(dial=dialled(9093, broker=2, address="0.0.0.0:9093"))
    assert "no address that a client can connect to" in only(anywhere, "advertised_any").problem


def test_a_loopback_address_that_is_told_to_others() -> None:
    facts = healthy(bootstrap=(dialled(9092, address="kafka.example:9092", ips=("10.1.2.3",)),))
    assert {each.check for each in judge(facts)} == {"advertised_loopback"}
    gone = healthy(
        bootstrap=facts.bootstrap,
        brokers={1: broker(1, dial=dialled(9092, Reach.REFUSED))},
    )
    assert "from here that is this machine" in one_of(gone, "advertised_refused").because[0]


def test_one_dead_bootstrap_server_of_several_is_a_warning_and_all_of_them_are_critical() -> None:
    dead = dialled(9999, Reach.REFUSED)
    assert only(healthy(bootstrap=(dialled(9092), dead)), "bootstrap_refused").severity is Severity.WARNING
    assert only(Facts((dead,)), "bootstrap_refused").severity is Severity.CRITICAL
    local = {1: LocalProcess(1, "127.0.0.1:9999", False, False, "no space left on device")}
    found = only(Facts((dead,), local=local), "bootstrap_refused")
    assert "no space left on device" in found.because[0] and found.remedy == "strandline start 1"


def test_a_broker_that_is_a_bootstrap_server_too_is_told_of_once() -> None:
    gone = dialled(9093, Reach.REFUSED)
    facts = with_broker(dial=gone, opinion=None)
    only(replace(facts, bootstrap=(dialled(9092), gone)), "advertised_refused")


def test_the_worst_comes_first() -> None:
    facts = with_broker(dial=dialled(9093, Reach.REFUSED), opinion=None)
    topics = {"orders": topic(min_isr=1), "alone": topic("alone", (1,), 1)}
    late = {**facts.brokers, 1: broker(1, clock=Clock(5_000, 1, "it"))}
    severities = [each.severity for each in judge(replace(facts, brokers=late, topics=topics))]
    assert severities == sorted(severities, key=list(Severity).index) and len(set(severities)) == 3


def test_another_listener_that_is_not_reached_is_a_note() -> None:
    facts = with_broker(listeners={"INTERNAL": dialled(19093, Reach.UNRESOLVED)})
    found = only(facts, "listener_unreachable")
    assert found.severity is Severity.NOTE and problems([found]) == []
    other = with_broker(listeners={"INTERNAL": dialled(19093, broker=3)})
    assert "has its listener INTERNAL at" in only(other, "other_broker_answers").problem


def test_a_paused_process_of_this_machine_is_named() -> None:
    facts = with_broker(dial=dialled(9093, Reach.SILENT), opinion=None)
    local = {2: LocalProcess(2, "127.0.0.1:9093", True, True, "ready")}
    found = only(replace(facts, local=local), "advertised_silent")
    assert "SIGSTOP" in found.because[0] and found.remedy == "strandline resume 2"
    elsewhere = {2: replace(local[2], options=" --dir /there")}
    found = only(replace(facts, local=elsewhere), "advertised_silent")
    assert found.remedy == "strandline resume 2 --dir /there"


# --- what brokers agree on -------------------------------------------------------------------------


def test_a_broker_that_is_gone_is_missing_and_its_replicas_too() -> None:
    two = frozenset({1, 2})
    facts = healthy(
        brokers={id: broker(id, opinion=Opinion(1, two, {TP: (1, 4)})) for id in (1, 2)},
        topics={"orders": topic(isr=(1, 2))},
        zookeeper=None,
    )
    assert [each.check for each in judge(facts)] == ["broker_missing", "under_replicated", "rf_above_brokers"]
    assert one_of(facts, "broker_missing").problem.startswith("broker 3 has 1 replicas and is not registered")
    assert "start broker 3" in one_of(facts, "under_replicated").remedy


def test_controllers() -> None:
    none = {id: broker(id, opinion=Opinion(-1, frozenset(IDS))) for id in IDS}
    found = only(healthy(brokers=none), "no_controller")
    assert found.severity is Severity.CRITICAL
    differ = with_broker(opinion=Opinion(3, frozenset(IDS), {TP: (1, 4)}))
    assert "broker 2: 3" in only(differ, "controllers_differ").problem
    quorum = {
        id: broker(id, opinion=Opinion(id, frozenset(IDS)), configs={"process.roles": "broker"}) for id in IDS
    }
    assert judge(healthy(brokers=quorum, zookeeper=None)) == []
    old = healthy()
    assert old.zookeeper is not None
    moved = healthy(zookeeper=replace(old.zookeeper, controller=2))
    assert "ZooKeeper has broker 2 as controller" in only(moved, "controller_not_in_zookeeper").problem


def test_views_that_differ() -> None:
    alone = with_broker(opinion=Opinion(1, frozenset({1, 2}), {TP: (1, 4)}))
    assert "broker 2 does not know broker 3" in only(alone, "members_differ").problem
    old = with_broker(opinion=Opinion(1, frozenset(IDS), {TP: (3, 3)}))
    assert "older leaders of 1 partition" in only(old, "leaders_stale").problem


def test_versions() -> None:
    newer = with_broker(process={**PROCESS, "version": "0.2.0"})
    assert "broker 2: 0.2.0" in only(newer, "versions_differ").problem
    kafka = with_broker(is_strandline=False, process=None)
    assert "broker 2: Kafka" in only(kafka, "software_differs").problem
    spoken = with_broker(configs={"inter.broker.protocol.version": "3.5"})
    assert "broker 2: 3.5" in only(spoken, "protocol_versions_differ").problem
    requests = only(with_broker(apis={0: (0, 11), 1: (0, 13)}), "requests_differ")
    assert "broker 2 offers other versions of 1 request" in requests.problem and "FETCH" in requests.problem


def test_a_clock_is_judged_beyond_what_the_measurement_allows() -> None:
    assert judge(with_broker(clock=Clock(1_400, 500, "an answer"))) == []
    found = only(with_broker(clock=Clock(-1_600, 500, "an answer")), "clock")
    assert found.problem.startswith("the clock of broker 2 is 1.6 s behind") and "±500 ms" in found.because[0]
    assert only(with_broker(clock=Clock(90_000, 5, "it")), "clock").severity is Severity.CRITICAL


def test_a_request_that_is_not_answered_is_no_silence() -> None:
    found = only(with_broker(failed={"groups": "timed out"}), "broker_answers_in_part")
    assert found.because == ("groups: timed out",)


# --- ZooKeeper -------------------------------------------------------------------------------------


def zookeeper(*servers: ZkServer, **other: Any) -> Facts:
    base = healthy().zookeeper
    assert base is not None
    return healthy(zookeeper=replace(base, servers=servers or base.servers, **other))


def test_zookeepers_servers() -> None:
    up = ZkServer("a:2181", Reach.ANSWERS, words=True, version="3.9.2", mode="leader")
    down = ZkServer("b:2181", Reach.REFUSED)
    assert only(zookeeper(up, down), "zookeeper_server").severity is Severity.NOTE
    said_nothing = {id: broker(id, process=None) for id in IDS}
    alone = replace(zookeeper(up, down), brokers=said_nothing)
    assert one_of(alone, "zookeeper_server").severity is Severity.WARNING
    assert "srvr" in only(zookeeper(replace(up, words=False)), "zookeeper_words_off").problem
    old = ZkServer("b:2181", Reach.ANSWERS, words=True, version="3.6.3", mode="follower")
    assert "b:2181: 3.6.3" in only(zookeeper(up, old), "zookeeper_versions").problem
    lonely = replace(up, mode="standalone")
    assert only(zookeeper(lonely), "zookeeper_standalone").severity is Severity.NOTE
    assert only(zookeeper(lonely, up), "zookeeper_split").severity is Severity.CRITICAL
    assert only(zookeeper(replace(up, outstanding=500)), "zookeeper_busy")
    assert only(zookeeper(replace(up, latency_max_ms=9_000.0)), "zookeeper_latency")


def test_zookeepers_sessions_and_nodes() -> None:
    assert only(zookeeper(session_s=3.5), "zookeeper_slow")
    assert only(zookeeper(session="none came"), "zookeeper_session").severity is Severity.NOTE
    kafka = {id: broker(id, process=None) for id in IDS}
    refused = replace(zookeeper(session="none came"), brokers=kafka)
    assert one_of(refused, "zookeeper_session").severity is Severity.CRITICAL
    assert "NoAuth" in only(zookeeper(unreadable={"/brokers/ids": "NoAuth"}), "znode_unreadable").problem
    assert only(zookeeper(cluster_id="xyz"), "zookeeper_of_another_cluster")
    more = dict.fromkeys((*IDS, 4), ())
    assert "broker 4 is registered" in only(zookeeper(registered=more), "registered_not_announced").problem


def test_what_a_server_says_about_itself() -> None:
    text = (
        "Zookeeper version: 3.9.2-e454e8c, built on 2024-02-12\nLatency min/avg/max: 0/0.3/12\n"
        "Received: 5\nConnections: 2\nOutstanding: 7\nZxid: 0x2\nMode: standalone\nNode count: 5\n"
    )
    server = read_srvr("a:2181", text)
    assert (server.version, server.mode, server.outstanding) == ("3.9.2", "standalone", 7)
    assert server.latency_max_ms == 12.0 and server.words
    off = read_srvr("a:2181", "srvr is not executed because it is not in the whitelist.\n")
    assert off.reach is Reach.ANSWERS and off.words is False
    starting = read_srvr("a:2181", "This ZooKeeper instance is not currently serving requests\n")
    assert starting.reach is Reach.SILENT
    assert servers_of("a:1, [::1]:2,c/root/x") == ([("a", 1), ("::1", 2), ("c", 2181)], "/root/x")


def test_a_loopback_address_of_zookeeper_is_not_dialled_from_another_machine() -> None:
    afar = dialled(9092, address="kafka.example:9092", ips=("10.1.2.3",))
    assert is_elsewhere("localhost:2181/kafka", [afar])
    assert is_elsewhere("127.0.0.1:2181,127.0.0.1:2182", [afar])
    assert not is_elsewhere("localhost:2181", [dialled(9092)])
    assert not is_elsewhere("zk-1:2181,localhost:2181", [afar])


# --- machines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "check", "severity"),
    [
        ({"open_files": 85_000}, "open_files", Severity.WARNING),
        ({"open_files": 96_000}, "open_files", Severity.CRITICAL),
        ({"open_files_max": 1024}, "open_files_limit", Severity.WARNING),
        ({"maps": 60_000}, "memory_maps", Severity.WARNING),
        ({"resident_bytes": 500 << 20}, "container_memory", Severity.CRITICAL),
        ({"memory_available_bytes": 100 << 20}, "memory_scarce", Severity.WARNING),
        ({"swapped_bytes": 5 << 20}, "swapped", Severity.NOTE),
    ],
)
def test_limits(changed: dict[str, int], check: str, severity: Severity) -> None:
    assert only(with_broker(process={**PROCESS, **changed}), check).severity is severity
    assert judge(with_broker(process=dict.fromkeys(PROCESS, None) | {"version": "0.1.0"})) == []


@pytest.mark.parametrize(
    ("directory", "check", "severity"),
    [
        (Directory("/d", True), "log_dir_offline", Severity.CRITICAL),
        (Directory("/d", False, True, 100, 50), "log_dir_full", Severity.CRITICAL),
        (Directory("/d", False, False, 1000, 99), "log_dir_room", Severity.WARNING),
        (Directory("/d", False, False, 1000, 29), "log_dir_room", Severity.CRITICAL),
    ],
)
def test_disks(directory: Directory, check: str, severity: Severity) -> None:
    assert only(with_broker(directories=(directory,)), check).severity is severity
    assert (
        judge(with_broker(directories=(Directory("/d", False), Directory("/e", False, False, 10, 1)))) == []
    )
    without_sizes = (Directory("/d", False), Directory("/e", False, False, 0, 0))
    assert judge(with_broker(directories=without_sizes)) == []


# --- topics ----------------------------------------------------------------------------------------


def test_min_insync_replicas_against_replicas() -> None:
    equal = only(healthy(topics={"orders": topic(min_isr=3)}), "min_isr_equals_rf")
    assert equal.severity is Severity.WARNING and "any lost broker stops writes" in equal.problem
    assert "min.insync.replicas=2" in equal.remedy
    above = only(healthy(topics={"o": topic("o", min_isr=4)}), "min_isr_above_rf")
    assert above.severity is Severity.WARNING and "counts as that number" in above.problem
    one = only(healthy(topics={"orders": topic(min_isr=1)}), "min_isr_one")
    assert "may be on one broker only" in one.problem
    single = healthy(topics={"o": topic("o", (1,), 1)})
    assert only(single, "rf_one").severity is Severity.NOTE


def test_a_single_broker_needs_no_replicas() -> None:
    view = Opinion(1, frozenset({1}), {TP: (1, 4)})
    topics = {
        "orders": topic(replicas=(1,), min_isr=1),
        "__consumer_offsets": topic("__consumer_offsets", (1,), 1),
    }
    assert judge(healthy(brokers={1: broker(1, opinion=view)}, topics=topics, zookeeper=None)) == []


def test_states_of_partitions_with_the_reason() -> None:
    dead = PartitionFacts(-1, 5, IDS, (3,))
    offline = healthy(topics={"orders": TopicFacts("orders", False, {0: dead}, {"min.insync.replicas": "2"})})
    found = only(offline, "partitions_offline")
    assert found.severity is Severity.CRITICAL and "start the brokers of the ISR (3)" in found.remedy
    assert (
        only(healthy(topics={"orders": topic(isr=(1, 2))}), "under_replicated").severity is Severity.WARNING
    )
    under = healthy(topics={"orders": topic(isr=(1,))})
    assert one_of(under, "under_min_isr").severity is Severity.CRITICAL
    assert [each.subject for each in judge(under) if each.check == "under_replicated"] == [
        "broker 2",
        "broker 3",
    ]
    moving = healthy(topics={"orders": topic(isr=(1, 2))}, moving=frozenset({TP}))
    assert judge(moving) == []


def test_the_reason_is_what_why_would_say() -> None:
    view = {
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": 4,
        "isr": [1, 2],
        "replicas": [1, 2, 3],
        "candidates": {},
    }
    said = {
        "now_ms": 10_000, "replica": None, "decisions": [], "controllers_decisions": [
            {"at_ms": 9_000, "what": "isr_reduced", "isr": [1, 2], "isr_before": [1, 2, 3],
             "cause": "its session ended",
             "candidates": {3: "gone"}, "leader": 1, "epoch": 4}], "controllers_view": view,
        "controller_events": [], "broker_events": [], "registry_connected": True,
    }  # fmt: skip
    facts = healthy(topics={"orders": topic(isr=(1, 2))}, evidence={TP: Evidence("orders-0", {1: said})})
    found = only(facts, "under_replicated")
    assert "to the controller it was gone, because its session ended" in found.because[0]


def test_internal_topics_and_defaults() -> None:
    few = healthy(topics={"__consumer_offsets": topic("__consumer_offsets", (1,), 1)})
    assert "1 replica in a cluster of 3 brokers" in only(few, "internal_rf").problem
    view = Opinion(1, frozenset({1}))
    lonely = broker(1, opinion=view, configs={"offsets.topic.replication.factor": "3"})
    asking = healthy(brokers={1: lonely}, topics={}, zookeeper=None)
    assert "consumer groups do not work" in only(asking, "default_rf_above_brokers").problem
    unclean = healthy(topics={"o": topic("o", configs={"unclean.leader.election.enable": "true"})})
    assert only(unclean, "unclean_elections")


# --- groups ----------------------------------------------------------------------------------------


def group(*members: Member, committed: int = 5, later: int | None = None, **of: Any) -> Facts:
    """A group that has committed, twice looked at, of a partition that ends at 20."""
    ends = {TP: of.get("ends", Ends(0, 20, 20))}
    states = {"g": of.get("state", "Stable" if members else "Empty")}
    last = committed if later is None else later
    samples = (
        Sample(100.0, states, {"g": {TP: committed}}, ends),
        Sample(106.0, {"g": of.get("state_later", states["g"])}, {"g": {TP: last}}, ends),
    )
    return healthy(
        groups={"g": GroupFacts("g", 1, members=members)},
        samples=samples,
        transactions=of.get("transactions", ()),
    )


READER = Member("m-1", "app", "/10.0.0.7", None, frozenset({TP}))


def test_groups_that_move_or_have_read_all_are_well() -> None:
    assert judge(group(READER, later=9)) == []
    assert judge(group(READER, committed=20)) == []
    assert judge(group(committed=20)) == []


def test_a_group_without_members() -> None:
    found = only(group(), "group_without_members")
    assert "lags by 15 records in orders-0" in found.problem and "groups delete g" in found.remedy


def test_a_member_that_commits_nothing() -> None:
    found = only(group(READER), "group_no_progress")
    assert "its member app on /10.0.0.7 has committed nothing for 6 s" in found.problem
    seen_once = group(READER)
    assert judge(replace(seen_once, samples=seen_once.samples[:1])) == []


def test_partitions_that_no_member_has() -> None:
    found = only(group(replace(READER, assignment=frozenset())), "group_partitions_unread")
    assert "do not subscribe to orders" in found.problem and "delete-offsets g orders" in found.remedy


def test_a_rebalance_that_does_not_end() -> None:
    found = only(group(READER, state="PreparingRebalance"), "group_rebalance_stuck")
    assert "for all of 6 s" in found.problem
    ended = group(READER, state="PreparingRebalance", state_later="Stable", later=9)
    assert judge(ended) == []


def test_offsets_that_are_not_in_the_log() -> None:
    early = only(group(READER, committed=5, later=5, ends=Ends(8, 8, 8)), "offset_deleted")
    assert "committed 5, the log has 8 to 8" in early.because[0]
    assert only(group(READER, committed=30), "offset_beyond_end")


def test_a_transaction_that_holds_readers_back() -> None:
    held = Ends(0, 20, 5)
    hanging = OpenTransaction(TP, 77, 5, 30_000)
    facts = group(READER, ends=held, transactions=(hanging,))
    found = only(facts, "transaction_hanging")
    assert found.severity is Severity.CRITICAL
    assert found.remedy == "strandline transactions abort orders 0 --start-offset 5"
    assert "groups that have read up to there: g" in found.because[1]
    known = replace(hanging, transactional_id="app-1", state="Ongoing", idle_ms=70_000)
    assert "app-1" in only(replace(facts, transactions=(known,)), "transaction_open_long").problem
    ending = replace(known, state="PrepareCommit")
    assert (
        "markers do not arrive"
        in only(replace(facts, transactions=(ending,)), "transaction_open_long").problem
    )
    young = replace(hanging, idle_ms=2_000)
    assert judge(replace(facts, transactions=(young,))) == []
    unknown = {**facts.topics, "__transaction_state": topic("__transaction_state", leader=-1)}
    doubtful = replace(facts, topics=unknown)
    assert "transaction_hanging" not in {each.check for each in judge(doubtful)}


def test_a_group_whose_coordinator_does_not_tell() -> None:
    facts = group(READER)
    failed = {"g": GroupFacts("g", 2, failed="not the coordinator")}
    assert only(replace(facts, groups=failed), "group_unknown")


def test_what_is_watched() -> None:
    """Nothing of a healthy cluster; so it costs no time."""
    facts = group(READER, committed=20)
    first, last = facts.samples
    assert standing_still(first, first, facts.groups) == frozenset()
    slow = group(READER)
    assert standing_still(slow.samples[0], slow.samples[0], slow.groups) == {("g", TP)}
    moved = group(READER, later=9)
    assert standing_still(moved.samples[0], moved.samples[1], moved.groups) == frozenset()
    nobody = group()
    assert standing_still(nobody.samples[0], nobody.samples[0], nobody.groups) == frozenset()
    held = group(READER, committed=20, ends=Ends(0, 20, 5))
    assert ("", TP) in standing_still(held.samples[0], held.samples[0], held.groups)
    assert last.at_s > first.at_s


def test_words() -> None:
    assert named(range(7)) == "0, 1, 2, 3, 4 and 2 more"
    assert (size(512), size(3 << 30), size(2 << 40)) == ("512 B", "3.0 GiB", "2.0 TiB")

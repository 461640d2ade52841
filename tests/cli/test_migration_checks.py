"""The checks of `strandline doctor --migration`: one story for each finding, and what is said to be fine."""

from dataclasses import replace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.config.dynamic import DIRECTORIES_RATE
from strandline.cli.doctor.facts import BrokerFacts, Dial, Facts, Reach, ZkFacts, ZkServer
from strandline.cli.doctor.findings import Finding, Severity
from strandline.cli.doctor.judge import judge
from strandline.cli.doctor.migration.facts import (
    OF_ALL,
    Directory,
    Head,
    MigrationFacts,
    Registered,
    Settings,
    Znodes,
)
from strandline.cli.doctor.migration.judge import judge_migration
from tests.cli.test_doctor_checks import IDS, TP, broker, healthy, topic

GIVEN: Settings = {
    "zookeeper.connect": "127.0.0.1:2181",
    "listeners": "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "log.dirs": "/data",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
PLAIN = Registered({"CLIENT": "PLAINTEXT", "INTERNAL": "PLAINTEXT"})
SPOKEN = "inter.broker.protocol.version"


def kafkas(id: int, **other: Any) -> BrokerFacts:
    """A broker of Apache Kafka 3.9."""
    configs = {SPOKEN: "3.9-IV0", "zookeeper.connect": "127.0.0.1:2181", **other.pop("configs", {})}
    return broker(id, is_strandline=False, process=None, clock=None, configs=configs, **other)


def cluster(**other: Any) -> Facts:
    return healthy(**{"brokers": {id: kafkas(id) for id in IDS}, **other})


def given(id: int, **other: str | None) -> Settings:
    """What stands in the file of a broker; _ in a name is a dot."""
    return {**GIVEN, "broker.id": str(id), **{name.replace("_", "."): value for name, value in other.items()}}


def fit(**other: Any) -> MigrationFacts:
    """A cluster that is fit to be moved."""
    facts = MigrationFacts(
        cluster(),
        {f"broker {id}": given(id) for id in IDS},
        {"orders": {"retention.ms": "86400000"}},
        {TP: Head(2, 4)},
        Znodes(dict.fromkeys(IDS, PLAIN)),
    )
    return replace(facts, **other)


def znodes(**other: Any) -> MigrationFacts:
    return fit(znodes=replace(Znodes(dict.fromkeys(IDS, PLAIN)), **other))


def with_settings(id: int = 2, **other: str | None) -> MigrationFacts:
    return fit(brokers={f"broker {each}": given(each, **(other if each == id else {})) for each in IDS})


def only(facts: MigrationFacts, check: str, severity: Severity = Severity.CRITICAL) -> Finding:
    """The finding of this kind; it is the only one."""
    found, _ = judge_migration(facts)
    assert [one.check for one in found] == [check], [one.problem for one in found]
    assert found[0].remedy and "\n" not in found[0].remedy, "a remedy is one line"
    assert found[0].severity is severity
    return found[0]


def fine(facts: MigrationFacts) -> dict[str, str]:
    return {one.check: one.text for one in judge_migration(facts)[1]}


def test_what_is_fine_is_said_to_be() -> None:
    findings, told = judge_migration(fit())
    assert findings == []
    assert [one.check for one in told] == [
        "cluster", "kinds", "quorum", "versions", "unfinished", "settings", "dynamic_settings",
        "topic_settings", "listeners", "acls", "scram", "delegation_tokens", "quotas", "formats",
        "remote_storage",
    ]  # fmt: skip
    assert fine(fit())["kinds"] == "to be moved: broker 1, broker 2, broker 3 of Apache Kafka"
    assert "format v2" in fine(fit())["formats"]


def test_what_cannot_be_seen_is_neither_fine_nor_wrong() -> None:
    findings, told = judge_migration(MigrationFacts(cluster()))
    assert findings == [] and [one.check for one in told] == ["cluster", "kinds", "versions"]
    nobody = MigrationFacts(healthy(brokers={}, topics={}))
    assert judge_migration(nobody)[1] == [], "where nobody answers, nothing is fine"


def test_what_is_wrong_with_the_cluster_is_mended_first() -> None:
    facts = fit(cluster=cluster(topics={"orders": topic(isr=(1, 3))}))
    assert "orders-0" in only(facts, "under_replicated", Severity.WARNING).problem
    assert "cluster" not in fine(facts)


def test_that_brokers_are_of_two_kinds_is_the_move_itself() -> None:
    brokers = {1: kafkas(1), 2: broker(2, apis={0: (0, 11), 1: (4, 17)}), 3: kafkas(3)}
    facts = fit(cluster=cluster(brokers=brokers))
    assert judge_migration(facts)[0] == []
    assert (
        fine(facts)["kinds"]
        == "the move is under way: broker 2 of Strandline, broker 1, broker 3 of Apache Kafka"
    )
    assert fine(fit(cluster=healthy()))["kinds"].startswith("nothing is left to move")
    plain = {one.check: one for one in judge(facts.cluster)}
    assert plain.keys() == {"software_differs", "requests_differ"}, "3.9 and 3.9-IV0 are the same version"
    assert "go on with the move when it suits" in plain["software_differs"].remedy


# --- settings of brokers ---------------------------------------------------------------------------


def test_settings_of_security_keep_a_broker_from_starting() -> None:
    """Those whose values are secrets are known by their names."""
    found = only(with_settings(ssl_keystore_password=None, ssl_keystore_location="/k"), "setting_not_served")
    assert "broker 2: TLS is not supported" in found.problem
    assert found.values["settings"] == ["ssl.keystore.location", "ssl.keystore.password"]
    assert "What is secure today" in found.remedy and "server.properties" in found.remedy


def test_nodes_that_only_kafka_may_write_are_in_the_way() -> None:
    """Also when the setting that made them so is gone from all files."""
    found = only(znodes(guarded=("/brokers/topics/orders", "/controller_epoch")), "znodes_guarded")
    assert "2 nodes of ZooKeeper" in found.problem and "--zookeeper.acl=unsecure" in found.remedy
    set_by = only(with_settings(zookeeper_set_acl="true"), "setting_not_served")
    assert set_by.remedy == found.remedy


def test_an_authorizer_is_known_by_what_it_keeps_from_us() -> None:
    """Where nothing is shown, nothing is wrong with it; of ACLs the doctor said that nobody asks for them."""
    facts = fit(brokers={}, denied=IDS)
    assert "broker 1, broker 2, broker 3" in only(facts, "authorizer").problem
    found, _ = judge_migration(replace(facts, znodes=znodes(acls=("Topic orders",)).znodes))
    assert {one.check: one.severity for one in found} == {
        "authorizer": Severity.CRITICAL,
        "acls": Severity.CRITICAL,
    }


def test_topics_that_are_not_shown_are_named() -> None:
    facts = znodes(topics=("__consumer_offsets", "orders", "old"), pending=("/admin/delete_topics/old",))
    assert {one.check for one in judge_migration(facts)[0]} == {"pending"}
    found = only(znodes(topics=("orders", "secret")), "topics_hidden", Severity.WARNING)
    assert found.values["topics"] == ["secret"]


def test_what_several_brokers_have_is_said_once() -> None:
    facts = fit(brokers={f"broker {id}": given(id, authorizer_class_name="a.B") for id in IDS})
    assert only(facts, "setting_not_served").values["brokers"] == ["broker 1", "broker 2", "broker 3"]


def test_settings_of_a_quorum_are_not_to_be_taken_out_but_undone() -> None:
    found = only(with_settings(controller_quorum_voters="4@h:1"), "setting_not_served")
    assert "before its migration is finalized" in found.remedy


def test_a_listener_of_controllers_goes_from_kafkas_brokers_first() -> None:
    """Taken out of one file alone, Kafka's controllers would never tell that broker anything."""
    found = only(with_settings(control_plane_listener_name="CONTROL"), "setting_not_served")
    assert "inter.broker.listener.name only" in found.problem
    assert "of all of Kafka's brokers" in found.remedy and "leave the listener itself" in found.remedy


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"my_plugin_path": None}, "unknown configuration 'my.plugin.path'"),
        ({"num_partitions": "many"}, "num.partitions = 'many'"),
        ({"listener_security_protocol_map": "CLIENT:SSL,INTERNAL:PLAINTEXT"}, "only PLAINTEXT is supported"),
        ({"inter_broker_listener_name": "OTHER"}, "expected one of the listeners"),
    ],
)
def test_a_start_would_be_refused(setting: dict[str, str | None], said: str) -> None:
    brokers = {f"broker {id}": given(id, **setting) for id in IDS}
    found = only(fit(brokers=brokers), "setting_refused")
    assert said in found.problem and "settings" not in fine(fit(brokers=brokers))


def test_settings_without_effect_are_a_note() -> None:
    found = only(
        with_settings(num_io_threads="8", quota_window_num="11"), "setting_without_effect", Severity.NOTE
    )
    assert found.values["settings"].keys() == {"num.io.threads", "quota.window.num"}


@pytest.mark.parametrize("id", [None, "-1"])
def test_an_id_that_kafka_gave_out_must_be_written_down(id: str | None) -> None:
    brokers = {f"broker {each}": given(each) for each in IDS}
    brokers["broker 2"] = {name: value for name, value in brokers["broker 2"].items() if name != "broker.id"}
    if id is not None:
        brokers["broker 2"] = {**brokers["broker 2"], "broker.id": id}
    assert "meta.properties" in only(fit(brokers=brokers), "broker_id_generated").remedy


def test_brokers_must_meet_at_one_listener() -> None:
    found = only(with_settings(inter_broker_listener_name="CLIENT"), "inter_broker_listeners_differ")
    assert "broker 2: CLIENT" in found.problem


@pytest.mark.parametrize(
    "listeners", [None, "INTERNAL://:9093,CLIENT://10.0.0.7:9092"], ids=["as it comes", "one"]
)
def test_listeners_without_a_host_would_be_heard_at_the_machine_only(listeners: str | None) -> None:
    """Nobody but the machine itself would reach the broker, wherever it is said to be."""
    named = {"listener_security_protocol_map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT"} if listeners else {}
    others = {} if listeners else {"inter_broker_listener_name": None}
    settings = {id: given(id, listeners=listeners, **named, **others) for id in IDS}
    brokers = {
        f"broker {id}": {k: v for k, v in one.items() if v is not None} for id, one in settings.items()
    }
    away = cluster(
        brokers={id: replace(kafkas(id), dial=Dial(f"kafka-{id}:9092", Reach.ANSWERS)) for id in IDS}
    )
    found = only(fit(brokers=brokers, cluster=away), "listener_without_host")
    assert "127.0.0.1 only" in found.problem and "advertised.listeners" in found.remedy
    name = "INTERNAL" if listeners else "PLAINTEXT"
    assert found.values["listeners"] == {f"broker {id}": [name] for id in IDS}
    here = cluster(
        brokers={id: replace(kafkas(id), dial=Dial(f"127.0.0.1:909{id}", Reach.ANSWERS)) for id in IDS}
    )
    assert judge_migration(fit(brokers=brokers, cluster=here))[0] == [], "all of it is one machine"


# --- settings made while running -------------------------------------------------------------------


def test_a_setting_made_while_running_that_would_not_count() -> None:
    facts = znodes(dynamic={"2": {"log.cleaner.threads": "4", "socket.request.max.bytes": "1000000"}})
    found = [one for one in judge_migration(facts)[0] if one.check == "dynamic_setting_ignored"]
    assert found and all(one.severity is Severity.WARNING for one in found)
    assert "broker 2" in found[0].problem and "--broker 2 --delete" in found[0].remedy
    unknown = only(znodes(dynamic={OF_ALL: {"no.such": "1"}}), "dynamic_setting_ignored", Severity.WARNING)
    assert "all brokers" in unknown.problem and "--default --delete no.such" in unknown.remedy


def test_a_setting_made_while_running_that_does_nothing_here_is_a_note() -> None:
    facts = znodes(dynamic={OF_ALL: {"num.io.threads": "9", DIRECTORIES_RATE: "5"}})
    found = only(facts, "dynamic_setting_without_effect", Severity.NOTE)
    assert found.values["settings"] == ["num.io.threads", DIRECTORIES_RATE]


def test_a_setting_made_while_running_that_counts_is_fine() -> None:
    facts = znodes(dynamic={"1": {"follower.replication.throttled.rate": "1000000"}})
    assert judge_migration(facts)[0] == [] and "dynamic_settings" in fine(facts)


# --- settings of topics ----------------------------------------------------------------------------


def test_a_topics_setting_that_would_not_count() -> None:
    facts = fit(topics={"a": {"no.such.setting": "1"}, "b": {"no.such.setting": "1"}, "c": {}})
    found = only(facts, "topic_setting_ignored", Severity.WARNING)
    assert "2 topics (a, b)" in found.problem and found.values["topics"] == ["a", "b"]
    assert "topic_settings" not in fine(facts)


def test_a_compression_that_is_not_known() -> None:
    facts = fit(topics={"a": {"compression.type": "brotli"}})
    assert "compression.type = brotli" in only(facts, "topic_setting_ignored", Severity.WARNING).problem


def test_a_topics_setting_without_effect_is_a_note() -> None:
    facts = fit(topics={"a": {"preallocate": "true", "message.format.version": "3.0-IV1"}})
    assert only(facts, "topic_setting_without_effect", Severity.NOTE).subject == "preallocate"


# --- security and quotas ---------------------------------------------------------------------------


def test_a_secured_listener_of_a_broker_that_does_not_tell_its_settings() -> None:
    secured = Registered({"CLIENT": "SASL_SSL", "INTERNAL": "PLAINTEXT"})
    facts = znodes(brokers={1: secured, 2: secured, 3: PLAIN})
    found = only(replace(facts, brokers={}), "listener_not_plain")
    assert "CLIENT of broker 1, broker 2 speaks SASL_SSL" in found.problem
    assert judge_migration(facts)[0] == [], "else it is said of their settings"


def test_rights_that_are_asked_for_now_would_not_be() -> None:
    brokers = {f"broker {id}": given(id, authorizer_class_name="a.B") for id in IDS}
    facts = replace(znodes(acls=("Topic orders", "Group *")), brokers=brokers)
    found = {one.check: one for one in judge_migration(facts)[0]}
    assert found.keys() == {"setting_not_served", "acls"} and found["acls"].severity is Severity.CRITICAL
    assert "everybody may do everything" in found["acls"].problem


@pytest.mark.parametrize(
    "left",
    [{"acls": ("Topic orders",)}, {"scram": ("alice",)}, {"tokens": 2}],
    ids=["acls", "scram", "tokens"],
)
def test_rights_that_nobody_asks_for_now_are_a_note(left: dict[str, Any]) -> None:
    found, _ = judge_migration(znodes(**left))
    assert [one.severity for one in found] == [Severity.NOTE] and "no broker asks for" in found[0].problem


def test_passwords_that_are_asked_for_now_would_not_be() -> None:
    facts = znodes(scram=("alice",), brokers=dict.fromkeys(IDS, Registered({"CLIENT": "SASL_PLAINTEXT"})))
    assert "passwords of 1 user (alice)" in only(facts, "scram").problem


def test_quotas_would_hold_nobody_back() -> None:
    facts = znodes(quotas={"user alice": {"producer_byte_rate": "1000"}, "ip 10.0.0.1": {}})
    found = only(facts, "quotas", Severity.WARNING)
    assert "2 quotas" in found.problem and "user alice, ip 10.0.0.1" in found.problem


# --- state -----------------------------------------------------------------------------------------


def test_a_cluster_without_zookeeper_cannot_be_moved() -> None:
    brokers = {1: kafkas(1, configs={"process.roles": "broker,controller"})}
    facts = MigrationFacts(cluster(brokers=brokers, topics={}, zookeeper=None))
    assert "copy its topics" in only(facts, "quorum").remedy


def test_a_cluster_on_its_way_to_a_quorum() -> None:
    found = only(znodes(quorum="controller 3000 of a quorum has written /migration"), "quorum")
    assert "on its way to KRaft" in found.problem


def test_a_directory_of_a_quorum() -> None:
    for directory in (Directory("/d", {"node.id": "1"}), Directory("/d", {}, is_quorums=True)):
        assert only(fit(directories=(directory,)), "quorum_directory").subject == "/d"


@pytest.mark.parametrize("fetch", [11, 99])
def test_another_release_of_kafka_was_never_tried(fetch: int) -> None:
    brokers = {id: kafkas(id, apis={0: (0, 11), 1: (0, fetch)}) for id in IDS}
    found = only(fit(cluster=cluster(brokers=brokers)), "release", Severity.WARNING)
    assert "2.8 to 3.9" in found.problem and found.values["brokers"] == list(IDS)


def test_versions_among_brokers() -> None:
    """2.8 is the first whose controllers send what our brokers take."""
    early = {id: kafkas(id, configs={SPOKEN: "2.7-IV2"}) for id in IDS}
    assert "2.8 or later" in only(fit(cluster=cluster(brokers=early)), "spoken_version").remedy
    enough = {id: kafkas(id, apis={0: (0, 11), 1: (0, 12)}, configs={SPOKEN: "2.8-IV1"}) for id in IDS}
    told = fine(fit(cluster=cluster(brokers=enough)))["versions"]
    assert "release 2.8 or 3.0" in told and told.endswith("is 2.8-IV1")


@pytest.mark.parametrize(("fetch", "is_told"), [(12, True), (13, True), (15, False)])
def test_groups_that_would_not_come_back_to_an_early_kafka(fetch: int, is_told: bool) -> None:
    brokers = {id: kafkas(id, apis={0: (0, 11), 1: (0, fetch)}) for id in IDS}
    found, _ = judge_migration(fit(cluster=cluster(brokers=brokers)))
    assert [one.check for one in found] == (["way_back_of_groups"] if is_told else [])
    assert all(one.severity is Severity.NOTE and "rebalance.protocols=classic" in one.remedy for one in found)


def test_finalized_features() -> None:
    assert (
        "metadata.version"
        in only(znodes(features=("metadata.version",)), "features", Severity.WARNING).problem
    )


def test_what_is_unfinished_ends_first() -> None:
    moving = fit(cluster=cluster(moving=frozenset({TopicPartition("orders", 0)})))
    assert "orders-0" in only(moving, "moving", Severity.WARNING).problem
    pending = znodes(pending=("/admin/delete_topics/old",))
    assert "/admin/delete_topics/old" in only(pending, "pending", Severity.WARNING).problem
    assert "unfinished" not in fine(moving) and "unfinished" not in fine(pending)


def test_racks_of_some_count_for_none() -> None:
    on_rack = replace(PLAIN, rack="a")
    found = only(znodes(brokers={1: PLAIN, 2: on_rack, 3: on_rack}), "racks", Severity.NOTE)
    assert "for broker 1" in found.problem
    assert "racks" in fine(znodes(brokers=dict.fromkeys(IDS, on_rack)))


def test_a_node_that_may_not_be_read() -> None:
    found = only(znodes(unreadable={"/config/users": "NoAuth"}), "znode_unreadable", Severity.WARNING)
    assert "/config/users" in found.problem and "zookeeper.set.acl" in found.remedy


# --- records ---------------------------------------------------------------------------------------


def test_messages_of_an_old_format() -> None:
    facts = fit(heads={TP: Head(1, 0), TopicPartition("new", 0): Head(2, 0)})
    found = only(facts, "old_format")
    assert "1 partition (orders-0) begins with messages of format v1" in found.problem
    assert "MirrorMaker" in found.remedy and "formats" not in fine(facts)


def test_messages_that_are_still_written_in_an_old_format() -> None:
    """The setting counts only while brokers speak a version before 3.0 among themselves."""
    topics: dict[str, Settings] = {"orders": {"message.format.version": "0.10.2-IV0"}}
    early = {id: kafkas(id, configs={SPOKEN: "2.8-IV1"}) for id in IDS}
    found = {one.check: one for one in judge_migration(fit(topics=topics, cluster=cluster(brokers=early)))[0]}
    assert found["old_format_written"].values["where"] == ["topic orders"]
    later = {one.check for one in judge_migration(fit(topics=topics))[0]}
    assert "old_format_written" not in later


def test_a_codec_that_is_not_known() -> None:
    assert "(5)" in only(fit(heads={TP: Head(2, 5)}), "codec_unknown").problem


def test_segments_on_this_machine() -> None:
    old = Directory("/d", {}, 3, ("/d/orders-0/00000000000000000000.log",), {})
    assert "1 segment in /d begins" in only(fit(directories=(old,)), "old_format").problem
    odd = Directory("/d", {}, 3, (), {"/d/orders-0/00000000000000000000.log": 7})
    assert "(7)" in only(fit(directories=(odd,)), "codec_unknown").problem
    well = fit(directories=(Directory("/d", {"broker.id": "1"}, 3),))
    assert judge_migration(well)[0] == [] and fine(well)["formats"].startswith("/d: 3 segments")


def test_records_in_remote_storage() -> None:
    facts = fit(
        topics={"cold": {"remote.storage.enable": "true"}, "warm": {"remote.storage.enable": "false"}}
    )
    assert only(facts, "remote_storage").values["topics"] == ["cold"]


def test_zookeeper_that_is_not_reached_is_said_of_the_cluster() -> None:
    down = ZkFacts("h:1", (ZkServer("h:1", Reach.REFUSED),), session="no server is reached")
    found, _ = judge_migration(fit(cluster=cluster(zookeeper=down), znodes=None))
    assert {one.check for one in found} == {"zookeeper_server", "zookeeper_session"}

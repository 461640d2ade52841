"""`strandline doctor --migration` at Apache Kafka 3.9: a broker with planted troubles, found all at once,
and a cluster in the middle of its move, where nothing is wrong.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from strandline.cli.doctor.collect import Wishes
from strandline.cli.doctor.findings import Finding, Severity
from strandline.cli.doctor.migration.collect import Places, collect_migration
from strandline.cli.doctor.migration.facts import MigrationFacts
from strandline.cli.doctor.migration.judge import judge_migration
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.local.ports import free_ports
from strandline.testing.verify.places.kafka import KafkaPlace

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

from kafka_peer import KafkaBroker

OF_THE_MACHINE = {"log_dir_room", "zookeeper_slow", "zookeeper_standalone"}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice='secret';"
PLANTED = {
    "inter.broker.protocol.version": "2.8-IV1",  # below 3.0, so that a topic's format of messages counts
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": LOGIN,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "num.replica.fetchers": "2",
}
NODES: dict[str, dict[str, Any]] = {
    "/config/clients/app": {"version": 1, "config": {"producer_byte_rate": "1048576"}},
    "/config/users/alice": {"version": 1, "config": {"SCRAM-SHA-256": "salt=x"}},
    "/kafka-acl/Topic/old": {"version": 1, "acls": []},
    "/delegation_token/tokens/one": {},
    "/config/topics/cold": {"version": 1, "config": {"remote.storage.enable": "true"}},
}


@pytest.fixture(scope="module")
def kafka(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("planted")
    broker = KafkaBroker(folder, [folder / "data"], f"{zookeeper}/{folder.name}", PLANTED)
    (sasl,) = free_ports(1)
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},SASL://127.0.0.1:{sasl}"
    try:
        broker.start(180)
        plant(broker)
        yield broker
    finally:
        broker.kill()


def plant(broker: KafkaBroker) -> None:
    """What clients and tools leave behind in years."""
    simple = {"enable_idempotence": False}  # messages of before 0.11 cannot be numbered
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap, **simple) as producer:
        admin.create_topics(
            [
                NewTopic("old", 1, 1, {"message.format.version": "0.10.2"}),
                NewTopic("well", 2, 1, {"preallocate": "true"}),
                NewTopic("cold", 1, 1),
            ]
        )
        for topic in ("old", "well"):
            producer.send_many(topic, [b"record"] * 10)
        admin.alter_configs({"log.cleaner.io.max.bytes.per.second": "1000000"}, broker=1)
    write(broker.zookeeper, NODES)


def write(zookeeper: str, documents: Mapping[str, Any]) -> None:
    """Write znodes as Kafka's tools would."""
    zk = KazooClient(zookeeper)
    zk.start()
    try:
        for path, document in documents.items():
            zk.ensure_path(path)
            zk.set(path, json.dumps(document).encode())
    finally:
        zk.stop()
        zk.close()


def examined(
    port: int, places: Places | None = None
) -> tuple[MigrationFacts, dict[str, list[Finding]], dict[str, str]]:
    """The facts, findings by their kind, and what is fine."""
    wishes = Wishes((("127.0.0.1", port),), wait_s=20.0, watch_s=0.0)
    facts = asyncio.run(collect_migration(wishes, places or Places()))
    findings, fine = judge_migration(facts)
    kinds: dict[str, list[Finding]] = {}
    for one in findings:
        if one.check not in OF_THE_MACHINE:
            kinds.setdefault(one.check, []).append(one)
    return facts, kinds, {one.check: one.text for one in fine}


def said(findings: list[Finding]) -> str:
    return "\n".join(one.problem for one in findings)


def test_everything_that_was_planted_is_found(kafka: KafkaBroker) -> None:
    facts, found, fine = examined(kafka.port)
    assert facts.kafkas == (1,) and facts.znodes is not None and not facts.znodes.unreadable
    not_served = said(found["setting_not_served"])
    assert "SASL is not supported" in not_served and "authorizer.class.name" in not_served
    assert "super.users" in not_served
    refused = said(found["setting_refused"])
    assert (
        "allow.everyone.if.no.acl.found" in refused and "listener.name.sasl.plain.sasl.jaas.config" in refused
    )
    assert "listener SASL has security protocol SASL_PLAINTEXT" in refused
    assert "secret" not in json.dumps([one.as_dict() for each in found.values() for one in each])
    assert "num.replica.fetchers" in found["setting_without_effect"][0].values["settings"]
    assert found["topic_setting_without_effect"][0].values["topics"] == ["old"]
    assert {one.subject for one in found["topic_setting_without_effect"]} == {
        "message.format.version",
        "preallocate",
    }
    assert found["old_format"][0].values["partitions"] == {"old-0": 1}
    assert found["old_format_written"][0].values["where"] == ["topic old"]
    assert found["remote_storage"][0].values["topics"] == ["cold"]
    assert found["quotas"][0].values["quotas"] == {"client app": {"producer_byte_rate": "1048576"}}
    assert {one.severity for check in ("acls", "scram", "delegation_tokens") for one in found[check]} == {
        Severity.CRITICAL
    }
    assert "log.cleaner.io.max.bytes.per.second" not in said(found.get("dynamic_setting_ignored", []))
    of_the_machine = {"cluster"}  # its disk may be nearly full
    assert fine.keys() - of_the_machine == {
        "kinds", "quorum", "versions", "unfinished", "dynamic_settings", "topic_settings"
    }  # fmt: skip


def test_files_on_this_machine_are_looked_into(kafka: KafkaBroker) -> None:
    """They tell what the broker does, and its segments one by one, while it runs on them."""
    config, data = kafka.folder / "server.properties", kafka.folder / "data"
    facts, found, _ = examined(kafka.port, Places((config,), (data,)))
    (directory,) = facts.directories
    assert directory.owner["broker.id"] == "1" and directory.segments >= 4 and not directory.unreadable
    assert directory.old == (str(data / "old-0" / f"{0:020d}.log"),)
    assert [str(config), "broker 1"] == sorted(found["setting_not_served"][0].values["brokers"])
    assert not any("--log-dir" in line for line in facts.not_seen)


def test_the_command_tells_programs_and_people(kafka: KafkaBroker) -> None:
    """Exit status 1, as of the doctor where something is wrong."""

    def doctor(*words: str) -> subprocess.CompletedProcess[str]:
        line = [
            sys.executable,
            "-m",
            "strandline.cli.main",
            "doctor",
            "--migration",
            "-b",
            kafka.bootstrap,
            *words,
        ]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    told = doctor("--json")
    assert told.returncode == 1, told.stderr
    document = json.loads(told.stdout)
    assert not document["healthy"] and {"remedy", "check", "values"} <= document["findings"][0].keys()
    assert {"check": "unfinished", "text": "nothing is being reassigned, deleted or elected"} in document[
        "fine"
    ]
    shown = doctor()
    assert shown.returncode == 1, shown.stderr
    assert "critical  1 partition (old-0) begins with messages of format v1" in shown.stdout
    assert "fine      to be moved: broker 1 of Apache Kafka" in shown.stdout
    assert "not checked: the versions of requests that clients use" in shown.stdout


def test_in_the_middle_of_the_move_all_is_fine(pair: KafkaPlace) -> None:
    with Admin(pair.bootstrap) as admin, Producer(pair.bootstrap) as producer:
        admin.create_topics([NewTopic("moving", 4, 2, {"compression.type": "zstd"})])
        producer.send_many("moving", [b"record"] * 100)
    _, found, fine = examined(pair.cluster.brokers[2].port)
    wrong = {check for check, each in found.items() if each[0].severity is not Severity.NOTE}
    assert wrong <= {
        "rf_one",
        "internal_rf",
        "rf_above_brokers",
        "default_rf_above_brokers",
        "min_isr_one",
    }, said([one for each in found.values() for one in each])
    assert fine["kinds"] == "the move is under way: broker 2 of Strandline, broker 1 of Apache Kafka"
    assert {
        "quorum",
        "versions",
        "settings",
        "dynamic_settings",
        "listeners",
        "acls",
        "quotas",
        "formats",
    } <= fine.keys()

"""ACLs, quotas, passwords: our brokers ask for none of them, and leave them as they are, for the way back.

Two brokers of Kafka with an authorizer become ours and Kafka's again. What stands in ZooKeeper for rights and
quotas is the same at each step, byte for byte, never written, whoever is the controller; the doctor says that
it would not count; and once the brokers are Kafka's again it counts as before.
"""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from strandline.cli.doctor.findings import Severity
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.protocol.errors import UnknownTopicOrPartition
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.waiting import until
from tests.mixed.test_doctor_before_the_move import examined, said, write
from tests.mixed.test_mixed_cluster import jars

from kafka_peer import java  # isort: skip

SETTINGS = {
    "transaction.state.log.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "zookeeper.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}
KAFKAS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:root",
}
ROOTS = (
    "/kafka-acl", "/kafka-acl-extended", "/config/users", "/config/clients", "/config/ips",
    "/delegation_token",
)  # fmt: skip
PASSWORD = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
NODES: dict[str, Any] = {
    "/config/users/alice": {"version": 1, "config": {"consumer_byte_rate": "5000"}},
    "/config/users/alice/clients/app": {"version": 1, "config": {"request_percentage": "50"}},
    "/config/users/bob": {"version": 1, "config": {"SCRAM-SHA-256": PASSWORD}},
    "/config/ips/127.0.0.9": {"version": 1, "config": {"connection_creation_rate": "50"}},
}
WITHIN_S = 60.0


def tool(cluster: KafkaPlace, main: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """One of Kafka's, at the cluster."""
    line = java(cluster.cluster.directory, main, "--bootstrap-server", cluster.bootstrap, *words)
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def give_rights_and_quotas(cluster: KafkaPlace) -> None:
    """With Kafka's tools; what is only to be left alone is written as they write it."""
    secret = ("--topic", "secret")
    given = [
        (
            "kafka.admin.AclCommand", "--add", *secret, "--deny-principal", "User:ANONYMOUS",
            "--operation", "Write",
        ),
        (
            "kafka.admin.AclCommand", "--add", *secret, "--allow-principal", "User:*", "--operation", "Read",
            "--operation", "Describe",
        ),
        (
            "kafka.admin.AclCommand", "--add", "--topic", "un", "--resource-pattern-type", "prefixed",
            "--allow-principal", "User:alice", "--operation", "All",
        ),
        (
            "kafka.admin.ConfigCommand", "--alter", "--entity-type", "clients", "--entity-name", "app",
            "--add-config", "producer_byte_rate=2000",
        ),
    ]  # fmt: skip
    for words in given:
        done = tool(cluster, *words)
        assert done.returncode == 0, done.stdout + done.stderr
    write(cluster.zookeeper, NODES)


def kept(cluster: KafkaPlace) -> dict[str, tuple[bytes, int, int]]:
    """All that stands there: each node's content, how often it was written, and when."""
    zk = KazooClient(cluster.zookeeper)
    zk.start()
    found: dict[str, tuple[bytes, int, int]] = {}

    def look(path: str) -> None:
        try:
            data, stat = zk.get(path)
        except NoNodeError:
            return
        found[path] = (data, stat.version, stat.mzxid)
        for child in zk.get_children(path):
            look(f"{path}/{child}")

    try:
        for root in ROOTS:
            look(root)
    finally:
        zk.stop()
        zk.close()
    return found


def is_refused(cluster: KafkaPlace) -> bool:
    """Whether nobody may write to `secret`."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce("secret", b"record", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    (error,) = errors
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is not None


def is_held_back(cluster: KafkaPlace) -> bool:
    """Whether client `app` may write 2 kB a second, and no more."""
    told: list[float] = []
    options = {"client.id": "app", "throttle_cb": lambda event: told.append(event.throttle_time)}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 0, **options})
    for _ in range(20):
        producer.produce("open", b"." * 1000, partition=0)
        producer.flush(30)
    producer.poll(0.1)
    return bool(told)


def become(cluster: KafkaPlace, broker: int) -> None:
    """A broker of the other kind; then something is done that the controller has a hand in."""
    cluster.stop(broker)
    cluster.turn(broker)
    cluster.launch(broker)

    def is_whole(*names: str) -> bool:
        with suppress(UnknownTopicOrPartition):  # a broker of Kafka that has just started knows none
            return all(
                len(one.isr) == 2 for topic in admin.describe_topics(names) for one in topic.partitions
            )
        return False

    with Admin(cluster.bootstrap) as admin:
        until(lambda: is_whole("secret", "open"), WITHIN_S, f"all is whole with broker {broker}", every_s=0.2)
        admin.create_topics([NewTopic("passing", 2, 2)])
        until(lambda: is_whole("passing"), WITHIN_S, "the new topic is whole", every_s=0.2)
        admin.alter_configs({"retention.ms": "86400000"}, topic="passing")
        admin.delete_topics(["passing"])
        until(lambda: "passing" not in admin.list_topics(), WITHIN_S, "it is deleted")


@pytest.mark.long
def test_they_outlive_the_move_and_the_way_back(tmp_path: Path) -> None:
    cluster = KafkaPlace(tmp_path, 2, SETTINGS, jars())
    for one in cluster.of_kafka.values():
        one.settings |= KAFKAS  # ours would refuse to start with them, and says so
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("secret", 1, 2), NewTopic("open", 1, 2)])
        give_rights_and_quotas(cluster)
        until(lambda: is_refused(cluster), WITHIN_S, "the ACL counts")
        until(lambda: is_held_back(cluster), WITHIN_S, "the quota counts")
        stood = kept(cluster)
        assert {"/kafka-acl/Topic/secret", "/kafka-acl-extended/prefixed/Topic/un", *NODES} <= stood.keys()

        become(cluster, 1)
        assert kept(cluster) == stood
        check_what_the_doctor_says(cluster, 2)
        become(cluster, 2)
        assert kept(cluster) == stood
        assert not is_refused(cluster) and not is_held_back(cluster), "nobody asks for them"

        become(cluster, 1)  # under our controller
        assert kept(cluster) == stood
        check_what_the_doctor_says(cluster, 1)
        become(cluster, 2)
        assert kept(cluster) == stood
        until(lambda: is_refused(cluster), WITHIN_S, "the ACL counts again")
        until(lambda: is_held_back(cluster), WITHIN_S, "the quota counts again")
    finally:
        cluster.close()


def check_what_the_doctor_says(cluster: KafkaPlace, kafkas: int) -> None:
    """In the middle of the move: what is not enforced where a broker of ours leads."""
    _, found, _ = examined(cluster.cluster.brokers[kafkas].port)
    assert found["acls"][0].severity is Severity.CRITICAL
    assert "everybody may do everything" in said(found["acls"]) and "Topic secret" in said(found["acls"])
    quotas = found["quotas"][0]
    assert quotas.values["quotas"].keys() == {
        "client app", "user alice", "user alice, client app", "ip 127.0.0.9",
    }  # fmt: skip
    assert "the way back" in quotas.remedy
    assert found["scram"][0].severity is Severity.NOTE, "no listener asks for passwords"

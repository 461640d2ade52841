"""Kafka's own command line and ZooKeeper's, as the descriptions of Kafka use them, against our brokers.

The commands stand here as they are printed there, by the names of the scripts: `kafka-topics --create …
--topic secondTopic`, `get /brokers/topics/secondTopic/partitions/1/state` in `zkCli.sh`, `ls` of the
directory of a partition, `kafka-run-class.sh kafka.tools.DumpLogSegments`. Each of Kafka's is run in two
releases: 3.9, the last that knows ZooKeeper, and 4.1, whose clients need newer versions of requests.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_tools import RELEASES, Tools

from strandline.client.sync import Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.records import BatchBuilder
from strandline.testing.nursery import forked
from tests.integration.support import Wire, produced, until
from tests.patience import HANG_S

BEGINNING, LARGEST_TIME = "earliest", "max-timestamp"


def strandline(*arguments: str) -> str:
    line = [sys.executable, "-m", "strandline.cli.main", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{line[-8:]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: str) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("tools")
    settings = {"group.initial.rebalance.delay.ms": "0"}
    local = forked(LocalCluster(directory, 2, zookeeper=f"{zookeeper}/{directory.name}", settings=settings))
    local.start()
    yield local
    local.kill()


@pytest.fixture(scope="module", params=RELEASES)
def tools(
    request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    started = Tools(tmp_path_factory.mktemp("jvm"), request.param, cluster.bootstrap)
    yield started
    started.close()


@pytest.fixture
def topic(tools: Tools, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: two partitions on both brokers."""
    name = f"{request.node.originalname[5:40]}-{tools.release.replace('.', '')}".replace("_", "-")
    tools("kafka-topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "2")
    return name


@pytest.fixture
def ten(tools: Tools, topic: str) -> str:
    """The same with ten records, keys k0 to k9."""
    lines = "".join(f"k{number}:v{number}\n" for number in range(10))
    pairs = ("--property", "parse.key=true", "--property", "key.separator=:")
    tools("kafka-console-producer", "--topic", topic, *pairs, given=lines)
    return topic


def offsets(tools: Tools, topic: str, *arguments: str) -> dict[str, int]:
    rows = tools("kafka-get-offsets", "--topic", topic, *arguments).split()
    return {row.rpartition(":")[0]: int(row.rpartition(":")[2]) for row in rows}


def table(told: str) -> list[list[str]]:
    """The rows of a table below its head."""
    return [line.split() for line in told.splitlines()[1:] if line.strip()]


def written(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def test_topics(tools: Tools) -> None:
    name = f"secondTopic{tools.release[0]}"
    made = tools(
        "kafka-topics", "--create", "--replication-factor", "2", "--partitions", "3", "--topic", name
    )
    assert f"Created topic {name}" in made
    assert name in tools("kafka-topics", "--list").split()
    told = tools("kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 3" in told and "ReplicationFactor: 2" in told
    assert told.count("Leader: ") == 3 and "none" not in told
    tools("kafka-topics", "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in tools("kafka-topics", "--describe", "--topic", name)
    tools("kafka-topics", "--create", "--topic", name, "--partitions", "1", status=1)
    tools("kafka-topics", "--delete", "--topic", name)
    assert name not in tools("kafka-topics", "--list").split()


def test_settings_of_topics(tools: Tools, topic: str) -> None:
    def alter(*what: str, status: int = 0) -> str:
        entity = ("--alter", "--entity-type", "topics", "--entity-name", topic)
        return tools("kafka-configs", *entity, *what, status=status)

    def described(*more: str) -> str:
        entity = ("--describe", "--entity-type", "topics", "--entity-name", topic)
        return tools("kafka-configs", *entity, *more)

    alter("--add-config", "retention.ms=100000,cleanup.policy=[compact,delete]")
    told = described()
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=100000" in told and "cleanup.policy=compact,delete" in told
    alter("--delete-config", "cleanup.policy")
    alter("--add-config", "preallocate=true,message.downconversion.enable=false,local.retention.ms=1000")
    assert "preallocate=true" in described() and "message.downconversion.enable=false" in described()
    assert "preallocate=true" in tools("kafka-topics", "--describe", "--topic", topic)
    alter("--add-config", "remote.storage.enable=true", status=1)
    assert "there is no remote storage" in tools.errors
    alter("--add-config", "retention.ms=soon", status=1)
    everything = described("--all")
    assert "min.insync.replicas=1" in everything and "remote.storage.enable=false" in everything


def test_settings_and_loggers_of_brokers(tools: Tools) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    told = tools("kafka-configs", "--describe", *one, "--all")
    assert "inter.broker.protocol.version=3.9" in told and "log.retention.ms=" in told
    tools("kafka-configs", "--alter", *one, "--add-config", "log.roll.ms=7654321")
    assert "DYNAMIC_BROKER_CONFIG:log.roll.ms=7654321" in tools("kafka-configs", "--describe", *one)
    tools("kafka-configs", "--alter", *one, "--delete-config", "log.roll.ms")
    every = ("--entity-type", "brokers", "--entity-default")
    tools("kafka-configs", "--alter", *every, "--add-config", "log.roll.ms=7654321")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.roll.ms=7654321" in tools("kafka-configs", "--describe", *every)
    tools("kafka-configs", "--alter", *every, "--delete-config", "log.roll.ms")
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "2")
    tools("kafka-configs", "--alter", *loggers, "--add-config", "strandline.broker.groups=DEBUG")
    assert "strandline.broker.groups.coordinator=DEBUG" in tools("kafka-configs", "--describe", *loggers)
    tools("kafka-configs", "--alter", *loggers, "--delete-config", "strandline.broker.groups")
    assert "strandline.broker.groups.coordinator=INFO" in tools("kafka-configs", "--describe", *loggers)
    tools("kafka-configs", "--alter", *loggers, "--add-config", "kafka.log=DEBUG", status=1)


@pytest.mark.parametrize("tools", ["4.1"], indirect=True)
def test_settings_of_groups(tools: Tools) -> None:
    """Kafka 3.9's tool has no such entity."""
    kind = ("--entity-type", "groups")
    one = (*kind, "--entity-name", "late/payments")
    assert "doesn't exist and doesn't have dynamic config" in tools("kafka-configs", "--describe", *one)
    own = "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000"
    tools("kafka-configs", "--alter", *one, "--add-config", own)
    told = tools("kafka-configs", "--describe", *one)
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in told
    assert "late/payments" in tools("kafka-configs", "--describe", *kind)
    tools("kafka-configs", "--alter", *one, "--delete-config", "consumer.heartbeat.interval.ms")
    assert "consumer.heartbeat.interval.ms=6000" not in tools("kafka-configs", "--describe", *one)
    for wrong, why in (
        ("consumer.session.timeout.ms=1", "must be a whole number from"),
        ("share.isolation.level=read_committed", "share groups, which are not supported"),
    ):
        tools("kafka-configs", "--alter", *one, "--add-config", wrong, status=1)
        assert why in tools.errors
    tools("kafka-configs", "--alter", *one, "--delete-config", "consumer.session.timeout.ms")
    assert "late/payments" not in tools("kafka-configs", "--describe", *kind)


def test_records_in_and_out(tools: Tools, ten: str) -> None:
    whole = ("--topic", ten, "--from-beginning", "--max-messages", "10", "--timeout-ms", "30000")
    told = tools("kafka-console-consumer", *whole, "--property", "print.key=true")
    assert sorted(told.split("\n")[:-1]) == [f"k{number}\tv{number}" for number in range(10)]
    assert "Processed a total of 10 messages" in tools.errors
    committed = tools("kafka-console-consumer", *whole, "--isolation-level", "read_committed")
    assert sorted(committed.split()) == [f"v{number}" for number in range(10)]
    assert sum(offsets(tools, ten).values()) == 10
    assert set(offsets(tools, ten, "--time", BEGINNING).values()) == {0}
    ends, newest = offsets(tools, ten), offsets(tools, ten, "--time", LARGEST_TIME)
    assert all(0 <= newest[place] < ends[place] for place in ends)
    assert sum(offsets(tools, ten, "--time", "0").values()) == 0
    assert offsets(tools, ten, "--time", "latest-tiered") == {}, "nothing is in remote storage"
    assert set(offsets(tools, ten, "--time", "earliest-local").values()) == {0}


def test_verifiable_clients_and_speed(tools: Tools, topic: str) -> None:
    tools("kafka-verifiable-producer", "--topic", topic, "--max-messages", "50", "--acks", "-1")
    assert sum(offsets(tools, topic).values()) == 50
    told = tools(
        *("kafka-verifiable-consumer", "--topic", topic, "--group-id", f"verifiable-{topic}"),
        *("--max-messages", "50", "--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 50
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    load = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all")
    sent = tools.run("kafka-producer-perf-test", "--topic", topic, *load, *props)
    assert "2000 records sent" in sent
    read = tools("kafka-consumer-perf-test", "--topic", topic, "--messages", "2050", "--timeout", "20000")
    assert read.splitlines()[-1].split(", ")[4] == "2050"


def test_groups(tools: Tools, ten: str) -> None:
    group = f"group-{ten}"

    def groups(*arguments: str) -> str:
        return tools("kafka-consumer-groups", *arguments)

    def lags() -> list[list[str]]:
        rows = groups("--describe", "--group", group).splitlines()
        return [row.split()[3:6] for row in rows if row.startswith(group)]

    tools(
        *("kafka-console-consumer", "--topic", ten, "--group", group, "--from-beginning"),
        *("--max-messages", "10", "--timeout-ms", "30000"),
    )
    assert group in groups("--list").split()
    assert f"{group} Empty" in " ".join(groups("--list", "--state").split())
    if tools.release != "3.9":
        rows = [row.split() for row in tools("kafka-groups", "--list").splitlines()]
        assert [group, "Classic", "consumer"] in rows
    assert [lag for _, _, lag in lags()] == ["0", "0"]
    assert "has no active members" in tools.errors
    assert "Empty" in groups("--describe", "--group", group, "--state")
    groups("--describe", "--group", group, "--members")
    reset = ("--group", group, "--topic", ten, "--reset-offsets")
    groups(*reset, "--to-earliest", "--dry-run")
    assert [lag for _, _, lag in lags()] == ["0", "0"], "only told what would be"
    groups(*reset, "--shift-by", "-1", "--execute")
    assert [lag for _, _, lag in lags()] == ["1", "1"]
    groups("--group", group, "--delete-offsets", "--topic", f"{ten}:0")
    assert ["-", "-"] in [[at, lag] for at, _, lag in lags()] or len(lags()) == 1
    groups("--delete", "--group", group)
    assert group not in groups("--list").split()


def test_transactions(tools: Tools, topic: str) -> None:
    id = f"performance-{tools.release[0]}"
    load = ("--num-records", "300", "--record-size", "10", "--throughput", "-1")
    ends = ("--transactional-id", id, "--transaction-duration-ms", "20")
    props = ("--producer-props", f"bootstrap.servers={tools.bootstrap}")
    tools.run("kafka-producer-perf-test", "--topic", topic, *load, *ends, *props)
    row = next(row for row in table(tools("kafka-transactions", "list")) if row[0] == id)
    producer = row[2]
    assert row[3] in ("CompleteCommit", "PrepareCommit")
    described = table(tools("kafka-transactions", "describe", "--transactional-id", id))
    assert described[0][1:3] == [id, producer]
    number = max((end, place.rpartition(":")[2]) for place, end in offsets(tools, topic).items())[1]
    of = ("describe-producers", "--topic", topic, "--partition", number)
    writers = table(tools("kafka-transactions", *of))
    assert writers[0][0] == producer
    read = ("--from-beginning", "--max-messages", "300", "--timeout-ms", "30000")
    isolated = (*read, "--isolation-level", "read_committed")
    assert len(tools("kafka-console-consumer", "--topic", topic, *isolated).split()) == 300
    tools("kafka-transactions", "find-hanging", "--broker-id", "1")


def test_a_transaction_whose_producer_is_gone_is_aborted(tools: Tools, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tools.bootstrap, "transactional.id": f"gone-{tools.release}", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", partition=0)
    assert producer.flush(30) == 0

    def open_from() -> str:
        (row,) = table(
            tools("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
        )
        return row[-1]

    assert open_from() == "0"
    tools(
        *("kafka-transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0"),
    )
    assert open_from() == "None"
    isolated = ("--isolation-level", "read_committed", "--from-beginning", "--timeout-ms", "2000")
    assert "never" not in tools("kafka-console-consumer", "--topic", topic, *isolated, "--partition", "0")
    assert "Processed a total of 0 messages" in tools.errors
    assert offsets(tools, topic)[f"{topic}:0"] == 2, "the record, and the marker that aborts it"


STRAY = 4711  # a producer id that nobody has given away


def write_stray(cluster: LocalCluster, topic: str) -> bool:
    """Write a transactional batch that belongs to nothing to the leader. False if it does not take it."""
    builder = BatchBuilder(producer_id=STRAY, producer_epoch=3, base_sequence=0, transactional=True)
    builder.append(1_000, b"k", b"v", [])
    data = [PartitionProduceData(index=0, records=builder.build())]
    request = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    for broker in cluster.brokers.values():
        with Wire(broker.port) as wire:
            if produced(wire.ask(request, 9))[0] == 0:
                return True
    return False


def test_a_transaction_that_hangs_is_found_and_aborted(
    tools: Tools, topic: str, cluster: LocalCluster
) -> None:
    """A batch that no coordinator knows of, as brokers took before KIP-890, holds readers back for ever."""
    verifying = "transaction.partition.verification.enable"
    everywhere = ("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-default")
    assert not write_stray(cluster, topic)
    tools(*everywhere, "--add-config", f"{verifying}=false")
    until(lambda: write_stray(cluster, topic), HANG_S, "a broker that takes what it does not verify")
    tools(*everywhere, "--delete-config", verifying)
    (found,) = table(tools("kafka-transactions", "find-hanging", "--topic", topic))
    assert found[:3] == [topic, "0", str(STRAY)]
    place = ("--topic", topic, "--partition", "0")
    tools("kafka-transactions", "abort", *place, "--start-offset", found[5])
    assert table(tools("kafka-transactions", "find-hanging", "--topic", topic)) == []
    assert table(tools("kafka-transactions", "describe-producers", *place))[0][-1] == "None"


def test_the_state_of_a_streams_application_is_reset(tools: Tools, ten: str) -> None:
    application = f"application-{tools.release[0]}"
    of = ("--group", application, "--topic", ten)
    tools("kafka-console-consumer", *of, "--from-beginning", "--max-messages", "10", "--timeout-ms", "30000")
    inner = f"{application}-store-changelog"
    tools("kafka-topics", "--create", "--topic", inner, "--partitions", "1", "--replication-factor", "2")
    reset = ("--application-id", application, "--input-topics", ten, "--to-earliest", "--force")
    told = tools("kafka-streams-application-reset", *reset)
    assert f"Topic: {ten} Partition: 0 Offset: 0" in told
    assert inner in told and inner not in tools("kafka-topics", "--list").split()


def test_replicas_move_leaders_are_elected_records_are_deleted(
    tools: Tools, ten: str, tmp_path: Path
) -> None:
    def reassign(*arguments: str) -> str:
        return tools("kafka-reassign-partitions", *arguments)

    listed = written(tmp_path / "topics", {"version": 1, "topics": [{"topic": ten}]})
    proposed = reassign("--generate", "--topics-to-move-json-file", listed, "--broker-list", "2,1")
    assert proposed.rpartition("Proposed")[2].count(ten) == 2
    moves = [{"topic": ten, "partition": number, "replicas": [2, 1]} for number in (0, 1)]
    plan = written(tmp_path / "plan", {"version": 1, "partitions": moves})
    started = reassign("--execute", "--reassignment-json-file", plan, "--throttle", "1000000")
    assert "Successfully started partition reassignments" in started
    done = ""
    while "is still in progress" in done or not done:
        done = reassign("--verify", "--reassignment-json-file", plan)
    assert done.count("is completed") == 2 and "Clearing broker-level throttles" in done
    assert "No partition reassignments found" in reassign("--list")
    elect = ("kafka-leader-election", "--election-type", "preferred", "--topic", ten, "--partition")
    for number in ("0", "1"):
        tools(*elect, number)
    leaders = tools("kafka-topics", "--describe", "--topic", ten)
    assert leaders.count("Leader: 2") == 2
    dirs = json.loads(tools("kafka-log-dirs", "--describe", "--topic-list", ten).splitlines()[-1])
    assert {
        (broker["broker"], replica["partition"], replica["isFuture"])
        for broker in dirs["brokers"]
        for place in broker["logDirs"]
        for replica in place["partitions"]
    } == {(broker, f"{ten}-{number}", False) for broker in (1, 2) for number in (0, 1)}
    ends = offsets(tools, ten)
    delete = [{"topic": ten, "partition": 0, "offset": ends[f"{ten}:0"]}]
    file = written(tmp_path / "records", {"version": 1, "partitions": delete})
    told = tools("kafka-delete-records", "--offset-json-file", file)
    assert f"partition: {ten}-0\tlow_watermark: {ends[f'{ten}:0']}" in told
    assert offsets(tools, ten, "--time", BEGINNING)[f"{ten}:0"] == ends[f"{ten}:0"]


def test_what_there_is_to_know_of_the_cluster(tools: Tools, cluster: LocalCluster) -> None:
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", tools.bootstrap)
    versions = tools("kafka-broker-api-versions")
    assert versions.count("Produce(0): 0 to") == versions.count("Fetch(1): 4 to 17 [usable: ") == 2
    assert tools("kafka-features", "describe").strip() == "", "there is nothing to upgrade"
    for kind in ("upgrade", "downgrade"):
        told = tools("kafka-features", kind, "--feature", "transaction.version=2", status=1)
        assert f"Could not {kind} transaction.version to 2." in told and "not supported" in told
    if tools.release != "3.9":
        endpoints = ("list-endpoints", "--bootstrap-server", tools.bootstrap)
        rows = tools.run("kafka-cluster", *endpoints).splitlines()[1:]
        assert [row.split()[:2] for row in rows] == [["1", "127.0.0.1"], ["2", "127.0.0.1"]]


def test_what_lies_in_a_brokers_directory(tools: Tools, ten: str, cluster: LocalCluster) -> None:
    data = cluster.brokers[1].directory / "data"
    segment = data / f"{ten}-0" / f"{0:020}.log"
    told = tools.run("kafka-dump-log", "--files", str(segment), "--print-data-log")
    assert "Log starting offset: 0" in told and "isvalid: true" in told
    assert "payload: v" in told and "keySize: 2" in told
    group = f"dumped-{tools.release[0]}"
    tools(
        *("kafka-console-consumer", "--topic", ten, "--group", group, "--from-beginning"),
        *("--max-messages", "10", "--timeout-ms", "30000"),
    )
    committed = ",".join(map(str, data.glob(f"__consumer_offsets-*/{0:020}.log")))
    told = tools.run("kafka-dump-log", "--files", committed, "--offsets-decoder")
    assert f'"group":"{group}","topic":"{ten}"' in told


@pytest.mark.parametrize("tools", ["3.9"], indirect=True)
def test_a_command_of_old_with_zookeeper_and_what_zookeepers_shell_shows(
    tools: Tools, cluster: LocalCluster
) -> None:
    """`./kafka-topics.sh --create --zookeeper host:2181 …`, then `get …/state` in a stock zkCli."""
    old = "--create --zookeeper {} --replication-factor 2 --partitions 3 --topic oldTopic"
    strandline("topics", *old.format(cluster.zookeeper).split())
    address, _, chroot = cluster.zookeeper.partition("/")

    def shell(*command: str) -> str:
        return tools.run("zookeeper-shell", "-server", address, *command)

    told = shell("get", f"/{chroot}/brokers/topics/oldTopic/partitions/1/state")
    (line,) = [each for each in told.splitlines() if each.startswith("{")]
    state = json.loads(line)
    assert {"controller_epoch", "leader", "version", "leader_epoch", "isr"} <= state.keys()
    assert state["version"] == 1 and state["leader"] in (1, 2) and sorted(state["isr"]) == [1, 2]
    assert "[1, 2]" in shell("ls", f"/{chroot}/brokers/ids")
    assert "oldTopic" in shell("ls", f"/{chroot}/brokers/topics")
    assert '"brokerid":' in shell("get", f"/{chroot}/controller")


def test_a_partitions_directory_and_the_dump_of_its_segment(cluster: LocalCluster) -> None:
    """`ls /tmp/kafka-logs/firstTopic-1/`, then DumpLogSegments by its class, with one dash."""
    strandline(
        *("topics", "create", "firstTopic", "--partitions", "2", "--replication-factor", "2"),
        *("-b", cluster.bootstrap),
    )
    with Producer(cluster.bootstrap) as producer:
        for number in range(3):
            producer.send("firstTopic", b"message_%d" % number, partition=1).result(HANG_S)
    place = cluster.brokers[1].directory / "data" / "firstTopic-1"
    names = {path.name for path in place.iterdir()}
    zero = "0" * 20
    assert names >= {f"{zero}.log", "leader-epoch-checkpoint", "partition.metadata"}
    cluster.brokers[1].stop()
    names = {path.name for path in place.iterdir()}
    assert names >= {f"{zero}.log", f"{zero}.index", f"{zero}.timeindex"}, "after a clean stop, all of them"
    told = strandline(
        *("kafka-run-class", "kafka.tools.DumpLogSegments", "-files", str(place / f"{zero}.log")),
        *("--print-data-log", "--format", "0.11"),
    )
    assert f"Dumping {place / f'{zero}.log'}" in told
    first = next(line for line in told.splitlines() if line.startswith("offset: 0 position: 0"))
    assert first.endswith("payload: message_0") and "valuesize: 9 magic: 2" in first
    for name in ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"):
        assert strandline(name, "-files", str(place / f"{zero}.log")).startswith("Dumping")
    cluster.brokers[1].start()
    cluster.wait_ready()

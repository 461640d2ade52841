"""Each peer is told what we are told, logs quietly, and serves the drivers of the workloads."""

import os
import re
import signal
from pathlib import Path

import pytest

from bench.drivers import batch_of, cannon, consume, create_topic, produce_at_least
from bench.failover import Cluster
from bench.jars import JarsMissing
from bench.kafka import LOG4J, LOG4J2, RELEASES, Kafka, Kafka39, Kafka41, Kafka43
from bench.system import System, settings
from bench.systems import SYSTEMS


@pytest.fixture
def without_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is started, so nothing has to be fetched."""
    monkeypatch.setattr(Kafka, "jars", classmethod(lambda cls: tmp_path))


@pytest.mark.usefixtures("without_jars")
@pytest.mark.parametrize("kind", SYSTEMS.values(), ids=SYSTEMS)
def test_all_are_told_the_same(kind: type[System], tmp_path: Path) -> None:
    system = kind(tmp_path, 3, {"flush.ms": "7"})
    assert list(system.processes) == [1, 2, 3]
    for process in system.processes.values():
        told = process.settings
        assert {name: told[name] for name in settings(3)} == settings(3) and told["flush.ms"] == "7"


@pytest.mark.usefixtures("without_jars")
def test_brokers_of_kafka_3_agree_in_zookeeper_and_those_of_kafka_4_among_themselves(tmp_path: Path) -> None:
    old, new = Kafka39(tmp_path, 3), Kafka43(tmp_path, 3)
    assert old.zookeeper is not None and new.zookeeper is None
    assert {one.settings["zookeeper.connect"] for one in old.processes.values()} == {old.zookeeper.address}
    (voters,) = {one.settings["controller.quorum.voters"] for one in new.processes.values()}
    assert voters == ",".join(f"{id}@127.0.0.1:{inner}" for id, (_, inner) in new.ports.items())
    for id, process in new.processes.items():
        assert process.settings["node.id"] == str(id)
        assert process.settings["process.roles"] == "broker,controller"


@pytest.mark.parametrize("kind", (*RELEASES, Kafka41), ids=lambda kind: kind.name)
def test_tables_name_the_version_that_is_fetched(kind: type[Kafka]) -> None:
    wanted = r"<groupId>org.apache.kafka</groupId><artifactId>[^<]*</artifactId><version>([^<]*)<"
    (version,) = set(re.findall(wanted, kind.pom.read_text()))
    assert kind.title == f"Kafka {version}" and version.startswith(kind.name.removeprefix("kafka-"))


def test_both_ways_of_logging_know_the_levels_that_are_named(tmp_path: Path) -> None:
    assert LOG4J.flag(tmp_path, {"kafka.log": "INFO"}).startswith("-Dlog4j.configuration=file:/")
    assert "log4j.logger.kafka.log=INFO\n" in (tmp_path / "log4j.properties").read_text()
    assert LOG4J2.flag(tmp_path, {"kafka.log": "INFO"}).startswith("-Dlog4j2.configurationFile=file:/")
    said = (tmp_path / "log4j2.properties").read_text()
    assert "logger.kafka_log.name=kafka.log\nlogger.kafka_log.level=INFO\n" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", RELEASES, ids=lambda kind: kind.name)
def test_a_peer_serves_the_drivers_is_quiet_and_is_stopped_and_started(
    kind: type[Kafka], tmp_path: Path
) -> None:
    try:
        kind.jars()
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"{kind.name} could not be fetched: {error}"
        pytest.skip(f"{kind.name} could not be fetched: {error}")
    with kind(tmp_path, 1, levels={"kafka.log": "INFO"}) as system:
        create_topic(system.bootstrap, "topic", 2, 1)
        there = produce_at_least(system.bootstrap, "topic", value=b"v" * 100, records=1000, seconds=0.1)
        assert consume(system.bootstrap, "topic", partitions=2, records=there).records == there
        address, batch = ("127.0.0.1", system.ports[1][0]), batch_of(3, 10)
        there += 3 * cannon(address, "topic", batch=batch, acks=1, window=2, seconds=0.1).records
        assert Cluster(system).controller() == 1
        assert system.cpu_s() > 0 and system.rss_anon_mb() > 50
        system.signal(1, signal.SIGTERM)
        system.wait_ended(1)
        system.start_broker(1)
        system.wait_ready(1)
        assert consume(system.bootstrap, "topic", partitions=2, records=there).records == there
    told = (system.folder(1) / "broker.log").read_text()
    informed = re.findall(r"^\[[^]]*\] (?:INFO|DEBUG|TRACE) .*\((.*)\)$", told, re.MULTILINE)
    assert informed and all(name.startswith("kafka.log") for name in informed), told[:2000]

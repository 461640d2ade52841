"""A broker that cannot start says why and what to do, in one sentence, and exits: 2 for its configuration,
1 for its surroundings. Never with a traceback.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.ports import free_ports, is_free
from strandline.local.processes import machine_is_slower
from tests.integration.support import UNCLOCKED, strandline, tree

INTERNAL = 10_000  # so far above the clients' ports are those between brokers


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    port, internal = free_ports(2)
    return {
        "broker.id": "1",
        "listeners": f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": f"127.0.0.1:{free_ports(1)[0]}",
    }


def broker(
    config: dict[str, str], directory: Path, run: Callable[..., Any] = strandline
) -> "subprocess.CompletedProcess[str]":
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    ended: subprocess.CompletedProcess[str] = run("broker", "--config", str(file))
    return ended


def as_users_do(*words: str) -> "subprocess.CompletedProcess[str]":
    """A command in a Python of its own: one for each exit status, the others are forked."""
    line = [sys.executable, "-m", "strandline.cli.main", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=30 * machine_is_slower(), check=False)


def assert_one_sentence(ended: "subprocess.CompletedProcess[str]", status: int, *words: str) -> None:
    """One line for people (log lines are JSON), with these words in it."""
    said = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert len(said) == 1, said
    assert said[0].startswith("strandline: ")
    for word in words:
        assert word in said[0], said[0]


WRONG = [
    ({"log.segment.byte": "1048576"}, ["log.segment.byte", "did you mean log.segment.bytes?", "line"]),
    ({"broker.di": "1"}, ["broker.di", "did you mean broker.id?"]),
    ({"log.segment.bytes": "many"}, ["log.segment.bytes", "'many'", "whole number"]),
    ({"zookeeper.session.timeout.ms": "0"}, ["zookeeper.session.timeout.ms", "at least 1"]),
    ({"auto.create.topics.enable": "perhaps"}, ["auto.create.topics.enable", "true or false"]),
    ({"listeners": "CLIENT://127.0.0.1:not-a-port"}, ["listeners"]),
    ({"inter.broker.listener.name": "OTHER"}, ["inter.broker.listener.name", "OTHER"]),
    ({"process.roles": "broker"}, ["process.roles", "KRaft"]),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[next(iter(change)) for change, _ in WRONG])
def test_a_wrong_configuration_is_named(
    config: dict[str, str], tmp_path: Path, change: dict[str, str], words: list[str]
) -> None:
    assert_one_sentence(broker(config | change, tmp_path), 2, *words)
    assert not (tmp_path / "data").exists()


def test_every_mistake_gets_its_sentence(config: dict[str, str], tmp_path: Path) -> None:
    del config["zookeeper.connect"]
    ended = broker(config | {"broker.id": "-5", "num.partition": "3"}, tmp_path, as_users_do)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 3, ended.stderr
    for name in ("broker.id", "num.partitions", "zookeeper.connect"):
        assert name in ended.stderr


def test_a_configuration_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = strandline("broker", "--config", str(tmp_path / "none.properties"))
    assert_one_sentence(ended, 2, "none.properties")


def test_a_port_in_use_is_named(config: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config["listeners"] = f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{free_ports(1)[0]}"
        assert_one_sentence(broker(config, tmp_path), 1, str(port), "in use")


def test_a_silent_zookeeper_is_named(config: dict[str, str], tmp_path: Path) -> None:
    ended = broker(config | {"zookeeper.connection.timeout.ms": "700"}, tmp_path, as_users_do)
    assert_one_sentence(ended, 1, config["zookeeper.connect"], "zookeeper.connect", "start it")


def test_a_log_directory_that_cannot_be_made_is_named(config: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file stands where the directory should be")
    assert_one_sentence(broker(config, tmp_path), 1, "log.dirs", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def running(start_cluster) -> LocalCluster:
    return start_cluster(1, UNCLOCKED)


def test_a_locked_log_directory_is_named(
    running: LocalCluster, config: dict[str, str], tmp_path: Path
) -> None:
    held = str(running.brokers[1].directory / "data")
    before = tree(Path(held))
    ended = broker(
        config | {"log.dirs": held, "zookeeper.connect": running.zookeeper, "broker.id": "2"}, tmp_path
    )
    assert_one_sentence(ended, 1, held, "locked", "log.dirs")
    assert tree(Path(held)) == before


def test_a_failed_start_leaves_a_clean_directory_clean(
    start_cluster, config: dict[str, str], tmp_path: Path
) -> None:
    """Else a failed start and a reboot, neither of which harms data, would make it doubtful."""
    stopped = start_cluster(1).brokers[1]
    stopped.stop()
    marker = stopped.directory / "data" / ".kafka_cleanshutdown"
    told = marker.read_bytes()
    silent = {"log.dirs": str(marker.parent), "zookeeper.connection.timeout.ms": "500"}
    assert_one_sentence(broker(config | silent, tmp_path), 1, "ZooKeeper")
    assert marker.read_bytes() == told


def test_one_broker_id_is_one_broker(running: LocalCluster, config: dict[str, str], tmp_path: Path) -> None:
    quick = {"zookeeper.session.timeout.ms": "1000", "zookeeper.connection.timeout.ms": "1000"}
    ended = broker(config | quick | {"zookeeper.connect": running.zookeeper}, tmp_path)
    assert_one_sentence(ended, 1, "broker.id", "1")
    assert running.brokers[1].alive
    running.wait_ready()


def test_the_directory_of_another_broker_is_refused(
    running: LocalCluster, config: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(running.brokers[1].directory / "data", tmp_path / "data")
    ended = broker(config | {"broker.id": "7", "zookeeper.connect": running.zookeeper}, tmp_path)
    assert_one_sentence(ended, 1, "log.dirs", "7")


def first_of_free_ports(brokers: int) -> int:
    """From here on `up` finds its ports free, and those 10,000 above, where no outgoing connection is."""
    while True:
        last = free_ports(1)[0] - INTERNAL - brokers
        first = max(last, 1024)
        if all(is_free(first + above + i) for above in (0, INTERNAL) for i in range(brokers)):
            return first


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    first = first_of_free_ports(3)
    ended = strandline(
        "up", "--dir", str(tmp_path / "up"), "--port", str(first), environment={"PATH": str(empty)}
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr + ended.stdout
    said = " ".join(ended.stderr.split())
    assert "Java is missing" in said
    assert "apt-get install" in said
    assert os.listdir(empty) == []

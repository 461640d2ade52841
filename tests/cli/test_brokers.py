"""`strandline start`, `stop`, `kill`, `pause`, `resume`: single processes of the cluster of `up`."""

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.local.cluster import changing, find
from strandline.local.embedded_zookeeper import EnvironmentProblem
from strandline.local.members import Action, why_not
from strandline.local.ports import is_free, own_address
from strandline.local.processes import State, state_of
from tests.cli.conftest import Shell, free_port, until


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        (Action.START, {State.STOPPED}),
        (Action.STOP, {State.RUNNING}),
        (Action.KILL, {State.RUNNING, State.PAUSED}),
        (Action.PAUSE, {State.RUNNING}),
        (Action.RESUME, {State.PAUSED}),
    ],
)
def test_each_state_allows_what_makes_sense_in_it(action: Action, allowed: set[State]) -> None:
    assert {state for state in State if why_not(action, "2", state) is None} == allowed


def test_a_refusal_names_the_command_that_helps() -> None:
    told = why_not(Action.STOP, "2", State.PAUSED, " --dir /x")
    assert (
        told is not None
        and "`strandline resume 2 --dir /x`" in told
        and "`strandline kill 2 --dir /x`" in told
    )
    assert why_not(Action.PAUSE, "zookeeper", State.PAUSED) == "ZooKeeper is already paused"


def test_a_process_that_is_not_ours_is_not_there() -> None:
    assert state_of(os.getpid(), "/nowhere/server.properties") is State.STOPPED
    assert state_of(None, "") is State.STOPPED


EXIT = {"x86_64": 60, "aarch64": 93}
"""The number of the system call that ends the calling thread alone."""


@pytest.mark.skipif(platform.machine() not in EXIT, reason="the number of the system call is not known")
def test_a_killed_process_is_there_until_its_last_thread_is_gone() -> None:
    lines = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start();"
    ends_first = f"{lines} ctypes.CDLL(None).syscall({EXIT[platform.machine()]}, 0)"
    with subprocess.Popen([sys.executable, "-c", ends_first]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "Z", "its first thread has ended")
        assert state_of(process.pid, "threading") is State.RUNNING
        process.kill()
        until(lambda: state_of(process.pid, "threading") is State.STOPPED, "it is gone")


def test_two_commands_do_not_change_a_cluster_at_once(tmp_path: Path) -> None:
    refused = pytest.raises(EnvironmentProblem, match="another command")
    with changing(tmp_path), refused, changing(tmp_path, wait_s=0.1):
        raise AssertionError("both hold it")
    with changing(tmp_path, wait_s=0.1):
        pass


def test_brokers_are_killed_and_mended(alone: Shell) -> None:
    place = ("--dir", alone.directory / "cluster")
    alone.up("--override", "zookeeper.session.timeout.ms=6000", "--no-web")
    alone("topics", "create", "t", "--partitions", 3, "--replication-factor", 3)
    alone("produce", "t", given="".join(f"{n}\n" for n in range(100)))

    def state(name: object) -> str:
        told = {one["name"]: one["state"] for one in alone("status", "--json", *place).json["processes"]}
        return str(told[str(name)])

    config = find(alone.directory / "cluster").brokers[2].config
    config.write_text(config.read_text() + "log.retention.hours=7\n")  # by hand: a start keeps it
    assert alone("kill", 2, *place).out == "Broker 2 killed.\n"
    assert state(2) == "stopped"
    shown = alone("status", *place).out
    assert "broker 2 (127.0.0.1:" in shown
    assert f"strandline start 2 --dir {alone.directory / 'cluster'}\n" in shown
    assert "broker 2 is not running" in alone("kill", 2, *place, expect=1).err
    assert (
        "broker 2 is not running: start it with `strandline start 2 --dir"
        in alone("pause", 2, *place, expect=1).err
    )
    assert alone("start", 2, *place, "--json").json == {"done": "start", "names": ["2"]}
    assert state(2) == "running" and "log.retention.hours=7" in config.read_text()
    assert "broker 2 is already running" in alone("start", 2, *place, expect=1).err
    alone("pause", 3, *place)
    assert state(3) == "paused"
    assert "broker 3 is already paused" in alone("pause", 3, *place, expect=1).err
    assert "strandline resume 3 --dir" in alone("stop", 3, *place, expect=1).err
    assert "broker 3 is paused" in alone("start", 3, *place, expect=1).err
    alone("resume", "broker-3", *place)
    assert "broker 3 is not paused" in alone("resume", 3, *place, expect=1).err
    assert "9: the cluster in" in (told := alone("kill", 1, 9, *place, expect=2).err)
    assert "has zookeeper, 1, 2, 3" in told and state(1) == "running", "none is touched if one is wrong"
    alone("stop", 1, 2, *place)
    assert (alone.directory / "cluster/broker-1/data/.kafka_cleanshutdown").exists()
    alone("start", 1, 2, *place)
    until(lambda: alone("status", "--json").json["under_replicated"] == 0, "all replicas are in sync")
    assert sorted(map(int, alone("consume", "t", "--from-beginning").lines)) == list(range(100))
    alone("kill", 1, 2, 3, *place)
    told = alone("status", *place, expect=1).err
    assert f"strandline start 1 2 3 --dir {alone.directory / 'cluster'}" in told
    alone("start", 3, 1, 2, *place)
    alone("pause", 1, *place)
    alone("kill", 2, *place)
    assert alone("down", *place, "--json").json["stopped"] == 3, (
        "two brokers, one of them paused, and ZooKeeper"
    )


def test_zookeeper_is_killed_and_mended(alone: Shell) -> None:
    place = ("--dir", alone.directory / "cluster")
    alone.up("--brokers", 1, "--no-web")
    alone("topics", "create", "t")
    alone("pause", "zookeeper", *place)
    assert "ZooKeeper (127.0.0.1:" in alone("status", *place).out
    assert "is paused: strandline resume zookeeper --dir" in alone("zookeeper", "ls", *place, expect=1).err
    alone("kill", 1, *place)
    assert "ZooKeeper is paused, and no broker starts" in alone("start", 1, *place, expect=1).err
    alone("kill", "zookeeper", *place)
    assert "strandline start zookeeper" in alone("start", 1, *place, expect=1).err
    again = ("up", "--dir", alone.directory / "cluster", "--port", free_port())
    alone("start", "zookeeper", *place)
    assert "already running in" in alone(*again, expect=1).err, "its ZooKeeper runs, without any broker"
    alone("start", 1, *place)
    assert "t" in alone("topics", "list").lines
    alone("kill", "zookeeper", *place)
    assert alone("down", *place, "--json").json["stopped"] == 1, "a broker that cannot stop in order"


def test_a_broker_that_was_started_by_hand_holds_its_port(alone: Shell) -> None:
    place = ("--dir", alone.directory / "cluster")
    alone.up("--brokers", 1, "--no-web")
    state = alone.directory / "cluster" / "cluster.json"
    saved = json.loads(state.read_text())
    pid, saved["brokers"][0]["pid"] = saved["brokers"][0]["pid"], None
    state.write_text(json.dumps(saved))
    assert "of broker 1 is in use by another process" in alone("start", 1, *place, expect=1).err
    os.kill(pid, signal.SIGKILL)


def test_without_a_cluster(alone: Shell) -> None:
    assert "no cluster in" in alone("kill", 1, "--dir", alone.directory / "nothing", expect=1).err
    assert not (alone.directory / "nothing").exists()


def test_up_for_clients_from_elsewhere(alone: Shell) -> None:
    directory = alone.directory / "cluster"
    words = ("up", "--dir", directory, "--port", free_port(), "--brokers", 1)
    assert (
        "--host 192.0.2.7 is no address of this machine" in alone(*words, "--host", "192.0.2.7", expect=2).err
    )
    made = alone(*words, "--host", "0.0.0.0", "--advertise", "localhost", "--json")
    assert "anyone who reaches the ports" in made.err and "sent to localhost" in made.err
    alone.bootstrap = made.json["bootstrap"]
    port = alone.bootstrap.removeprefix("127.0.0.1:")
    assert made.json["advertised"] == [f"localhost:{port}"]
    alone.bootstrap = f"127.0.0.2:{port}"  # another address of this machine
    (broker,) = alone("status", "--json", "--dir", directory).json["brokers"]
    assert (broker["host"], broker["port"]) == ("localhost", int(port))
    inner = find(directory).brokers[1].internal_port
    assert not is_free(inner, "127.0.0.1") and is_free(inner, "127.0.0.2"), "brokers meet at one address"
    alone("kill", 1, "--dir", directory)
    alone("start", 1, "--dir", directory)
    assert "localhost" in alone("status", "--dir", directory).out


@pytest.mark.parametrize("any_address", ["0.0.0.0", "::"])
def test_what_is_advertised_for_every_address_is_one_of_them(any_address: str) -> None:
    assert own_address(any_address) not in ("", any_address)

"""Places without a cluster: what files and containers may say, which commands are run, what is mended."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.verify.faults import Power
from strandline.testing.verify.places import PlaceProblem, external
from strandline.testing.verify.places.compose import ComposePlace
from strandline.testing.verify.places.external import ExternalPlace, read_commands
from strandline.testing.verify.places.local import LocalPlace, running
from strandline.testing.verify.run import check
from strandline.testing.verify.scenario import ScenarioError, changed, load

GOOD = 'kill = "k {id}"\nstart = "s {host}:{port}"\nstop = "t {id}"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kill =", "is no TOML"),
        ('kil = "x"', "there is no command 'kil': did you mean 'kill'?"),
        ("kill = 9", "kill: expected a command line, not 9"),
        ('kill = "a {broker}"', "kill: 'a {broker}' is no command line with {id}, {host} and {port} alone"),
        ('kill = "a \'b"', "is no command line"),
        ('kill = "a {id}"', "kill without start, stop: faults with processes need all of them"),
        ('pause = "a {id}"', "pause without resume: faults with pauses need all of them"),
    ],
)
def test_a_mistake_in_a_file_of_commands_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "commands.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read_commands(path)
    assert str(path) in str(caught.value) and told in str(caught.value)


def test_a_file_of_commands_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"gone.toml cannot be read: No such file"):
        read_commands(tmp_path / "gone.toml")


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], ExternalPlace]:
    """A cluster of two brokers, as its metadata tells of it."""

    class Told:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> "Told":
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def describe_cluster(self) -> Any:
            known = [SimpleNamespace(node_id=id, host=f"h{id}", port=90 + id) for id in (1, 2)]
            return SimpleNamespace(brokers=known)

    monkeypatch.setattr(external, "Admin", Told)
    return lambda commands: ExternalPlace("h1:91", commands)


def test_commands_are_run_for_the_broker_they_are_for_and_what_is_broken_is_mended(
    outside: Callable[[dict[str, str]], ExternalPlace], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    words = f"sh -c 'echo WHAT {{id}} {{host}} {{port}} >> {log}'"
    named = ("kill", "start", "stop", "pause", "resume")
    place = outside({name: words.replace("WHAT", name) for name in named})
    assert place.powers == {Power.PROCESSES, Power.PAUSES} and "kill-leader" in place.able()
    place.kill(2)
    place.pause(1)
    place.close()
    place.close()
    assert log.read_text().splitlines() == [
        "kill 2 h2 92", "pause 1 h1 91", "start 2 h2 92", "resume 1 h1 91",
    ]  # fmt: skip


def test_a_command_that_fails_is_told_with_what_it_said(
    outside: Callable[[dict[str, str]], ExternalPlace],
) -> None:
    place = outside({"kill": "sh -c 'echo no such unit >&2; exit 5'", "start": "gone", "stop": "true"})
    with pytest.raises(PlaceProblem, match="ended with status 5: no such unit"):
        place.kill(1)
    with pytest.raises(PlaceProblem, match="there is no command gone"):
        place.launch(1)


def test_a_broker_that_cannot_be_mended_does_not_keep_the_others_broken(
    outside: Callable[[dict[str, str]], ExternalPlace], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    start = f"sh -c 'echo start {{id}} >> {log}; test {{id}} != 1'"
    place = outside({"kill": "true", "start": start, "stop": "true"})
    place.kill(1)
    place.kill(2)
    for expected in (["start 1", "start 2"], ["start 1"]):
        with pytest.raises(PlaceProblem, match="ended with status 1"):
            place.close()
        assert log.read_text().splitlines() == expected
        log.unlink()


def test_no_command_takes_only_what_was_not_synced(
    outside: Callable[[dict[str, str]], ExternalPlace],
) -> None:
    """`lose-disk` takes all of it: a loss of power is another fault, and none that a command does."""
    able = outside(dict.fromkeys(external.NAMES, "true")).able()
    assert "last-isr-empty-disk" in able and "last-isr-power-loss" not in able
    assert "last-isr-power-loss" in LocalPlace(LocalCluster(Path("gone"), 3), is_ours=True).able()


def test_a_fault_that_cannot_be_done_there_is_refused_before_anything_is_done(
    outside: Callable[[dict[str, str]], ExternalPlace],
) -> None:
    scenario = load("failover")
    with pytest.raises(
        ScenarioError, match=r"kill-controller, .* cannot be done with brokers that live in `ext"
    ):
        check(scenario, outside({}))
    check(changed(scenario, faults={"drawn": ["kill-a-client"]}), outside({}))


def test_where_no_cluster_was_started_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlaceProblem, match=r"no cluster in .*: start one with `strandline up`"):
        running(tmp_path)


CONTAINER = {
    "Name": "/project-broker-{id}",
    "Config": {
        "Labels": {"com.docker.compose.service": "broker-{id}"},
        "Env": [
            "STRANDLINE_ADVERTISED_LISTENERS=CLIENT://b{id}:2,HOST://localhost:909{id}",
            "STRANDLINE_LOG_DIRS=/logs",
        ],
    },
    "NetworkSettings": {"Networks": {"project_default": {"Aliases": ["broker-{id}", "b{id}"]}}},
}


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that knows two brokers and a ZooKeeper, and writes down what it is asked to do."""
    told = [json.loads(json.dumps(CONTAINER).replace("{id}", str(id))) for id in (1, 2)]
    keeper = json.loads(json.dumps(CONTAINER).replace("broker-{id}", "zookeeper"))
    (tmp_path / "inspected.json").write_text(json.dumps([*told, keeper]))
    log, program = tmp_path / "log", tmp_path / "docker"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {log}
case "$1" in
ps) case "$5" in *project) echo one two three;; esac;;
inspect) cat {tmp_path}/inspected.json;;
cp) mkdir -p "$3/orders-0"; echo "$2" > "$3/orders-0/log";;
esac
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return log


def test_containers_are_found_killed_and_taken_from_their_network(docker: Path) -> None:
    place = ComposePlace("project")
    assert place.bootstrap == "localhost:9091,localhost:9092" and place.ids == [1, 2]
    docker.write_text("")
    place.kill(1)
    place.pause(2)
    place.isolate(1)
    assert (place.directories()[2] / "orders-0" / "log").read_text() == "project-broker-2:/logs\n"
    place.close()
    did = docker.read_text().splitlines()
    assert did[:3] == [
        "kill project-broker-1",
        "pause project-broker-2",
        "network disconnect project_default project-broker-1",
    ]
    assert did[-4:] == [
        "unpause project-broker-2",
        "network connect --alias broker-1 --alias b1 project_default project-broker-1",
        "start project-broker-1",
        "start project-broker-2",
    ]
    assert {"lose-a-disk", "cut-from-a-peer"}.isdisjoint(place.able())
    assert {"kill-leader", "pause-leader", "cut-from-everybody"} <= set(place.able())


def test_a_project_without_brokers_is_told(docker: Path) -> None:
    with pytest.raises(PlaceProblem, match="'other' has no containers of services broker-1, broker-2"):
        ComposePlace("other")

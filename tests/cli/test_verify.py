"""`strandline verify`: what it lists, plans, judges again and refuses; and runs on the cluster of `up`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.local.cluster import find
from strandline.testing.anomalies import HistoryWriter, parse
from strandline.testing.verify import load
from strandline.testing.verify.outcome import Record
from tests.cli.conftest import Shell

MINE = """
load_s = 30
[topics.orders]
[[clients]]
kind = "writer"
[faults]
drawn = ["kill-leader", "restart"]
"""
LOST = """
writer-strandline-1 invoke send orders-0=1 orders-0=2
writer-strandline-1 ok send orders-0@0=1 orders-0@1=2
final ok whole orders-0@1=2
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A scenario."""
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    return path


def test_shipped_scenarios_are_listed(alone: Shell) -> None:
    assert {"smoke", "failover"} <= {row["scenario"] for row in alone("verify", "--list", "--json").json}
    assert "smoke" in alone("verify", "--list").out


def test_the_plan_of_a_seed_is_the_same_each_time_and_another_for_another_seed(
    alone: Shell, mine: Path
) -> None:
    plans = [alone("verify", mine, "--plan", "--seed", seed, "--minutes", 5).out for seed in (3, 3, 4)]
    assert plans[0] == plans[1].replace("seed 4", "seed 3") != plans[2]
    assert "mine, seed 3, 300 s of load" in plans[0] and "kill-leader" in plans[0]
    fewer = alone("verify", mine, "--plan", "--faults", "kill_all", "--json").json
    assert fewer and {strike["fault"] for strike in fewer} == {"kill-all"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing-of-that-name",), "there is no scenario 'nothing-of-that-name'"),
        (("gone.toml",), "gone.toml cannot be read: No such file"),
        (
            ("smoke", "--faults", "kill-leeder"),
            "there is no fault 'kill-leeder': did you mean 'kill-leader'?",
        ),
        (("smoke", "--dir", "a", "--kafka", "b"), "--dir and --kafka name two clusters"),
        (("smoke", "--strandline", "1"), "--strandline is for --kafka"),
        (("smoke", "--controller", "1"), "--controller is for --kafka"),
        (("smoke", "--kafka", "b", "--strandline", "1,4"), "--strandline 4: expected ids of brokers, 1 to 3"),
        (
            ("smoke", "--kafka", "b", "--strandline", "one"),
            "--strandline one: expected ids",
        ),
        (("smoke", "--commands", "a"), "--commands is for --bootstrap-server"),
        (("--judge", "."), "is not the folder of a run"),
        (("smoke", "--seed", "-1"), "seed"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(alone: Shell, words: tuple[str, ...], told: str) -> None:
    assert told in alone("verify", *words, expect=2).err.replace("\n", " ")


def test_a_place_that_lacks_something_is_one_sentence_and_status_1(alone: Shell, tmp_path: Path) -> None:
    assert "no cluster in" in alone("verify", "smoke", "--dir", tmp_path, expect=1).err
    assert "holds no Apache Kafka" in alone("verify", "smoke", "--kafka", tmp_path, expect=1).err


def test_evidence_is_not_mixed_with_what_is_there(alone: Shell, mine: Path) -> None:
    said = alone("verify", mine, "--keep", mine.parent, expect=2).err
    assert "is not empty; name a new one" in said


def test_a_directory_with_a_comma_is_refused_before_anything_is_made(alone: Shell, tmp_path: Path) -> None:
    """Brokers split `log.dirs` there, Kafka's too: their logs would lie elsewhere, and all in one place."""
    for words, status in ((("verify", "smoke", "--keep"), 2), (("up", "--dir"), 1)):
        said = alone(*words, tmp_path / "a,b" / "run", expect=status).err.replace("\n", " ")
        assert "split `log.dirs` at commas" in said
        assert [*tmp_path.glob("a*")] == []


def test_kept_histories_are_judged_again_and_the_shortest_explanation_stands_first(
    alone: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with HistoryWriter(folder / "all.history") as writer:
        for operation in parse(LOST):
            writer.write(operation)
    Record(load("kafka-last-isr"), "local", "Strandline", "").save(folder)
    said = alone("verify", "--judge", folder, expect=1)
    assert said.lines[0] == "lost-write, the shortest of 1:" and said.lines[-1] == "BROKEN"
    assert any(line.strip() == f"histories and logs: {folder}" for line in said.lines)
    told = alone("verify", "--judge", folder, "--json", expect=1).json
    assert told["verdict"] == "BROKEN" and told["anomalies"]["lost-write"] == 1
    assert told["directory"] == str(folder)


@pytest.mark.long
def test_the_cluster_of_up_is_put_to_the_test_and_left_as_it_was(alone: Shell, mine: Path) -> None:
    alone.up()
    at = alone.directory / "cluster"
    alone("topics", "create", "others", "--partitions", 1, "--replication-factor", 3)
    alone("produce", "others", given="one\n")
    said = alone("verify", mine, "--dir", at, "--minutes", 0.05, "--json").json
    assert said["verdict"] == "HELD" and said["place"] == "local", said
    assert said["faults"] == {"kill -9 leader": 1, "stop": 1}
    status = alone("status", "--json").json
    assert sorted(broker["node_id"] for broker in status["brokers"]) == [1, 2, 3]
    assert alone("topics", "list").lines == ["others"]
    assert alone("consume", "others", "--from-beginning", "--max-messages", 1).lines == ["one"]
    alone("kill", 2, "--dir", at)  # its process is the one that cluster.json names
    assert "brokers [2] do not run" in alone("verify", mine, "--dir", at, expect=1).err


@pytest.mark.long
def test_after_an_interrupt_everything_that_was_broken_runs_again(
    alone: Shell, mine: Path, tmp_path: Path
) -> None:
    alone.up()
    at = alone.directory / "cluster"
    words = ["verify", str(mine), "--dir", str(at), "--faults", "pause-leader,kill-all"]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "strandline.cli.main", *words],
        stderr=subprocess.PIPE, text=True, env=alone.environment, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        for line in running.stderr:
            if "fault: SIGSTOP leader" in line:
                running.send_signal(signal.SIGINT)
        assert running.wait(120) == 130
    cluster = find(at)
    cluster.wait_ready()
    assert {str(state) for state in cluster.processes.values()} == {"running"}

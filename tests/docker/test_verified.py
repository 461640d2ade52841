"""`strandline verify --compose`: brokers of docker-compose.yml that are killed, stopped, paused or taken from
their network lose nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import docker
import pytest
from compose_command import PROJECT
from waiting import all_healthy, wait

pytestmark = [pytest.mark.docker, pytest.mark.long]

WITHIN_S = 900
SCENARIO = """
about = "what can be done to containers"
load_s = 70

[cluster]
brokers = 3

[topics.verified]
partitions = 3

[[clients]]
kind = "writer"

[[clients]]
kind = "transactions"

[[clients]]
kind = "reader"

[faults]
at = [
    { s = 5, fault = "kill-leader", hold_s = 3 },
    { s = 18, fault = "restart", hold_s = 1 },
    { s = 32, fault = "pause-leader", hold_s = 8 },
    { s = 50, fault = "cut-from-everybody", hold_s = 10 },
]
"""


def test_nothing_is_lost_where_containers_are_killed_and_cut_off(
    compose: docker.DockerClient, tmp_path: Path
) -> None:
    wait("all brokers are healthy", lambda: all_healthy(compose))
    (tmp_path / "containers.toml").write_text(SCENARIO)
    words = ["verify", tmp_path / "containers.toml", "--compose", PROJECT, "--json", "--seed", 3]
    line = [sys.executable, "-W", "ignore", "-m", "strandline.cli.main", *map(str, words)]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    said = ran.stdout[-20_000:] + ran.stderr[-5_000:]
    assert ran.returncode == 0, said
    told = json.loads(ran.stdout)
    assert told["verdict"] == "HELD" and told["place"] == "compose", said
    assert sum(told["faults"].values()) == 4, said

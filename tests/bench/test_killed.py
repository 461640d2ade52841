"""Nothing outlives a benchmark that is killed: no broker of ours or of Kafka's, no ZooKeeper, no data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.jars import JarsMissing
from bench.kafka import Kafka, Kafka39, Kafka43
from strandline.local.reaper import owned
from strandline.testing.waiting import until
from tests.patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = """
import time
from bench import workloads
from bench.systems import SYSTEMS
workloads.warm_memory = lambda directory: None
with workloads.running(SYSTEMS["{name}"], 1) as system:
    print(system.directory, flush=True)
    time.sleep(600)
"""
DRILL = """
import tempfile, time
from pathlib import Path
from bench.drills.run import Shell
from strandline.local.owned import temporary_prefix
with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as home:
    Shell(Path(home)).run("sleep 600 & disown")
    print(home, flush=True)
    time.sleep(600)
"""


def reaped(program: str, processes: int) -> None:
    """Kill what measures, once so many processes are its own: all of them end, and the data goes."""
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        directory = Path(child.stdout.readline().strip())
        token = directory.name.removeprefix("strandline-").rpartition("-")[0]
        children = owned(token)
        assert len(children) >= processes, f"{directory}: {children}"
        child.kill()
        until(lambda: not owned(token) and not directory.exists(), HANG_S, "nothing is left")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_neither_our_brokers_nor_their_zookeeper() -> None:
    reaped(SYSTEM.format(name="strandline"), 2)


def test_nothing_that_a_drill_has_started() -> None:
    reaped(DRILL, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes"), [(Kafka39, 2), (Kafka43, 1)], ids=["3.9", "4.3"])
def test_no_broker_of_kafkas(kind: type[Kafka], processes: int) -> None:
    try:
        kind.jars()
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"{kind.name} could not be fetched: {error}"
        pytest.skip(f"{kind.name} could not be fetched: {error}")
    reaped(SYSTEM.format(name=kind.name), processes)

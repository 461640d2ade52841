"""A drill is done: its commands by a shell, under load; then what the brokers decided meanwhile is read.

What was decided stands in the flight recorders, as `strandline replay` shows it. Left to others: what to type
(page.py), drawing (picture.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.replay.clocks import corrections
from strandline.cli.replay.moments import Moment, in_order
from strandline.cli.replay.sources import found_in
from strandline.local.cluster import find
from strandline.local.owned import mark
from strandline.testing.workload import Workload

from .picture import Held, Mark, Story, merged

TOPIC, PARTITIONS = "orders", 3
CREATE = (
    f"strandline topics create {TOPIC} --partitions 3 --replication-factor 3 --config min.insync.replicas=2"
)
BEFORE_S = 2.0  # that the picture begins before the first command
COMMAND_S = 300.0
WARM = 200
SUSPECTED, TAKEN_OVER, CAME, LEAVING = (
    "broker_suspected",
    "became_controller",
    "broker_came",
    "shutdown_wanted",
)


@dataclass(frozen=True)
class Drill:
    """Which section of the page, the name of its picture, and for how long to look on after each command."""

    number: int
    name: str
    hold_s: tuple[float, ...]


DRILLS = (
    Drill(1, "leader-killed", (6,)),
    Drill(2, "return", (6,)),
    Drill(3, "controller-killed", (0, 6)),
    Drill(4, "paused", (24, 6)),
    Drill(5, "controlled-shutdown", (5,)),
    Drill(6, "too-few-replicas", (6, 6)),
    Drill(7, "zookeeper-away", (6, 4)),
    Drill(8, "empty-disk", (3, 0, 6)),
)
STARTS_WITHOUT = {2: "strandline kill 2"}
"""What must have happened before the drill begins, by its number."""


class Shell:
    """A shell of a person whose home has the cluster; it lives through one drill, with its variables. What
    its commands start ends with us."""

    def __init__(self, home: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            cwd=home,
            env={**os.environ, **mark(), "HOME": str(home), "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> None:
        """Run a line to its end. Raises RuntimeError with what it printed if it fails."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{command}\necho; echo ended $?\n")
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.startswith("ended "):
                if line.strip() != "ended 0":
                    raise RuntimeError(f"{command}: {''.join(printed)}")
                return
            printed.append(line)
        raise RuntimeError(f"{command}: the shell has ended: {''.join(printed)}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


def mend(home: Path) -> None:
    """All brokers run and are in sync, and each leads what it is first for."""
    shell, states = Shell(home), find(home / ".strandline").processes
    try:
        for name, state in states.items():
            if state != "running":
                shell.run(f"strandline {'resume' if state == 'paused' else 'start'} {name}")
        shell.run("strandline health --in-sync --wait 120")
        shell.run("strandline elect-leaders --preferred --all")
    finally:
        shell.close()


def done(drill: Drill, title: str, commands: Sequence[str], home: Path, load: Workload) -> Story:
    """Do the drill. The cluster must be whole, and `load` must run; afterwards it may need mending."""
    shell, marks = Shell(home), []
    try:
        if drill.number in STARTS_WITHOUT:
            shell.run(STARTS_WITHOUT[drill.number])
            load.wait_acknowledged_everywhere(60)
        load.wait_acknowledged(WARM, 60)
        time.sleep(BEFORE_S)
        begun_s, begun_ms = time.monotonic(), time.time() * 1000
        for command, hold_s in zip(commands, drill.hold_s, strict=True):
            marks.append(Mark(time.monotonic() - begun_s, command, is_done=True))
            shell.run(command)
            time.sleep(hold_s)
        end_s = time.monotonic() - begun_s
        load.wait_acknowledged_everywhere(60)
    finally:
        shell.close()
    moments = list(_decided(home))
    seen = merged(_marks(moments, begun_ms, end_s))
    acknowledged: dict[str, list[float]] = {str(q): [] for q in load.partitions}
    for send in list(load.history.sends.values()):
        if send.settled_s > 0:
            acknowledged[str(send.partition)].append(send.settled_s - begun_s)
    held = {str(q): _held(moments, str(q), begun_ms) for q in load.partitions}
    return Story(f"{drill.number}. {title}", -BEFORE_S, end_s, acknowledged, marks + seen, held, PARTITIONS)


def _decided(home: Path) -> Iterator[Moment]:
    recorded = found_in([home / ".strandline"], None)
    yield from in_order(recorded.rings, corrections(recorded.rings))


def _marks(moments: Iterable[Moment], begun_ms: float, end_s: float) -> Iterator[Mark]:
    """What is worth a line: brokers that go and come, and elections."""
    for each in moments:
        at_s = (each.at_ms - begun_ms) / 1000
        if not 0 <= at_s <= end_s:
            continue
        told = {
            SUSPECTED: "broker {broker} counts as dead",
            CAME: "broker {broker} is registered",
            TAKEN_OVER: f"broker {each.by} is the controller",
            LEAVING: "broker {broker} hands over",
        }.get(each.what)
        if told is not None and each.is_controllers:
            yield Mark(at_s, told.format(broker=each.values.get("broker")), is_done=False)
        elif each.what == "elected" and each.partition and each.partition.startswith(f"{TOPIC}-"):
            yield Mark(at_s, "leaders elected", is_done=False)
        elif each.what == "isr_changed" and each.partition and each.partition.startswith(f"{TOPIC}-"):
            for what, verb in (("joined", "in the ISR again"), ("left", "left the ISR")):
                for broker in each.values.get(what) or ():
                    yield Mark(at_s, f"broker {broker} {verb}", is_done=False)


def _held(moments: Iterable[Moment], partition: str, begun_ms: float) -> list[Held]:
    """The partition's leader and ISR over time, as the controller and its leaders wrote them."""
    found: list[Held] = []
    for each in moments:
        if each.partition != partition:
            continue
        at_s, values = (each.at_ms - begun_ms) / 1000, each.values
        if each.is_controllers and each.what in ("created", "elected", "isr_reduced", "went_offline"):
            leader = -1 if each.what == "went_offline" else values["leader"]
            found.append(Held(at_s, leader, tuple(values["isr"])))
        elif each.what == "isr_changed" and found:
            found.append(Held(at_s, found[-1].leader, tuple(values["isr"])))
    return found

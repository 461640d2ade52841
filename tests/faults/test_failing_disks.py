"""F18, F19: disks whose calls fail, or take seconds."""

import errno
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import machine_is_slower
from strandline.testing.faults.disk import Call, DiskFaults
from tests.faults.disks import breakable
from tests.faults.drill import Drill
from tests.faults.looks import last_said, states
from tests.faults.matrix import LAG_S
from tests.integration.support import until

SLOW_S = 5.0
SLOW_FOR_S = 20.0
ELSEWHERE_S = LAG_S + 3.0  # until the slow one has left the ISR, and the clients know
FAILURES: dict[str, tuple[Call, str]] = {
    "write": (Call.WRITE, ".log"),
    "sync": (Call.SYNC, ""),
    "read": (Call.READ, ".log"),
    "rename": (Call.RENAME, ""),
    "open": (Call.OPEN, ""),
}


@pytest.fixture(scope="module")
def faults() -> dict[int, DiskFaults]:
    return {}


@pytest.fixture(scope="module")
def cluster(start, faults: dict[int, DiskFaults]) -> LocalCluster:
    return start(3, lambda cluster: faults.update(breakable(cluster)))


@pytest.fixture(autouse=True)
def well(faults: dict[int, DiskFaults], cluster: LocalCluster) -> Iterator[None]:
    yield
    for each in faults.values():
        each.clear()


def bystanders(cluster: LocalCluster) -> list[int]:
    controller = cluster.controller()
    return [b for b in sorted(cluster.brokers) if b != controller]


@pytest.mark.parametrize("what", FAILURES)
def test_f18_a_disk_fails(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults], what: str
) -> None:
    """A broker with one log directory has none left, and ends."""
    victim = bystanders(cluster)[0]
    broker = cluster.brokers[victim]
    with drill("F18", f"EIO on {what} of a leader", [victim] * 3) as it:
        it.warm()
        calls, part = FAILURES[what]
        if what == "read":  # what is written now is read from memory: it reads its logs when it starts
            broker.kill()
        rule = faults[victim].add(calls, error=errno.EIO, part=part)
        if what == "read":
            broker.start()
        until(lambda: rule.hits, 60, "the disk has failed", every_s=0.1)
        it.resumed()
        ended = broker.wait(30)
        faults[victim].clear()
        it.heal()
        intact = last_said(broker.log, "broker_registered").get("intact")
        it.row.remark = f"{rule.hits} calls failed; the broker ended" + ", and came back not intact" * (
            not intact
        )
        assert ended, "nobody goes on with a disk that fails"
        assert not intact, "what was on a disk that failed is doubtful"


class Slow(NamedTuple):
    """Appends of which partitions take seconds at one broker, and how the topic's three are led."""

    what: str
    part: str  # of the path; {topic} is the drill's
    leads: int  # so many of the three partitions are led by the slow broker, the others by a healthy one
    ends: bool  # whether its loop stands still for longer than the watchdog allows


SLOW = [
    Slow("the leader of all", "/{topic}-", 3, True),
    Slow("one partition of a leader", "/{topic}-0/", 2, False),
    Slow("a follower", "/{topic}-", 0, False),
]


@pytest.mark.parametrize("slow", SLOW, ids=lambda slow: slow.what)
def test_f19_appends_take_seconds(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults], slow: Slow
) -> None:
    """An append holds the loop of its broker, for all partitions there. So each goes on slowly, or the broker
    ends within two session timeouts and others lead; those of other leaders wait for it as for any follower.
    """
    victim, other = bystanders(cluster)
    broker = cluster.brokers[victim]
    leaders = [victim] * slow.leads + [other] * (3 - slow.leads)
    with drill("F19", f"appends of {slow.what} take {SLOW_S:g} s longer", leaders) as it:
        it.warm()
        said_before = broker.log.stat().st_size
        rule = faults[victim].add(Call.WRITE, delay_s=SLOW_S, part=slow.part.format(topic=it.topic))
        always = in_sync_for(cluster, it.topic, SLOW_FOR_S)
        assert always >= set(cluster.brokers) - {victim}, "a slow leader drops no healthy follower"
        ended = not broker.alive
        rule.remove()
        if not slow.leads:
            assert victim not in always, "a follower that cannot keep up leaves"
        it.resumed()
        said = broker.log.read_bytes()[said_before:].decode()
        led = {tp for tp in it.load.partitions if tp.partition < slow.leads}
        elsewhere_s = it.load.history.longest_gap_s(set(it.load.partitions) - led, it.struck_s)
        it.row.remark = (
            f"{rule.hits} appends; " + ("the watchdog ended the broker" if ended else "it went on")
        ) + (f"; {elsewhere_s:.1f} s without an acknowledgement of another leader" if slow.leads < 3 else "")
        if beside := {tp for tp in led if slow.part.format(topic=it.topic) not in f"/{tp}/"}:
            waited_s = it.load.history.longest_gap_s(beside, it.struck_s)
            it.row.remark += f", {waited_s:.1f} s of a partition beside it"
        assert ended or not slow.ends, "a loop that stands still for two sessions ends"
        assert "loop_stuck" in said if ended else "append_slow" in said and "loop_stalled" in said
        assert elsewhere_s < ELSEWHERE_S * machine_is_slower(), "others wait until it has left their ISRs"


def in_sync_for(cluster: LocalCluster, topic: str, seconds: float) -> set[int]:
    """Who is in the ISR of every partition all the time."""
    always, ends = set(cluster.brokers), time.monotonic() + seconds
    while time.monotonic() < ends:
        for _, _, isr in states(cluster, topic):
            always &= set(isr)
        time.sleep(0.3)
    return always

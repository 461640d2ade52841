"""F18, F19: disks whose calls fail, or take seconds."""

import errno
import time
from collections.abc import Callable, Iterator

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.faults.disk import Call, DiskFaults
from tests.faults.disks import breakable
from tests.faults.drill import Drill
from tests.faults.test_cuts import states
from tests.faults.test_deaths import last_said
from tests.integration.support import until

SLOW_S = 5.0
SLOW_FOR_S = 20.0
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


@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_f19_appends_take_seconds(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults], whose: str
) -> None:
    victim, other = bystanders(cluster)
    leader = victim if whose == "leader" else other
    with drill("F19", f"appends of the {whose} take {SLOW_S:g} s longer", [leader] * 3) as it:
        it.warm()
        rule = faults[victim].add(Call.WRITE, delay_s=SLOW_S, part=f"/{it.topic}-")
        ends = time.monotonic() + SLOW_FOR_S
        smallest: set[int] = set(cluster.brokers)
        while time.monotonic() < ends:
            for _, _, isr in states(cluster, it.topic):
                smallest &= set(isr)
            time.sleep(0.3)
        if whose == "follower":
            it.resumed()
            assert victim not in smallest, "a follower that cannot keep up leaves"
            assert leader in smallest
        rule.remove()
        alive = cluster.brokers[victim].alive
        it.row.remark = f"{rule.hits} appends; always in the ISR: {sorted(smallest)}" + (
            "" if alive else "; the watchdog ended the broker"
        )

"""F30-F32, F39: clocks that jump, too many connections and bytes, and everything at once."""

import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess
from strandline.testing.faults.disk import Call, DiskFaults
from strandline.testing.namespaces import Field
from tests.faults.disks import breakable
from tests.faults.drill import Drill, holds
from tests.faults.looks import states, told_of
from tests.integration.support import until

HOUR_S, YEARS_S = 3600.0, 10 * 365 * 86400.0
CLOCK_S = 8.0
FLUTTER_S = 0.1
RETENTION_MS = 4000  # between its passes
CONNECTIONS, FEW = int(os.environ.get("FAULTS_CONNECTIONS", "1500")), 600
SLOW_SENDERS = 200
CROWD_S = 8.0
REQUESTS = int(os.environ.get("FAULTS_REQUESTS", "40"))
REQUEST_BYTES = int(os.environ.get("FAULTS_REQUEST_MIB", "20")) << 20
QUEUED_BYTES = 64 << 20
SLACK_BYTES = 160 << 20
SWARM_S = float(os.environ.get("FAULTS_SWARM_S", "45"))


@pytest.fixture(scope="module")
def faults() -> dict[int, DiskFaults]:
    return {}


@pytest.fixture(scope="module")
def cluster(start, faults: dict[int, DiskFaults]) -> LocalCluster:
    bound = {
        "queued.max.request.bytes": str(QUEUED_BYTES),
        "log.retention.check.interval.ms": str(RETENTION_MS),
    }
    return start(3, lambda cluster: faults.update(breakable(cluster)), **bound)


@pytest.fixture(autouse=True)
def well(faults: dict[int, DiskFaults], cluster: LocalCluster) -> Iterator[None]:
    yield
    for each in faults.values():
        each.clear()


def still(now: float) -> Iterator[float]:
    yield now


def flutter() -> Iterator[float]:
    while True:
        yield HOUR_S
        yield -HOUR_S


CLOCKS: dict[str, tuple[Callable[[], Iterator[float]], bool]] = {
    "one is an hour ahead": (lambda: still(HOUR_S), False),
    "one is an hour behind": (lambda: still(-HOUR_S), False),
    "all are ten years ahead": (lambda: still(YEARS_S), True),
    "one jumps by two hours every 0.1 s": (flutter, False),
}


@pytest.mark.parametrize("what", CLOCKS)
def test_f30_clocks_are_wrong(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults], what: str
) -> None:
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    times, everybody = CLOCKS[what]
    with drill("F30", f"wall clocks: {what}", [victim] * 3) as it:
        it.warm()
        before = states(cluster, it.topic)
        marks = {id: each.log.stat().st_size for id, each in cluster.brokers.items()}
        ends, shown = time.monotonic() + CLOCK_S, times()
        while time.monotonic() < ends and not (everybody and have_skipped(cluster, marks)):
            if (now := next(shown, None)) is not None:
                for id in cluster.brokers if everybody else [victim]:
                    faults[id].set_clock(now)
            time.sleep(FLUTTER_S)
        if everybody:
            assert have_skipped(cluster, marks), "who sees ten years pass in seconds deletes nothing"
            for each in faults.values():
                each.clear()
        it.resumed()
        assert states(cluster, it.topic) == before, "no election, no change of an ISR"
        it.row.remark = "nobody was moved" + ", retention skipped its pass" * everybody


def have_skipped(cluster: LocalCluster, marks: dict[int, int]) -> bool:
    """Whether at each broker retention has come by, seen the clock jump, and left everything alone."""
    return all(told_of(each, "retention_skipped", marks[id]) for id, each in cluster.brokers.items())


def connect(broker: BrokerProcess, count: int, stack: ExitStack) -> list[socket.socket]:
    """As many connections as are accepted."""
    made = []
    for _ in range(count):
        with suppress(OSError):
            made.append(stack.enter_context(socket.create_connection((broker.host, broker.port), 1)))
    return made


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may hold more descriptors than most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * CONNECTIONS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_f31_descriptors_run_out(
    cluster: LocalCluster, drill: Callable[..., Drill], many_files: None
) -> None:
    """The limit falls below what the broker had reckoned with, so it has kept nothing back: it may lose its
    connections to others, and its part, but comes back.
    """
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    assert broker.pid is not None
    was = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    with (
        drill("F31", f"{CONNECTIONS} connections to a leader with few descriptors left", [victim] * 3) as it,
        ExitStack() as stack,
    ):
        it.warm()
        before = states(cluster, it.topic)
        files, _ = holds(broker.pid)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (files + 20, was[1]))
        made = connect(broker, CONNECTIONS, stack)
        time.sleep(CROWD_S)
        moved = states(cluster, it.topic) != before
        stack.close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, was)
        it.resumed()
        it.row.remark = f"{len(made)} were begun{'; it left ISRs' * moved}"
        assert broker.alive


def test_f31_a_flood(cluster: LocalCluster, drill: Callable[..., Drill], many_files: None) -> None:
    """What is kept back of the descriptors is for logs, other brokers and ZooKeeper; clients get the rest."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with limited(cluster, broker), ExitStack() as stack:
        what = f"{CONNECTIONS} connections to a leader that may hold {FEW} descriptors"
        with drill("F31", what, [victim] * 3) as it:
            it.warm()
            before = states(cluster, it.topic)
            made = connect(broker, CONNECTIONS, stack)
            time.sleep(CROWD_S)
            it.resumed()
            files, _ = holds(broker.pid)
            it.row.remark = f"{len(made)} were begun; {files} descriptors were held"
            assert states(cluster, it.topic) == before, "brokers reach each other and ZooKeeper"
            stack.close()
            until(lambda: connect(broker, 1, stack), CROWD_S, "clients come back")


@contextmanager
def limited(cluster: LocalCluster, broker: BrokerProcess) -> Iterator[None]:
    """The broker runs with few descriptors; then as before."""
    usual = broker.within
    broker.stop()
    broker.within = (*usual, "prlimit", f"--nofile={FEW}:{FEW}")
    try:
        broker.start()
        cluster.wait_ready()
        yield
    finally:
        broker.within = usual
        broker.stop()
        broker.start()
        cluster.wait_ready()


def test_f31_slow_senders(cluster: LocalCluster, drill: Callable[..., Drill], many_files: None) -> None:
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    with (
        drill("F31", f"{SLOW_SENDERS} connections that send a byte a second", [victim] * 3) as it,
        ExitStack() as stack,
    ):
        it.warm()
        made = connect(cluster.brokers[victim], SLOW_SENDERS, stack)
        ends, frame = time.monotonic() + CROWD_S, iter(struct.pack(">i", 1000) + bytes(100))
        while time.monotonic() < ends:
            byte = bytes([next(frame)])
            for each in made:
                with suppress(OSError):
                    each.send(byte)
            time.sleep(1)
        it.resumed()
        it.row.remark = f"{len(made)} connections"


def test_f32_many_large_requests(
    cluster: LocalCluster, drill: Callable[..., Drill], many_files: None
) -> None:
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    what = f"{REQUESTS} requests of {REQUEST_BYTES >> 20} MiB, {QUEUED_BYTES >> 20} MiB allowed"
    with drill("F32", what, [victim] * 3) as it, ExitStack() as stack:
        it.warm()
        _, before = holds(broker.pid)
        made = connect(broker, REQUESTS, stack)
        most, sent = before, 0
        head = struct.pack(">ihhi", REQUEST_BYTES, 0, 9, 1)
        request = memoryview(head + bytes(REQUEST_BYTES - len(head)))
        left = dict.fromkeys(made, request)
        ends = time.monotonic() + CROWD_S
        for each in made:
            each.setblocking(False)
        while left and time.monotonic() < ends:
            for each in [*left]:
                with suppress(BlockingIOError):
                    count = each.send(left[each][: 1 << 20])
                    left[each], sent = left[each][count:], sent + count
            most = max(most, holds(broker.pid)[1])
        it.resumed()
        it.row.remark = f"{sent >> 20} MiB were taken; memory grew by {(most - before) >> 20} MiB at most"
        stack.close()
        assert most - before < QUEUED_BYTES + SLACK_BYTES, it.row.remark


def test_f39_everything_at_once(
    cluster: LocalCluster, drill: Callable[..., Drill], faults: dict[int, DiskFaults], links: Field
) -> None:
    draw = random.Random(39)
    done: dict[str, int] = {}
    what = f"kills, pauses, cuts, clocks and slow disks at random for {SWARM_S:g} s"
    with drill("F39", what, [1, 2, 3] * 2, SWARM_S) as it:
        it.warm()
        ends = time.monotonic() + SWARM_S
        while time.monotonic() < ends:
            name = draw.choice(["kill", "start", "pause", "resume", "cut", "heal", "clock", "slow", "well"])
            strike(name, cluster, draw.choice(sorted(cluster.brokers)), faults, links, draw)
            done[name] = done.get(name, 0) + 1
            time.sleep(draw.uniform(0.2, 2.0))
        for each in faults.values():
            each.clear()
        it.row.remark = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
        it.resumes_s = 90


def strike(
    name: str,
    cluster: LocalCluster,
    victim: int,
    faults: dict[int, DiskFaults],
    links: Field,
    draw: random.Random,
) -> None:
    """One blow, or its end."""
    broker = cluster.brokers[victim]
    if name == "kill":
        broker.kill()
    elif name == "start" and not broker.alive:
        broker.start()
    elif name == "pause":
        broker.pause()
    elif name == "resume":
        broker.resume()
    elif name == "cut":
        peer = draw.choice([b for b in cluster.brokers if b != victim])
        links.nodes[victim].cut(cluster.brokers[peer].host, reset=draw.random() < 0.5)
    elif name == "heal":
        links.heal()
    elif name == "clock":
        faults[victim].set_clock(draw.choice([-HOUR_S, HOUR_S]))
    elif name == "slow":
        faults[victim].clear()
        faults[victim].add(Call.WRITE, delay_s=draw.uniform(0.01, 0.5), part=".log")
    elif name == "well":
        faults[victim].clear()

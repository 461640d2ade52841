"""F15: what may befall a ZooKeeper ensemble, while records go on."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.namespaces import Ensemble, Field
from tests.faults.drill import Drill
from tests.faults.looks import session
from tests.integration.support import until

OUTAGE_S = float(os.environ.get("FAULTS_OUTAGE_S", "20"))
PAUSE_S = 5.0


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3)


@pytest.fixture
def ensemble(field: Field) -> Iterator[Ensemble]:
    """All members serve before and after each story."""
    field.ensemble.revive()
    yield field.ensemble
    field.ensemble.revive()


def kill_leader(ensemble: Ensemble, it: Drill) -> None:
    victim = ensemble.leader()
    ensemble.servers[victim].kill()
    rest = [number for number in range(len(ensemble.servers)) if number != victim]
    until(lambda: any(ensemble.mode(n) == "leader" for n in rest), 30, "another member leads", every_s=0.2)
    ensemble.launch(victim)


def lose_quorum(ensemble: Ensemble, it: Drill) -> None:
    """Sessions are over by each broker's own clock, and records go on."""
    ends = time.monotonic() + OUTAGE_S
    for server in ensemble.servers[:2]:
        server.kill()
    time.sleep(OUTAGE_S / 2)
    it.resumed(OUTAGE_S / 2)
    time.sleep(max(0.0, ends - time.monotonic()))
    assert it.gap_s() < PAUSE_S, "no record waits for ZooKeeper"
    ensemble.revive()


def restart_all(ensemble: Ensemble, it: Drill) -> None:
    ensemble.kill()
    ensemble.revive()


def wipe(ensemble: Ensemble, it: Drill) -> None:
    victim = next(n for n in range(len(ensemble.servers)) if ensemble.mode(n) == "follower")
    ensemble.servers[victim].kill()
    shutil.rmtree(ensemble.servers[victim].directory / "data")
    ensemble.launch(victim)


def pause(ensemble: Ensemble, it: Drill) -> None:
    for sign, rest_s in ((signal.SIGSTOP, PAUSE_S), (signal.SIGCONT, 0.0)):
        for server in ensemble.servers:
            assert server.pid is not None
            os.kill(server.pid, sign)
        time.sleep(rest_s)
    assert it.gap_s() < PAUSE_S, "no record waits for ZooKeeper"


TROUBLES: dict[str, Callable[[Ensemble, Drill], None]] = {
    "its leader is killed": kill_leader,
    f"no quorum for {OUTAGE_S:g} s": lose_quorum,
    "all are killed and started": restart_all,
    "a follower loses its data": wipe,
    f"all stand still for {PAUSE_S:g} s": pause,
}


def registered(cluster: LocalCluster) -> dict[int, tuple[int, int]]:
    """The session and the incarnation in which each broker is registered."""
    with session(cluster) as client:
        found = {id: client.get(f"/brokers/ids/{id}") for id in cluster.brokers}
    return {id: (stat.ephemeralOwner, json.loads(data)["incarnation"]) for id, (data, stat) in found.items()}


@pytest.mark.parametrize("what", TROUBLES)
def test_f15_trouble_at_zookeeper(
    cluster: LocalCluster, drill: Callable[..., Drill], ensemble: Ensemble, what: str
) -> None:
    pids = {id: broker.pid for id, broker in cluster.brokers.items()}
    with drill("F15", f"ZooKeeper: {what}", sorted(cluster.brokers) * 2) as it:
        it.warm()
        before = registered(cluster)
        TROUBLES[what](ensemble, it)
        ensemble.wait()
        it.resumed()
        it.heal()
        kept = [each for each in before.items() if each in registered(cluster).items()]
        it.row.remark = f"{len(kept)} of {len(before)} sessions went on"
        same = {id for id, (owner, _) in registered(cluster).items() if owner == before[id][0]}
        assert same == {id for id, _ in kept}, "in one session there is one incarnation"
        assert {id: broker.pid for id, broker in cluster.brokers.items() if broker.alive} == pids, (
            "no broker ends"
        )

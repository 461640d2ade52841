"""F8-F10, F16, F42: brokers that stand still, sessions that end, a loop that hangs."""

import json
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from pydantic import BaseModel

from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess, machine_is_slower
from strandline.protocol.errors import ErrorCode
from tests.faults.looks import controller_of, session
from tests.integration.support import Wire, incarnation, produce_request, produced, until
from tests.patience import HANG_S

SESSION_S = 3.0
DOWN_S = 1.0  # until who is no leader any more says so
DECIDES_S = 1.0  # the watchdog looks once a second
NOTICED_S = 5.0  # a session that was ended from elsewhere is followed by the next within so long
HANGS = """import signal
def hang(*_):
    while True:
        pass
signal.signal(signal.SIGUSR2, hang)
"""


class Session(BaseModel):
    """What a broker keeps of its session on disk."""

    session_id: int
    password: str


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3)


def bystander(cluster: LocalCluster) -> int:
    controller = cluster.controller()
    return next(b for b in sorted(cluster.brokers) if b != controller)


def awake(cluster: LocalCluster, sleeper: int) -> list[int]:
    return [b for b in sorted(cluster.brokers) if b != sleeper]


@pytest.mark.parametrize("sessions", [1, 3, 10])
def test_f8_a_leader_stands_still(cluster: LocalCluster, drill, sessions: int) -> None:
    victim = bystander(cluster)
    broker = cluster.brokers[victim]
    with (
        drill("F8", f"SIGSTOP of a leader for {sessions} sessions", [victim] * 3) as it,
        Wire(broker.port, 60, host=broker.host) as wire,
    ):
        it.warm()
        before = incarnation(broker)
        broker.pause()
        wire.send(produce_request(it.topic, 0, b"zombie", acks=-1), 9)
        time.sleep(sessions * SESSION_S + 0.5)
        it.resumed()
        broker.resume()
        resumed_s = time.monotonic()
        code, _ = produced(wire.receive())
        down_s = time.monotonic() - resumed_s
        assert code != ErrorCode.NONE, "nobody follows a zombie"
        it.row.remark = f"stepped down {down_s:.2f} s after SIGCONT"
        assert down_s < DOWN_S * max(2.0, machine_is_slower()), it.row.remark
        until(lambda: incarnation(broker) > before, 20, "a new session")


def test_f9_the_controller_stands_still(cluster: LocalCluster, drill) -> None:
    controller = cluster.controller()
    with drill("F9", "SIGSTOP of the controller", awake(cluster, controller)) as it:
        it.warm()
        broker = cluster.brokers[controller]
        mark = broker.log.stat().st_size
        broker.pause()
        time.sleep(SESSION_S + 0.5)
        it.resumed()
        with session(cluster) as client:
            until(lambda: client.exists("/controller") is not None, HANG_S, "somebody is controller")
            epoch = int(client.get("/controller_epoch")[0])
            broker.resume()
            it.heal()
            assert int(client.get("/controller_epoch")[0]) == epoch, "the zombie has taken nothing back"
        said = broker.log.read_text()[mark:]
        assert "controller_resigned" in said or "session_changed" in said


def test_f10_a_follower_stands_still(cluster: LocalCluster, drill) -> None:
    victim = bystander(cluster)
    with drill("F10", "SIGSTOP of a follower", awake(cluster, victim)) as it:
        it.warm()
        cluster.brokers[victim].pause()
        it.resumed()
        assert it.gap_s() < 2.0 + SESSION_S + 3.0


@pytest.mark.parametrize("whose", ["broker", "controller"])
def test_f16_a_session_is_ended_from_outside(cluster: LocalCluster, drill, whose: str) -> None:
    times = 20 if whose == "broker" else 5
    with drill("F16", f"session of the {whose} ended by an admin, {times} times", [1, 2, 3]) as it:
        it.warm()
        for _ in range(times):
            controller, term = controller_of(cluster)
            victim = controller if whose == "controller" else bystander(cluster)
            broker = cluster.brokers[victim]
            before, since = incarnation(broker), intact_since(broker)
            again = partial(end_session, cluster, broker, before)
            until(again, 20, "registered one incarnation later")
            assert broker.alive
            assert intact_since(broker) == since, "the end of a session says nothing about a disk"
            if whose == "controller":
                until(lambda term=term: controller_of(cluster)[1] > term, HANG_S, "another term has begun")
            it.view.wait_full_isr()
        it.resumed()


def intact_since(broker: BrokerProcess) -> int:
    """The incarnation since which its disk holds what it held, as the broker keeps it."""
    remembered = json.loads((broker.directory / "data" / "incarnation.json").read_text())
    since: int = remembered["intact_since"]
    return since


def end_session(cluster: LocalCluster, broker: BrokerProcess, before: int) -> bool:
    """Take the session up from elsewhere, and close it; whether the broker has registered since `before`.

    The broker may take it back before it is closed: then we are hung up on, and it is tried again.
    """
    session = Session.model_validate_json((broker.directory / "data" / "zookeeper.session").read_text())
    address, _, _ = cluster.zookeeper.partition("/")
    credentials = session.session_id, bytes.fromhex(session.password)
    taken = KazooClient(hosts=address, client_id=credentials, timeout=3)
    with suppress(KazooException):
        taken.start(20)
    taken.stop()
    taken.close()
    deadline = time.monotonic() + NOTICED_S
    while incarnation(broker) == before and time.monotonic() < deadline:
        time.sleep(0.03)
    return incarnation(broker) > before


def test_f42_the_loop_of_a_broker_hangs(cluster: LocalCluster, drill, tmp_path: Path) -> None:
    victim = bystander(cluster)
    broker = cluster.brokers[victim]
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    broker.stop()
    broker.environment["PYTHONPATH"] = str(tmp_path)
    broker.start()
    cluster.wait_ready()
    with drill(
        "F42", "a busy loop on the event loop, ZooKeeper's thread alive", [victim, *awake(cluster, victim)]
    ) as it:
        it.warm()
        hung_s = time.monotonic()
        broker.signal(signal.SIGUSR2)
        assert broker.wait(4 * SESSION_S + 5), "the watchdog ends it"
        ended_s = time.monotonic() - hung_s
        it.row.remark = f"the watchdog ended it after {ended_s:.1f} s"
        assert ended_s < (2 * SESSION_S + DECIDES_S) * max(1.5, machine_is_slower()), it.row.remark
        del broker.environment["PYTHONPATH"]
        it.resumed()
        assert "loop_stuck" in broker.log.read_text()

"""F1-F7: brokers killed with SIGKILL, one, two, all, at once and again and again."""

import os
import random
import time

import pytest

from strandline.local.cluster import LocalCluster
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ErrorCode
from tests.faults.drill import assert_states_are_good
from tests.faults.looks import controller_of, last_said, read, told_of
from tests.integration.support import Wire, create, incarnation, produce_request, produced, until
from tests.patience import HANG_S

STORM_S = float(os.environ.get("FAULTS_STORM_S", "60"))
QUICK_S = 1.0  # with the proof of death; times what this machine is slower


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3)


def others(cluster: LocalCluster, *brokers: int) -> list[int]:
    return [id for id in sorted(cluster.brokers) if id not in brokers]


def is_quick(gap_s: float) -> bool:
    return gap_s <= QUICK_S * max(machine_is_slower(), 2.0)


def test_f1_a_leader_is_killed(cluster: LocalCluster, drill) -> None:
    controller = cluster.controller()
    victim, other = others(cluster, controller)
    with drill("F1", "kill -9 of a leader", [victim, victim, other]) as it:
        it.warm()
        cluster.brokers[victim].kill()
        it.resumed()
        it.view.wait_led_without(victim)
        gap_s = it.gap_s()
        cluster.brokers[victim].start()
        it.heal()
        assert last_said(cluster.brokers[victim].log, "broker_registered")["intact"]
        assert is_quick(gap_s), f"acks came back after {gap_s:.2f} s"


def test_f2_a_follower_is_killed(cluster: LocalCluster, drill) -> None:
    controller = cluster.controller()
    victim, other = others(cluster, controller)
    with drill("F2", "kill -9 of a follower", [other, controller, other]) as it:
        it.warm()
        cluster.brokers[victim].kill()
        it.resumed()
        assert is_quick(it.gap_s())


@pytest.mark.parametrize("leads", [False, True], ids=["controller", "controller-and-leader"])
def test_f3_the_controller_is_killed(cluster: LocalCluster, drill, leads: bool) -> None:
    controller = cluster.controller()
    rest = others(cluster, controller)
    with drill(
        "F3", f"kill -9 of the controller{', a leader' * leads}", [controller] * 2 + rest if leads else rest
    ) as it:
        it.warm()
        _, term = controller_of(cluster)
        cluster.brokers[controller].kill()
        it.resumed()
        gap_s = it.gap_s()
        assert until(cluster.controller, HANG_S, "a new controller") != controller
        assert controller_of(cluster)[1] == term + 1, "one of the others stood, and nobody after it"
        assert is_quick(gap_s), f"acks came back after {gap_s:.2f} s"


def test_f4_two_of_three_are_killed(cluster: LocalCluster, drill) -> None:
    controller = cluster.controller()
    first, second = others(cluster, controller)
    broker = cluster.brokers[controller]
    with (
        drill("F4", "kill -9 of two of three", [controller, first, second]) as it,
        create(cluster, f"{it.topic}-alone", [controller]) as alone,
    ):
        it.warm()
        for victim in (first, second):
            cluster.brokers[victim].kill()
        it.view.wait_led_without(first)
        it.view.wait_led_without(second)
        before = it.load.acknowledged
        alone.wait_led_by(controller, [controller], 15)
        with Wire(broker.port, host=broker.host) as wire:
            for acks, wanted in ((-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE)):
                code, _ = produced(wire.ask(produce_request(alone.topic, 0, b"%d" % acks, acks=acks), 9))
                assert code == wanted, f"acks={acks}"
        assert it.load.acknowledged == before, "one replica alone acknowledges nothing with acks=all"
        assert read(cluster, alone.topic) == [b"1"], "what was refused is not there; what was not can be read"
        cluster.brokers[first].start()
        it.resumed()


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_f5_all_are_killed(cluster: LocalCluster, drill, order: tuple[int, ...]) -> None:
    with drill("F5", f"kill -9 of all, started in the order {order}", [1, 2, 3] * 2) as it:
        it.warm()
        for broker in cluster.brokers.values():
            broker.kill()
        for id in order:
            cluster.brokers[id].start()
            time.sleep(0.3)
        it.resumed()


def test_f6_killed_and_started_at_once(cluster: LocalCluster, drill) -> None:
    victim = others(cluster, cluster.controller())[0]
    broker = cluster.brokers[victim]
    with drill("F6", "kill -9 and an immediate start, 3 times", [1, 2, 3]) as it:
        it.warm()
        sizes = {id: each.log.stat().st_size for id, each in cluster.brokers.items()}
        for _ in range(3):
            before = incarnation(broker)
            broker.kill()
            broker.start()
            until(lambda before=before: incarnation(broker) == before + 1, HANG_S, "the next incarnation")
            it.view.wait_full_isr()
        it.resumed()
        stale = sum(
            len(told_of(each, "control_request_refused", sizes[id])) for id, each in cluster.brokers.items()
        )
        assert stale < 20, f"{stale} commands for an incarnation that is gone"


def test_f7_a_storm_of_restarts(cluster: LocalCluster, drill) -> None:
    draw = random.Random(7)
    with drill("F7", f"restart storm of {STORM_S:g} s", [1, 2, 3] * 2, STORM_S) as it:
        it.warm()
        kills, ends = 0, time.monotonic() + STORM_S
        while time.monotonic() < ends:
            broker = cluster.brokers[draw.choice(sorted(cluster.brokers))]
            if broker.alive:
                broker.kill()
                kills += 1
            else:
                broker.start()
            time.sleep(draw.uniform(0.2, 2.0))
        it.row.remark = f"{kills} kills"
        it.heal()
        before = {id: descriptors(broker.pid) for id, broker in cluster.brokers.items()}
        it.load.wait_acknowledged(300)
        for id, broker in cluster.brokers.items():
            assert descriptors(broker.pid) <= before[id] + 20, f"descriptors of broker {id} grow"
        assert_states_are_good(cluster)


def descriptors(pid: int | None) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))

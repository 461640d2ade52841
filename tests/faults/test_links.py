"""F11-F13: links that are cut, in both directions or one, splits, and a link that flaps."""

import os
import time
from collections.abc import Callable

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.namespaces import HERE, Field
from tests.faults.drill import Drill
from tests.faults.looks import controller_of, states, versions
from tests.faults.matrix import LAG_S, SESSION_S
from tests.integration.support import until

CUT_S = 2.5 * SESSION_S
FLAP_S = float(os.environ.get("FAULTS_FLAP_S", "30"))
FLAP_EVERY_S = 0.5
WAYS = {"both ways": (True, True), "to": (True, False), "from": (False, True)}
PAIRS = [
    ("L", "ZK"), ("L", "F"), ("L", "all F"), ("L", "C"), ("F", "ZK"), ("C", "ZK"),
]  # fmt: skip
ONE_WAY = [("L", "ZK"), ("L", "F"), ("C", "ZK")]
CUTS = [(*pair, "both ways") for pair in PAIRS] + [(*pair, way) for pair in ONE_WAY for way in ("to", "from")]


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3)


class Parts:
    """Who is who: C is the controller, L leads everything, F is the third."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.controller = cluster.controller()
        self.leader, self.follower = (b for b in sorted(cluster.brokers) if b != self.controller)

    def named(self, name: str) -> list[int]:
        by_name = {"L": [self.leader], "F": [self.follower], "C": [self.controller]}
        return by_name.get(name) or [self.follower, self.controller]

    def are_as_they_should(self, near: str, far: str, it: Drill) -> bool:
        """Whether ZooKeeper has the partitions as a cut of this link must leave them. Only who is away from
        ZooKeeper loses a role; who does not hear the leader is not in sync; a broken path moves nobody.
        """
        now = states(self.cluster, it.topic)
        led, in_sync = {leader for leader, _, _ in now}, {id for _, _, isr in now for id in isr}
        controller, _ = controller_of(self.cluster)
        who = "L is" if led == {self.leader} else "L is not" if self.leader not in led else "L is partly"
        it.row.remark = f"{who} the leader; in sync: " + ", ".join(
            name for name in "LFC" if in_sync & {*self.named(name)}
        )
        gone = {*self.named(near)} if far == "ZK" else {*self.named(far)}
        leads = led == {self.leader} if near != "L" or far != "ZK" else self.leader not in led
        controls = controller != self.controller if (near, far) == ("C", "ZK") else True
        return leads and controls and not in_sync & gone

    def host(self, broker: int) -> str:
        return self.cluster.brokers[broker].host


def cut(links: Field, parts: Parts, near: str, far: str, way: str) -> None:
    """Cut what `near` sends to `far`, what it gets from there, or both."""
    goes, comes = WAYS[way]
    (here,) = parts.named(near)
    if far == "ZK":
        links.nodes[here].cut_from_ports(HERE, links.ensemble.ports, comes=comes, goes=goes)
        return
    for there in parts.named(far):
        if comes:
            links.nodes[here].cut(parts.host(there))
        if goes:
            links.nodes[there].cut(parts.host(here))


@pytest.mark.parametrize(("near", "far", "way"), CUTS, ids=lambda each: each)
def test_f11_a_link_is_cut(
    cluster: LocalCluster, drill: Callable[..., Drill], links: Field, near: str, far: str, way: str
) -> None:
    parts = Parts(cluster)
    with drill("F11", f"{near} - {far} cut for {CUT_S:g} s, {way}", [parts.leader] * 3) as it:
        if far == "all F":
            it.row.gap_limit_s = None  # the leader has its session, and nobody to commit with
        it.warm()
        cut(links, parts, near, far, way)
        ends = time.monotonic() + CUT_S
        if it.row.gap_limit_s is not None:
            it.resumed()
        time.sleep(max(0.0, ends - time.monotonic()))
        until(lambda: parts.are_as_they_should(near, far, it), SESSION_S, f"{near} - {far} is cut")
        it.heal()


def test_f12_the_leader_and_the_clients_are_alone(
    cluster: LocalCluster, drill: Callable[..., Drill], links: Field
) -> None:
    parts = Parts(cluster)
    majority = [parts.follower, parts.controller]
    with drill("F12", "L and clients on one side, F, C and ZooKeeper on the other", [parts.leader] * 3) as it:
        it.warm()
        for there in majority:
            broker = cluster.brokers[there]
            links.nodes[there].cut(parts.host(parts.leader))
            links.nodes[parts.leader].cut(broker.host)
            links.nodes[there].filter("input", f"ip saddr {HERE} tcp dport {broker.port} drop")
        links.nodes[parts.leader].cut_from_ports(HERE, links.ensemble.ports)
        time.sleep(1.0)  # what was on its way
        before = it.load.acknowledged
        until(
            lambda: all(leader in majority for leader, _, _ in states(cluster, it.topic)),
            6 * SESSION_S,
            "the majority has elected",
        )
        time.sleep(SESSION_S)
        assert it.load.acknowledged == before, "nothing is acknowledged by a leader that is alone"
        it.row.remark = "the majority elected, the small side acknowledged nothing"
        links.heal()
        it.resumed()


def test_f13_a_link_flaps(cluster: LocalCluster, drill: Callable[..., Drill], links: Field) -> None:
    parts = Parts(cluster)
    with drill(
        "F13", f"L - F on and off every {FLAP_EVERY_S:g} s, {FLAP_S:g} s long", [parts.leader] * 3
    ) as it:
        it.warm()
        epochs, written = [epoch for _, epoch, _ in states(cluster, it.topic)], versions(cluster, it.topic)
        ends = time.monotonic() + FLAP_S
        while time.monotonic() < ends:
            cut(links, parts, "L", "F", "both ways")
            time.sleep(FLAP_EVERY_S)
            links.heal()
            time.sleep(FLAP_EVERY_S)
        it.resumed()
        changes = versions(cluster, it.topic) - written
        moved = [epoch for _, epoch, _ in states(cluster, it.topic)] != epochs
        it.row.remark = f"{changes} changes of an ISR{', leaders moved' * moved}"
        assert not moved, "nobody is moved because a link between others flaps"
        assert changes <= 2 * len(epochs) * FLAP_S / LAG_S, "who leaves an ISR has lagged for so long"

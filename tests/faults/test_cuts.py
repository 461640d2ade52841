"""F43: the controller is cut off from its peers, while everybody reaches ZooKeeper.

Nothing is wrong with anybody: no verdict follows, nobody is moved, and what others lead they go on to
acknowledge. The role goes to one who reaches the others as soon as the controller notices what it lacks.
"""

import os
import time

import pytest

from strandline.local.cluster import LocalCluster
from strandline.testing.namespaces import Field
from tests.faults.looks import controller_of, states
from tests.integration.support import create

CUT_S = float(os.environ.get("FAULTS_CUT_S", "60"))
GAP_S_MAX = 5.0  # a record waits for a follower that is not heard any more: replica.lag.time.max.ms is 2 s
MIN_ISR = 2


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3)


@pytest.mark.parametrize("resets", [True, False], ids=["refused", "silent"])
def test_f43_the_controller_is_cut_from_its_peers(
    cluster: LocalCluster, drill, links: Field, resets: bool
) -> None:
    controller = cluster.controller()
    others = [b for b in sorted(cluster.brokers) if b != controller]
    how = "refused" if resets else "silent"
    own = create(cluster, f"own-{how}", [controller])
    with drill("F43", f"controller cut from its peers for {CUT_S:g} s, {how}", others * 2) as it:
        it.warm()
        before = states(cluster, it.topic), states(cluster, own.topic)
        _, epoch = controller_of(cluster)
        links.nodes[controller].cut(*(cluster.brokers[b].host for b in others), reset=resets)
        until = time.monotonic() + CUT_S
        smallest = len(cluster.brokers)
        while time.monotonic() < until:
            now = states(cluster, it.topic), states(cluster, own.topic)
            smallest = min([smallest, *(len(isr) for _, _, isr in now[0])])
            for was, is_now in zip(before, now, strict=True):
                assert [state[:2] for state in was] == [state[:2] for state in is_now], "nobody was moved"
            time.sleep(0.5)
        it.resumed()
        gap_s = it.gap_s()
        successor, last = controller_of(cluster)
        it.row.remark = f"{last - epoch} new terms, the last of {successor}; smallest ISR {smallest}"
        assert gap_s < GAP_S_MAX, f"longest gap {gap_s:.2f} s"
        assert smallest >= MIN_ISR
        assert last - epoch <= 2, "the role does not go round"
        if resets:
            assert successor != controller, "whoever reaches nobody gives the role up"
    own.admin.close()

"""A disk that is slow under a follower's appends: it falls behind, leaves the ISR, and comes back.

The broker is a real process; what is slow is the system call by which it appends. A module that its
interpreter loads first sees to that.
"""

from pathlib import Path

from strandline.client.sync import Producer
from strandline.local.cluster import LocalCluster
from tests.integration.support import create, until
from tests.patience import HANG_S

SLOW = """
import os, time
_pwrite = os.pwrite
def pwrite(fd, data, *more):
    if os.path.exists({switch!r}) and len(data) > 500:
        time.sleep(2.5)
    return _pwrite(fd, data, *more)
os.pwrite = pwrite
"""
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1000",
}


def test_a_follower_whose_appends_take_too_long_leaves_and_comes_back(start_cluster, tmp_path: Path) -> None:
    cluster: LocalCluster = start_cluster(3, SETTINGS)
    switch = tmp_path / "slow"
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(switch=str(switch)))
    slow = next(id for id in (3, 2) if id != cluster.controller())
    leader = next(id for id in (1, 2) if id != slow)
    cluster.brokers[slow].stop()
    cluster.brokers[slow].environment["PYTHONPATH"] = str(tmp_path)
    cluster.brokers[slow].spawn = None  # its interpreter is to load that
    cluster.brokers[slow].start()
    cluster.wait_ready()
    with create(cluster, "slow", [leader]) as view, Producer(cluster.bootstrap, acks=1) as writer:

        def isr() -> set[int]:
            """While there is always something to append."""
            writer.send("slow", b"x" * 1000).result(30)
            return set(view.partitions()[0].isr)

        assert isr() == set(cluster.brokers)
        switch.touch()
        until(lambda: isr() == set(cluster.brokers) - {slow}, 30, "the slow one has left")
        with Producer(cluster.bootstrap) as strict:
            assert strict.send("slow", b"x" * 1000).result(HANG_S).offset > 0, "nobody waits for it"
        switch.unlink()
        view.wait_full_isr()

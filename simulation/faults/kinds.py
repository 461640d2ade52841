"""What every kind of fault needs: the cluster, its random source, and durations.

Left to others: the faults themselves (`processes.py`, `disks.py`, `links.py`, `zookeeper.py`).
"""

from __future__ import annotations

from ..checks.invariants import Checks
from ..checks.ledger import Ledger
from ..cluster import BROKERS, SESSION_S, SimCluster

TROUBLE_S = (0.3, 2.5 * SESSION_S)
"""How long a disk is full, a directory broken, a thread slow, a connection lost."""


class FaultKinds:
    """The base of all classes of faults; each kind is a method."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, checks: Checks) -> None:
        self.cluster, self.ledger, self.checks = cluster, ledger, checks
        self.random = cluster.random

    def _one(self) -> int:
        return self.random.choice(BROKERS)

    def _later(self, after_s: tuple[float, float], what: object, *args: object) -> None:
        self.cluster.loop.call_later(self.random.uniform(*after_s), what, *args)  # type: ignore[arg-type]

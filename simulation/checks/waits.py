"""Invariant I22: a broker's event loop waits for no sync, and for no lock held during file I/O.

Whatever blocks the loop stops all partitions: one disk that hangs would stop the others too. Once the broker
serves, a sync must run in a thread; before that nobody waits.
Left to others: simulated locks and threads (`environment/threads.py`), files (`environment/disk.py`).
"""

from __future__ import annotations

import functools

from ..cluster import SimCluster
from ..environment.host import current_host
from ..environment.threads import is_loop, lock_in_turn
from ..patches import Patches
from ..trace import Violation


class WaitWatch:
    """Watches what the loop waits for."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self._patches = Patches()

    def begin(self) -> None:
        """Start to watch."""
        lock_in_turn(self._patches, self._lock)
        for id, disk in self.cluster.disks.items():
            disk.on_sync = functools.partial(self._sync, id)

    def end(self) -> None:
        """Stop watching."""
        self._patches.undo()

    def _lock(self) -> None:
        """The loop waits for a lock. Its holder has paused at file I/O, or waits for one that has."""
        self._fail(
            f"the loop of {current_host().name} waits for a lock that a thread holds during a file call"
        )

    def _sync(self, id: int, path: str) -> None:
        if is_loop() and id in self.cluster.nodes and current_host() is self.cluster.hosts.get(id):
            self._fail(f"b{id} syncs {path} on its event loop")

    def _fail(self, what: str) -> None:
        self.cluster.trace.fail(Violation(f"I22: {what}"))

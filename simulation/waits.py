"""The loop of a broker waits for no lock that a thread holds at a file, and for no sync (I22).

Whatever a broker does on its loop keeps all its partitions waiting: one disk that hangs would take the others
along. A sync belongs into a thread as soon as the broker serves; before that nobody waits.
Left to others: locks and threads that know of each other (`environment/threads.py`), files
(`environment/disk.py`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from .checks.committed import Violation
from .environment.loop import current_host
from .environment.threads import is_loop, lock_in_turn
from .patches import Patches

if TYPE_CHECKING:
    from .world import World


class WaitWatch:
    """Looks at what the loop waits for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._patches = Patches()

    def begin(self) -> None:
        """Look from now on."""
        lock_in_turn(self._patches, self._lock)
        for id, disk in self.world.disks.items():
            disk.on_sync = functools.partial(self._sync, id)

    def end(self) -> None:
        """Look no more."""
        self._patches.undo()

    def _lock(self) -> None:
        """The loop waits for a lock; whoever holds it is at a file, for nowhere else does a thread stop."""
        self._fail(f"the loop of {current_host().name} waits for a lock that a thread holds at a file")

    def _sync(self, id: int, path: str) -> None:
        if is_loop() and id in self.world.nodes and current_host() is self.world.hosts.get(id):
            self._fail(f"b{id} syncs {path} on its loop")

    def _fail(self, what: str) -> None:
        self.world.checks.fail(Violation(f"I22: {what}"))

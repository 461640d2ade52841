"""What every kind of fault needs: the world, its random source, and durations.

Left to others: the faults themselves (`faults.py`, `links.py`, `disks.py`, `zookeeper.py`).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..world import World

BROKERS = (1, 2, 3)
SESSION_S = 2.0
TROUBLE_S = (0.3, 2.5 * SESSION_S)
"""How long a disk is full, a directory broken, a thread slow, a connection lost."""


class FaultKinds:
    """The base of all classes of faults; each kind is a method."""

    world: World
    random: Random
    lossy: tuple[int, int] | None  # the broker that lost data last, and its incarnation

    def _one(self) -> int:
        return self.random.choice(BROKERS)

    def _later(self, after_s: tuple[float, float], what: object, *args: object) -> None:
        self.world.loop.call_later(self.random.uniform(*after_s), what, *args)  # type: ignore[arg-type]

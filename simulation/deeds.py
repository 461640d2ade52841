"""What brokers did in a world, counted: rolls, snapshots, cuts, cleanings, stops, commits, and more.

A world in which nobody rolls a segment shows nothing about rolls. Left to others: how often each is to
happen (tests/simulation/test_deeds.py).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..broker.cleaning import Cleaning
from ..broker.cold_reads import ColdReads
from ..broker.groups.coordinator import GroupCoordinator
from ..broker.node import Node
from ..controller import recovery
from ..storage import snapshots
from ..storage.chain import Chain
from ..storage.incarnation import Incarnations
from ..storage.log import Log
from ..storage.logs import Logs
from .patches import Patches

Amount = Callable[..., int]


def _once(*_: object) -> int:
    return 1


def _if_any(result: Any) -> int:
    return int(bool(result))


DEEDS: dict[str, tuple[Any, str, Amount]] = {
    "rolls": (Chain, "roll", _once),
    "snapshots": (snapshots, "take", _once),
    "snapshots read": (snapshots, "restore_newest", _if_any),
    "recovery points": (Logs, "checkpoint_recovery_points", _once),
    "retirements": (Chain, "retire", _if_any),
    "starts moved": (Log, "move_start", _if_any),
    "cuts": (Log, "truncate_to", _once),
    "new beginnings": (Log, "restart_at", _once),
    "cold reads": (ColdReads, "bring", _once),
    "cleanings": (Cleaning, "_done", _once),
    "swaps": (Chain, "replace", _once),
    "controlled stops": (Node, "stop", _once),
    "clean markers": (Incarnations, "mark_clean", _once),
    "recoveries asked": (recovery, "answered", _once),
    "group commits": (GroupCoordinator, "commit", _once),
}


class Deeds:
    """Counts them while a world runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._patches = Patches()

    def begin(self) -> None:
        """Count from now on."""
        for name, (owner, attribute, amount) in DEEDS.items():
            self._patches.put(owner, attribute, self._counted(name, getattr(owner, attribute), amount))

    def end(self) -> None:
        """Count no more."""
        self._patches.undo()

    def _counted(self, name: str, deed: Callable[..., Any], amount: Amount) -> Callable[..., Any]:
        @functools.wraps(deed)
        def counted(*args: Any, **more: Any) -> Any:
            result = deed(*args, **more)
            self.counts[name] += amount(result)
            return result

        return counted

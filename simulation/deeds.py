"""Counts what brokers did in a world: segment rolls, snapshots, truncations, cleanings, commits and more.

Without this we would not notice that no seed rolls a segment, and so none tests it. Left to others: how often
each must happen (tests/simulation/test_seeds.py).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..broker.groups.coordinator import GroupCoordinator
from ..broker.node import Node
from ..broker.replicas.cold_reads import ColdReads
from ..broker.replicas.partition import Partition
from ..broker.upkeep.compaction import Compactor
from ..controller.planning import unclean_recovery
from ..storage.directories.incarnation import Incarnations
from ..storage.directories.log_manager import Logs
from ..storage.log import producer_snapshots
from ..storage.log.log import Log
from ..storage.log.segments import Segments
from .patches import Patches

Amount = Callable[..., int]


def _once(*_: object) -> int:
    return 1


def _if_any(result: Any) -> int:
    return int(bool(result))


DEEDS: dict[str, tuple[Any, str, Amount]] = {
    "rolls": (Segments, "roll", _once),
    "snapshots": (producer_snapshots, "take", _once),
    "snapshots read": (producer_snapshots, "restore_newest", _if_any),
    "recovery points": (Logs, "checkpoint_recovery_points", _once),
    "retirements": (Segments, "retire", _if_any),
    "log starts advanced": (Log, "move_start", _if_any),
    "cuts": (Log, "truncate_to", _once),
    "log restarts": (Log, "restart_at", _once),
    "cold reads": (ColdReads, "bring", _once),
    "cleanings": (Compactor, "_done", _once),
    "swaps": (Segments, "replace", _once),
    "controlled stops": (Node, "stop", _once),
    "clean markers": (Incarnations, "mark_clean", _once),
    "recovery answers": (unclean_recovery, "answered", _once),
    "group commits": (GroupCoordinator, "commit", _once),
    "heartbeats of members": (GroupCoordinator, "consumer_heartbeat", _once),
    "offsets in transactions": (GroupCoordinator, "commit_in_transaction", _once),
    "markers": (Partition, "append_marker", _once),
}


class Deeds:
    """Counts the calls in DEEDS while a world runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._patches = Patches()

    def begin(self) -> None:
        """Start to count."""
        for name, (owner, attribute, amount) in DEEDS.items():
            self._patches.put(owner, attribute, self._counted(name, getattr(owner, attribute), amount))

    def end(self) -> None:
        """Stop counting."""
        self._patches.undo()

    def _counted(self, name: str, deed: Callable[..., Any], amount: Amount) -> Callable[..., Any]:
        @functools.wraps(deed)
        def counted(*args: Any, **more: Any) -> Any:
            result = deed(*args, **more)
            self.counts[name] += amount(result)
            return result

        return counted

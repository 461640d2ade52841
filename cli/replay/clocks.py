"""Clocks of different machines disagree; what must have come first tells by how much at least. Pure.

Nobody plays a role before the controller decided it. Where the times say otherwise, the clock that is behind
is moved forward by as much as it takes, and not more: the true difference may be larger.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ...storage.decision_log import controllers_ring
from .moments import Rings

DECIDED = frozenset(("created", "elected", "went_offline"))


def corrections(recorded: Mapping[int, Rings]) -> dict[int, int]:
    """Milliseconds to add to the times of each broker whose clock is behind.

    Empty if nothing contradicts, or if nothing helps: then a clock was set while the brokers ran.
    """
    gaps: dict[tuple[int, int], int] = {}
    for first, at_ms, second, after_ms in _known_orders(recorded):
        if first != second:
            gaps[first, second] = max(gaps.get((first, second), 0), at_ms - after_ms)
    later: dict[int, int] = defaultdict(int)
    for _ in range(len(recorded) + 1):
        moved = False
        for (first, second), gap in gaps.items():
            if later[second] < later[first] + gap:
                later[second], moved = later[first] + gap, True
        if not moved:
            return {broker: ms for broker, ms in later.items() if ms}
    return {}


def _known_orders(recorded: Mapping[int, Rings]) -> Iterator[tuple[int, int, int, int]]:
    """A broker and its time, and another one with a time that must not be earlier."""
    decided: dict[tuple[str, int], tuple[int, int]] = {}
    for broker, rings in recorded.items():
        for ring, decisions in rings.items():
            if not ring.startswith(controllers_ring("")):
                continue
            for each in decisions:
                if each["what"] in DECIDED and "epoch" in each:
                    place = ring.removeprefix(controllers_ring("")), each["epoch"]
                    decided[place] = broker, each["at_ms"]
    for broker, rings in recorded.items():
        for ring, decisions in rings.items():
            for each in decisions:
                if each["what"].startswith("became_") and (ring, each.get("epoch")) in decided:
                    yield *decided[ring, each["epoch"]], broker, each["at_ms"]

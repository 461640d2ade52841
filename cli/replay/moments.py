"""Moments: the decisions of all brokers in one order. Pure.

A broker's recorder holds its own decisions, and the controller's if it was the controller; what another
broker knew stands in that one's recorder. They are merged by wall time, after clocks that contradict each
other have been corrected (clocks.py).
Left to others: reading recorders (sources.py), what follows from the moments (film.py), what a decision means
in words (broker/decision_words.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...base.values import dataclass
from ...broker.decision_words import Values, at_length
from ...storage.decision_log import BROKER, CONTROLLER, controllers_ring

Rings = Mapping[str, Iterable[Values]]
"""The decisions of one broker by the name of the ring, as plain values, each ring oldest first."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One decision, about brokers if `partition` is None; made `times` times in a row, last at `until_ms`."""

    at_ms: int
    by: int
    is_controllers: bool
    partition: str | None
    what: str
    values: Values
    times: int = 1
    until_ms: int = 0

    @property
    def sentence(self) -> str:
        """What happened, and why, in words."""
        return at_length(self.what, self.values, self.is_controllers)

    def as_dict(self) -> dict[str, Any]:
        """For programs, and for the page."""
        repeated = {"times": self.times, "until_ms": self.until_ms} if self.times > 1 else {}
        return {
            "at_ms": self.at_ms,
            "broker": self.by,
            "as_controller": self.is_controllers,
            "partition": self.partition,
            "what": self.what,
            "sentence": self.sentence,
            **repeated,
            "values": dict(self.values),
        }


def in_order(recorded: Mapping[int, Rings], later_ms: Mapping[int, int]) -> list[Moment]:
    """All moments, the oldest first. `later_ms` is what is added to the times of each broker.

    Of equal times a controller's decision comes first, then who carries it out.
    """
    found = [
        moment
        for broker, rings in sorted(recorded.items())
        for ring, decisions in rings.items()
        for moment in _of_ring(broker, ring, decisions, later_ms.get(broker, 0))
    ]
    return sorted(found, key=lambda moment: (moment.at_ms, not moment.is_controllers))


def _of_ring(broker: int, ring: str, decisions: Iterable[Values], later_ms: int) -> Iterable[Moment]:
    is_controllers = ring == CONTROLLER or ring.startswith(controllers_ring(""))
    partition = None if ring in (BROKER, CONTROLLER) else ring.removeprefix(controllers_ring(""))
    for decision in decisions:
        told = dict(decision)
        at_ms, what, times = told.pop("at_ms"), told.pop("what"), told.pop("times", 1)
        until_ms = told.pop("until_ms", at_ms)
        yield Moment(
            at_ms + later_ms, broker, is_controllers, partition, what, told, times, until_ms + later_ms
        )

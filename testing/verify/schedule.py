"""Which fault comes when: a pure function of scenario and seed, so the same seed gives the same schedule.

What a fault hits is drawn when it comes, from its own seed: who leads then is a matter of the cluster. Left
to others: doing it (nemesis.py).
"""

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .scenario import ALL, Scenario


class Strike(NamedTuple):
    """One fault of a schedule."""

    fault: str
    after_s: float  # since the load began; of one that is drawn: since the one before it was mended
    hold_s: float
    seed: int  # for what is drawn when it comes
    is_timed: bool  # at a given time, whatever came before

    def told(self) -> str:
        """As `--plan` prints it."""
        when = f"at {self.after_s:.1f} s" if self.is_timed else f"{self.after_s:.1f} s later"
        return f"{when:>14}  {self.fault:<28} for {self.hold_s:.1f} s"


def strikes(scenario: Scenario, able: Iterable[str]) -> Iterator[Strike]:
    """The faults at their times, then those that are drawn, without end if there are any.

    `able` are the faults that can be done where the brokers live: `drawn = "all"` draws from these. Each
    fault that is drawn comes once before one comes again; those of a list come in their order at first.
    """
    draw, pace = random.Random(f"{scenario.seed} {scenario.name}"), scenario.pace
    for each in sorted(scenario.faults.at, key=lambda one: one.s):
        yield Strike(each.fault, each.s * pace, each.hold_s * pace, draw.getrandbits(32), True)
    drawn = scenario.faults.drawn
    names = sorted(able) if drawn == ALL else list(drawn)
    first, bag = True, ([] if drawn == ALL else names[::-1])
    while names:
        bag = bag or draw.sample(names, len(names))
        soonest_s = min(scenario.faults.first_s, scenario.load_s / 2 / pace)
        after_s = soonest_s if first else draw.uniform(*scenario.faults.calm_s)
        hold_s = draw.uniform(*scenario.faults.hold_s)
        yield Strike(bag.pop(), after_s * pace, hold_s * pace, draw.getrandbits(32), False)
        first = False


def drawn_least(scenario: Scenario) -> int:
    """How many of those that are drawn must come, even if the load lasts longer for it: all of a list."""
    return 0 if scenario.faults.drawn == ALL else len(scenario.faults.drawn)


def planned(scenario: Scenario, able: Iterable[str]) -> list[Strike]:
    """What fits into the load, if everything is mended at once; and everything that has a given time."""
    found, at_s, least = list[Strike](), 0.0, drawn_least(scenario)
    for each in strikes(scenario, able):
        begins_s = max(at_s, each.after_s) if each.is_timed else at_s + each.after_s
        if not each.is_timed and begins_s >= scenario.load_s and least <= 0:
            break
        least -= not each.is_timed
        at_s = begins_s + each.hold_s
        found.append(each)
    return found

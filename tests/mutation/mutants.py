"""The broken rules: a piece of source text, what stands there instead, and where a test is to notice it.

They stand in `rules.txt`: a dropped check, a swapped order, an off-by-one, a lost condition. Lines with `-`
are the text as it is, lines with `+` what stands there instead; without any, the lines go.
Left to others: breaking and running (`run.py`), rules that a patch breaks in the simulator's worlds
(simulation/mutants.py).
"""

from pathlib import Path
from typing import NamedTuple

RULES = Path(__file__).parent / "rules.txt"


class Mutant(NamedTuple):
    """One rule, and how to break it."""

    name: str
    file: str
    rule: str
    tests: tuple[str, ...]  # where it is looked for, in this order
    old: str  # stands there once
    new: str


def read(text: str) -> tuple[Mutant, ...]:
    """The mutants of such a list."""
    return tuple(_mutant(block) for block in ("\n" + text).split("\n== ")[1:])


def _mutant(block: str) -> Mutant:
    name, *lines = block.rstrip("\n").split("\n")
    facts = dict(line.split(": ", 1) for line in lines if line[:1] not in ("", "-", "+"))
    old = "\n".join(line[1:] for line in lines if line.startswith("-"))
    new = [line[1:] for line in lines if line.startswith("+")]
    if not new:
        old += "\n"
    tests = tuple(facts["tests"].split())
    return Mutant(name, facts["where"], facts["rule"], tests, old, "\n".join(new))


MUTANTS = read(RULES.read_text())

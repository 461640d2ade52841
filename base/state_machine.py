"""State machines as tables: which moves are legal, and what causes them. Pure.

Code that changes a state checks it against the table, and the documentation is generated from it.
Left to others: the tables themselves (replication/machines.py, controller/planning/state_machines.py,
broker/transactions/machine.py), the page about them (cli/docs/state_machines.py).
Why: docs/decisions/0035-transitions-are-tables.md
"""

from typing import NamedTuple

from .values import dataclass


class Move(NamedTuple):
    """From one state to another, and when."""

    before: str
    after: str
    when: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The states of one thing and the moves between them, beginning in `first`."""

    name: str
    about: str
    first: str
    states: dict[str, str]  # each with its description
    moves: tuple[Move, ...]

    def __post_init__(self) -> None:
        named = {self.first} | {state for move in self.moves for state in (move.before, move.after)}
        assert named == self.states.keys(), f"{self.name}: {sorted(named ^ self.states.keys())}"

    def allows(self, before: str, after: str) -> bool:
        """Whether this move is legal. Staying in a state always is."""
        return before == after or any(m.before == before and m.after == after for m in self.moves)

"""Renders docs/state-machines.md from the tables that every state change is checked against.

Left to others: the tables (replication/machines.py, controller/planning/state_machines.py,
broker/transactions/machine.py), and the checks.
"""

from collections.abc import Iterator

from ...base.state_machine import Machine
from ...broker.transactions import machine as transaction_tables
from ...controller.planning import state_machines
from ...replication import machines as replication_tables

PREFACE = """# State machines

What may follow what, in the rules of replication, in the controller and of transactions. The program checks
every change against these tables, and this page is rendered from them by `strandline docs`. What the rules
are for is told in [replication.md](replication.md) and [transactions.md](transactions.md).
"""


def machines() -> str:
    """The whole page."""
    tables = (*replication_tables.MACHINES, *state_machines.MACHINES, *transaction_tables.MACHINES)
    return "\n".join([PREFACE, *(line for machine in tables for line in drawn(machine))])


def drawn(machine: Machine) -> Iterator[str]:
    """One state machine: its diagram, its states, its transitions."""
    yield from (f"## {machine.name}", "", machine.about, "", "```mermaid", "stateDiagram-v2")
    yield f"    [*] --> {machine.first}"
    for before, after in dict.fromkeys((move.before, move.after) for move in machine.moves):
        yield f"    {before} --> {after}"
    yield from ("```", "", "| state | |", "|---|---|")
    yield from (f"| {state} | {sentence} |" for state, sentence in machine.states.items())
    yield from ("", "| from | to | when |", "|---|---|---|")
    yield from (f"| {move.before} | {move.after} | {move.when} |" for move in machine.moves)
    yield ""

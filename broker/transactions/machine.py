"""The states of a transactional id as a table: every transition is checked against it.

Left to others: what causes a transition (transaction.py), the page about the table
(cli/docs/state_machines.py).
"""

from ...base.state_machine import Machine, Move

TRANSACTION = Machine(
    name="A transactional id",
    about="Each state is a record of `__transaction_state` and counts once that is committed.",
    first="Empty",
    states={
        "Empty": "A producer has it, and has begun no transaction.",
        "Ongoing": "A transaction is open, in the partitions that the record names.",
        "PrepareCommit": "The transaction is committed; its partitions are being told.",
        "PrepareAbort": "The transaction is aborted; its partitions are being told.",
        "CompleteCommit": "Every partition has been told of the commit.",
        "CompleteAbort": "Every partition has been told of the abort.",
    },
    moves=(
        Move("Empty", "Ongoing", "the producer adds the first partition"),
        Move("Ongoing", "PrepareCommit", "the producer commits"),
        Move("Ongoing", "PrepareAbort", "the producer aborts, takes too long, or another one begins"),
        Move("PrepareCommit", "CompleteCommit", "every partition has its marker, or is deleted"),
        Move("PrepareAbort", "CompleteAbort", "every partition has its marker, or is deleted"),
        Move("CompleteCommit", "Ongoing", "the producer adds the first partition"),
        Move("CompleteAbort", "Ongoing", "the producer adds the first partition"),
        Move("CompleteCommit", "Empty", "a producer begins"),
        Move("CompleteAbort", "Empty", "a producer begins"),
    ),
)
MACHINES = (TRANSACTION,)

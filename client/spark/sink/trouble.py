"""What can be wrong with rows, in sentences that name their place."""

from collections.abc import Sequence


class BadRow(ValueError):
    """A row that cannot be a record; the message says which one and why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row  # counted from 0 in its task
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row}: {self.reason}"


class NotWritten(RuntimeError):
    """Rows that cannot be records, or that the brokers did not take, or not in time."""


def made_again(topic: str, was: object, now: object) -> str:
    """What became of rows that were acknowledged, and what to do. A broker that lags may tell an old id."""
    return (
        f"topic {topic} has had two ids while it was written, {was} and {now}: if it was deleted and created "
        "again, rows that were written before are gone. Write them again, and delete no topic meanwhile"
    )


def gone(topic: str) -> str:
    """The same of a topic that was not created again."""
    return (
        f"topic {topic} was written, and brokers know it no more: if it was deleted, rows that were written "
        "before are gone. Write them again, and delete no topic meanwhile"
    )


def named(rows: Sequence[int]) -> str:
    """Rows of one batch; others may be between them."""
    return f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from row {min(rows)} to {max(rows)}"

"""What stands in line before buffer memory: records that wait for room, or for their topic to be known.

Left to others: who is let in when (producer.py).
"""

import asyncio
from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import NamedTuple

from ...protocol.records import Header
from .receipts import never_sent
from .sender import Sink
from .transactions import TransactionAborted

Raw = tuple[int, bytes | None, bytes | None, Sequence[Header]]  # timestamp, key, value, headers


class BufferExhausted(Exception):
    """Buffer memory and the line before it are full, or no room came within `max_block_ms`."""

    retriable = True


class Pending(NamedTuple):
    """A record that waits for room, or for its topic to be known."""

    partition: int | None
    record: Raw
    token: tuple[Sink, int, int]
    size: int
    deadline: float
    number: int  # in all lines, in the order of calls


class Line(deque[Pending]):
    """What waits for one topic, in the order of calls."""

    admission: "asyncio.Task[None] | None" = None  # moves it on
    given_up: Exception = BufferExhausted("the producer was closed")  # what the rest is told if that ends

    def refuse(self) -> int:
        """Tell all that is left, and hold nothing; the bytes that it was."""
        left = sum(pending.size for pending in self)
        for pending in self:
            pending.token[0].refused(pending.token[1], never_sent(self.given_up))
        self.clear()
        return left

    def give_up(self) -> None:
        """Their transaction is over: nothing of this is to be sent."""
        self.given_up = TransactionAborted("its transaction was aborted before it was sent")
        if self.admission is not None:
            self.admission.cancel()


def refuse_all(lines: MutableMapping[str, Line]) -> None:
    """The producer is closed: a task that was stopped before it began could not tell those in its line."""
    for line in lines.values():
        line.refuse()
    lines.clear()  # nobody waits for their end


def line_full(waiting: int) -> BufferExhausted:
    """The error for a record that there is no place for, not even in line."""
    return BufferExhausted(
        f"{waiting} bytes already wait for room in buffer_memory: the brokers are slower than the caller"
    )


def stayed_full(block_ms: float, topic: str | None = None) -> BufferExhausted:
    """The error for what has waited too long: for room, or behind what was sent to a topic before."""
    if topic is None:
        return BufferExhausted(f"buffer_memory stayed full for max_block_ms = {block_ms}")
    return BufferExhausted(
        f"what was sent to {topic} before has waited for max_block_ms = {block_ms}: brokers know no such "
        "topic, or no such partition of it"
    )

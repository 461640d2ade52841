"""Operations: what a client did, and what it was told. A list of them is a history.

As in Jepsen, each is begun (`invoke`) and ends as `ok`, as `fail` (it surely did not happen) or as `info`
(nobody knows); what has no end may have happened, too. Values are unique integers, so a record is known by
its value wherever it is read. One process is one life of one client: who comes back has a new name.
Left to others: files of them (history.py), a notation for people (transcript.py), verdicts (checker.py).
"""

from enum import StrEnum
from typing import NamedTuple

UNKNOWN = -1  # an offset or a transaction that is not known, or does not exist


class Type(StrEnum):
    """How far an operation has come."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"  # it did not happen, and never will
    INFO = "info"  # it may have happened, or may happen yet


class Action(StrEnum):
    """What is done. The columns of `Operation.records` that count stand beside it."""

    SEND = "send"  # topic, partition, value; and offset, once it is known; `source` if it is a copy
    COMMIT = "commit"  # a transaction is asked to commit
    ABORT = "abort"
    POLL = "poll"  # topic, partition, value, offset; `fail`: the offset was said to be out of range
    MOVED = "moved"  # the reader goes on elsewhere (assign, subscribe, seek, rebalance); topic, partition and
    # offset: where it goes on, as far as it knows
    END = "end"  # topic, partition; offset: what a broker told as the end of the log
    WHOLE = "whole"  # as POLL: all that a reader of committed records finds in partitions, at the end
    EMPTY = "empty"  # topic, partition: a partition of which nothing was found, at the end
    INIT = "init"  # a life of a transactional producer begins: earlier ones with the same id are fenced
    OFFSETS = "offsets"  # topic, partition, offset: a group commits; `producer` is the group
    TOLD = "told"  # topic, partition, offset: what a group is told that it has committed; UNKNOWN if nothing
    DELETED = "deleted"  # topic, partition; offset: records before it are deleted (DeleteRecords, retention)
    CHANGED = "changed"  # a topic was made, changed or deleted, and brokers say so; `error` says what
    REASSIGNED = "reassigned"  # topic, partition: its replicas are others now, or in another order
    CRASH = "crash"  # the client is gone
    FAULT = "fault"  # `error` says what was done to the cluster, or mended


class Record(NamedTuple):
    """A record as an operation knows it."""

    topic: str
    partition: int
    offset: int = UNKNOWN
    value: int = UNKNOWN
    source: int = UNKNOWN  # the value of which this one is a copy

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}" + (f"@{self.offset}" if self.offset != UNKNOWN else "")
        if self.value == UNKNOWN:
            return place
        return f"{place}={self.value}" + (f"<{self.source}" if self.source != UNKNOWN else "")


class Operation(NamedTuple):
    """One line of a history."""

    time_ns: int  # monotonic; of one machine
    process: str
    type: Type
    action: Action
    records: tuple[Record, ...] = ()
    producer: str = ""  # the transactional id, or of OFFSETS and TOLD the group; else empty
    transaction: int = UNKNOWN  # counts the transactions of this process
    error: str = ""

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return self.transaction != UNKNOWN

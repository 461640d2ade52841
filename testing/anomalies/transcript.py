"""Histories as people write and read them: one operation a line, in the order of time.

    a      invoke send t-0=1           a begins to send the value 1 to partition 0 of t
    a      ok send t-0@7=1             it was acknowledged at offset 7
    b      invoke send #1 t-0=2        b sends in its first transaction,
    b      invoke commit #1            asks to commit it,
    b      ok commit #1                and has an answer
    b/2    invoke send #1 t-0=3<2      the second life of b, with b's transactional id; 3 is a copy of 2
    r      ok poll t-0@7=1 t-0@8=2     r was handed two records
    final  ok whole t-0@7=1 t-0@8=2    all that is in partition 0
    n      ok deleted t-0@7            what stood before 7 was deleted
    n      info fault: broker 2 killed
    b/2    ok init                     b has a new life, and what was before is fenced
    r      ok moved t-0@7              r goes on from 7
    r      fail poll t-0@7             and is told that 7 is out of range
    g-1    ok offsets t-0@8            g-1, a member of the group g, has committed 8,
    g-2    ok told t-0@8               and g-2 is told so

A process named `b/2` has the transactional id `b`, `g-2/3` is of the group `g`. What follows `# ` is a
comment.
"""

import re

from .operations import UNKNOWN, Action, Operation, Record, Type

STEP_NS = 1_000_000_000  # between two lines
RECORD = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:@(?P<offset>\d+))?(?:=(?P<value>\d+))?(?:<(?P<source>\d+))?"
)


def parse(text: str) -> list[Operation]:
    """The operations of a transcript, a second apart. Raises ValueError with the number of the line."""
    operations: list[Operation] = []
    for number, line in enumerate(text.splitlines(), 1):
        said, _, _ = f" {line}".partition(" # ")
        if not said.strip() or said.strip() == "#":
            continue
        try:
            operations.append(_operation(said, number * STEP_NS))
        except ValueError as error:
            raise ValueError(f"line {number}, {line.strip()!r}: {error}") from None
    return operations


def told(operation: Operation, since_ns: int = 0) -> str:
    """The line of an operation, with the seconds since `since_ns` before it."""
    words = [operation.type.value, operation.action.value]
    if operation.is_transactional:
        words.append(f"#{operation.transaction}")
    words += map(str, operation.records)
    error = f": {operation.error}" if operation.error else ""
    return f"{(operation.time_ns - since_ns) / 1e9:9.3f}  {operation.process:<12} {' '.join(words)}{error}"


def _operation(said: str, time_ns: int) -> Operation:
    said, _, error = said.partition(": ")
    process, type, action, *rest = said.split()
    transaction, producer = UNKNOWN, _owner(process, Action(action))
    if rest and rest[0].startswith("#"):
        transaction, producer = int(rest.pop(0)[1:]), process.partition("/")[0]
    records = tuple(_record(word) for word in rest)
    return Operation(
        time_ns, process, Type(type), Action(action), records, producer, transaction, error.strip()
    )


def _owner(process: str, action: Action) -> str:
    """The transactional id or the group to which it belongs outside of transactions."""
    name = process.partition("/")[0]
    if action is Action.INIT:
        return name
    return name.rpartition("-")[0] if action in (Action.OFFSETS, Action.TOLD) else ""


def _record(word: str) -> Record:
    found = RECORD.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no record: write topic-partition@offset=value<source")
    numbers = {
        name: UNKNOWN if given is None else int(given)
        for name, given in found.groupdict().items()
        if name != "topic"
    }
    return Record(found["topic"], **numbers)

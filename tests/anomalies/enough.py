"""Whether each kind of client has done what it is there for: else "nothing was found" says nothing.

Left to others: what clients do (worker.py), when they are started (run.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from strandline.testing.anomalies import Action, Operation, Type
from tests.anomalies.client import TOPICS

ACTS = {
    Action.SEND: "records acknowledged",
    Action.COMMIT: "transactions committed",
    Action.ABORT: "transactions aborted",
    Action.POLL: "polls with records",
}
WRITES = frozenset({Action.SEND})
READS = frozenset({Action.POLL})
ENDS = frozenset({Action.COMMIT, Action.ABORT})
KINDS: dict[str, frozenset[Action]] = {
    "plain-librdkafka": WRITES,
    "plain-once": WRITES,
    "transactions-librdkafka": WRITES | ENDS | READS,
    "transactions-strandline": WRITES | ENDS,
    "copier-classic": WRITES | ENDS | READS,
    "copier-consumer": WRITES | ENDS | READS,
    "reader-librdkafka": READS,
    "reader-strandline": READS,
    "subscriber-classic": READS,
    "subscriber-consumer": READS,
}
"""The kinds of clients, and what each of them must have had answered at least once."""
READ_TO_THE_END = {
    "reader-librdkafka": tuple(TOPICS),
    "reader-strandline": tuple(TOPICS),
    "subscriber-classic": ("t", "out", "out8"),
    "subscriber-consumer": ("t", "out", "out8"),
}
"""Whose clients must have come to the end of all partitions of these topics."""
TRACEBACK = "Traceback"
LOGGED = re.compile(r"%\d\|")  # how librdkafka begins a line of its log
SHOWN_BEFORE, SHOWN = 500, 3000


def done(operations: Iterable[Operation]) -> dict[str, Counter[str]]:
    """What was answered, by kind; clients are named `kind-number`, their later lives `kind-number/life`."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for each in operations:
        kind = kind_of(each)
        if each.type is Type.OK and each.action in ACTS and kind in counts:
            is_of_records = each.action in (Action.SEND, Action.POLL)
            if not is_of_records or each.records:
                counts[kind][ACTS[each.action]] += len(each.records) if each.action is Action.SEND else 1
    return counts


def lacking(counts: dict[str, Counter[str]]) -> list[str]:
    """A sentence for each kind of client that has left something undone."""
    found = []
    for kind, demanded in KINDS.items():
        if missing := [told for act, told in ACTS.items() if act in demanded and not counts[kind][told]]:
            found.append(f"{kind}: no {', no '.join(missing)}; so the run proves nothing about it")
    return found


def behind(operations: Sequence[Operation]) -> list[str]:
    """A sentence for each partition whose last record, by the final read, a kind of reader was not handed."""
    last: dict[tuple[str, int], int] = {}
    reached: dict[tuple[str, str, int], int] = {}
    for each in operations:
        if each.type is not Type.OK or each.action not in (Action.WHOLE, Action.POLL):
            continue
        kind = kind_of(each)
        for topic, partition, offset, *_ in each.records:
            if each.action is Action.WHOLE:
                last[topic, partition] = max(last.get((topic, partition), -1), offset)
            else:
                reached[kind, topic, partition] = max(reached.get((kind, topic, partition), -1), offset)
    return [
        f"{kind} has come to {reached.get((kind, topic, partition), 'nothing')} in {topic}-{partition}, "
        f"whose last record is {offset}"
        for kind, topics in READ_TO_THE_END.items()
        for (topic, partition), offset in last.items()
        if topic in topics and reached.get((kind, topic, partition), -1) < offset
    ]


def kind_of(operation: Operation) -> str:
    return operation.process.partition("/")[0].rpartition("-")[0]


def traceback_in(text: str) -> str:
    """The first traceback in what a client printed, with what stands before it; empty if there is none.

    Beside the log of librdkafka, which goes to the same place.
    """
    text = "".join(line for line in text.splitlines(keepends=True) if LOGGED.match(line) is None)
    at = text.find(TRACEBACK)
    return "" if at < 0 else text[max(0, at - SHOWN_BEFORE) : at + SHOWN]

"""Whether each kind of client has done what it is there for: else "nothing was found" says nothing.

Left to others: what clients do (worker.py), when they are started (run.py).
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from strandline.testing.anomalies import Action, Operation, Type

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
TRACEBACK = "Traceback"
OVERDUE = "has not returned within"
SHOWN_BEFORE, SHOWN = 500, 3000


def done(operations: Iterable[Operation]) -> dict[str, Counter[str]]:
    """What was answered, by kind; clients are named `kind-number`, their later lives `kind-number/life`."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for each in operations:
        kind = each.process.partition("/")[0].rpartition("-")[0]
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


def traceback_in(log: Path) -> str:
    """The first traceback in what clients printed, with what stands before it; empty if there is none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    at = text.find(TRACEBACK)
    return "" if at < 0 else f"{log}: {text[max(0, at - SHOWN_BEFORE) : at + SHOWN]}"


def overdue_in(log: Path) -> list[str]:
    """What clients printed that ended because a call kept none of its time-outs."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if OVERDUE in line]

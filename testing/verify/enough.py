"""Whether each client has done what it is there for: else "nothing was found" says nothing.

Left to others: what each kind must do (kinds.py), when clients are started (run.py).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..anomalies import Action, Operation, Type
from .kinds import KINDS
from .scenario import ClientPart

ACTS = {
    Action.SEND: "records acknowledged",
    Action.COMMIT: "transactions committed",
    Action.ABORT: "transactions aborted",
    Action.POLL: "polls with records",
    Action.CHANGED: "changes of topics",
    Action.REASSIGNED: "reassignments",
}
TRACEBACK = "Traceback"
LOGGED = re.compile(r"%\d\|")  # how librdkafka begins a line of its log
SHOWN_BEFORE, SHOWN = 500, 3000


def done(operations: Iterable[Operation], clients: Sequence[ClientPart]) -> dict[str, Counter[str]]:
    """What was answered, by the name of the entry; its clients are `name-number`, later lives `…/life`."""
    counts: dict[str, Counter[str]] = {each.called: Counter() for each in clients}
    for each in operations:
        count(each, counts)
    return counts


def count(operation: Operation, counts: Mapping[str, Counter[str]]) -> None:
    """Add one operation to what was answered."""
    of_client = counts.get(called(operation))
    if operation.type is not Type.OK or operation.action not in ACTS or of_client is None:
        return
    is_of_records = operation.action in (Action.SEND, Action.POLL)
    if not is_of_records or operation.records:
        several = len(operation.records) if operation.action is Action.SEND else 1
        of_client[ACTS[operation.action]] += several


def lacking(counts: Mapping[str, Counter[str]], clients: Sequence[ClientPart]) -> list[str]:
    """A sentence for each entry whose clients have left something undone."""
    found = []
    for each in clients:
        demanded, of_client = KINDS[each.kind].demands, counts[each.called]
        if missing := [told for act, told in ACTS.items() if act in demanded and not of_client[told]]:
            found.append(f"{each.called}: no {', no '.join(missing)}; so the run proves nothing about it")
    return found


def behind(operations: Sequence[Operation], readers: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each partition whose last record, by the final read, readers were not handed.

    `readers`: the entries whose clients must come to the ends, with their topics.
    """
    last: dict[tuple[str, int], int] = {}
    reached: dict[tuple[str, str, int], int] = {}
    for each in operations:
        if each.type is not Type.OK or each.action not in (Action.WHOLE, Action.POLL):
            continue
        name = called(each)
        for topic, partition, offset, *_ in each.records:
            if each.action is Action.WHOLE:
                last[topic, partition] = max(last.get((topic, partition), -1), offset)
            else:
                reached[name, topic, partition] = max(reached.get((name, topic, partition), -1), offset)
    return [
        f"{name} has come to {reached.get((name, topic, partition), 'nothing')} in {topic}-{partition}, "
        f"whose last record is {offset}"
        for name, topics in readers.items()
        for (topic, partition), offset in last.items()
        if topic in topics and reached.get((name, topic, partition), -1) < offset
    ]


def called(operation: Operation) -> str:
    """The entry of the scenario whose client did it."""
    return operation.process.partition("/")[0].rpartition("-")[0]


def tracebacks(logs: Mapping[int, str], before: Mapping[int, int]) -> list[str]:
    """A sentence for each broker that has logged a traceback behind the first `before` characters."""
    found = []
    for id, text in logs.items():
        since = text[before.get(id, 0) :]
        if (at := since.find(TRACEBACK)) >= 0:
            shown = since[max(0, at - SHOWN_BEFORE) : at + SHOWN]
            found.append(f"broker {id} has logged what it did not expect: {shown}")
    return found


def traceback_in(text: str) -> str:
    """The first traceback in what a client printed, with what stands before it; empty if there is none.

    Beside the log of librdkafka, which goes to the same place.
    """
    text = "".join(line for line in text.splitlines(keepends=True) if LOGGED.match(line) is None)
    at = text.find(TRACEBACK)
    return "" if at < 0 else text[max(0, at - SHOWN_BEFORE) : at + SHOWN]

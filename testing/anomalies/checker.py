"""The verdict on a history with transactions: pure, and linear in the number of records read.

What is no matter of transactions is judged by `testing/history.py`, where a record counts as acknowledged if
its transaction was committed. Here is what only transactions can show, and what was read though nobody had
sent it, or not there: only these histories are sure to tell every send.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from ...base.types import TopicPartition
from ..history import Anomaly, Evidence, Place, judge
from .groups import committed_unread, offsets_back, offsets_of_nobody
from .operations import Action, Operation
from .story import Fate, Story, Transaction
from .transcript import told

EVIDENCE_SHOWN_MAX = 3
LINES_SHOWN_MAX = 40
FAULTS_SHOWN_MAX = 5


class TransactionalAnomaly(StrEnum):
    """What must never be seen of transactions; docs/anomalies.md defines each."""

    G0 = "G0"  # a record stands behind one of a later transaction of the same producer
    G1A = "G1a"  # a record of an aborted transaction, or a refused one, was read
    G1B = "G1b"  # a part of a transaction was seen: some of it for good, or some before its commit
    PRECOMMITTED_READ = "precommitted-read"  # a transaction read what it wrote itself
    PHANTOM_READ = "phantom-read"  # a value was read that nobody had sent
    WRONG_PARTITION = "wrong-partition"  # a record was read in another partition than it was sent to
    FENCED_WRITE = "fenced-write"  # a producer was acknowledged what it did after it had been fenced
    OUT_OF_RANGE = "out-of-range"  # a reader was told that it stands where there is no log
    OFFSET_BACK = "offset-back"  # a group's committed offset is lower than it was
    PHANTOM_OFFSET = "phantom-offset"  # a group has committed an offset that nobody had tried to commit
    COMMITTED_UNREAD = "committed-unread"  # a group has committed past a record that it was never handed
    COPIED_TWICE = "copied-twice"  # two committed copies of one record
    NOT_COPIED = "not-copied"  # a record without a copy, when all is done
    COPIED_OUT_OF_ORDER = "copied-out-of-order"


NAMES: tuple[str, ...] = (
    *TransactionalAnomaly,
    *(each for each in Anomaly if each is not Anomaly.ABORTED_READ),
)
"""In the order of the table. `aborted-read` of `testing/history.py` is part of G1a."""


@dataclass
class Verdict:
    """What was found, by name, and how much was looked at."""

    found: dict[str, list[Evidence]]
    committed: int
    aborted: int
    unknown: int
    sent: int
    acknowledged: int
    read: int
    polls: int
    faults: Counter[str]
    uncovered: Sequence[TopicPartition]  # acknowledged records, but not read at the end
    operations: Sequence[Operation]

    @property
    def good(self) -> bool:
        """Whether there was no anomaly, anything to look at, and a final read of all that was promised."""
        return not self.found and self.acknowledged > 0 and not self.uncovered

    def __str__(self) -> str:
        lines = [
            f"transactions: {self.committed} committed, {self.aborted} aborted, {self.unknown} unknown",
            f"records: {self.sent} sent, {self.acknowledged} acknowledged for good, {self.read} read in the "
            f"end; {self.polls} polls",
            f"faults: {sum(self.faults.values())}",
        ]
        lines += [f"  {count:5}  {fault}" for fault, count in sorted(self.faults.items())]
        if self.uncovered:
            lines.append(
                "acknowledged, and not read in the end (`whole` or `empty`), so that much may be lost there: "
                + ", ".join(map(str, self.uncovered))
            )
        lines += [f"{name:22} {len(self.found.get(name, ()))}" for name in NAMES]
        for name, evidence in self.found.items():
            lines += ["", f"{name}, the shortest of {len(evidence)}:"]
            lines += self.explanation(min(evidence, key=lambda each: len(each.values)))
        return "\n".join(lines)

    def explanation(self, evidence: Evidence) -> list[str]:
        """The sentence, then the operations that touch its values or their transactions, and the faults."""
        wanted = set(evidence.values)
        begun_ns = self.operations[0].time_ns if self.operations else 0
        mine = {
            (each.process, each.transaction)
            for each in self.operations
            if each.is_transactional
            and each.action is Action.SEND
            and any(record.value in wanted for record in each.records)
        }
        shown = [
            each
            for each in self.operations
            if any(record.value in wanted for record in each.records)
            or (each.action in (Action.COMMIT, Action.ABORT) and (each.process, each.transaction) in mine)
        ]
        lines = [evidence.sentence]
        for each in _with_faults(shown, self.operations):
            records = tuple(record for record in each.records if record.value in wanted)
            lines.append(told(each._replace(records=records), begun_ns))
        return lines[:LINES_SHOWN_MAX]


def _with_faults(shown: Sequence[Operation], operations: Iterable[Operation]) -> list[Operation]:
    """These operations, and the faults that came between them: the last ones, if there were many."""
    if not shown:
        return []
    first_ns, last_ns = shown[0].time_ns, shown[-1].time_ns
    faults = [
        each for each in operations if each.action is Action.FAULT and first_ns < each.time_ns < last_ns
    ]
    return sorted([*shown, *faults[-FAULTS_SHOWN_MAX:]], key=lambda each: each.time_ns)


def judge_operations(operations: Iterable[Operation]) -> Verdict:
    """Judge operations, which must be in the order of time."""
    kept = list(operations)
    story = Story(kept)
    report = judge(story.history)
    found: dict[str, list[Evidence]] = {}
    refused = report.anomalies.pop(Anomaly.ABORTED_READ, [])
    for name, search in SEARCHES.items():
        if evidence := [*search(story), *(refused if name is TransactionalAnomaly.G1A else ())]:
            found[name] = evidence
    found |= {str(name): evidence for name, evidence in report.anomalies.items()}
    return Verdict(
        found,
        story.count(Fate.COMMITTED),
        story.count(Fate.ABORTED),
        story.count(Fate.UNKNOWN),
        len(story.history.sends),
        report.acknowledged,
        sum(map(len, story.history.final.values())),
        story.polls,
        Counter(each.error for each in story.faults),
        sorted({send.partition for send in story.history.acknowledgements} - story.history.final.keys()),
        kept,
    )


def _places(story: Story) -> Iterator[Place]:
    """All records that were read: in polls, then in the end."""
    yield from (place for poll in story.history.polls for place in poll.records)
    yield from (place for records in story.history.final.values() for place in records)


def _out_of_order(story: Story) -> Iterator[Evidence]:
    """G0: partition by partition, transactions of one transactional id follow each other."""
    sends = story.history.sends
    stands = {value: send.offset for value, send in sends.items() if send.offset >= 0}
    for found in _places(story):
        if found.value in sends and found.partition == sends[found.value].partition:
            stands.setdefault(found.value, found.offset)
    last: dict[tuple[str, TopicPartition], tuple[int, int]] = {}  # highest offset so far, and its value
    for transaction in story.transactions.values():  # in the order in which they began
        highest = dict[TopicPartition, tuple[int, int]]()
        for value in transaction.values:
            if (offset := stands.get(value)) is None:
                continue
            partition = sends[value].partition
            before = last.get((transaction.producer, partition))
            if before is not None and offset <= before[0]:
                yield Evidence(
                    f"{transaction} wrote {value} to {partition}@{offset}, before {before[1]} of an earlier "
                    f"transaction of {transaction.producer}, which stands at {before[0]}",
                    (before[1], value),
                )
            highest[partition] = max(highest.get(partition, (-1, -1)), (offset, value))
        for partition, reached in highest.items():
            key = transaction.producer, partition
            last[key] = max(last.get(key, (-1, -1)), reached)


def _aborted(story: Story) -> Iterator[Evidence]:
    for transaction in story.transactions.values():
        if transaction.fate is not Fate.ABORTED:
            continue
        for value in transaction.values:
            if (seen := story.first_read.get(value)) is not None:
                yield Evidence(f"{seen[1]} read {value} of {transaction}", (value,))


def _in_part(story: Story) -> Iterator[Evidence]:
    history = story.history
    there = {record.value for records in history.final.values() for record in records}
    for transaction in story.transactions.values():
        if transaction.fate is Fate.ABORTED:
            continue
        looked_for = [
            value
            for value in transaction.values
            if (send := history.sends[value]).partition in history.final
            and ((begin := history.begins[send.partition]) == 0 or send.offset >= begin)  # not deleted
        ]
        missing = [value for value in looked_for if value not in there]
        if missing and len(missing) < len(looked_for):
            seen = next(value for value in looked_for if value in there)
            yield Evidence(
                f"of {transaction} {seen} can be read and {missing[0]} cannot: {len(missing)} of "
                f"{len(looked_for)} are missing",
                (seen, missing[0]),
            )
        yield from _too_early(story, transaction)


def _too_early(story: Story, transaction: Transaction) -> Iterator[Evidence]:
    assert transaction.asked_ns is not None, "nobody would commit it"
    for value in transaction.values:
        at_ns, by = story.first_read.get(value, (transaction.asked_ns, ""))
        if at_ns < transaction.asked_ns:
            early_s = (transaction.asked_ns - at_ns) / 1e9
            yield Evidence(
                f"{by} read {value} of {transaction} {early_s:.3f} s before it was asked to commit", (value,)
            )


def _own_reads(story: Story) -> Iterator[Evidence]:
    for transaction in story.transactions.values():
        for value in transaction.values:
            if value in transaction.read:
                yield Evidence(f"{transaction} read {value}, which it wrote itself", (value,))


def _phantoms(story: Story) -> Iterator[Evidence]:
    for value, (at_ns, by) in story.first_read.items():
        send = story.history.sends.get(value)
        if send is None:
            yield Evidence(f"{by} read {value}, which nobody has sent", (value,))
        elif at_ns / 1e9 < send.sent_s:
            yield Evidence(
                f"{by} read {value} {send.sent_s - at_ns / 1e9:.3f} s before it was sent", (value,)
            )


def _elsewhere(story: Story) -> Iterator[Evidence]:
    sends = story.history.sends
    strayed = {
        (found.value, found.partition): found.offset
        for found in _places(story)
        if found.value in sends and found.partition != sends[found.value].partition
    }
    for (value, partition), offset in strayed.items():
        yield Evidence(
            f"{value} was read at {partition}@{offset}, but {sends[value].by} sent it to "
            f"{sends[value].partition}",
            (value,),
        )


def _fenced(story: Story) -> Iterator[Evidence]:
    for transaction in story.transactions.values():
        fenced_ns = transaction.fenced_ns
        if fenced_ns is None:
            continue
        asked_ns = transaction.asked_ns
        if transaction.fate is Fate.COMMITTED and asked_ns is not None and asked_ns > fenced_ns:
            yield Evidence(
                f"{transaction} was acknowledged, asked for {(asked_ns - fenced_ns) / 1e9:.3f} s after a "
                f"later life of {transaction.producer} had begun",
                tuple(transaction.values[:1]),
            )
        for value in transaction.values:
            send = story.history.sends[value]
            if send.offset >= 0 and send.sent_s > fenced_ns / 1e9:
                yield Evidence(
                    f"{value} of {transaction} was acknowledged at {send.partition}@{send.offset}, sent "
                    f"{send.sent_s - fenced_ns / 1e9:.3f} s after a later life of {transaction.producer} had "
                    "begun",
                    (value,),
                )


def _out_of_range(story: Story) -> Iterator[Evidence]:
    """Where nothing was deleted, whoever reads on stands within the log."""
    history = story.history
    for process, partition, offset in story.out_of_range:
        if history.begins.get(partition, 0) > 0:
            continue
        before = (
            found.value
            for poll in reversed(history.polls)
            if poll.by == process
            for found in reversed(poll.records)
            if found.partition == partition
        )
        at = f"@{offset}" if offset >= 0 else ""
        yield Evidence(
            f"{process} was told that {partition}{at} is out of range, and nobody has deleted anything",
            tuple(islice(before, 1)),
        )


def _copies(story: Story) -> dict[int, list[tuple[TopicPartition, int, int]]]:
    """The committed copies of each value that has one: partition, offset, value of the copy."""
    copies: dict[int, list[tuple[TopicPartition, int, int]]] = defaultdict(list)
    for partition, records in story.history.final.items():
        for record in records:
            if record.value in story.sources:
                copies[story.sources[record.value]].append((partition, record.offset, record.value))
    return copies


def _twice(story: Story) -> Iterator[Evidence]:
    for value, copies in _copies(story).items():
        if len(copies) > 1:
            found = ", ".join(f"{copy} at {tp}@{offset}" for tp, offset, copy in copies)
            yield Evidence(
                f"{value} was copied {len(copies)} times: {found}", (value, *(c[2] for c in copies))
            )


def _copied_topics(story: Story) -> set[str]:
    sends = story.history.sends
    return {sends[source].partition.topic for source in story.sources.values() if source in sends}


def _never(story: Story) -> Iterator[Evidence]:
    copied, topics = _copies(story), _copied_topics(story)
    for partition, records in story.history.final.items():
        if partition.topic in topics:
            for record in records:
                if record.value not in copied:
                    yield Evidence(
                        f"{record.value}, {partition}@{record.offset}, was never copied", (record.value,)
                    )


def _out_of_place(story: Story) -> Iterator[Evidence]:
    """Copies of one partition that stand in one partition have the order of their originals."""
    copied, topics = _copies(story), _copied_topics(story)
    for source, records in story.history.final.items():
        last: dict[TopicPartition, tuple[int, int]] = {}
        for record in records if source.topic in topics else ():
            for target, offset, copy in copied.get(record.value, ())[:1]:
                before = last.get(target, (-1, -1))
                if offset < before[0]:
                    yield Evidence(
                        f"{copy}, the copy of {source}@{record.offset}, stands at {target}@{offset}, before "
                        f"{before[1]}, the copy of an earlier record, at {before[0]}",
                        (before[1], copy),
                    )
                last[target] = max(before, (offset, copy))


SEARCHES = {
    TransactionalAnomaly.G0: _out_of_order,
    TransactionalAnomaly.G1A: _aborted,
    TransactionalAnomaly.G1B: _in_part,
    TransactionalAnomaly.PRECOMMITTED_READ: _own_reads,
    TransactionalAnomaly.PHANTOM_READ: _phantoms,
    TransactionalAnomaly.WRONG_PARTITION: _elsewhere,
    TransactionalAnomaly.FENCED_WRITE: _fenced,
    TransactionalAnomaly.OUT_OF_RANGE: _out_of_range,
    TransactionalAnomaly.OFFSET_BACK: offsets_back,
    TransactionalAnomaly.PHANTOM_OFFSET: offsets_of_nobody,
    TransactionalAnomaly.COMMITTED_UNREAD: committed_unread,
    TransactionalAnomaly.COPIED_TWICE: _twice,
    TransactionalAnomaly.NOT_COPIED: _never,
    TransactionalAnomaly.COPIED_OUT_OF_ORDER: _out_of_place,
}

"""What clients did and were told, and a check whether one replicated log explains all of it.

A `History` records, while brokers are killed and links are cut, what was sent, acknowledged at which offset,
and read. `judge` looks for contradictions. Anomalies have the names of Jepsen's Kafka test, or plain names
where Jepsen has none. Values are unique, so duplicates are recognised.

Pure: it reads no clock. Left to others: sending and reading (the workloads), comparing the replicas' files
(`strandline.cli.demo.verdict`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from ...base.types import TopicPartition

EVIDENCE_SHOWN_MAX = 5
NOTHING = -1  # a value that nobody has sent
NO_POLL = -1
Kept = Mapping[tuple[TopicPartition, int], Collection[int]]


class Anomaly(StrEnum):
    """What clients must never see."""

    LOST_WRITE = "lost-write"  # acknowledged; later records were read, it never was
    UNSEEN = "unseen"  # acknowledged, at an offset after the last record that can be read
    DUPLICATE = "duplicate"  # one value at two offsets
    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset with two values
    OFFSET_REUSE = "offset-reuse"  # one offset acknowledged for two values
    ABORTED_READ = "aborted-read"  # certainly refused, and read all the same
    HW_LEAK = "hw-leak"  # read once, and gone later
    NONMONOTONIC_SEND = "nonmonotonic-send"  # one producer's records in another order than it sent them
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a reader was handed an older record than the poll before
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"  # the same within one poll
    POLL_SKIP = "poll-skip"  # a reader never got a record that lies between two of its polls
    INT_POLL_SKIP = "int-poll-skip"  # the same within one poll
    REALTIME_ORDER = "realtime-order"  # at a lower offset than one acknowledged before it was sent
    STALE_END = "stale-end"  # the reported end is not above an offset that was acknowledged before


class Outcome(StrEnum):
    """What a producer knows about a record it has sent."""

    OPEN = "open"  # no answer, or one that does not say whether it was written
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # certainly: no attempt can have written it


@dataclass(slots=True)
class Send:
    """A value that was sent; `offset` is -1 while unknown."""

    value: int
    by: str
    partition: TopicPartition
    sent_s: float
    outcome: Outcome = Outcome.OPEN
    offset: int = -1
    settled_s: float = -1.0


class Place(NamedTuple):
    """A record as it was read."""

    partition: TopicPartition
    offset: int
    value: int


class Poll(NamedTuple):
    """The records of one poll; `turn` counts how often the reader was moved (seek, assignment)."""

    by: str
    turn: int
    records: tuple[Place, ...]


class End(NamedTuple):
    """The end of a partition as a broker told it, and when it was asked."""

    partition: TopicPartition
    end: int
    asked_s: float


@dataclass
class History:
    """Everything that clients did, in the order in which it was recorded; times are monotonic seconds."""

    sends: dict[int, Send] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    final: dict[TopicPartition, list[Place]] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)  # as told with `begins_at`
    starts: dict[tuple[str, int], Mapping[TopicPartition, int]] = field(default_factory=dict)  # by, turn
    losses: list[float] = field(default_factory=list)  # when brokers lost their producer state
    _turns: Counter[str] = field(default_factory=Counter)

    def sending(self, value: int, partition: TopicPartition, at_s: float, by: str = "producer") -> None:
        """A producer is about to send `value`, which nobody has sent before."""
        assert value not in self.sends, "values are unique"
        self.sends[value] = Send(value, by, partition, at_s)

    def acknowledged(self, value: int, offset: int, at_s: float) -> None:
        """`value` was acknowledged; offset -1 if the response does not say where."""
        send = self.sends[value]
        send.offset, send.settled_s = offset, at_s
        send.outcome = Outcome.ACKNOWLEDGED  # last: another thread may look at it

    def refused(self, value: int, at_s: float) -> None:
        """`value` was refused, and no attempt to send it can have succeeded.

        A time-out, a broken connection or NOT_LEADER_OR_FOLLOWER is no such refusal: note nothing then.
        """
        send = self.sends[value]
        send.outcome, send.settled_s = Outcome.REFUSED, at_s

    def polled(self, records: Iterable[tuple[TopicPartition, int, int]], by: str = "reader") -> None:
        """A reader was handed records: (partition, offset, value)."""
        self.polls.append(Poll(by, self._turns[by], tuple(Place(*record) for record in records)))

    def moved(self, by: str = "reader", to: Mapping[TopicPartition, int] | None = None) -> None:
        """A reader was moved (a seek, another assignment): checks of its order start again, at the offsets
        `to`, or where they are not told with what it is handed first.
        """
        self._turns[by] += 1
        if to:
            self.starts[by, self._turns[by]] = to

    def forgive(self, kept: Kept, by: str = "reader", at_s: float = 0.0) -> None:
        """All machines lost power. Of earlier acknowledgements and reads only those in `kept` still count."""
        for send in self.sends.values():
            acknowledged = send.outcome is Outcome.ACKNOWLEDGED
            if acknowledged and send.value not in kept.get((send.partition, send.offset), ()):
                send.outcome, send.offset, send.settled_s = Outcome.OPEN, -1, -1.0
        self.polls = [
            poll._replace(
                records=tuple(p for p in poll.records if p.value in kept.get((p.partition, p.offset), ()))
            )
            for poll in self.polls
        ]
        self.losses.append(at_s)
        self.moved(by)

    def told_end(self, partition: TopicPartition, end: int, asked_s: float) -> None:
        """Asked at `asked_s`, a broker gave `end` as the end offset of the partition."""
        self.ends.append(End(partition, end, asked_s))

    def read_whole(self, partition: TopicPartition, records: Iterable[tuple[int, int]]) -> None:
        """All records of the partition at the end of the run, from its first offset on: (offset, value)."""
        self.final[partition] = [Place(partition, offset, value) for offset, value in records]

    def begins_at(self, partition: TopicPartition, offset: int) -> None:
        """In the end the partition must hold everything from here on: no more than that was deleted.

        Of a partition of which nobody tells this, any number of its first records may have been deleted.
        """
        self.begins[partition] = offset

    @property
    def acknowledgements(self) -> list[Send]:
        """Acknowledged records, in the order of their acknowledgements; others may send meanwhile."""
        sends = list(self.sends.values())  # in one step: a thread that sends cannot come in between
        done = [send for send in sends if send.outcome is Outcome.ACKNOWLEDGED]
        return sorted(done, key=lambda send: send.settled_s)

    def longest_gap_s(
        self, partitions: Collection[TopicPartition] | None = None, since_s: float = 0.0
    ) -> float:
        """The longest time that one of the partitions (default: all) went without an acknowledgement.

        Only gaps that end after `since_s` count.
        """
        times: dict[TopicPartition, list[float]] = defaultdict(list)
        for send in self.acknowledgements:
            if partitions is None or send.partition in partitions:
                times[send.partition].append(send.settled_s)
        gaps = (
            later - earlier for of in times.values() for earlier, later in pairwise(of) if later > since_s
        )
        return max(gaps, default=0.0)


class Evidence(NamedTuple):
    """A contradiction in a sentence, and the values that it is about."""

    sentence: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return self.sentence


@dataclass
class Report:
    """The verdict: every anomaly with its evidence, a sentence each."""

    anomalies: dict[Anomaly, list[Evidence]]
    allowed: dict[Anomaly, list[Evidence]]  # seen, but allowed by what was promised
    acknowledged: int
    read: int

    @property
    def good(self) -> bool:
        """Whether there was no anomaly, and at least one acknowledgement."""
        return not self.anomalies and self.acknowledged > 0

    def __str__(self) -> str:
        lines = [f"{self.acknowledged} acknowledged, {self.read} read"]
        for anomaly, evidence in self.anomalies.items():
            lines.append(f"{anomaly}: {len(evidence)}")
            lines += [f"  {each}" for each in evidence[:EVIDENCE_SHOWN_MAX]]
        return "\n".join(lines)


def judge(history: History, *, idempotent: bool = True) -> Report:
    """Compare what was read with what was acknowledged. Without idempotence duplicates are allowed."""
    sight = _Sight(history)
    found: dict[Anomaly, list[Evidence]] = {}
    for anomaly, search in SEARCHES.items():
        if evidence := list(search(history, sight)):
            found[anomaly] = evidence
    allowed = {} if idempotent else {a: found.pop(a) for a in (Anomaly.DUPLICATE,) if a in found}
    return Report(found, allowed, len(history.acknowledgements), len(sight.places))


class _Sight:
    """All records that were read, from polls and final reads, by partition and offset."""

    def __init__(self, history: History) -> None:
        self.read: dict[TopicPartition, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.places: set[Place] = set()
        for place in _read_places(history):
            self.read[place.partition][place.offset].add(place.value)
            self.places.add(place)
        self.values = {place.value for place in self.places}
        self.last_read = {partition: max(offsets) for partition, offsets in self.read.items()}


def _read_places(history: History) -> Iterator[Place]:
    for poll in history.polls:
        yield from poll.records
    for records in history.final.values():
        yield from records


def _with_offset(history: History) -> list[Send]:
    """Those that stand at a known offset, perhaps in a transaction that was not committed."""
    return sorted((s for s in history.sends.values() if s.offset >= 0), key=lambda send: send.settled_s)


def _deleted(history: History, send: Send) -> bool:
    """Whether it stood, or may have stood where nobody told its offset, among what was deleted."""
    begin = history.begins.get(send.partition, 0)
    return begin > 0 and send.offset < begin


def _lost_writes(history: History, sight: _Sight) -> Iterator[Evidence]:
    for send in history.acknowledgements:
        last = sight.last_read.get(send.partition, -1)
        if send.value not in sight.values and send.offset <= last and not _deleted(history, send):
            yield Evidence(
                f"{send.value}, acknowledged at {send.partition}@{send.offset}, was not read, though "
                f"{last} was",
                (send.value,),
            )


def _unseen(history: History, sight: _Sight) -> Iterator[Evidence]:
    """Only in a partition that was read completely can a record be missing."""
    for send in history.acknowledgements:
        if send.value in sight.values or send.partition not in history.final or _deleted(history, send):
            continue
        last = sight.last_read.get(send.partition, -1)
        if send.offset > last:
            yield Evidence(
                f"{send.value}, acknowledged at {send.partition}@{send.offset}, is missing: the last "
                f"record is {last}",
                (send.value,),
            )


def _duplicates(history: History, sight: _Sight) -> Iterator[Evidence]:
    where: dict[int, set[tuple[TopicPartition, int]]] = defaultdict(set)
    for place in sight.places:
        where[place.value].add((place.partition, place.offset))
    for send in _with_offset(history):
        where[send.value].add((send.partition, send.offset))
    for value, stands in sorted(where.items()):
        if len(stands) > 1:
            places = ", ".join(f"{partition}@{offset}" for partition, offset in sorted(stands))
            yield Evidence(f"{value} at {places}", (value,))


def _inconsistent_offsets(history: History, sight: _Sight) -> Iterator[Evidence]:
    said: dict[tuple[TopicPartition, int], set[int]] = defaultdict(set)
    for place in sight.places:
        said[place.partition, place.offset].add(place.value)
    for send in _with_offset(history):
        said[send.partition, send.offset].add(send.value)
    for (partition, offset), values in sorted(said.items()):
        if len(values) > 1:
            both = tuple(sorted(values))
            yield Evidence(f"{partition}@{offset} holds {', '.join(map(str, both))}", both)


def _offset_reuse(history: History, sight: _Sight) -> Iterator[Evidence]:
    first: dict[tuple[TopicPartition, int], int] = {}
    for send in _with_offset(history):
        holder = first.setdefault((send.partition, send.offset), send.value)
        if holder != send.value:
            yield Evidence(
                f"{send.partition}@{send.offset} was acknowledged for {holder} and for {send.value}",
                (holder, send.value),
            )


def _aborted_reads(history: History, sight: _Sight) -> Iterator[Evidence]:
    for send in history.sends.values():
        if send.outcome is Outcome.REFUSED and send.value in sight.values:
            yield Evidence(f"{send.value} was refused by {send.partition}, yet was read", (send.value,))


def _leaks(history: History, sight: _Sight) -> Iterator[Evidence]:
    for partition, records in history.final.items():
        if not records and partition not in history.begins:
            continue  # all of it may have been deleted
        kept = {(record.offset, record.value) for record in records}
        first = history.begins[partition] if partition in history.begins else records[0].offset
        for offset, values in sorted(sight.read[partition].items()):
            for value in sorted(values):
                if offset >= first and (offset, value) not in kept:
                    yield Evidence(f"{value} was read at {partition}@{offset} and has disappeared", (value,))


def _nonmonotonic_sends(history: History, sight: _Sight) -> Iterator[Evidence]:
    before: dict[tuple[str, TopicPartition], Send] = {}
    forgotten = _forgotten(history)
    for send in history.sends.values():  # in the order of sending
        if send.offset < 0:
            continue
        last = before.get((send.by, send.partition))
        if last is not None and last.offset >= send.offset and last.value not in forgotten:
            yield Evidence(
                f"{send.by} sent {last.value}, then {send.value} to {send.partition}, but their "
                f"offsets are {last.offset} and {send.offset}",
                (last.value, send.value),
            )
        before[send.by, send.partition] = send


def _forgotten(history: History) -> set[int]:
    """Values in flight at such a loss, or sent before the next acknowledgement: they may be reordered."""
    found = set[int]()
    for lost_s in history.losses:
        later = [send for send in reversed(history.acknowledgements) if send.settled_s >= lost_s]
        again = {send.partition: send.settled_s for send in later}
        for send in history.sends.values():
            if not 0 <= send.settled_s < lost_s and send.sent_s <= again.get(send.partition, send.sent_s):
                found.add(send.value)
    return found


class _Step(NamedTuple):
    """Two records of one partition that a reader got one after the other; `earlier` has the value NOTHING if
    the reader was moved to what comes after it.
    """

    by: str
    earlier: Place
    later: Place
    in_one_poll: bool

    def __str__(self) -> str:
        moved, at = self.earlier.value == NOTHING, self.earlier.offset
        after = f"first, though it was to begin at @{at + 1}" if moved else f"after @{at}"
        return f"{self.by} got {self.later.partition}@{self.later.offset} {after}"

    def values(self, *between: int) -> tuple[int, ...]:
        found = (self.earlier.value, *between, self.later.value)
        return tuple(value for value in found if value != NOTHING)


def _steps(history: History) -> Iterator[_Step]:
    last: dict[tuple[str, int, TopicPartition], tuple[Place, int]] = {
        (*reader, partition): (Place(partition, offset - 1, NOTHING), NO_POLL)
        for reader, to in history.starts.items()
        for partition, offset in to.items()
    }
    for number, poll in enumerate(history.polls):
        for place in poll.records:
            reader = (poll.by, poll.turn, place.partition)
            if reader in last:
                earlier, at = last[reader]
                yield _Step(poll.by, earlier, place, at == number)
            last[reader] = (place, number)


def _backwards(history: History, in_one_poll: bool) -> Iterator[Evidence]:
    for step in _steps(history):
        if step.in_one_poll is in_one_poll and step.later.offset <= step.earlier.offset:
            yield Evidence(str(step), step.values())


def _skips(history: History, sight: _Sight, in_one_poll: bool) -> Iterator[Evidence]:
    """A gap between offsets is a skip only if some client has read a record in it."""
    for step in _steps(history):
        _, earlier, later, together = step
        if together is not in_one_poll or later.offset <= earlier.offset + 1:
            continue
        seen = sight.read[later.partition]
        missed = [offset for offset in range(earlier.offset + 1, later.offset) if offset in seen]
        if missed:
            yield Evidence(f"{step}, skipping @{missed[0]}", step.values(min(seen[missed[0]])))


def _realtime_order(history: History, sight: _Sight) -> Iterator[Evidence]:
    """A record sent after an acknowledgement must get a higher offset than the acknowledged one."""
    events: dict[TopicPartition, list[tuple[float, int, Send]]] = defaultdict(list)
    for send in _with_offset(history):
        events[send.partition] += [(send.sent_s, 0, send), (send.settled_s, 1, send)]
    for partition, of in events.items():
        highest: Send | None = None
        known_at_start: dict[int, Send | None] = {}
        for _, settled, send in sorted(of, key=lambda event: event[:2]):
            if not settled:
                known_at_start[send.value] = highest
                continue
            known = known_at_start[send.value]
            if known is not None and send.offset <= known.offset:
                yield Evidence(
                    f"{send.value} was sent after {partition}@{known.offset} was "
                    f"acknowledged, but got the lower offset {send.offset}",
                    (known.value, send.value),
                )
            highest = send if highest is None or send.offset > highest.offset else highest


def _stale_ends(history: History, sight: _Sight) -> Iterator[Evidence]:
    highest: dict[TopicPartition, tuple[list[float], list[Send]]] = defaultdict(lambda: ([], []))
    for send in _with_offset(history):  # by the time of their acknowledgement
        times, sends = highest[send.partition]
        times.append(send.settled_s)
        sends.append(send if not sends or send.offset > sends[-1].offset else sends[-1])
    for partition, end, asked_s in history.ends:
        times, sends = highest[partition]
        before = bisect_left(times, asked_s)
        if before and end <= sends[before - 1].offset:
            yield Evidence(
                f"ListOffsets answered {end} as the end of {partition} after {sends[before - 1].offset} had "
                "been acknowledged",
                (sends[before - 1].value,),
            )


SEARCHES = {
    Anomaly.LOST_WRITE: _lost_writes,
    Anomaly.UNSEEN: _unseen,
    Anomaly.DUPLICATE: _duplicates,
    Anomaly.INCONSISTENT_OFFSETS: _inconsistent_offsets,
    Anomaly.OFFSET_REUSE: _offset_reuse,
    Anomaly.ABORTED_READ: _aborted_reads,
    Anomaly.HW_LEAK: _leaks,
    Anomaly.NONMONOTONIC_SEND: _nonmonotonic_sends,
    Anomaly.NONMONOTONIC_POLL: lambda history, sight: _backwards(history, False),
    Anomaly.INT_NONMONOTONIC_POLL: lambda history, sight: _backwards(history, True),
    Anomaly.POLL_SKIP: lambda history, sight: _skips(history, sight, False),
    Anomaly.INT_POLL_SKIP: lambda history, sight: _skips(history, sight, True),
    Anomaly.REALTIME_ORDER: _realtime_order,
    Anomaly.STALE_END: _stale_ends,
}

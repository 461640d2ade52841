"""What a log should hold, as plain lists: batches, epochs, producers, and all that was ever written.

After a power loss nobody knows in advance what is left. Then the model says what may be and what must be, and
goes on from there.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.batches import BatchHeader, headers, read_header
from strandline.protocol.records import Record, iterate
from strandline.storage.log.log import Log
from strandline.storage.segment.file_names import LOG

Known = tuple[int, int, int, int]  # first and last sequence, first and last offset
Fact = tuple[int, int, int, bytes | None, bytes | None]  # offset, epoch, timestamp, key, value
KEPT = 5


class Entry(NamedTuple):
    """A batch as it stands in the log."""

    base: int
    next: int
    data: bytes

    @property
    def header(self) -> BatchHeader:
        return read_header(self.data)

    @property
    def records(self) -> list[Record]:
        return list(iterate(self.data))


def entries_of(data: bytes) -> list[Entry]:
    """The batches of a run."""
    return [Entry(h.base_offset, h.next_offset, data[at : at + h.size]) for at, h in headers(data)]


def facts_of(entries: list[Entry], start: int = 0) -> set[Fact]:
    """The records from `start` on."""
    return {
        (r.offset, entry.header.leader_epoch, r.timestamp, r.key, r.value)
        for entry in entries
        for r in entry.records
        if r.offset >= start
    }


def read_all(log: Log, bytes_max: int = 1 << 20) -> list[Entry]:
    """Everything that the log serves."""
    found: list[Entry] = []
    offset = log.start_offset
    while data := bytes(log.read(offset, bytes_max, log.end_offset)):
        found += entries_of(data)
        offset = found[-1].next
    return found


def stored(log: Log) -> list[Entry]:
    """Everything that its segments hold, also before its start."""
    return [e for segment in log.segments for e in entries_of(log.disk.read(segment.path(LOG)))]


@dataclass
class LogModel:
    """A log. `entries` go back to the first segment, `start` may lie behind that."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    flushed: int = 0
    lineage: list[Entry] = field(default_factory=list)  # also what retention and compaction took away
    ever: set[Fact] = field(default_factory=set)  # also what was cut
    certain: bool = True  # of each producer all five last batches are known; a power loss may take some
    gaps: set[int] = field(default_factory=set)  # offsets that compaction, here or elsewhere, ever left out
    surely: dict[int, int] = field(default_factory=dict)  # by producer, but for those before this offset

    @property
    def served(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.next > self.start]

    @property
    def records(self) -> list[Record]:
        return [r for entry in self.served for r in entry.records if r.offset >= self.start]

    @property
    def epoch(self) -> int:
        """The newest one, be it only of records before the start."""
        last = self.entries[-1:]
        return max([0, *(epoch for epoch, _ in self.epochs[-1:]), *(e.header.leader_epoch for e in last)])

    def append(self, data: bytes) -> None:
        for entry in entries_of(data):
            self.gaps |= set(range(self.entries[-1].next if self.entries else self.start, entry.base))
            self.entries.append(entry)
            self.lineage.append(entry)
            self.ever |= facts_of([entry])
            self.end = entry.next
            epoch = entry.header.leader_epoch
            if not self.epochs or epoch > self.epochs[-1][0]:
                self.begin_epoch(epoch, entry.base)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        self.epochs = [*(known for known in self.epochs if known[1] < offset), (epoch, offset)]

    def cut(self, offset: int) -> None:
        """A batch that holds `offset` goes as a whole."""
        offset = max(offset, self.start)
        if offset < self.end:
            self.end = next((e.base for e in self.entries if e.base < offset < e.next), offset)
            if self.end < self.start:
                self.restart(self.start)
        self.entries = [entry for entry in self.entries if entry.next <= self.end]
        for producer, known in self.producers().items():  # what goes may just be taken back
            self.surely[producer] = max(known[0][2], self.surely.get(producer, 0))
        self.lineage = [entry for entry in self.lineage if entry.next <= self.end]
        self.epochs = [entry for entry in self.epochs if entry[1] < min(offset, self.end)]
        self.flushed = min(self.flushed, self.end)

    def move_start(self, offset: int) -> None:
        if not self.start < offset <= self.end:
            return
        self.start = offset
        before = [entry for entry in self.epochs if entry[1] <= offset]
        begun = [(epoch, offset) for epoch, _ in before[-1:]]
        self.epochs = [*begun, *self.epochs[len(before) :]]

    def restart(self, offset: int) -> None:
        self.entries, self.lineage, self.epochs, self.surely = [], [], [], {}
        self.start = self.end = self.flushed = offset

    def behind_a_batch(self, offset: int) -> int:
        """`offset`, or an earlier one if a cut there would make the log end in a gap: nothing would tell of
        such an end at the next start.
        """
        end = next((e.base for e in self.entries if e.base < offset < e.next), offset)
        last = max([self.start, *(e.next for e in self.entries if e.next <= end)])
        return offset if last == end or end < self.start or offset >= self.end else last

    # -- producers

    def producers(self) -> dict[int, list[Known]]:
        """Of each producer its last batches."""
        found: dict[int, list[Known]] = {}
        for entry in self.lineage:
            header = entry.header
            if header.producer_id >= 0:
                known = (header.base_sequence, header.last_sequence, entry.base, entry.next - 1)
                found[header.producer_id] = [*found.get(header.producer_id, []), known][-KEPT:]
        return found

    def next_sequence(self, producer: int) -> int:
        known = self.producers().get(producer)
        return known[-1][1] + 1 if known else 0

    def check_producers(self, log: Log) -> None:
        wanted = self.producers()
        for producer in {*wanted, *(id for id, _, _ in log.producers.last_batches())}:
            state = log.producers.get(producer)
            actual = [each[:4] for each in state.batches] if state is not None else []
            mine = wanted.get(producer, [])
            if self.certain:
                sure = [each for each in mine if each[2] >= self.surely.get(producer, 0)]
                assert len(actual) >= len(sure) and actual == mine[len(mine) - len(actual) :], (
                    f"producer {producer} of {log.producers.last_batches()}"
                )
            everything = {
                (e.header.base_sequence, e.header.last_sequence, e.base, e.next - 1)
                for e in self.lineage
                if e.header.producer_id == producer
            }
            assert set(actual) <= everything, "a batch that is not here would be taken for stored"
            here = [entry.next - 1 for entry in self.served if entry.header.producer_id == producer]
            last = actual[-1][3] if actual else -1
            assert last >= max(here, default=-1), "a batch that is here would be stored again"

    def take_producers(self, log: Log) -> None:
        """Go on with what the log knows of its producers after a start."""
        self.check_producers(log)
        if not self.certain:
            last = {-1: self.end, **{id: offset for id, offset, _ in log.producers.last_batches()}}
            self.lineage = [e for e in self.lineage if e.next - 1 <= last.get(e.header.producer_id, -1)]

    def check_epochs(self, log: Log, found: list[Entry]) -> None:
        """The epoch of each batch, or nothing: what was deleted and came back is not told of."""
        for entry in found:
            known = log.epochs.epoch_at(max(entry.base, log.start_offset))
            assert known in (-1, entry.header.leader_epoch)

    # -- after a power loss

    def check_holes(self, found: list[Entry], end: int) -> None:
        """Of what was not flushed the end may be gone, and what was deleted; nothing in the middle, compacted
        or not. But what was cut may be back, and with it the gaps that it had.
        """
        reached = {offset for entry in found for offset in range(entry.base, entry.next)}
        if {entry.data for entry in found} - {entry.data for entry in self.lineage}:
            reached |= self.gaps
        for entry in self.entries:
            if self.flushed <= entry.base and self.start < entry.next <= end:
                assert reached & set(range(entry.base, entry.next)), (
                    f"a hole at {entry.base}, the end is {end}"
                )

    def adopt(self, log: Log, told: bool) -> None:
        """Hold what a power loss has left against what must be left, and go on with it. `told`: the start
        spoke of a loss, as it must of an end that it cannot find, though no record is missing.
        """
        found = read_all(log)
        assert log.start_offset <= self.start, "records are hidden"
        assert log.end_offset >= self.flushed or told, "records that were flushed are gone"
        facts = facts_of(found, log.start_offset)
        assert facts <= self.ever, "records that were never written"
        must = {fact for fact in facts_of(self.entries, self.start) if fact[0] < self.flushed}
        assert must <= facts, "flushed records are gone from the middle"
        self.check_epochs(log, found)
        self.check_holes(found, log.end_offset)
        held = {entry.data for entry in found}
        sure = max(self.flushed, log.start_offset)  # only what was flushed is compacted away
        others = {(e.base, e.next) for e in found} - {
            (e.base, e.next) for e in self.lineage if e.data in held
        }
        stays = [
            e for e in self.lineage if e.data in held or (e.next <= sure and (e.base, e.next) not in others)
        ]  # a batch that was cut may have come back in the place of a later one
        known = {(e.base, e.next) for e in stays}
        self.lineage = sorted([*stays, *(e for e in found if (e.base, e.next) not in known)])
        self.entries, self.epochs = stored(log), list(log.epochs.entries)
        self.start, self.end, self.flushed = log.start_offset, log.end_offset, log.flushed_offset
        self.certain = False
        self.take_producers(log)

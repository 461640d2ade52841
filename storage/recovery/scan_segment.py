"""Scan a segment batch by batch, trust nothing, and find where it stops being good.

A batch cut short at the very end is a torn write, which was never acknowledged. Anything else that is wrong
is corruption. The CRC does not cover base offset, length, epoch and magic, so these are checked against the
neighbours, and epochs also against the kept history.
Batches that simply continue are passed in one tight loop; any other one is checked by all rules.
Left to others: what is done about it (recover_log.py).
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from struct import Struct

from crc32c import crc32c

from ...base.values import dataclass
from ...protocol.batches import (
    ATTRIBUTES_AT,
    BASE_OFFSET,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    crc_ok,
    read_header,
)
from ...protocol.markers import EndMarker
from ..log.producer_state import BATCHES_KEPT, OF_TRANSACTIONS
from ..segment.batch_walk import marker_in
from ..segment.index import RELATIVE_MAX, OffsetIndex, TimeIndex
from ..segment.segment import NO_TIME, Segment

BLOCK_BYTES = 1 << 20
FLAGS_AT = ATTRIBUTES_AT + 1  # the lower byte of the attributes
MAGIC_BYTE, MAGIC_AT = bytes([MAGIC]), 16
# base offset, length, epoch, magic, CRC, last offset delta, newest timestamp, producer id, its sequence
_read_batch = Struct(">qiibI2xi8xqq2xi").unpack_from


class Fault(Enum):
    """Why a scan stopped before the end of a segment."""

    NONE = "none"
    TORN = "torn"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a segment before it is scanned."""

    offset: int  # of its first batch
    epoch: int = -1  # of the batch before
    gaps: bool = False  # offsets may be missing: it has been compacted
    index_interval: int = 4096
    epochs: Mapping[int, int] | None = None  # start of each epoch, by the kept history, if it is complete
    same_boot: bool = True  # written data cannot have been lost from the page cache
    producers_max: int = 10_000


@dataclass(slots=True)
class Scan:
    """The result of a scan: good up to `valid_bytes`, which is offset `end_offset`."""

    segment: Segment
    end_offset: int
    valid_bytes: int = 0
    fault: Fault = Fault.NONE
    reason: str = ""
    is_prefix: bool = False  # the torn part is the beginning of one batch, nothing else
    epochs: list[tuple[int, int]] = field(default_factory=list)
    index: OffsetIndex = field(default_factory=OffsetIndex)
    times: TimeIndex = field(default_factory=TimeIndex)
    newest: tuple[int, int] = (NO_TIME, 0)  # the largest timestamp and the last offset of its batch
    unindexed: int = 0  # bytes after the last index entry
    producers: dict[int, deque[tuple[int, bytes]]] = field(default_factory=dict)
    begun: list[tuple[int, bytes]] = field(default_factory=list)  # the first batch of each transaction
    without_sequence: list[tuple[int, bytes]] = field(default_factory=list)  # of producers: markers
    markers: dict[int, EndMarker] = field(default_factory=dict)  # by position

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    @property
    def has_aborts(self) -> bool:
        """Whether it has the marker of an aborted transaction."""
        return any(at < self.valid_bytes and not marker.committed for at, marker in self.markers.items())

    def of_producers(self) -> list[tuple[BatchHeader, EndMarker | None]]:
        """The batches that the producer state is made of, in log order, each with its marker if any."""
        kept = {entry for entries in self.producers.values() for entry in entries}
        kept.update(self.begun, self.without_sequence)
        return [
            (read_header(head), self.markers.get(at)) for at, head in sorted(kept) if at < self.valid_bytes
        ]


def scan(segment: Segment, expected: Expected, advance: Callable[[int], None] = lambda _: None) -> Scan:
    """Check every batch of `segment`; `advance` is told of bytes as they are done."""
    scanner = _Scanner(segment, expected, advance)
    while scanner.position < segment.size and scanner.found.fault is Fault.NONE:
        scanner.step()
        scanner.stretch()
    scanner.finish()
    return scanner.found


class _Scanner:
    """One pass over a segment, one block of its bytes at a time."""

    def __init__(self, segment: Segment, expected: Expected, advance: Callable[[int], None]) -> None:
        self.segment = segment
        self.expected = expected
        self.found = Scan(segment, expected.offset)
        self.position = 0
        self._advance = advance
        self._told = 0
        self._block = memoryview(b"")
        self._at = 0  # where the block begins
        self._epoch = expected.epoch
        self._before = expected.epoch  # the epoch of the run of batches before the current one
        self._run_at = self._run_end = 0  # where the current run begins, and the end of its first batch
        self._newest, self._newest_offset = NO_TIME, segment.base_offset
        self._unindexed = 0
        self._inside: set[int] = set()  # producers with a transaction that began here and has no end yet

    def _window(self, position: int, size: int) -> memoryview:
        """`size` bytes at `position`, or fewer at the segment's end."""
        skip = position - self._at
        if skip < 0 or skip + size > len(self._block):
            self._advance(max(position - self._told, 0))
            self._told = max(position, self._told)
            self._block = memoryview(self.segment.file.pread(position, max(size, BLOCK_BYTES)))
            self._at, skip = position, 0
        return self._block[skip : skip + size]

    def finish(self) -> None:
        """Complete the result: the segment is done, or the rest will not be scanned."""
        self._advance(self.segment.size - self._told)
        found = self.found
        found.valid_bytes = min(self.position, self.segment.size)
        assert found.end_offset >= self.expected.offset, "offsets never go back"
        found.newest, found.unindexed = (self._newest, self._newest_offset), self._unindexed

    # Most batches.

    def stretch(self) -> None:
        """Pass the batches of the block that simply continue; stops before the first that does not.

        All that `Segment.placed` keeps is kept here in local variables: a start waits for this loop.
        """
        found, block, first = self.found, self._block, self.segment.base_offset
        skip, last, last_producer = self.position - self._at, len(self._block) - HEADER_SIZE, -1
        offset, epoch, interval = found.end_offset, self._epoch, self.expected.index_interval
        newest, newest_offset, unindexed = self._newest, self._newest_offset, self._unindexed
        if found.fault is not Fault.NONE:
            return
        while skip <= last:
            base, length, own, magic, crc, delta, time, producer, sequence = _read_batch(block, skip)
            end = skip + length + LENGTH_END
            if (
                base != offset
                or own != epoch
                or magic != MAGIC
                or delta < 0
                or length < HEADER_SIZE - LENGTH_END
                or end > last + HEADER_SIZE
                or base + delta - first > RELATIVE_MAX
                or crc32c(block[skip + CRC_FROM : end]) != crc
            ):
                break
            offset = base + delta
            if time > newest:
                newest, newest_offset = time, offset
            if unindexed > interval:
                found.index.append(offset - first, self._at + skip)
                found.times.append(newest, newest_offset - first)
                unindexed = 0
            if producer >= 0:
                head = bytes(block[skip : skip + HEADER_SIZE])
                if head[FLAGS_AT] & OF_TRANSACTIONS:
                    self._transact(producer, self._at + skip, head, block[skip:end])
                if producer == last_producer and sequence >= 0:
                    found.producers[producer].append((self._at + skip, head))
                else:
                    self._produced(producer, sequence, self._at + skip, head)
                    last_producer = producer if sequence >= 0 else -1
            unindexed += end - skip
            offset += 1
            skip = end
        self.position, found.end_offset = self._at + skip, offset
        self._newest, self._newest_offset, self._unindexed = newest, newest_offset, unindexed

    def _produced(self, producer: int, sequence: int, position: int, head: bytes) -> None:
        """Remember the last batches of each producer, the most recently active at the end."""
        if sequence < 0:
            if head[FLAGS_AT] & OF_TRANSACTIONS != TRANSACTIONAL:  # of those the first is enough
                self.found.without_sequence.append((position, head))
            return
        recent = self.found.producers
        kept = recent.pop(producer, None)
        if kept is None:
            kept = deque(maxlen=BATCHES_KEPT)
            if len(recent) >= self.expected.producers_max:
                del recent[next(iter(recent))]
        recent[producer] = kept
        kept.append((position, head))

    def _transact(self, producer: int, position: int, head: bytes, batch: memoryview) -> None:
        """Remember where transactions begin, and how they end."""
        header = read_header(head)
        if not header.is_control:
            if producer not in self._inside:
                self._inside.add(producer)
                self.found.begun.append((position, head))
            return
        marker = marker_in(batch, 0, header)
        if marker is not None:
            self._inside.discard(producer)
            self.found.markers[position] = marker

    # One batch that needs a closer look: a block ends, an epoch begins, offsets leap, or it is not good.

    def step(self) -> None:
        """Check the batch at the current position by all rules; accept it or note the fault."""
        found, position, size = self.found, self.position, self.segment.size
        head = self._window(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return self._cut_short(f"only {len(head)} bytes of a batch header at {position}")
        header = read_header(head)
        wrong = self._misplaced(header)
        if not wrong and position + header.size > size:
            if not self._followed(header):
                return self._cut_short(f"the batch at {position} is truncated")
            wrong = "its length exceeds its records"
        if not wrong and not crc_ok(self._window(position, header.size), 0, header):
            wrong = "the checksum does not match"
        if not wrong and header.leader_epoch != self._epoch:
            if self._was_lone_lie(header):
                return self._take_back(header)
            wrong = self._new_epoch(header)
        if wrong:
            torn = not self.expected.same_boot and not self._goes_on()
            found.fault = Fault.TORN if torn else Fault.CORRUPT
            found.reason = f"{self.segment.base_offset}@{position}: {wrong}"
            return None
        self._window(position, header.size)
        return self._enter(header)

    def _cut_short(self, reason: str) -> None:
        self.found.fault, self.found.reason, self.found.is_prefix = Fault.TORN, reason, True

    def _misplaced(self, header: BatchHeader) -> str:
        """What is wrong with its shape or offsets; empty if nothing."""
        next_offset = self.found.end_offset
        if header.magic != MAGIC or header.size < HEADER_SIZE or header.last_offset_delta < 0:
            return "it is not a batch"
        if header.base_offset < next_offset or (header.base_offset > next_offset and not self.expected.gaps):
            return f"it has offset {header.base_offset}, expected {next_offset}"
        if header.last_offset - self.segment.base_offset > RELATIVE_MAX:
            return f"it ends at {header.last_offset}, too far from the segment's first offset"
        return ""

    def _new_epoch(self, header: BatchHeader) -> str:
        """What is wrong with an epoch that differs from the batch before; empty if nothing.

        On the boot that wrote them, every epoch was saved before its first batch. Where the two disagree the
        file may be the wrong one: if only one number differs and the next batch has the same epoch, the
        batches are believed.
        """
        epoch, base, expected = header.leader_epoch, header.base_offset, self.expected
        if epoch < self._epoch:
            return f"it has leader epoch {epoch} after {self._epoch}"
        kept = expected.epochs if expected.same_boot else None
        if not kept or base < min(kept.values()):
            return ""
        start = kept.get(epoch)
        if start == base or (start is not None and expected.gaps and start < base):
            return ""
        if self._next_epoch(header) == epoch and (start is not None or base in kept.values()):
            return ""
        return (
            f"it has leader epoch {epoch}, which the checkpoint "
            f"{'lacks' if start is None else f'has at {start}'}"
        )

    def _next_epoch(self, header: BatchHeader) -> int | None:
        head = self._window(self.position + header.size, HEADER_SIZE)
        return read_header(head).leader_epoch if len(head) == HEADER_SIZE else None

    def _enter(self, header: BatchHeader) -> None:
        """The batch is good: continue in its epoch, from its offset. `stretch` passes it."""
        if header.leader_epoch != self._epoch or not self.found.epochs:
            self.found.epochs.append((header.leader_epoch, header.base_offset))
            self._before, self._epoch = self._epoch, header.leader_epoch
            self._run_at, self._run_end = self.position, self.position + header.size
        self.found.end_offset = header.base_offset

    def _was_lone_lie(self, header: BatchHeader) -> bool:
        """Whether only the last batch's epoch was too high, and this one's is right again."""
        known = self.expected.epochs
        return (
            self._before <= header.leader_epoch < self._epoch
            and 0 < self._run_end == self.position
            and (known is None or known.get(self._epoch) != self.found.epochs[-1][1])
        )

    def _take_back(self, header: BatchHeader) -> None:
        """The last batch's epoch is impossible: the good part ends before it."""
        found = self.found
        lie, offset = found.epochs.pop()
        found.index.truncate(self._run_at)
        found.times.truncate(offset - self.segment.base_offset)
        self.position, found.end_offset = self._run_at, offset
        found.fault = Fault.CORRUPT
        found.reason = (
            f"{self.segment.base_offset}@{self._run_at}: it has leader epoch {lie}, "
            f"{header.leader_epoch} follows"
        )

    def _followed(self, header: BatchHeader) -> bool:
        """Whether `header`'s length is wrong: the batch is complete, or a good one lies inside its range."""
        data = self.segment.file.pread(self.position, self.segment.size - self.position)
        if crc32c(memoryview(data)[CRC_FROM:]) == header.crc:
            return True
        wanted = BASE_OFFSET.pack(header.next_offset)
        at = data.find(wanted, HEADER_SIZE)
        while 0 <= at <= len(data) - HEADER_SIZE:
            following = read_header(data, at)
            if following.magic == MAGIC and crc_ok(data, at, following):
                return True
            at = data.find(wanted, at + 1)
        return False

    def _goes_on(self) -> bool:
        """Whether there is a good batch anywhere further on. If not, the end of the file was never completely
        written: after a power loss it may hold anything.
        """
        segment, next_offset = self.segment, self.found.end_offset
        for start in range(self.position + 1, segment.size, BLOCK_BYTES):
            data = segment.file.pread(start, BLOCK_BYTES + HEADER_SIZE)
            at = data.find(MAGIC_BYTE, MAGIC_AT)
            while 0 <= at <= len(data) - HEADER_SIZE + MAGIC_AT:
                header = read_header(data, at - MAGIC_AT)
                place = start + at - MAGIC_AT
                if (
                    0 < header.base_offset - next_offset <= RELATIVE_MAX
                    and HEADER_SIZE <= header.size <= segment.size - place
                    and crc_ok(segment.file.pread(place, header.size), 0, header)
                ):
                    return True
                at = data.find(MAGIC_BYTE, at + 1)
        return False

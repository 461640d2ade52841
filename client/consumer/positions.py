"""A consumer's position in each partition, and the records it holds of it. Pure.

Three offsets per partition: `fetch_at` is what the next fetch asks for, `cursor` what is decoded next,
`position` what the caller gets next (and what a commit writes). A seek moves all three and increases `age`:
the answer to a fetch of an earlier age is dropped.
Beside each is the leader epoch of the record before it, as far as it is known: by that a leader notices that
records were read that its log does not have (KIP-320), also after a restart, for commits bear it, too.
Records are handed out in runs, which only count how far the caller is; `position` and `processed` are
computed from that when somebody asks.
Left to others: where to begin, by the group's commit or auto.offset.reset (fetcher.py), groups (group.py),
records out of bytes (unpacking.py), what callers see (consumer.py).
Why: docs/decisions/0057-records-are-handed-out-in-runs.md,
docs/decisions/0069-a-position-belongs-to-a-topic-and-a-history.md
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...base.types import NO_EPOCH, TopicPartition
from ...protocol.batches import BatchHeader, crc_ok, headers
from ...protocol.errors import ApiError
from ...protocol.markers import read_marker
from ...protocol.primitives import NO_UUID, Buffer, Malformed
from ..arguments import OFFSET_MAX
from ..results import ConsumerRecord
from .unpacking import OpenBatch, Unpacker

if TYPE_CHECKING:
    from ...protocol.columns import Columns

Located = tuple[int, BatchHeader]  # a batch: where it begins in its buffer

CHUNKS_MAX = 2  # of a partition, held at once: one being read, one waiting


@dataclass(slots=True, eq=False)
class FetchedBatches:
    """One fetch's batches of one partition that readers may see; the first may begin before `start`."""

    records: Buffer
    start: int
    next_offset: int
    batches: list[Located]
    last_epoch: int = NO_EPOCH  # of the last batch before `next_offset`, whether readers see it or not
    nbytes: int = field(init=False)  # held as long as one of the batches is
    done: int = 0  # batches that were read to their end
    open: OpenBatch | None = None  # the next one, if some of its records were taken

    def __post_init__(self) -> None:
        self.nbytes = len(self.records)


class Run:
    """Records of one partition on their way to the caller, who has had those before `at`.

    Who hands out one record increases `at`, and that is all it does: also from another thread. A run that is
    over, because its partition is read from elsewhere now, has its `end` before `at`.
    """

    __slots__ = ("at", "end", "place", "records")

    def __init__(self, place: "PartitionPosition | None", records: list[ConsumerRecord]) -> None:
        self.place = place
        self.records = records
        self.at = 0
        self.end = len(records)


@dataclass(slots=True, eq=False)
class PartitionPosition:
    """A consumer's position in one partition."""

    partition: TopicPartition
    cursor: int = 0
    fetch_at: int = 0
    cursor_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH  # of what is before `fetch_at`
    topic_id: UUID = NO_UUID  # of the topic that the position is known to be of
    lost_at: int | None = None  # the position that the log did not have, while another is being looked up
    reset_to: int | None = None  # a time to look up; None: the committed offset, then the policy
    unsure_at: int | None = None  # where to go on if nothing is committed, though the policy says the end
    age: int = 0
    is_paused: bool = False
    is_withheld: bool = False  # a listener is being told of it, and may say where to begin
    is_settling: bool = False
    not_before: float = 0.0
    nearer: int = -1  # the replica to ask instead of the leader
    nearer_until: float = 0.0
    leader_only_until: float = 0.0
    superseded_until: float = 0.0  # so long a leader of an earlier epoch than the position's is not asked
    failures: int = 0
    turn: int = 0  # the later it had records, the later it is asked for in a fetch
    high_watermark: int = -1
    readable_end: int = -1  # as of the last fetch: the high watermark, or the last stable offset
    chunks: deque[FetchedBatches] = field(default_factory=deque)
    _position: int | None = field(default=None, init=False)
    _position_epoch: int = field(default=NO_EPOCH, init=False)
    _processed: int | None = field(default=None, init=False)
    _processed_epoch: int = field(default=NO_EPOCH, init=False)
    _run: Run | None = field(default=None, init=False)  # what is being handed out of it
    _counted: int = field(default=0, init=False)  # records of the run that the two offsets know of

    @property
    def position(self) -> int | None:
        """The offset that the caller gets next."""
        self._count()
        return self._position

    @property
    def position_epoch(self) -> int:
        """The leader epoch of the record before that."""
        self._count()
        return self._position_epoch

    @property
    def processed(self) -> int | None:
        """How far the caller was when it came back for more."""
        self._count()
        return self._processed

    @property
    def processed_epoch(self) -> int:
        """The leader epoch of the record before that."""
        self._count()
        return self._processed_epoch

    def stand_at(self, offset: int | None, epoch: int = NO_EPOCH) -> None:
        """The caller gets this offset next."""
        self._count()
        self._end_run()
        self._position, self._position_epoch = offset, epoch

    def done_up_to(self, offset: int | None, epoch: int = NO_EPOCH) -> None:
        """The caller is done with what is before this offset."""
        self._count()
        self._processed, self._processed_epoch = offset, epoch

    def catch_up(self) -> None:
        """What is before the cursor is handed out, or callers do not see it."""
        self.stand_at(self.cursor, self.cursor_epoch)

    def begin(self, run: Run) -> None:
        """This run is handed out from now on; one that it follows is at its end."""
        self._count()
        self._run, self._counted = run, 0

    def leave(self, run: Run) -> None:
        """Hand out nothing more of this run, whether it has begun or not, and let go of its records."""
        run.end = 0
        self._count()
        if self._run is run:
            self._run = None

    def hand_out(self, most: int) -> list[ConsumerRecord]:
        """Up to `most` records of the run at once."""
        self._count()
        run = self._run
        assert run is not None, "a run has begun"
        at, end = run.at, min(run.at + most, run.end)
        handed = run.records if end - at == len(run.records) else run.records[at:end]
        run.at = self._counted = end
        self._position, self._position_epoch = _behind(handed[-1])
        return handed

    def _count(self) -> None:
        """Look how far the caller is in the run: with each record it is done with the one before."""
        run = self._run
        if run is None or (at := run.at) == (counted := self._counted):
            return
        self._processed, self._processed_epoch = (
            _behind(run.records[at - 2]) if at - 1 > counted else (self._position, self._position_epoch)
        )
        self._position, self._position_epoch = _behind(run.records[at - 1])
        self._counted = at

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.end = 0
            self._run = None

    def is_of(self, topic_id: UUID) -> bool:
        """Whether the position may be of this topic."""
        return NO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id

    @property
    def nbytes(self) -> int:
        """Bytes held and not yet read."""
        return sum(chunk.nbytes for chunk in self.chunks)

    @property
    def holds_damage(self) -> bool:
        """Whether something is held that cannot be decoded. Then `fetch_at` may be of a wrong header, too."""
        return any(
            not crc_ok(chunk.records, at, header)
            for chunk in self.chunks
            for at, header in chunk.batches[chunk.done :]
        )

    @property
    def is_full(self) -> bool:
        """Whether enough is held already."""
        return len(self.chunks) >= CHUNKS_MAX

    def seek(self, offset: int) -> None:
        """Go on at `offset`: drop what is held or on its way. Everything before counts as done."""
        self._go_to(offset, NO_EPOCH)
        self.topic_id = NO_UUID  # the caller may mean one that was made after the one that is known

    def go_on(self, offset: int | None = None, epoch: int = NO_EPOCH) -> None:
        """Fetch again, from the position or from `offset`, before which a record of that leader epoch is. The
        caller may still be working on what it was handed last: this does not make it count as done."""
        before, processed, processed_epoch = self._handed_up_to, self.processed, self.processed_epoch
        if offset is None and before is None:
            offset, epoch = self.cursor, self.cursor_epoch
        elif offset is None:
            offset, epoch = before, self.position_epoch
        assert offset is not None, "one of them is known"
        self._go_to(offset, epoch)
        if processed is not None and processed != before:
            if processed <= offset:
                self.done_up_to(processed, processed_epoch)
            else:
                self.done_up_to(offset, epoch)

    def _go_to(self, offset: int, epoch: int) -> None:
        self.age += 1
        self.stand_at(offset, epoch)
        self.done_up_to(offset, epoch)
        self.cursor = self.fetch_at = offset
        self.cursor_epoch = self.last_epoch = epoch
        self.reset_to = self.lost_at = self.unsure_at = None
        self.chunks.clear()
        self.not_before, self.superseded_until, self.failures = 0.0, 0.0, 0

    def came_back(self) -> None:
        """The caller is done with what it was handed."""
        self.done_up_to(self._handed_up_to, self.position_epoch)

    @property
    def _handed_up_to(self) -> int | None:
        return self.lost_at if self.position is None else self.position

    def look_up(self, time: int | None) -> None:
        """Go on at the offset found by `time` (None: by commit and policy)."""
        self.lose(time)
        self.lost_at = None
        self.done_up_to(None)

    def look_up_commit(self) -> None:
        """Go on at what is committed; if nothing is, by policy, but no later than here."""
        at = self.position
        self.look_up(None)
        self.unsure_at = at

    def lose(self, time: int | None) -> None:
        """The log does not have the position; another will be found by `time`."""
        self.age += 1
        self.lost_at = self.position
        self.stand_at(None)
        self.reset_to, self.last_epoch, self.topic_id = time, NO_EPOCH, NO_UUID
        self.chunks.clear()
        self.not_before, self.failures = 0.0, 0

    def fetched(self, chunk: FetchedBatches) -> None:
        """Keep what was fetched; the next fetch goes on after it."""
        assert chunk.start == self.fetch_at, "an answer starts at the offset that was asked for"
        self.fetch_at, self.last_epoch = max(self.fetch_at, chunk.next_offset), chunk.last_epoch
        self.chunks.append(chunk)

    def take(self, most: int, unpacker: Unpacker, out: list[ConsumerRecord]) -> None:
        """Append up to `most` records of those held to `out`. What cannot be read is raised when the next
        record would be it, again and again; what came before it is in `out`."""
        most += len(out)
        while self.chunks and len(out) < most:
            chunk = self.chunks[0]
            if chunk.done == len(chunk.batches):
                self._finish()
                continue
            pos, header = chunk.batches[chunk.done]
            batch = chunk.open
            if batch is None:
                if header.last_offset < self.cursor:
                    chunk.done += 1
                    continue
                batch = unpacker.opened(self.partition, chunk.records, pos, header, self.cursor)
                chunk.open = batch
            before = len(out)
            try:
                if batch.take(most - len(out), out):
                    chunk.done += 1
                    chunk.open = None
            finally:
                self.cursor = max(self.cursor, batch.least)
                if len(out) > before:
                    self.cursor_epoch = header.leader_epoch

    def next_columns(self, verify: bool) -> "Columns | None":
        """All records of one fetch, as columns."""
        from ...protocol.columns import NEVER, runs

        while self.chunks:
            chunk = self.chunks[0]
            found = runs(
                chunk.records,
                lo=self.cursor,
                verify=verify,
                rows_max=NEVER,
                bytes_max=NEVER,
                batches=chunk.batches[chunk.done :],
            )
            columns = next(found, None)
            self._finish()
            if columns is not None and len(columns):
                return columns
        return None

    def columns_before_damage(self, verify: bool) -> "Columns | None":
        """After `next_columns` failed: the records of the batches before the first damaged one, or as many of
        them as are decoded at once. None if there are none: then the position is at the damage."""
        from ...protocol.columns import runs

        chunk = self.chunks[0]
        sound: list[Located] = []
        for located in chunk.batches[chunk.done :]:
            try:
                for _ in runs(chunk.records, lo=self.cursor, verify=verify, batches=[located]):
                    pass
            except (ApiError, ValueError, ArithmeticError, LookupError):
                break  # it is raised when the position gets there
            sound.append(located)
        columns = next(runs(chunk.records, lo=self.cursor, verify=verify, batches=sound), None)
        if columns is None or not len(columns):
            return None
        ends = {header.next_offset: header.leader_epoch for _, header in sound}
        self.cursor, self.cursor_epoch = columns.next_offset, ends.get(columns.next_offset, NO_EPOCH)
        return columns

    def _finish(self) -> None:
        chunk = self.chunks.popleft()
        if chunk.next_offset > self.cursor:
            self.cursor, self.cursor_epoch = chunk.next_offset, chunk.last_epoch


def _behind(record: ConsumerRecord) -> tuple[int, int]:
    """The offset after a record, and its leader epoch."""
    return record.offset + 1, record.leader_epoch


class Survey(NamedTuple):
    """What a fetch has brought: the batches that readers may see, the offset after the last complete one (or
    where it began, if there is none), and that one's leader epoch, -1 if there is none."""

    batches: list[Located]
    end: int
    last_epoch: int


def surveyed(records: Buffer, start: int, aborted: Iterable[tuple[int, int]] = ()) -> Survey:
    """Look once at the headers of what was fetched from `start` on.

    Readers see no control batches, and none of aborted transactions: `aborted` has (producer id, first
    offset) of each; an abort marker ends it. Raises Malformed if the first batch is a marker that cannot be
    read, or is none. Such a one later, and what lies behind it, is left for the next fetch.
    """
    waiting = deque(sorted(aborted, key=lambda one: one[1]))
    open_aborts: set[int] = set()
    kept: list[Located] = []
    end, epoch = start, -1
    found = headers(records)
    while True:
        try:
            at, header = next(found)
            if header.next_offset > OFFSET_MAX:  # no fetch could name it
                raise Malformed(f"batch at offset {header.base_offset}, and it ends above {OFFSET_MAX}")
            marker = read_marker(records, at, header) if header.is_control else None
        except StopIteration:
            break
        except Malformed:
            if end == start:
                raise
            break
        while waiting and waiting[0][1] <= header.last_offset:
            open_aborts.add(waiting.popleft()[0])
        if header.is_control:
            if marker is not None and not marker.committed:
                open_aborts.discard(header.producer_id)
        elif not (open_aborts and header.is_transactional and header.producer_id in open_aborts):
            kept.append((at, header))
        end, epoch = max(end, header.next_offset), header.leader_epoch
    return Survey(kept, end, epoch)

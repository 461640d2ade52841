"""A plain model of compaction, record by record over dictionaries, to hold the vectorised one against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct

from strandline.protocol.batches import HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, crc_ok, headers, seal
from strandline.protocol.compression import compress
from strandline.protocol.records import Record, iterate, signed

CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 7, 8, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1
MARKER = Struct(">hh")


@dataclass
class Batch:
    """A batch as a log holds it."""

    base_offset: int
    last_offset: int
    attributes: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    leader_epoch: int = 3
    records: list[Record] = field(default_factory=list)

    @property
    def horizon(self) -> int | None:
        return self.base_timestamp if self.attributes & HORIZON else None


def encode(batch: Batch) -> bytes:
    section = b"".join(_record(batch, record) for record in batch.records)
    if batch.attributes & CODEC and batch.records:
        section = compress(batch.attributes & CODEC, section)
    header = BatchHeader(
        batch.base_offset,
        HEADER_SIZE + len(section) - LENGTH_END,
        batch.leader_epoch,
        2,
        0,
        batch.attributes,
        batch.last_offset - batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer,
        batch.epoch,
        batch.sequence,
        len(batch.records),
    )
    out = bytearray(HEADER_SIZE + len(section))
    HEADER.pack_into(out, 0, *header)
    out[HEADER_SIZE:] = section
    seal(out, 0, len(out))
    return bytes(out)


def _record(batch: Batch, record: Record) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return signed(-1) if data is None else signed(len(data)) + data

    body = (
        b"\x00" + signed(record.timestamp - batch.base_timestamp) + signed(record.offset - batch.base_offset)
    )
    body += sized(record.key) + sized(record.value) + signed(len(record.headers))
    for name, value in record.headers:
        body += sized(name.encode()) + sized(value)
    return signed(len(body)) + body


def decode(data: bytes) -> list[Batch]:
    found = []
    for at, header in headers(data):
        assert crc_ok(data, at, header)
        found.append(
            Batch(
                header.base_offset,
                header.last_offset,
                header.attributes,
                header.base_timestamp,
                header.max_timestamp,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.leader_epoch,
                list(iterate(data[at : at + header.size])),
            )
        )
    assert sum(header.size for _, header in headers(data)) == len(data)
    return found


@dataclass
class Task:
    """What is to be cleaned and how; `later` stands behind it and is not cleaned."""

    segments: Sequence[list[Batch]]
    first_dirty: int
    upper: int
    now_ms: int
    later: Sequence[list[Batch]] = ()
    committed: int = 1 << 62
    retention_ms: int = 1000
    room: int = 1 << 30
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)


def marker_of(batch: Batch) -> int | None:
    if not batch.attributes & CONTROL or not batch.records:
        return None
    return int(MARKER.unpack_from(batch.records[0].key or b"")[1])


def compacted(task: Task) -> tuple[list[Batch], int]:
    """All batches that stay, of all segments that are rewritten, and up to where the log is clean then."""
    batches = [batch for segment in task.segments for batch in segment]
    fates = _fates(task)
    aborted = {offset for offset, fate in fates.items() if fate == ABORT}
    last, latest, end = _map(replace(task, upper=_upper(task, fates)), batches, aborted)
    if end == task.first_dirty:
        return [b for s in task.segments if s[0].base_offset < end for b in s], end
    kept: list[Batch] = []
    in_transaction: set[int] = set()
    rewritten = [b for segment in task.segments if segment and segment[0].base_offset < end for b in segment]
    for batch in rewritten:
        if batch.attributes & CONTROL:
            kind = marker_of(batch)
            idle = kind is None or (kind in (ABORT, COMMIT) and batch.producer not in in_transaction)
            if kind in (ABORT, COMMIT):
                in_transaction.discard(batch.producer)
            gone = kind is None or (idle and batch.horizon is not None and batch.horizon <= task.now_ms)
            records, sets_horizon = ([], False) if gone else (batch.records, idle)
        else:
            if batch.attributes & TRANSACTIONAL:
                in_transaction.add(batch.producer)
            records = [
                record
                for record in batch.records
                if batch.base_offset not in aborted and _stays(record, batch, last, latest, task.now_ms)
            ]
            sets_horizon = any(record.value is None for record in records)
        kept += _left(batch, records, sets_horizon, task)
    return kept, end


def fate_of(batch: Batch, following: Iterable[Batch]) -> int | None:
    """How the transaction of a batch ended: by the first marker of its producer behind it."""
    for other in following:
        follows = other.base_offset > batch.base_offset and other.producer == batch.producer
        if follows and (kind := marker_of(other)) in (ABORT, COMMIT):
            return kind
    return None


def _fates(task: Task) -> dict[int, int | None]:
    """Of each batch of a transaction in the dirty part, how that ended, as far as that is committed."""
    known = [b for s in [*task.segments, *task.later] for b in s if b.base_offset < task.committed]
    return {
        batch.base_offset: fate_of(batch, known)
        for batch in known
        if batch.attributes & TRANSACTIONAL and not batch.attributes & CONTROL and batch.records
        if task.first_dirty <= batch.base_offset < task.upper
    }


def _upper(task: Task, fates: dict[int, int | None]) -> int:
    """No further than the segment in which the first transaction without an end begins."""
    undecided = [offset for offset, fate in fates.items() if fate is None]
    if not undecided:
        return task.upper
    bases = [s[0].base_offset for s in task.segments if s and s[0].base_offset <= min(undecided)]
    return max([task.first_dirty, *bases])


def committed_view(segments: Iterable[list[Batch]]) -> dict[bytes, bytes]:
    """What a consumer that reads committed records alone has of each key at the end."""
    batches = [batch for segment in segments for batch in segment]
    view: dict[bytes, bytes] = {}
    for batch in batches:
        if batch.attributes & CONTROL:
            continue
        if batch.attributes & TRANSACTIONAL and fate_of(batch, batches) != COMMIT:
            continue
        for record in batch.records:
            if record.key is not None and record.value is not None:
                view[record.key] = record.value
            elif record.key is not None:
                view.pop(record.key, None)
    return view


def _map(task: Task, batches: Iterable[Batch], aborted: set[int]) -> tuple[dict[bytes, int], int, int]:
    last: dict[bytes, int] = {}
    latest = -1
    for batch in batches:
        if batch.attributes & CONTROL or batch.base_offset in aborted:
            continue
        for record in batch.records:
            if record.key is None or not task.first_dirty <= record.offset < task.upper:
                continue
            if record.key not in last and len(last) == task.room:
                return last, latest, latest + 1
            last[record.key] = latest = record.offset
    return last, task.upper - 1, task.upper


def _stays(record: Record, batch: Batch, last: dict[bytes, int], latest: int, now_ms: int) -> bool:
    if record.offset > latest:
        return True
    if record.key is None or record.offset < last.get(record.key, -1):
        return False
    return record.value is not None or batch.horizon is None or now_ms < batch.horizon


def _left(batch: Batch, records: list[Record], sets_horizon: bool, task: Task) -> list[Batch]:
    if not records:
        offset, epoch = task.producers.get(batch.producer, (-2, -2))
        control = bool(batch.attributes & CONTROL)
        of_producer = batch.last_offset == offset if offset != -1 else control and batch.epoch == epoch
        if batch.last_offset + 1 != task.upper and not (batch.producer >= 0 and of_producer):
            return []
        bare = batch.attributes & ~(CODEC | HORIZON)
        return [replace(batch, attributes=bare, base_timestamp=-1, records=[])]
    if sets_horizon and batch.horizon is None:
        batch = replace(
            batch,
            attributes=batch.attributes | HORIZON,
            base_timestamp=task.now_ms + task.retention_ms,
        )
    if batch.attributes & APPEND_TIME:
        return [replace(batch, records=records)]
    return [replace(batch, records=records, max_timestamp=max(record.timestamp for record in records))]

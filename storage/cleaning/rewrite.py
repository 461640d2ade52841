"""Which records of a piece of log stay, and their new bytes. The rules are Kafka's; offsets never change.

The last record of each key stays. A tombstone stays until the delete horizon of its batch has passed; the
first cleaning sets that horizon, in place of the batch's base timestamp (KIP-534). A batch that keeps all
records is copied byte for byte. One that loses records keeps its header except count, times and checksum; its
records are copied unchanged, because their deltas still refer to the same base. A batch without records stays
only as its producer's last one, or as the last one of the cleaning.
Left to others: the file (segment.py), which producers are active (broker/upkeep/compaction.py).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...protocol.batches import CODEC_MASK, HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, seal
from ...protocol.columns import Columns, joined
from ...protocol.compression import Codec, compress
from ...protocol.primitives import Malformed
from ..segment.transaction_index import Aborted
from .job import DamagedSegment
from .keys import hash_keys
from .offset_map import OffsetMap
from .reading import Piece, control_type, opened
from .retime import kept_sections, retimed_sections
from .segment import CleanedSegment
from .transactions import Fates, Open

DELETE_HORIZON = 0x40  # attribute: the base timestamp is the time from which tombstones may go
NO_TIMESTAMP = -1
TIME_MIN, TIME_MAX = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(slots=True)
class CleaningRules:
    """The rules of one cleaning."""

    map: OffsetMap
    secret: bytes
    now_ms: int
    delete_retention_ms: int
    upper: int
    last_of_producers: dict[int, tuple[int, int]]
    fates: Fates | None
    aborted: dict[int, Aborted]  # by the offset of the marker
    open: Open

    @property
    def horizon_ms(self) -> int:
        """From when on tombstones that are kept now may go. Who keeps them for ever says so with a number
        that ends behind all times.
        """
        return min(self.now_ms + self.delete_retention_ms, TIME_MAX)

    def is_aborted(self, header: BatchHeader) -> bool:
        return self.fates is not None and self.fates.aborted(header)

    def opens(self, header: BatchHeader) -> bool:
        """Whether the records of a batch must be decoded."""
        return not header.is_control and not self.is_aborted(header)

    def stays_empty(self, header: BatchHeader) -> bool:
        """Whether a batch stays even without records."""
        if header.next_offset == self.upper:
            return True
        last = self.last_of_producers.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        offset, epoch = last
        if offset >= 0:
            return header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch

    def horizon_passed(self, header: BatchHeader) -> bool:
        return bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self.now_ms


@dataclass(slots=True)
class KeptRecords:
    """For each opened batch of a piece: how many of its records stay, and how it is rewritten."""

    count: list[int]
    max_time: list[int]
    needs_horizon: list[bool]
    sections: dict[int, bytes]  # the records of those that are rewritten


def rewrite(piece: Piece, rules: CleaningRules, out: CleanedSegment) -> None:
    """Write what stays of a piece to `out`."""
    kept = _judge(piece, rules) if piece.opened else KeptRecords([], [], [], {})
    at_opened = {at: place for place, (at, _, _) in enumerate(piece.opened)}
    for at, header in piece.batches:
        if header.is_control:
            _control(piece, at, header, rules, out)
            continue
        rules.open.data(header)
        nth = at_opened.get(at, -1)
        if nth < 0 or not kept.count[nth]:
            if rules.stays_empty(header):
                out.add(emptied(header), header, header.max_timestamp)
        elif nth in kept.sections:
            horizon = rules.horizon_ms if kept.needs_horizon[nth] else None
            fresh = resealed(header, kept.sections[nth], kept.count[nth], kept.max_time[nth], horizon)
            out.add(fresh, header, kept.max_time[nth])
        else:
            out.copy(piece.data, at, header)
    out.flush()


def _judge(piece: Piece, rules: CleaningRules) -> KeptRecords:
    """Decide which records stay, for all batches at once."""
    heads = [header for _, header, _ in piece.opened]
    try:
        columns = joined(piece.data, piece.opened, 0)
    except Malformed as error:
        raise DamagedSegment(f"batches from offset {heads[0].base_offset} on: {error}") from error
    count = np.array([header.record_count for header in heads], np.int64)
    first = np.cumsum(count) - count
    attributes = np.array([header.attributes for header in heads])
    has_horizon = attributes & DELETE_HORIZON != 0
    deletes_stay = np.array([not rules.horizon_passed(header) for header in heads])
    keep = _latest(columns, rules, np.repeat(deletes_stay, count))
    left = np.add.reduceat(keep.astype(np.int64), first)
    tombstones = np.logical_or.reduceat(keep & (columns.value_length < 0), first)
    needs_horizon = tombstones & ~has_horizon
    changed = ((left < count) | needs_horizon) & (left > 0)
    max_time = np.maximum.reduceat(np.where(keep, columns.timestamp, TIME_MIN), first)
    batch_of = np.repeat(np.arange(len(heads)), count)
    sections = kept_sections(columns, keep, batch_of, changed & ~needs_horizon)
    retimed = changed & needs_horizon
    sections.update(retimed_sections(columns, keep, batch_of, retimed, rules.horizon_ms))
    return KeptRecords(left.tolist(), max_time.tolist(), needs_horizon.tolist(), sections)


def _latest(columns: Columns, rules: CleaningRules, deletes_stay: Flags) -> Flags:
    """The records that stay: the last of their key, or beyond what the map covers."""
    known = rules.map
    keys = hash_keys(columns.array, columns.key_start, columns.key_length, rules.secret)
    newest = columns.offset >= known.get(keys)
    has_key, has_value = columns.key_length >= 0, columns.value_length >= 0
    return (columns.offset > known.latest) | (has_key & newest & (has_value | deletes_stay))


def _control(piece: Piece, at: int, header: BatchHeader, rules: CleaningRules, out: CleanedSegment) -> None:
    kind = control_type(piece.data, at, header)
    idle = rules.open.marker_is_idle(header, kind)
    if kind is None or (idle and rules.horizon_passed(header)):
        if rules.stays_empty(header):
            out.add(emptied(header), header, header.max_timestamp)
    elif idle and not header.attributes & DELETE_HORIZON:
        horizon = rules.horizon_ms
        columns = joined(piece.data, [(at, header, opened(piece.data, at, header))], 0)
        every = np.ones(len(columns), bool)
        one = np.zeros(len(columns), np.int64)
        section = retimed_sections(columns, every, one, np.ones(1, bool), horizon)[0]
        time = int(columns.timestamp.max())
        out.add(resealed(header, section, len(columns), time, horizon), header, time)
    else:
        out.copy(piece.data, at, header)
    if not idle and header.base_offset in rules.aborted:
        out.aborted(rules.aborted[header.base_offset])


def resealed(header: BatchHeader, section: bytes, count: int, max_time: int, horizon: int | None) -> bytes:
    """A batch with only some of its records; offsets, producer and codec stay."""
    if header.codec != Codec.NONE:
        section = compress(header.codec, section)
    return _batch(
        header._replace(
            attributes=header.attributes if horizon is None else header.attributes | DELETE_HORIZON,
            base_timestamp=header.base_timestamp if horizon is None else horizon,
            max_timestamp=max_time,
            record_count=count,
        ),
        section,
    )


def emptied(header: BatchHeader) -> bytes:
    """A batch with only its header, kept for its offsets and its producer's sequence."""
    return _batch(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _batch(header: BatchHeader, section: bytes) -> bytes:
    batch = bytearray(HEADER_SIZE + len(section))
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_END))
    batch[HEADER_SIZE:] = section
    seal(batch, 0, len(batch))
    return bytes(batch)

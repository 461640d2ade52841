"""Vectorised varints of many records, and the start positions of the records in a run of batches.

A record's start is known only after the length of the one before it, which is hard to vectorise. There are
three ways, and none is always best: one cursor per batch, all advanced together (many small batches); runs of
records of equal length; a plain loop over the lengths. Reads are clipped to the buffer, not checked: the
caller (columns.py) must verify that the starts chain up to each batch's end.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .primitives import Buffer, Malformed

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10
LOCKSTEP_BATCHES_MIN = 16
LOCKSTEP_SKEW_MAX = 4  # largest batch against the average one
RUN_MIN = 8  # records: shorter runs cost more than they save
SHORT_RUNS_MAX = 4

_SIGNED = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(256)], np.int64)


def _steps() -> Ints:
    """Distance to the next record, by a record's first two bytes; 0 if its length has more bytes."""
    low, high = np.arange(65536) & 255, np.arange(65536) >> 8
    two = np.where(high < 128, 2 + ((low & 127 | high << 7) >> 1), 0)
    return np.where(low < 128, 1 + (low >> 1), two).astype(np.int64)


_STEP = _steps()


class Section(NamedTuple):
    """The place of one batch's records in a buffer, and their number."""

    start: int
    end: int
    records: int


def varints(array: Bytes, cursor: Ints, bytes_max: int = INT_BYTES_MAX) -> tuple[Ints, Ints]:
    """The signed varint at each cursor, and the cursors after them."""
    byte = array.take(cursor, mode="clip")
    more = byte > 127
    cursor = cursor + 1
    if not more.any():
        return _SIGNED.take(byte), cursor
    value: Ints = (byte & 127).astype(np.int64)
    shift = 7
    if more.all():
        byte = array.take(cursor, mode="clip")
        value |= (byte & 127).astype(np.int64) << shift
        cursor += 1
        more = byte > 127
        shift += 7
    index = np.flatnonzero(more)
    while index.size:
        if shift >= 7 * bytes_max:
            raise Malformed("varint has no end")
        byte = array.take(cursor[index], mode="clip")
        value[index] |= (byte & 127).astype(np.int64) << shift
        cursor[index] += 1
        index = index[byte > 127]
        shift += 7
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1), cursor


def record_starts(data: Buffer, array: Bytes, sections: list[Section]) -> Ints:
    """The start of each record of each section; sections must not be empty."""
    counts = [section.records for section in sections]
    skewed = max(counts) * len(counts) > LOCKSTEP_SKEW_MAX * sum(counts)
    if len(sections) >= LOCKSTEP_BATCHES_MIN and not skewed:
        return lockstep(array, sections)
    return strides(data, array, sections)


def lockstep(array: Bytes, sections: list[Section]) -> Ints:
    """One cursor per batch; takes as many steps as the largest batch has records."""
    count = np.array([section.records for section in sections], np.int64)
    order = np.argsort(-count, kind="stable")
    cursor = np.array([section.start for section in sections], np.int64)[order]
    first = (np.cumsum(count) - count)[order]
    live_at = np.searchsorted(-count[order], -np.arange(int(count.max())), side="left")
    starts = np.empty(int(count.sum()), np.int64)
    pairs: npt.NDArray[np.uint16] = np.ndarray((len(array) - 1,), "<u2", array, strides=(1,))
    try:
        for nth, live in enumerate(live_at.tolist()):
            at = cursor[:live]
            starts[first[:live] + nth] = at
            step = _STEP.take(pairs[at])
            if not step.all():
                length, after = varints(array, at)
                step = after + length - at
            at += step
    except IndexError as error:
        raise Malformed("record ends beyond its batch") from error
    return starts


def strides(data: Buffer, array: Bytes, sections: list[Section]) -> Ints:
    """Constant steps while adjacent length prefixes are equal; else the plain loop."""
    parts: list[Ints] = []
    for start, end, count in sections:
        pos, left, short_runs = start, count, 0
        while left and short_runs <= SHORT_RUNS_MAX and pos < end:
            run, step = _run(array, pos, end, left)
            if not run:
                break
            parts.append(pos + step * np.arange(run, dtype=np.int64))
            pos += run * step
            left -= run
            short_runs += run < RUN_MIN
        if left:
            parts.append(pos + _loop(bytes(memoryview(data)[pos:end]), left))
    return np.concatenate(parts)


def _run(array: Bytes, pos: int, end: int, left: int) -> tuple[int, int]:
    """How many records from `pos` on have the same length prefix, and their size; 0 for a long prefix."""
    prefix = array[pos : pos + 2].tolist()
    if prefix[0] < 128:
        width, length = 1, prefix[0] >> 1
    elif len(prefix) == 2 and prefix[1] < 128:
        width, length = 2, (prefix[0] & 127 | prefix[1] << 7) >> 1
    else:
        return 0, 0
    step = width + length
    room = min(left, (end - pos) // step)
    if room < 1:
        return 0, 0
    equal = array[pos : pos + (room - 1) * step + 1 : step] == prefix[0]
    if width == 2:
        equal &= array[pos + 1 : pos + 2 + (room - 1) * step : step] == prefix[1]
    differs = int(equal.argmin())
    return (differs if not equal[differs] else room), step


def _loop(data: bytes, count: int) -> Ints:
    starts: list[int] = []
    add = starts.append
    pos = 0
    try:
        for _ in range(count):
            add(pos)
            byte = data[pos]
            if byte < 128:
                pos += 1 + (byte >> 1)
            else:
                second = data[pos + 1]
                if second < 128:
                    pos += 2 + ((byte & 127 | second << 7) >> 1)
                else:
                    pos = _long_step(data, pos)
    except IndexError as error:
        raise Malformed("record ends beyond its batch") from error
    return np.array(starts, np.int64)


def _long_step(data: bytes, pos: int) -> int:
    value = 0
    for index in range(INT_BYTES_MAX):
        byte = data[pos + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return pos + index + 1 + (value >> 1)
    raise Malformed("varint has no end")

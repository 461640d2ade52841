# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The loops that make record batches of many records at once: compiled by Cython where that is possible.

The other direction of record_kernel.py, and in the same manner: Cython's pure-Python mode, so that this file
is Python as well; programs use the compiled form only (kernel.py), tests run both. Records come as lists of
bytes, or as columns: a buffer, and where each value starts in it and how long it is (-1 is null).
Lengths first, then bytes: `…_measured` says how many records fit and what they take, `…_written` writes them
into a buffer of that size. A record is its length, attributes (0), the varints of timestamp and offset since
the batch's first, key, value, headers; the headers come encoded.

What a function does not accept it does not judge: it says REFUSED, and changes nothing that its caller uses.

Bounds: writing computes each record's size again, and compares it with the room that is left, before it
writes any of it. Places in a buffer are checked against the buffer, rows against the lists. Nothing is
trusted for it, also not what was measured.
Left to others: headers of batches, CRC, codecs (records.py), one record at a time (`BatchBuilder` there,
which tests take for the truth), which records go where and when (client/producer/).
Why: docs/decisions/0051-a-compiled-kernel-that-may-be-missing.md
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
    from cython.cimports.libc.string import memcpy

REFUSED = -1
SOURCE_HASH = ""  # of this file; setup.py writes it into what it compiles

FIELD_MAX = cython.declare(cython.longlong, 1 << 30)  # bytes of a key, of a value, of all headers of a record
SEED = cython.declare(cython.ulonglong, 0x9747B28C)  # of Kafka's murmur2


# ---------------------------------------------------------------- numbers


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _size(number: cython.longlong) -> cython.longlong:
    """Bytes of a signed varint."""
    raw: cython.ulonglong
    size: cython.longlong = 1
    if cython.compiled:
        raw = (cython.cast(cython.ulonglong, number) << 1) ^ cython.cast(cython.ulonglong, number >> 63)
    else:
        raw = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    while raw > 127:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put(out: cython.uchar[::1], at: cython.longlong, number: cython.longlong) -> cython.longlong:
    """Write a signed varint, for which there is room; the place after it."""
    raw: cython.ulonglong
    if cython.compiled:
        raw = (cython.cast(cython.ulonglong, number) << 1) ^ cython.cast(cython.ulonglong, number >> 63)
    else:
        raw = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    while raw > 127:
        out[at] = cython.cast(cython.uchar, (raw & 127) | 128)
        raw >>= 7
        at += 1
    out[at] = cython.cast(cython.uchar, raw)
    return at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _body(
    elapsed: cython.longlong,
    delta: cython.longlong,
    key: cython.longlong,
    value: cython.longlong,
    tail: cython.longlong,
) -> cython.longlong:
    """What a record of such lengths takes behind its own length; without headers it ends with a zero."""
    size: cython.longlong = 1 + _size(elapsed) + _size(delta) + _size(key) + _size(value)
    return size + max(key, 0) + max(value, 0) + (tail if tail > 0 else 1)


# ---------------------------------------------------------------- lists of bytes


@cython.cfunc
@cython.exceptval(check=False)
def _length(of: object) -> cython.longlong:
    """The length of bytes, -1 of None, -2 of anything else."""
    if of is None:
        return -1
    if cython.compiled:
        return PyBytes_GET_SIZE(of) if PyBytes_CheckExact(of) else -2
    return len(of) if type(of) is bytes else -2


@cython.cfunc
@cython.exceptval(check=False)
def _copy(
    of: object, out: cython.uchar[::1], at: cython.longlong, length: cython.longlong
) -> cython.longlong:
    """Copy `length` bytes of `of`, which has that many, if any; the place after them."""
    if length <= 0:
        return at
    if cython.compiled:
        memcpy(cython.address(out[at]), PyBytes_AS_STRING(of), length)
    else:
        out[at : at + length] = bytearray(of)
    return at + length


def list_checked(values: list, keys: list | None, tails: list | None, bytes_max: cython.longlong) -> int:
    """The first row that is no record of at most `bytes_max` bytes; without one, the number of rows.

    REFUSED if the lists differ in length. No list: None in all rows.
    """
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(values)
    value: cython.longlong
    key: cython.longlong = -1
    tail: cython.longlong = -1
    if (keys is not None and len(keys) != count) or (tails is not None and len(tails) != count):
        return REFUSED
    bytes_max = min(bytes_max, FIELD_MAX)
    for row in range(count):
        value = _length(values[row])
        if keys is not None:
            key = _length(keys[row])
        if tails is not None:
            tail = _length(tails[row])
        if min(value, key, tail) < -1 or max(value, 0) + max(key, 0) + max(tail, 0) > bytes_max:
            return row
    return count


@cython.cfunc
@cython.exceptval(check=False)
def _list_fits(
    values: list,
    keys: list | None,
    tails: list | None,
    times: cython.longlong[::1] | None,
    rows: cython.longlong[::1] | None,
    start: cython.longlong,
    stop: cython.longlong,
) -> cython.bint:
    """Whether there are such rows, and all the lists have them."""
    count: cython.longlong = len(values)
    if start < 0 or stop < start or stop > (count if rows is None else rows.shape[0]):
        return False
    if (keys is not None and len(keys) != count) or (tails is not None and len(tails) != count):
        return False
    return times is None or times.shape[0] == count


def list_measured(
    values: list,
    keys: list | None,
    tails: list | None,
    times: cython.longlong[::1] | None,
    rows: cython.longlong[::1] | None,
    start: cython.longlong,
    stop: cython.longlong,
    delta: cython.longlong,
    elapsed: cython.longlong,
    room: cython.longlong,
    found: cython.longlong[::1],
) -> int:
    """How many of the records `start` up to `stop` fit into `room` bytes, the first having offset `delta`.

    `rows` says which row is the nth record; without it, the nth. `elapsed` is since the batch's first
    timestamp, with `times` what is added to each of them. `found` gets the bytes and the largest elapsed.
    """
    count: cython.longlong = len(values)
    nth: cython.longlong
    row: cython.longlong
    since: cython.longlong = elapsed
    latest: cython.longlong = 0
    value: cython.longlong
    key: cython.longlong = -1
    tail: cython.longlong = -1
    size: cython.longlong
    total: cython.longlong = 0
    if found.shape[0] != 2 or not _list_fits(values, keys, tails, times, rows, start, stop):
        return REFUSED
    for nth in range(start, stop):
        row = nth if rows is None else rows[nth]
        if row < 0 or row >= count:
            return REFUSED
        value = _length(values[row])
        if keys is not None:
            key = _length(keys[row])
        if tails is not None:
            tail = _length(tails[row])
        if min(value, key, tail) < -1 or max(value, key, tail) > FIELD_MAX:
            return REFUSED
        if times is not None:
            since = times[row] + elapsed
        size = _body(since, delta + (nth - start), key, value, tail)
        size += _size(size)
        if size > room - total:
            stop = nth
            break
        total += size
        if nth == start or since > latest:
            latest = since
    found[0] = total
    found[1] = latest
    return stop - start


def list_written(
    values: list,
    keys: list | None,
    tails: list | None,
    times: cython.longlong[::1] | None,
    rows: cython.longlong[::1] | None,
    start: cython.longlong,
    stop: cython.longlong,
    delta: cython.longlong,
    elapsed: cython.longlong,
    out: cython.uchar[::1],
) -> int:
    """Write these records, as they were measured; the bytes written, or REFUSED."""
    count: cython.longlong = len(values)
    end: cython.longlong = out.shape[0]
    at: cython.longlong = 0
    nth: cython.longlong
    row: cython.longlong
    since: cython.longlong = elapsed
    value: cython.longlong
    key: cython.longlong = -1
    tail: cython.longlong = -1
    size: cython.longlong
    if not _list_fits(values, keys, tails, times, rows, start, stop):
        return REFUSED
    for nth in range(start, stop):
        row = nth if rows is None else rows[nth]
        if row < 0 or row >= count:
            return REFUSED
        value = _length(values[row])
        if keys is not None:
            key = _length(keys[row])
        if tails is not None:
            tail = _length(tails[row])
        if min(value, key, tail) < -1 or max(value, key, tail) > FIELD_MAX:
            return REFUSED
        if times is not None:
            since = times[row] + elapsed
        size = _body(since, delta + (nth - start), key, value, tail)
        if size + _size(size) > end - at:
            return REFUSED
        at = _put(out, at, size)
        out[at] = 0
        at = _put(out, at + 1, since)
        at = _put(out, at, delta + (nth - start))
        at = _put(out, at, key)
        if keys is not None:
            at = _copy(keys[row], out, at, key)
        at = _put(out, at, value)
        at = _copy(values[row], out, at, value)
        if tail > 0:
            at = _copy(tails[row], out, at, tail)
        else:
            out[at] = 0
            at += 1
    return at


# ---------------------------------------------------------------- columns


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _inside(start: cython.longlong, length: cython.longlong, size: cython.longlong) -> cython.bint:
    """Whether a value is null, or of a fair length and within its buffer."""
    if length <= 0:
        return length >= -1
    return length <= FIELD_MAX and start >= 0 and length <= size - start


def columns_measured(
    key_bytes: cython.longlong,
    value_bytes: cython.longlong,
    tail_bytes: cython.longlong,
    places: cython.longlong[:, ::1],
    times: cython.longlong[::1] | None,
    rows: cython.longlong[::1] | None,
    start: cython.longlong,
    stop: cython.longlong,
    delta: cython.longlong,
    elapsed: cython.longlong,
    room: cython.longlong,
    found: cython.longlong[::1],
) -> int:
    """As `list_measured`. `places` has six rows: start and length of key, of value, of headers."""
    count: cython.longlong = places.shape[1]
    nth: cython.longlong
    row: cython.longlong
    since: cython.longlong = elapsed
    latest: cython.longlong = 0
    size: cython.longlong
    total: cython.longlong = 0
    timed: cython.bint = times is not None
    ordered: cython.bint = rows is not None
    if found.shape[0] != 2 or places.shape[0] != 6 or (timed and times.shape[0] != count):
        return REFUSED
    if start < 0 or stop < start or stop > (rows.shape[0] if ordered else count):
        return REFUSED
    with cython.nogil:
        for nth in range(start, stop):
            row = rows[nth] if ordered else nth
            if (
                row < 0
                or row >= count
                or not _inside(places[0, row], places[1, row], key_bytes)
                or not _inside(places[2, row], places[3, row], value_bytes)
                or not _inside(places[4, row], places[5, row], tail_bytes)
            ):
                total = -1
                break
            if timed:
                since = times[row] + elapsed
            size = _body(since, delta + (nth - start), places[1, row], places[3, row], places[5, row])
            size += _size(size)
            if size > room - total:
                stop = nth
                break
            total += size
            if nth == start or since > latest:
                latest = since
    if total < 0:
        return REFUSED
    found[0] = total
    found[1] = latest
    return stop - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _moved(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    length: cython.longlong,
    out: cython.uchar[::1],
    at: cython.longlong,
) -> cython.longlong:
    """Copy a value, if it has bytes; the place after them. Both ends were checked."""
    if length <= 0:
        return at
    if cython.compiled:
        memcpy(cython.address(out[at]), cython.address(data[start]), length)
    else:
        out[at : at + length] = data[start : start + length]
    return at + length


def columns_written(
    key: cython.const[cython.uchar][::1],
    value: cython.const[cython.uchar][::1],
    tail: cython.const[cython.uchar][::1],
    places: cython.longlong[:, ::1],
    times: cython.longlong[::1] | None,
    rows: cython.longlong[::1] | None,
    start: cython.longlong,
    stop: cython.longlong,
    delta: cython.longlong,
    elapsed: cython.longlong,
    out: cython.uchar[::1],
) -> int:
    """As `list_written`, from columns as in `columns_measured`."""
    count: cython.longlong = places.shape[1]
    end: cython.longlong = out.shape[0]
    at: cython.longlong = 0
    nth: cython.longlong
    row: cython.longlong
    since: cython.longlong = elapsed
    size: cython.longlong
    timed: cython.bint = times is not None
    ordered: cython.bint = rows is not None
    if places.shape[0] != 6 or (timed and times.shape[0] != count):
        return REFUSED
    if start < 0 or stop < start or stop > (rows.shape[0] if ordered else count):
        return REFUSED
    with cython.nogil:
        for nth in range(start, stop):
            row = rows[nth] if ordered else nth
            if (
                row < 0
                or row >= count
                or not _inside(places[0, row], places[1, row], key.shape[0])
                or not _inside(places[2, row], places[3, row], value.shape[0])
                or not _inside(places[4, row], places[5, row], tail.shape[0])
            ):
                at = -1
                break
            if timed:
                since = times[row] + elapsed
            size = _body(since, delta + (nth - start), places[1, row], places[3, row], places[5, row])
            if size + _size(size) > end - at:
                at = -1
                break
            at = _put(out, at, size)
            out[at] = 0
            at = _put(out, at + 1, since)
            at = _put(out, at, delta + (nth - start))
            at = _put(out, at, places[1, row])
            at = _moved(key, places[0, row], places[1, row], out, at)
            at = _put(out, at, places[3, row])
            at = _moved(value, places[2, row], places[3, row], out, at)
            if places[5, row] > 0:
                at = _moved(tail, places[4, row], places[5, row], out, at)
            else:
                out[at] = 0
                at += 1
    return at


# ---------------------------------------------------------------- where records go


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _low(number: cython.ulonglong) -> cython.uint:
    """The lower 32 bits."""
    if cython.compiled:
        return cython.cast(cython.uint, number)
    return number & 0xFFFFFFFF


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash(data: cython.p_uchar, start: cython.longlong, length: cython.longlong) -> cython.uint:
    """Kafka's murmur2 of what stands there without its sign (client/producer/partitioner.py)."""
    m: cython.ulonglong = 0x5BD1E995
    h: cython.ulonglong = SEED
    k: cython.ulonglong
    at: cython.longlong = start
    end: cython.longlong = start + (length & ~3)
    byte: cython.longlong
    h = _low(h ^ cython.cast(cython.ulonglong, length))
    while at < end:
        k = 0
        for byte in range(3, -1, -1):
            k = k << 8 | data[at + byte]
        k = _low(k * m)
        k = _low((k ^ (k >> 24)) * m)
        h = _low(h * m) ^ k
        at += 4
    if length & 3:
        for byte in range(length & 3):
            h ^= cython.cast(cython.ulonglong, data[end + byte]) << (8 * byte)
        h = _low(h * m)
    h = _low((h ^ (h >> 13)) * m)
    return _low((h ^ (h >> 15)) & 0x7FFFFFFF)


def list_placed(keys: list, partitions: cython.longlong, places: cython.longlong[::1]) -> int:
    """The partition of each key, -1 without one; the number of keys, or REFUSED."""
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(keys)
    length: cython.longlong
    if partitions < 1 or places.shape[0] != count:
        return REFUSED
    for row in range(count):
        length = _length(keys[row])
        if length < 0:
            if length < -1:
                return REFUSED
            places[row] = -1
        elif cython.compiled:
            places[row] = (
                _hash(cython.cast(cython.p_uchar, PyBytes_AS_STRING(keys[row])), 0, length) % partitions
            )
        else:
            places[row] = _hash(keys[row], 0, length) % partitions
    return count


def columns_placed(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    lengths: cython.longlong[::1],
    partitions: cython.longlong,
    places: cython.longlong[::1],
) -> int:
    """As `list_placed`, from a column."""
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = starts.shape[0]
    done: cython.Py_ssize_t = count
    size: cython.longlong = data.shape[0]
    empty: cython.uchar = 0
    if partitions < 1 or places.shape[0] != count or lengths.shape[0] != count:
        return REFUSED
    with cython.nogil:
        for row in range(count):
            if not _inside(starts[row], lengths[row], size):
                done = -1
                break
            if lengths[row] < 0:
                places[row] = -1
            elif not cython.compiled:
                places[row] = _hash(data, starts[row], lengths[row]) % partitions
            elif lengths[row] == 0:
                places[row] = _hash(cython.address(empty), 0, 0) % partitions
            else:
                places[row] = (
                    _hash(cython.cast(cython.p_uchar, cython.address(data[starts[row]])), 0, lengths[row])
                    % partitions
                )
    return done


def spread(places: cython.longlong[::1], choices: cython.longlong[::1], block: cython.longlong) -> int:
    """Give rows with the place -1 one of `choices`: `block` rows the first one, then the next, and so on.

    How many such rows there are, or REFUSED. Without choices they are only counted.
    """
    count: cython.Py_ssize_t = places.shape[0]
    kinds: cython.longlong = choices.shape[0]
    row: cython.Py_ssize_t
    seen: cython.longlong = 0
    if block < 1:
        return REFUSED
    with cython.nogil:
        for row in range(count):
            if places[row] == -1:
                if kinds > 0:
                    places[row] = choices[seen // block % kinds]
                seen += 1
    return seen


def grouped(places: cython.longlong[::1], first: cython.longlong[::1], rows: cython.longlong[::1]) -> int:
    """The rows by their places -1, 0, 1, …, in order within each; how many rows there are, or REFUSED.

    Those of place p will be `rows[first[p + 1]]` up to `first[p + 2]`. `first` comes in as zeros.
    """
    count: cython.Py_ssize_t = places.shape[0]
    groups: cython.longlong = first.shape[0] - 1
    done: cython.Py_ssize_t = count
    row: cython.Py_ssize_t
    group: cython.longlong
    before: cython.longlong = 0
    here: cython.longlong
    if groups < 1 or rows.shape[0] != count:
        return REFUSED
    with cython.nogil:
        for row in range(count):
            group = places[row] + 1
            if group < 0 or group >= groups:
                done = -1
                break
            first[group] += 1
        if done >= 0:
            for group in range(groups):
                here = first[group]
                first[group] = before
                before += here
            for row in range(count):
                group = places[row] + 1
                here = first[group]
                if here < 0 or here >= count:
                    done = -1
                    break
                rows[here] = row
                first[group] = here + 1
            for group in range(groups, 0, -1):
                first[group] = first[group - 1]
            first[0] = 0
    return done


def inverted(rows: cython.longlong[::1], places: cython.longlong[::1]) -> int:
    """Where each row stands among `rows`; how many there are, or REFUSED."""
    count: cython.Py_ssize_t = rows.shape[0]
    nth: cython.Py_ssize_t
    row: cython.longlong
    if places.shape[0] != count:
        return REFUSED
    for nth in range(count):
        row = rows[nth]
        if row < 0 or row >= count:
            return REFUSED
        places[row] = nth
    return count

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The loops over records that numpy does in many passes, in one: compiled by Cython where that is possible.

It is Cython's pure-Python mode: this file is Python as well. Programs use the compiled form only (kernel.py);
tests also run the other one, on buffers that notice a wrong index.

What a function does not accept it does not judge: it says REFUSED, and its caller does the work with numpy,
whose verdict and whose sentence count. So there is one set of errors.

Bounds: each byte that is read lies between the start and the end of its record, these within the buffer; each
number is written within the array that was handed in. Nothing is trusted for it, neither the CRC nor the
arguments. A number that does not end in time ends "after the end of its record"; from there nothing is read,
so that one comparison at the end of a record finds every way to leave it.
Left to others: headers of batches, the CRC (batches.py), arrays (columns.py, column_arrow.py), whether there
is a compiled form (kernel.py), its build (setup.py).
Why: docs/decisions/0051-a-compiled-kernel-that-may-be-missing.md
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
    from cython.cimports.libc.string import memcpy

REFUSED = -1
SOURCE_HASH = ""  # of this file; setup.py writes it into what it compiles


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _signed(raw: cython.ulonglong) -> cython.longlong:
    """Zigzag undone, of 64 bits."""
    if cython.compiled:
        return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
    raw &= (1 << 64) - 1
    return raw >> 1 ^ -(raw & 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sum(one: cython.longlong, other: cython.longlong) -> cython.longlong:
    """It wraps at 64 bits, as in numpy."""
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, one) + cython.cast(cython.ulonglong, other)
        )
    return (one + other + (1 << 63)) % (1 << 64) - (1 << 63)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong, bytes_max: cython.int
) -> tuple[cython.longlong, cython.longlong]:
    """The signed varint at `at`, and the place after it: `end + 1` if it is not complete before `end`."""
    byte: cython.uchar
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    while at < end and shift < 7 * bytes_max:
        byte = data[at]
        at += 1
        raw |= cython.cast(cython.ulonglong, byte & 127) << shift
        if byte < 128:
            return _signed(raw), at
        shift += 7
    return 0, end + 1


def fields(
    data: cython.const[cython.uchar][::1], batches: cython.longlong[:, ::1], rows: cython.longlong[:, ::1]
) -> int:
    """Decode all records of `batches`; how many there are, or REFUSED.

    A row of `batches` is: start, end, records, base offset, base timestamp, whether timestamps are of the
    append, then which one, last offset delta. `rows` has the columns of `Columns` in their order.
    """
    size: cython.longlong = data.shape[0]
    done: cython.longlong = 0
    nth: cython.Py_ssize_t
    if batches.shape[1] != 8 or rows.shape[0] != 10:
        return REFUSED
    with cython.nogil:
        for nth in range(batches.shape[0]):
            done = _batch(data, size, batches, nth, rows, done)
            if done < 0:
                break
    return done


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _batch(
    data: cython.const[cython.uchar][::1],
    size: cython.longlong,
    batches: cython.longlong[:, ::1],
    nth: cython.Py_ssize_t,
    rows: cython.longlong[:, ::1],
    done: cython.longlong,
) -> cython.longlong:
    """Decode one batch into `rows` from `done` on; how many rows are done then, or REFUSED."""
    at: cython.longlong = batches[nth, 0]
    stop: cython.longlong = batches[nth, 1]
    records: cython.longlong = batches[nth, 2]
    base_offset: cython.longlong = batches[nth, 3]
    base_timestamp: cython.longlong = batches[nth, 4]
    appended: cython.longlong = batches[nth, 5]
    append_time: cython.longlong = batches[nth, 6]
    last_delta: cython.longlong = batches[nth, 7]
    row: cython.longlong
    start: cython.longlong
    end: cython.longlong
    elapsed: cython.longlong
    delta: cython.longlong
    key: cython.longlong
    key_length: cython.longlong
    value: cython.longlong
    value_length: cython.longlong
    headers: cython.longlong
    if at < 0 or stop > size or records < 0 or records > rows.shape[1] - done:
        return -1
    for row in range(done, done + records):
        start = at
        end, elapsed, delta, key, key_length, value, value_length, headers = _record(
            data, at, stop, last_delta
        )
        if end < 0:
            return -1
        rows[0, row] = _sum(base_offset, delta)
        rows[1, row] = append_time if appended else _sum(base_timestamp, elapsed)
        rows[2, row] = 1 if appended else 0
        rows[3, row] = key
        rows[4, row] = key_length
        rows[5, row] = value
        rows[6, row] = value_length
        rows[7, row] = headers
        rows[8, row] = start
        rows[9, row] = end
        at = end
    return done + records if at == stop else -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _record(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    stop: cython.longlong,
    last_delta: cython.longlong,
) -> tuple[
    cython.longlong,
    cython.longlong,
    cython.longlong,
    cython.longlong,
    cython.longlong,
    cython.longlong,
    cython.longlong,
    cython.longlong,
]:
    """The record at `at`: its end (-1: refused), time since the base, offset delta, start and length of its
    key and of its value, the place of its headers. Key and value lie inside."""
    length: cython.longlong
    end: cython.longlong
    elapsed: cython.longlong
    delta: cython.longlong
    key: cython.longlong
    key_length: cython.longlong
    value: cython.longlong
    value_length: cython.longlong
    length, at = _number(data, at, stop, 5)
    end = at + length  # if that is before `at`, all that follows is behind it
    if length > stop - at:
        end = -1  # all that follows is behind that, too
    elapsed, at = _number(data, at + 1, end, 10)  # behind the attributes, which mean nothing
    delta, at = _number(data, at, end, 5)
    key_length, key = _number(data, at, end, 5)
    value_length, value = _number(data, key + max(key_length, 0), end, 5)
    at = value + max(value_length, 0)
    if key_length < -1 or value_length < -1 or delta < 0 or delta > last_delta or at >= end:
        end = -1
    if end > 0 and (data[at] == 0) != (at + 1 == end):  # without headers it ends here, and else it does not
        end = -1
    return end, elapsed, delta, key, key_length, value, value_length, at


def tuples(
    data: cython.const[cython.uchar][::1],
    batch: cython.longlong[::1],
    most: cython.longlong,
    kind: type,
    common: tuple,
    out: list,
) -> int:
    """Append up to `most` records of a batch to `out`; how many, or REFUSED.

    `batch` is a row of `fields` and the least offset that is wanted. Its start, records and least offset
    move on with what was appended, so that the next call goes on there: also after a call that failed, for
    what `common` has functions for was wrong in one record.
    A record is a `kind`, a class of tuples, with topic, partition, offset, timestamp, key, value, headers,
    type of timestamp, leader epoch; of these `common` has topic, partition, type and epoch, then a function
    for keys and one for values, or None to leave them as they are.
    """
    stop: cython.longlong
    at: cython.longlong
    end: cython.longlong
    elapsed: cython.longlong
    delta: cython.longlong
    key_at: cython.longlong
    key_length: cython.longlong
    value_at: cython.longlong
    value_length: cython.longlong
    headers_at: cython.longlong
    offset: cython.longlong
    timestamp: cython.longlong
    done: cython.longlong = 0
    if batch.shape[0] != 9:
        return REFUSED
    topic, partition, timestamp_type, leader_epoch, key_in, value_in = common
    new = tuple.__new__
    at = batch[0]
    stop = batch[1]
    if at < 0 or stop > data.shape[0] or batch[2] < 0:
        return REFUSED
    while batch[2] > 0 and done < most:
        end, elapsed, delta, key_at, key_length, value_at, value_length, headers_at = _record(
            data, at, stop, batch[7]
        )
        if end < 0:
            return REFUSED
        offset = _sum(batch[3], delta)
        if offset >= batch[8]:
            batch[8] = offset  # where the next call begins if this one fails
            timestamp = batch[6] if batch[5] else _sum(batch[4], elapsed)
            headers = () if data[headers_at] == 0 else _pairs(data, headers_at, end)
            if headers is None:
                return REFUSED
            key = _content(data, key_at, key_length, key_in)
            value = _content(data, value_at, value_length, value_in)
            row = (topic, partition, offset, timestamp, key, value, headers, timestamp_type, leader_epoch)
            out.append(new(kind, row))
            done += 1
            batch[8] = _sum(offset, 1)
        batch[0] = at = end
        batch[2] -= 1
    return done if batch[2] > 0 or at == stop else REFUSED


@cython.cfunc
@cython.inline
def _content(
    data: cython.const[cython.uchar][::1], at: cython.longlong, length: cython.longlong, function: object
) -> object:
    """What these bytes, which are there, are to a reader; None for a length below 0."""
    if length < 0:
        return None
    raw = _bytes(data, at, length)
    return raw if function is None else function(raw)


@cython.cfunc
@cython.inline
def _bytes(data: cython.const[cython.uchar][::1], at: cython.longlong, length: cython.longlong) -> bytes:
    """A copy of these bytes, which are there."""
    if cython.compiled:
        if length == 0:
            return b""
        return PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, cython.cast(cython.p_void, cython.address(data[at]))), length
        )
    return bytes(data[at : at + length])


@cython.cfunc
@cython.inline
def _text(data: cython.const[cython.uchar][::1], at: cython.longlong, length: cython.longlong) -> str:
    """These bytes, which are there, as text; what is not UTF-8 becomes replacement characters."""
    if cython.compiled:
        if length == 0:
            return ""
        return PyUnicode_DecodeUTF8(
            cython.cast(cython.p_char, cython.cast(cython.p_void, cython.address(data[at]))),
            length,
            b"replace",
        )
    return bytes(data[at : at + length]).decode(errors="replace")


@cython.cfunc
def _pairs(data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong) -> object:
    """The headers of one record as pairs of name and value, None if they do not fill it."""
    count: cython.longlong
    _nth: cython.longlong
    name: cython.longlong
    name_length: cython.longlong
    value: cython.longlong
    value_length: cython.longlong
    found: list = []
    count, at = _number(data, at, end, 5)
    if count < 0 or 2 * count > end - at:  # a header takes two bytes at least
        return None
    for _nth in range(count):
        name_length, name = _number(data, at, end, 5)
        if name_length < 0:
            return None
        value_length, value = _number(data, name + name_length, end, 5)
        at = value + max(value_length, 0)
        if value_length < -1 or at > end:
            return None
        content = None if value_length < 0 else _bytes(data, value, value_length)
        found.append((_text(data, name, name_length), content))
    return tuple(found) if at == end else None


def slices(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    lengths: cython.longlong[::1],
    out: list,
) -> int:
    """Append copies of slices of a buffer to `out`, None for a length below 0; how many, or REFUSED."""
    size: cython.longlong = data.shape[0]
    rows: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t
    if lengths.shape[0] != rows:
        return REFUSED
    for row in range(rows):
        if lengths[row] < 0:
            out.append(None)
        elif starts[row] < 0 or lengths[row] > size - starts[row]:
            return REFUSED
        else:
            out.append(_bytes(data, starts[row], lengths[row]))
    return rows


def header_counts(
    data: cython.const[cython.uchar][::1],
    headers_at: cython.longlong[::1],
    ends: cython.longlong[::1],
    first: cython.longlong[::1],
) -> int:
    """Count headers: those of record i are to be `first[i]` up to `first[i + 1]`. All of them, or REFUSED."""
    size: cython.longlong = data.shape[0]
    records: cython.Py_ssize_t = headers_at.shape[0]
    row: cython.Py_ssize_t
    at: cython.longlong
    end: cython.longlong
    count: cython.longlong
    total: cython.longlong = 0
    if ends.shape[0] != records or first.shape[0] != records + 1:
        return REFUSED
    first[0] = 0
    with cython.nogil:
        for row in range(records):
            at = headers_at[row]
            end = ends[row]
            if at < 0 or end > size:
                total = -1
                break
            count, at = _number(data, at, end, 5)
            if count < 0 or 2 * count > end - at:  # a header takes two bytes at least
                total = -1
                break
            total += count
            first[row + 1] = total
    return total


def header_places(
    data: cython.const[cython.uchar][::1],
    headers_at: cython.longlong[::1],
    ends: cython.longlong[::1],
    first: cython.longlong[::1],
    places: cython.longlong[:, ::1],
) -> int:
    """Where the headers are: start and length of each name, of each value. Their number, or REFUSED."""
    size: cython.longlong = data.shape[0]
    records: cython.Py_ssize_t = headers_at.shape[0]
    row: cython.Py_ssize_t
    at: cython.longlong
    end: cython.longlong
    last: cython.longlong = 0
    count: cython.longlong
    if ends.shape[0] != records or first.shape[0] != records + 1 or places.shape[0] != 4:
        return REFUSED
    with cython.nogil:
        for row in range(records):
            at = headers_at[row]
            end = ends[row]
            if at < 0 or end > size:
                last = -1
                break
            count, at = _number(data, at, end, 5)
            if count < 0 or count > places.shape[1] - last or first[row + 1] != last + count:
                last = -1
                break
            at = _headers(data, at, end, last, last + count, places)
            if at != end:
                last = -1
                break
            last += count
    return last


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _headers(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    first: cython.longlong,
    last: cython.longlong,
    places: cython.longlong[:, ::1],
) -> cython.longlong:
    """Decode the headers of one record; the place after them, -1 if a length is negative."""
    nth: cython.longlong
    name: cython.longlong
    name_length: cython.longlong
    value: cython.longlong
    value_length: cython.longlong
    for nth in range(first, last):
        name_length, name = _number(data, at, end, 5)
        if name_length < 0:
            return -1
        value_length, value = _number(data, name + name_length, end, 5)
        if value_length < -1:
            return -1
        at = value + max(value_length, 0)
        places[0, nth] = name
        places[1, nth] = name_length
        places[2, nth] = value
        places[3, nth] = value_length
    return at


def offsets_of(
    starts: cython.longlong[::1],
    lengths: cython.longlong[::1],
    size: cython.longlong,
    offsets: cython.int[::1],
    valid: cython.uchar[::1],
) -> int:
    """Arrow's offsets and validity bits of slices of a buffer of `size` bytes; their sum, or REFUSED.

    A length below 0 is null; `valid` comes in as zeros.
    """
    rows: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t
    length: cython.longlong
    total: cython.longlong = 0
    if lengths.shape[0] != rows or offsets.shape[0] != rows + 1 or valid.shape[0] < (rows + 7) // 8:
        return REFUSED
    offsets[0] = 0
    with cython.nogil:
        for row in range(rows):
            length = lengths[row]
            if length >= 0:
                if starts[row] < 0 or length > size - starts[row] or length > 2147483647 - total:
                    total = -1
                    break
                valid[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
                total += length
            offsets[row + 1] = cython.cast(cython.int, total)
    return total


def gathered(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    offsets: cython.int[::1],
    out: cython.uchar[::1],
) -> int:
    """Copy the slices one after the other, to where `offsets` has them; the number of bytes, or REFUSED."""
    size: cython.longlong = data.shape[0]
    room: cython.longlong = out.shape[0]
    rows: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t
    at: cython.longlong
    to: cython.longlong = 0
    length: cython.longlong
    if offsets.shape[0] != rows + 1 or offsets[0] != 0:
        return REFUSED
    with cython.nogil:
        for row in range(rows):
            at = starts[row]
            length = offsets[row + 1] - to
            if length == 0:
                continue
            if length < 0 or length > room - to or at < 0 or length > size - at:
                to = -1
                break
            if cython.compiled:
                memcpy(cython.address(out[to]), cython.address(data[at]), length)
            else:
                out[to : to + length] = data[at : at + length]
            to += length
    return to


def viewed(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    lengths: cython.longlong[::1],
    views: cython.int[:, ::1],
    valid: cython.uchar[::1],
) -> int:
    """Arrow's views of slices of `data`, its only buffer, and validity bits; how many are null, or REFUSED.

    A length below 0 is null; `views` and `valid` come in as zeros. What is short is in its view (12 bytes),
    of the rest there are the first four bytes.
    """
    size: cython.longlong = data.shape[0]
    rows: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t
    at: cython.longlong
    length: cython.longlong
    null: cython.longlong = 0
    if lengths.shape[0] != rows or views.shape[0] != rows or views.shape[1] != 4:
        return REFUSED
    if size > 2147483647 or valid.shape[0] < (rows + 7) // 8:
        return REFUSED
    with cython.nogil:
        for row in range(rows):
            at = starts[row]
            length = lengths[row]
            if length < 0:
                null += 1
                continue
            if at < 0 or length > size - at:
                null = -1
                break
            valid[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
            views[row, 0] = cython.cast(cython.int, length)
            if length > 12:
                views[row, 3] = cython.cast(cython.int, at)
                length = 4
            if length == 0:
                continue
            if cython.compiled:
                memcpy(cython.address(views[row, 1]), cython.address(data[at]), length)
            else:
                for nth in range(0, length, 4):
                    some = bytes(data[at + nth : at + min(length, nth + 4)])
                    views[row, 1 + nth // 4] = int.from_bytes(some.ljust(4, b"\0"), "little", signed=True)
    return null

"""Lists of values, keys, headers and timestamps, ready for the compiled encoder.

Values and keys that are bytes already are not looked at one by one in Python. What is not bytes goes through
the serializer, which says what is wrong with it; so do all of them where the serializer is another than
`bytes` (of keys: `str`).
Left to others: the loops (protocol/record_encoder.py), columns (record_columns.py), which records go where
(bulk.py).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from sys import getsizeof
from typing import Any, NamedTuple

from ...protocol.errors import MessageTooLarge
from ...protocol.kernel import REFUSED, Encoder
from ...protocol.records import encoded_headers
from ..arguments import checked_headers, checked_timestamp
from ..serializers import Serializer, bytes_out, str_out
from .accumulator import RECORD_OVERHEAD_BYTES

PLAIN = (bytes_out, str_out)  # serializers that leave bytes as they are
CHUNK_ROWS = 1 << 14  # of an iterator at once
CHUNK_BYTES = 1 << 20  # of its values, about
NAMES = ("keys", "headers", "timestamps_ms")

Column = list[Any] | None
Row = tuple[Any, Any, Any, int | None, int | None]  # value, key, headers, timestamp, partition


class Serializers(NamedTuple):
    """How values and keys become bytes."""

    value: Serializer
    key: Serializer


class RecordLists:
    """Records as the encoder takes them from lists; also which of them fit into a batch."""

    highest = -1  # of the partitions that they ask for: they ask for none

    def __init__(self, encoder: Encoder, values: list[Any], keys: Column, tails: Column, times: Any) -> None:
        self.count = len(values)
        self.times = times
        self._encoder = encoder
        self._given = values, keys, tails

    def placed(self, partitions: int) -> "array[int] | None":
        """The partition of each key, -1 without one; None if there are no keys."""
        keys = self._given[1]
        if keys is None:
            return None
        places = array("q", bytes(8 * self.count))
        assert self._encoder.list_placed(keys, partitions, places) == self.count, "keys were checked"
        return places

    def measured(self, *rest: Any) -> int:
        """How many of these records there is room for."""
        return self._encoder.list_measured(*self._given, self.times, *rest)

    def written(self, *rest: Any) -> int:
        """Write them."""
        return self._encoder.list_written(*self._given, self.times, *rest)


def chunks(
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    headers: Iterable[Any] | None,
    times: Iterable[Any] | None,
) -> Iterator[tuple[list[Any], Column, Column, Column]]:
    """A list whole, an iterator in pieces; raises ValueError where a column has more or fewer rows."""
    whole = isinstance(values, (list, tuple))
    coming = iter(values)
    others = [None if column is None else iter(column) for column in (keys, headers, times)]
    while True:
        taken = list(values) if whole else _piece(coming)
        columns = [None if other is None else list(islice(other, len(taken))) for other in others]
        for name, column in zip(NAMES, columns, strict=True):
            if column is not None and len(column) < len(taken):
                raise ValueError(f"the argument {name} has fewer entries than there are values")
        if taken:
            yield (taken, *columns)  # type: ignore[misc]
        if whole or not taken:
            break
    for name, other in zip(NAMES, others, strict=True):
        if other is not None and next(other, NAMES) is not NAMES:
            raise ValueError(f"the argument {name} has more entries than there are values")


def _piece(coming: Iterator[Any]) -> list[Any]:
    """The next values of an iterator, not more than may be held at once."""
    taken: list[Any] = []
    size = 0
    for one in islice(coming, CHUNK_ROWS):
        taken.append(one)
        size += getsizeof(one)
        if size >= CHUNK_BYTES:
            break
    return taken


def rows_of(columns: tuple[list[Any], Column, Column, Column], partition: int | Column) -> Iterator[Row]:
    """The records of a chunk one by one; `partition` is that of each, or of all."""
    values, *others = columns
    each = partition if isinstance(partition, list) else repeat(partition)
    yield from zip(values, *(repeat(None) if one is None else one for one in others), each, strict=False)


def lists_of(
    encoder: Encoder,
    columns: tuple[list[Any], Column, Column, Column],
    serializers: Serializers,
    bytes_max: int,
    now_ms: Callable[[], int],
    first: int,
) -> RecordLists:
    """Check a chunk, and encode what must be encoded one by one. `first` is the number of its first row."""
    values, keys, headers, times = columns
    if serializers.value not in PLAIN:
        values = _serialized("value", values, serializers.value, first)
    if keys is not None and serializers.key not in PLAIN:
        keys = _serialized("key", keys, serializers.key, first)
    tails = None if headers is None else _tails(headers, first)
    for attempt in range(2):
        bad = encoder.list_checked(values, keys, tails, max(bytes_max - RECORD_OVERHEAD_BYTES, 0))
        if bad == len(values):
            break
        assert bad != REFUSED, "columns are of one length"
        size = _size(bad, values, keys, tails)
        if attempt or size > bytes_max:
            raise MessageTooLarge(
                f"record {first + bad} of the list has {size} bytes, more than max_request_size = {bytes_max}"
            )
        values = _serialized("value", values, serializers.value, first)
        keys = None if keys is None else _serialized("key", keys, serializers.key, first)
    if keys is not None and keys.count(None) == len(keys):
        keys = None
    return RecordLists(encoder, values, keys, tails, None if times is None else _times(times, now_ms, first))


def _size(row: int, *columns: Column) -> int:
    given = [column[row] for column in columns if column is not None]
    return sum(len(one) for one in given if type(one) is bytes) + RECORD_OVERHEAD_BYTES


def _serialized(what: str, column: Sequence[Any], serializer: Serializer, first: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    try:
        for one in column:
            raw = serializer(one)
            found.append(raw if raw is None or type(raw) is bytes else bytes(raw))
    except BaseException as trouble:
        trouble.add_note(f"it is the {what} of record {first + len(found)} of the list")
        raise
    return found


def _tails(headers: Sequence[Any], first: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    try:
        for one in headers:
            found.append(encoded_headers(checked_headers(one)) if one else None)
    except (TypeError, ValueError) as trouble:
        trouble.add_note(f"they are the headers of record {first + len(found)} of the list")
        raise
    return found


def _times(times: Sequence[Any], now_ms: Callable[[], int], first: int) -> "array[int]":
    found = array("q")
    try:
        for one in times:
            found.append(now_ms() if one is None else checked_timestamp(one))
    except (TypeError, ValueError) as trouble:
        trouble.add_note(f"it is the timestamp of record {first + len(found)} of the list")
        raise
    return found

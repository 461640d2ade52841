"""Checks of the arguments of client calls: what could not be sent is refused at once.

Otherwise it would fail far from the call, together with other callers' records. Raises plain TypeError and
ValueError, as for any wrong argument.
Left to others: values and keys (serializers.py), options (config.py).
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import index
from typing import Any, TypeVar

from ..base.types import TopicPartition
from .results import CommittedOffset, GroupMetadata, Header, Headers
from .serializers import bytes_out

T = TypeVar("T")

NAME_BYTES_MAX = (1 << 15) - 1  # of any text in a request; which shorter names are legal brokers say
TIMESTAMP_MS_MAX = OFFSET_MAX = (1 << 63) - 1  # on the wire each is an int64


def as_names(given: str | Iterable[str]) -> list[str]:
    """Names of topics, groups, states; one alone is no list of its letters."""
    return [given] if isinstance(given, str) else list(given)


def as_partition(given: Any) -> TopicPartition:
    """A partition: a TopicPartition, or a pair like one."""
    match given:
        case (str() as topic, number):
            with suppress(TypeError):
                return TopicPartition(topic, index(number))
    raise TypeError(f"expected a TopicPartition, of a topic and a number, got {given!r}")


def as_partitions(given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions in the order given."""
    return [as_partition(one) for one in given]


def by_partition(given: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    """What is given for each partition."""
    return {as_partition(one): what for one, what in given.items()}


def as_offsets(
    given: Mapping[TopicPartition, int | CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """Offsets to be committed: numbers from 0 on, alone or with a note."""
    return {partition: _as_offset(partition, one) for partition, one in by_partition(given).items()}


def _as_offset(partition: TopicPartition, given: int | CommittedOffset) -> CommittedOffset:
    whole = given if isinstance(given, CommittedOffset) else CommittedOffset(given)
    checked_offset(partition, whole.offset)
    return whole


def checked_offset(partition: TopicPartition, offset: int) -> int:
    """Check an offset; whether the log has it is up to the brokers."""
    try:
        number = index(offset)
    except TypeError:
        raise TypeError(f"{partition}: expected an offset of type int, got {offset!r}") from None
    if number < 0:
        raise ValueError(f"{partition}: offset {number} is negative")
    if number > OFFSET_MAX:
        raise ValueError(f"{partition}: offset {number} is above {OFFSET_MAX}")
    return number


def checked_time(partition: TopicPartition, time: int) -> int:
    """Check a time to be looked up: milliseconds since 1970, or what stands for a place (-1, -2)."""
    try:
        number = index(time)
    except TypeError:
        raise TypeError(f"{partition}: expected a time of type int (milliseconds), got {time!r}") from None
    if not -TIMESTAMP_MS_MAX <= number <= TIMESTAMP_MS_MAX:
        raise ValueError(f"{partition}: time {number} is not within 64 bits")
    return number


def as_group(given: GroupMetadata | str) -> GroupMetadata:
    """A group: a consumer's `group_metadata()`, or a name."""
    whole = GroupMetadata(given) if isinstance(given, str) else given
    if not isinstance(whole, GroupMetadata):
        raise TypeError(f"expected a consumer's group_metadata() or a group's name, got {given!r}")
    if not whole.group:
        raise ValueError("expected a group, got an empty name")
    return whole


def checked_topic(name: str) -> str:
    """Check that a topic's name can be encoded. Which names are allowed is up to the brokers."""
    if not isinstance(name, str):
        raise TypeError(f"expected a topic name of type str, got {type(name).__name__}")
    size = len(name.encode())
    if size > NAME_BYTES_MAX:  # brokers would hang up on all that metadata is asked for
        raise ValueError(f"a topic name of {size} bytes is more than a request can have: {name[:40]!r}…")
    return name


def checked_timestamp(timestamp_ms: int) -> int:
    """Check a timestamp: as in Kafka's producer not before 1970, and on the wire an int64."""
    try:
        number = index(timestamp_ms)
    except TypeError:
        kind = type(timestamp_ms).__name__
        raise TypeError(f"timestamp_ms: expected an int (milliseconds since 1970), got {kind}") from None
    if not 0 <= number <= TIMESTAMP_MS_MAX:
        raise ValueError(f"timestamp_ms={number}: expected 0 to {TIMESTAMP_MS_MAX}")
    return number


def checked_partition(partition: int) -> int:
    """Check a partition's number; whether there is such a partition is up to the brokers."""
    number = index(partition)
    if number < 0:
        raise ValueError(f"partition={number}: expected 0 or more")
    return number


def checked_headers(headers: Headers) -> tuple[Header, ...]:
    """Check headers, pairs or a mapping: names are text, contents are bytes or None."""
    found: list[Header] = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"expected headers as pairs of name and value, or as a mapping, got {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"expected a header name of type str, got {type(name).__name__}")
        name.encode()
        try:
            found.append((name, bytes_out(content)))
        except TypeError:
            kind = type(content).__name__
            raise TypeError(f"header {name!r}: expected a value of type bytes or None, got {kind}") from None
    return tuple(found)

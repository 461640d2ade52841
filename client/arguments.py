"""Checks of the arguments of client calls: what could not be sent is refused at once.

Otherwise it would fail far from the call, together with other callers' records. Raises plain TypeError and
ValueError, as for any wrong argument.
Left to others: values and keys (serializers.py), options (config.py).
"""

from collections.abc import Mapping
from operator import index

from .results import Header, Headers
from .serializers import bytes_out

TIMESTAMP_MS_MAX = (1 << 63) - 1


def checked_topic(name: str) -> str:
    """Check that a topic's name can be encoded. Which names are allowed is up to the brokers."""
    if not isinstance(name, str):
        raise TypeError(f"expected a topic name of type str, got {type(name).__name__}")
    name.encode()
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

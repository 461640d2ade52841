"""What callers give a client, looked at before it is kept: what could not be sent is refused at once.

Else it would be met far from the caller's call, where others' records are under way. Plain TypeError and
ValueError, as for any wrong argument. Left to others: values and keys (serializers.py), options (config.py).
"""

from collections.abc import Iterable
from operator import index

from ..protocol.records import Header
from .serializers import bytes_out

TIMESTAMP_MS_MAX = (1 << 63) - 1


def checked_topic(name: str) -> str:
    """A topic's name, as far as it can be written; what names a topic may have, brokers say."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name is text, not {type(name).__name__}")
    name.encode()
    return name


def checked_timestamp(timestamp_ms: int) -> int:
    """As in Kafka's producer, none before 1970; on the wire it is an int64."""
    try:
        number = index(timestamp_ms)
    except TypeError:
        kind = type(timestamp_ms).__name__
        raise TypeError(f"timestamp_ms is a whole number of milliseconds, not {kind}") from None
    if not 0 <= number <= TIMESTAMP_MS_MAX:
        raise ValueError(f"timestamp_ms={number}: not within 0 and {TIMESTAMP_MS_MAX}")
    return number


def checked_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Names are text, contents are bytes or None."""
    found: list[Header] = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is text, not {type(name).__name__}")
        name.encode()
        try:
            found.append((name, bytes_out(content)))
        except TypeError:
            kind = type(content).__name__
            raise TypeError(f"header {name!r}: its content is bytes or None, not {kind}") from None
    return tuple(found)

"""Times and durations as people type them. Pure: whoever wants the present hands it in.

A time without a zone is UTC, as in Kafka's tools.
"""

import re
from datetime import UTC, datetime

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SHORT = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
PART = re.compile(r"(\d+)(ms|[smhdw])")
ISO = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,3})?)S)?)?"
)

DURATIONS = "a duration, e.g. 90s, 1h30m, 2d or PT1H30M"
TIMES = "a time: milliseconds since 1970, or e.g. 2026-01-31, 2026-01-31T12:00:00 (UTC), …T12:00:00+02:00"


def duration_ms(text: str) -> int | None:
    """Milliseconds of `1h30m`, `90s`, `500ms`, or of `P1DT2H` (ISO 8601); None if it is no duration."""
    if SHORT.fullmatch(text):
        return sum(int(number) * UNITS_MS[unit] for number, unit in PART.findall(text))
    found = ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    return sum(int(float(number) * UNITS_MS[unit]) for unit, number in found.groupdict("0").items())


def instant_ms(text: str) -> int | None:
    """Milliseconds since 1970 of that number, or of a date or time (ISO 8601); None if it is no time."""
    if text.isascii() and text.isdecimal() and len(text) < len("20260131T") + 10:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def shown(ms: int) -> str:
    """A time as ISO 8601 in UTC, with milliseconds; the number itself beyond the year 9999."""
    try:
        return (
            datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return str(ms)

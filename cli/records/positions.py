"""Where `consume` begins: what `--offset` says, and the offsets that follow from it. Pure."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ...base.types import TopicPartition
from ..console import WrongUsage
from ..times import TIMES, duration_ms, instant_ms

OFFSET_DIGITS = 18


class Kind(Enum):
    """What a position is counted from."""

    EARLIEST = "the first record"
    LATEST = "the end"
    OFFSET = "the beginning of the log"
    FROM_END = "so many offsets before the end"
    TIME = "the first record that is not older"


class Start(NamedTuple):
    """Where to begin; `number` is an offset, a count, or milliseconds since 1970."""

    kind: Kind
    number: int = 0


NAMED = {
    **dict.fromkeys(("earliest", "beginning"), Start(Kind.EARLIEST)),
    **dict.fromkeys(("latest", "end"), Start(Kind.LATEST)),
}


def start(text: str, now_ms: int) -> Start:
    """What `--offset` says. Raises WrongUsage."""
    if text in NAMED:
        return NAMED[text]
    if text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS:
        return Start(Kind.OFFSET, int(text))
    if text.startswith("@") and (at := instant_ms(text[1:])) is not None:
        return Start(Kind.TIME, at)
    if text.startswith("-"):
        if text[1:].isascii() and text[1:].isdecimal() and len(text) <= OFFSET_DIGITS:
            return Start(Kind.FROM_END, int(text[1:]))
        if (ago := duration_ms(text[1:])) is not None:
            return Start(Kind.TIME, max(now_ms - ago, 0))
    raise WrongUsage(
        f"--offset {text}: expected an offset; -10 for the last ten of each partition; -1h for the last "
        f"hour; earliest or latest; or @ and {TIMES}"
    )


def offsets(
    where: Start,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """The first offset to read in each partition; the end of one where nothing is as new as the time."""
    if where.kind is Kind.EARLIEST:
        return dict(begins)
    if where.kind is Kind.LATEST:
        return dict(ends)
    if where.kind is Kind.OFFSET:
        return dict.fromkeys(ends, where.number)
    if where.kind is Kind.FROM_END:
        return {place: max(begins[place], end - where.number) for place, end in ends.items()}
    found = {place: at_time.get(place) for place in ends}
    return {place: ends[place] if at is None else at for place, at in found.items()}

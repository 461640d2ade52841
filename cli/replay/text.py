"""A film as text: the moments as a list, and one frame."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...base.types import NO_LEADER
from .film import Film, knowledge

STATES = {"up": "up", "gone": "gone", "suspected": "counted as dead", "leaving": "shutting down"}


def clock(at_ms: int) -> str:
    """A wall clock time, UTC, with milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def day(at_ms: int) -> str:
    """The date of a wall clock time, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def lines(film: Film, first: int, last: int) -> Iterator[str]:
    """The moments from `first` to `last`, one a line, with the seconds since the one before it."""
    width = len(str(last))
    before = None
    for number in range(first, last + 1):
        moment = film.moments[number]
        if before is None or day(before) != day(moment.at_ms):
            yield f"{day(moment.at_ms)} UTC"
        gap = "" if before is None else f"+{(moment.at_ms - before) / 1000:.3f}"
        before = moment.at_ms
        yield f"{number:>{width}}  {clock(moment.at_ms)} {gap:>10}  {_who(moment)}  {_what(moment)}"


def _who(moment: Any) -> str:
    return f"broker {moment.by}" + (" (controller)" if moment.is_controllers else "             ")


def _what(moment: Any) -> str:
    of = "" if moment.partition is None else f"{moment.partition}: "
    again = f" ({moment.times} times until {clock(moment.until_ms)})" if moment.times > 1 else ""
    return f"{of}{moment.sentence}{again}"


def frame_lines(film: Film, number: int, partition: str | None) -> Iterator[str]:
    """The state after a moment: the controller, brokers, and each partition with its replicas."""
    moment, frame = film.moments[number], film.frame(number)
    yield f"{number}  {day(moment.at_ms)} {clock(moment.at_ms)} UTC  {_who(moment).rstrip()}  {_what(moment)}"
    yield ""
    now = frame["controller"]
    yield "controller  " + ("unknown" if now is None else f"broker {now['broker']}, epoch {now['epoch']}")
    for broker, known in sorted(frame["brokers"].items()):
        yield f"broker {broker}    {_broker(known)}"
    for name, known in sorted(frame["partitions"].items()):
        if partition in (None, name):
            yield ""
            yield from _partition(frame, name, known, moment.at_ms)


def _broker(known: dict[str, Any]) -> str:
    told = [STATES.get(known["state"], known["state"])]
    if known["incarnation"] is not None:
        told.append(f"incarnation {known['incarnation']}")
    if known["session"] not in (None, "connected"):
        told.append(f"ZooKeeper session {known['session'].replace('_', ' ')}")
    return ", ".join(told)


def _partition(frame: dict[str, Any], name: str, known: dict[str, Any], now_ms: int) -> Iterator[str]:
    if known["epoch"] is None:
        yield f"{name}  what the controller decided is not recorded"
    else:
        led = f"leader {known['leader']}" if known["leader"] != NO_LEADER else "no leader"
        since = _ago(known["at_ms"], now_ms)
        yield f"{name}  {led}, epoch {known['epoch']}, ISR {_ids(known['isr'])}, {since}"
    for broker, replica in sorted(known["replicas"].items()):
        told = [replica["role"]]
        if replica["epoch"] is not None:
            of = f" of broker {replica['leader']}" if replica["role"] == "following" else ""
            told[0] += f"{of} in epoch {replica['epoch']}"
            told.append(f"end {replica['end']}, high watermark {replica['watermark']}")
            told.append(_ago(replica["at_ms"], now_ms))
        if replica["proposed"] is not None:
            told.append(f"asks for the ISR {_ids(replica['proposed'])}")
        missing = knowledge(frame, name, broker)
        yield f"  broker {broker}  {', '.join(told)}"
        yield from (f"            {each}" for each in (missing, replica["note"]) if each)


def _ago(then_ms: int | None, now_ms: int) -> str:
    return "" if then_ms is None else f"as of {(now_ms - then_ms) / 1000:.3f} s before"


def _ids(brokers: list[int] | None) -> str:
    return ",".join(map(str, brokers or ())) or "none"

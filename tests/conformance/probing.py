"""Clients of every kind that write and read at a steady pace, each in a process of its own.

A probe is started with `<bootstrap> <topic> <milliseconds between records>`. It writes numbered records with
acks=all, reads them in a group, and tells lines `<what> <number> <time of day in ms>`:

    acked 17 1700000000000.0     record 17 was acknowledged
    read 17 1700000000001.2      record 17 was read
    sent 4711 1700000000009.3    it was told to stop: 4711 records were sent, and all are settled

The first line on its standard input tells it to stop writing, the second one to end. Its standard error is
kept: a client that throws answers away says so there. Java's and Go's probes are compiled once per user; one
whose tools are absent says what is missing.
"""

import hashlib
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from kafka_peer import jars

from tests.patience import HANG_S

HERE = Path(__file__).parent / "probes"
EVERY_MS = 10
JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
CACHE = Path.home() / ".cache" / "strandline"
GO_BUILD_S_MAX = 300.0  # an empty build cache compiles Go's library, too
NPM_INSTALL_S_MAX = 120.0
JAVAC_S_MAX = 120.0


class Absent(Exception):
    """What is missing on this machine for a probe, and how to get it."""


def python(driver: str) -> Callable[[], list[str]]:
    """The command of a client with a driver, given as `module:class`."""
    return lambda: [sys.executable, "-W", "ignore", str(HERE / "probe.py"), driver]


def java(source: Path = HERE / "Probe.java", folder: Path | None = None) -> list[str]:
    """The command of a program with the kafka-clients that Kafka's own broker has, or those in `folder`."""
    if shutil.which("javac") is None:
        raise Absent("no Java compiler: apt-get install default-jdk-headless")
    folder = folder or jars()
    return ["java", *JVM, "-cp", f"{java_classes(source, folder)}:{folder}/*", source.stem]


def java_classes(source: Path, folder: Path) -> Path:
    """Where a program's classes are: compiled with the jars of `folder` into the user's cache, once.

    A JVM that is given the source compiles it at each start, which costs two seconds of the processor.
    """
    compiler = Path(shutil.which("javac") or "").resolve()
    known = f"{folder}\n{compiler}\n{source.read_text()}"
    home = CACHE / f"java-{source.stem}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"
    if not home.exists():
        fresh = home.with_name(f"{home.name}.{os.getpid()}")
        line = [str(compiler), "-cp", f"{folder}/*", "-d", str(fresh), str(source)]
        subprocess.run(line, check=True, timeout=JAVAC_S_MAX)
        try:
            fresh.rename(home)
        except OSError:
            shutil.rmtree(fresh)  # someone else was faster
    return home


def franz() -> list[str]:
    """The command of franz-go."""
    return go_program(HERE / "franz", "franz-probe")


def go_program(folder: Path, title: str, package: str = ".") -> list[str]:
    """The command of a Go program in a folder, built into the user's cache under the hash of its sources."""
    program = CACHE / f"{title}-{_hash_of(folder)}"
    if not program.exists():
        _build(folder, program, package)
    return [str(program)]


def _build(folder: Path, program: Path, package: str) -> None:
    compiler = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if compiler is None:
        raise Absent("no Go compiler: install Go 1.24 or newer (https://go.dev/dl)")
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_name(f"{program.name}.{os.getpid()}")
    line = [compiler, "build", "-mod=readonly", "-buildvcs=false", "-o", str(fresh), package]
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=GO_BUILD_S_MAX, check=False
    )
    if done.returncode:
        raise Absent(
            f"{program.name} could not be built (is Go's module proxy reachable?): {done.stderr[-500:]}"
        )
    fresh.replace(program)


def node_program(folder: Path, title: str) -> list[str]:
    """The command of a Node program in a folder, put into the user's cache under the hash of its sources; npm
    adds the packages that its lock file pins.
    """
    home = CACHE / f"{title}-{_hash_of(folder)}"
    if not home.exists():
        _install(folder, home)
    return ["node", str(home / f"{title}.js")]


def _install(folder: Path, home: Path) -> None:
    installer = shutil.which("npm")
    if installer is None:
        raise Absent("no npm: install Node 20 or newer (apt-get install npm)")
    fresh = home.with_name(f"{home.name}.{os.getpid()}")
    shutil.copytree(folder, fresh)
    line = [installer, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        line, cwd=fresh, capture_output=True, text=True, timeout=NPM_INSTALL_S_MAX, check=False
    )
    if done.returncode:
        shutil.rmtree(fresh)
        raise Absent(
            f"{home.name} could not be installed (is the npm registry reachable?): {done.stderr[-500:]}"
        )
    fresh.rename(home)


def _hash_of(folder: Path) -> str:
    """Of all sources there."""
    sources = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]


PROBES: dict[str, Callable[[], list[str]]] = {
    "librdkafka": python("drive_confluent:Confluent"),
    "aiokafka": python("drive_aiokafka:AioKafka"),
    "kafka-python": python("drive_kafka_python:KafkaPython"),
    "java": java,
    "franz-go": franz,
    "bundled": python("drive_strandline:Strandline"),
}


@dataclass
class Probe:
    """One client that runs. Its events are kept with their times; `acked` and `read` are sets of numbers."""

    name: str
    topic: str
    process: subprocess.Popen[str]
    errors: Path
    acked: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    sent: int | None = None
    acked_at: list[float] = field(default_factory=list)
    read_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, number, at = line.split()
            if what == "acked":
                self.acked.add(int(number))
                self.acked_at.append(float(at))
            elif what == "sent":
                self.sent = int(number)
            elif int(number) not in self.read:  # read again after a rebalance is no news
                self.read.add(int(number))
                self.read_at.append(float(at))

    def silence(self, since_ms: float) -> tuple[float, float]:
        """The longest silence of the producer and of the consumer, in seconds, from `since_ms` (time of day)
        to the last event.
        """
        return _silence(self.acked_at, since_ms), _silence(self.read_at, since_ms)

    def tell(self) -> None:
        """To stop writing; and, the second time, to end."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    @property
    def complaints(self) -> str:
        """What the client wrote to its standard error."""
        return self.errors.read_text(errors="replace")

    def close(self) -> None:
        """End it, by force when it does not end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(HANG_S)
        self._listener.join(HANG_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _silence(times: list[float], since_ms: float) -> float:
    """Events of several threads of a client are not quite in order."""
    during = [since_ms, *sorted(at for at in times if at >= since_ms)]
    gaps = (later - earlier for earlier, later in pairwise(during))
    return max(gaps, default=math.inf) / 1000


def start(
    name: str, command: list[str], bootstrap: str, topic: str, folder: Path, every_ms: int = EVERY_MS
) -> Probe:
    """Start a probe that writes every so many ms; its standard error goes to a file in `folder`."""
    errors = folder / f"{name}.err"
    with errors.open("ab") as file:
        process = subprocess.Popen(
            [*command, bootstrap, topic, str(every_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    return Probe(name, topic, process, errors)


def now_ms() -> float:
    """The time of day in milliseconds, the clock of all probes."""
    return time.time() * 1000

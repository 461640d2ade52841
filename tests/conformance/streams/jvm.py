"""Programs of Kafka's jars that are more than clients, each in a JVM of its own: started, told, killed.

Its standard output is kept line by line with the time of each; its log, from INFO on, goes to `<name>.log`.
Left to others: which program and what it is to do (wordcount.py, workers.py).
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.jars import JarsMissing, fetched
from tests.conformance.probing import Absent
from tests.patience import HANG_S

HERE = Path(__file__).parent
FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.FileAppender
log4j.appender.out.File={file}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
COMPILE_S_MAX = 120.0
KNOWN_IN_PEACE = (
    "There is not enough available capacity"  # of standbys, before the second instance has come
    "|-repartition=UNKNOWN_TOPIC_OR_PARTITION"  # it was made a moment ago
)
"""Lines of WARN that Apache Kafka's own brokers cause, too, when nothing has happened yet."""
LOUD = re.compile(r"^\[[^\]]*\] (WARN|ERROR|FATAL) (.*)$", re.MULTILINE)


def jars() -> Path:
    """The folder with the jars of Streams and Connect 3.9. Raises Absent."""
    if shutil.which("javac") is None:
        raise Absent("no Java compiler: apt-get install default-jdk-headless")
    try:
        return fetched(HERE / "pom.xml", "streams-3.9")
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"the jars could not be fetched: {error}"
        raise Absent(f"Kafka Streams and Connect 3.9 could not be fetched: {error}") from None


def compiled(folder: Path) -> Path:
    """`folder` with the classes of the programs beside this file: they are started more than once."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = map(str, sorted(HERE.glob("*.java")))
    line = ["javac", "-cp", f"{jars()}/*", "-d", str(folder), *sources]
    done = subprocess.run(line, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Jvm:
    """One program that runs."""

    def __init__(
        self, name: str, folder: Path, main: str, arguments: Sequence[str], classes: Path | None = None
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self.told: list[tuple[float, str]] = []
        scratch = folder / f"{name}.tmp"  # RocksDB unpacks its library there, and a killed one leaves it
        scratch.mkdir(parents=True, exist_ok=True)
        settings = folder / f"{name}.log4j"
        settings.write_text(LOG4J.format(file=self.log))
        flags = (f"-Dlog4j.configuration=file:{settings}", f"-Djava.io.tmpdir={scratch}")
        path = [*([str(classes)] if classes else []), f"{jars()}/*"]
        with (folder / f"{name}.err").open("ab") as errors:
            self.process = subprocess.Popen(
                ["java", *FLAGS, *flags, "-cp", ":".join(path), main, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append((time.monotonic(), line.rstrip("\n")))

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def lines(self, what: str) -> list[str]:
        """What it has told so far of one kind, without the kind's name."""
        return [line[len(what) + 1 :] for _, line in self.told if line.startswith(f"{what} ")]

    def tell(self, wish: str) -> None:
        """A line for its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{wish}\n")
        self.process.stdin.flush()

    def answer(self, wish: str, last: str) -> list[str]:
        """What it tells after a wish, up to its line `last`."""
        before = len(self.told)
        self.tell(wish)
        self.until(lambda: last in [line for _, line in self.told[before:]], f"{wish} was answered")
        lines = [line for _, line in self.told[before:]]
        return lines[: lines.index(last)]

    def until(self, true: Callable[[], object], what: str, wait_s: float = 60.0) -> None:
        """Wait until `true()`, while it runs."""
        deadline = time.monotonic() + wait_s
        while not true():
            assert self.alive, f"{self.name} has ended before {what}: {self.last_words()}"
            assert time.monotonic() < deadline, f"{self.name}: not {what} in {wait_s} s: {self.last_words()}"
            time.sleep(0.05)

    def last_words(self) -> str:
        """The end of what it has told and logged."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        errors = self.log.with_suffix(".err").read_text(errors="replace")
        told = "\n".join(line for _, line in self.told[-20:])
        return f"{told}\n{errors[-1500:]}\n{log[-3000:]}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self._gone()

    def close(self, wait_s: float = 40.0) -> None:
        """Let it leave in peace."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(wait_s)
        finally:
            self.kill()

    def _gone(self) -> None:
        self.process.wait(HANG_S)
        self._listener.join(HANG_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # nobody will read what we had to say


def complaints(*logs: Path) -> Counter[str]:
    """Lines of WARN and above, with how often: without numbers and names that differ from run to run."""
    found: Counter[str] = Counter()
    for log in logs:
        for level, line in LOUD.findall(log.read_text(errors="replace")):
            plain = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4,12}){4}", "#", line)  # an id of a process
            plain = re.sub(r"\b(words|connect)-[0-9a-f]{8}\b", r"\1", plain)
            found[f"{level} " + re.sub(r"\d+", "0", plain)] += 1
    return found

"""kcat behind the common vocabulary: every call is a run of /usr/bin/kcat.

kcat creates no topics and asks nothing about groups; a sender's records count as acknowledged when kcat,
having been told that no more will come, ends with status 0.
"""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby

from driving import CODECS, Read, Row

from tests.patience import HANG_S

DELIMITER = "|"
KINDS = {
    "default": [],
    "quick": ["-X", "heartbeat.interval.ms=500"],
    "range": ["-X", "partition.assignment.strategy=range"],
    "cooperative": ["-X", "partition.assignment.strategy=cooperative-sticky"],
}


class Kcat:
    """kcat."""

    name = "kcat"
    codecs = CODECS
    can = frozenset[str]()

    def __init__(self, bootstrap: str) -> None:
        self.line = ["kcat", "-b", bootstrap]

    def topics(self) -> dict[str, int]:
        found = json.loads(self._run("-L", "-J"))["topics"]
        return {one["topic"]: len(one["partitions"]) for one in found}

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        options = ["-z", codec] if codec != "none" else []
        options += ["-X", "enable.idempotence=true"] if idempotent else []
        for headers, some in groupby(rows, key=lambda row: row.headers):
            named = [word for name, value in headers for word in ("-H", f"{name}={value.decode()}")]
            lines = "".join(map(_line, some))
            self._run("-P", "-t", topic, "-K", DELIMITER, "-Z", *options, *named, given=lines)

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        found: list[Read] = []
        for one in partitions:
            left = str(count - len(found))
            place = ["-t", topic, "-p", str(one), "-o", "beginning", "-c", left]
            found += map(_read, self._run("-C", *place, "-e", "-J", "-q").splitlines())
            if len(found) == count:
                break
        assert len(found) == count, f"{len(found)} of {count} records came"
        return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        return self.offset_at(topic, partition, -2), self.offset_at(topic, partition, -1)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        told = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        return int(told.rsplit(" ", 1)[1])

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["KcatMember"]:
        assert list(partitions) == list(range(self.topics()[topic])), "kcat reads one partition, or all"
        options = ["-o", "beginning", "-X", f"isolation.level={level}", "-J", "-u"]
        member = KcatMember([*self.line, "-C", "-t", topic, *options])
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def member(self, topic: str, group: str, kind: str = "default") -> Iterator["KcatMember"]:
        options = ["-X", "auto.offset.reset=earliest", *KINDS[kind], "-J", "-u"]
        member = KcatMember([*self.line, "-G", group, *options, topic])
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["KcatSender"]:
        options = ["-X", "acks=all", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        sender = KcatSender([*self.line, "-P", "-t", topic, *options])
        try:
            yield sender
        finally:
            sender.close()

    def _run(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            [*self.line, *words], input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"kcat {' '.join(words)}: {done.stderr}"
        return done.stdout


class KcatMember:
    """A kcat that reads as a member of a group."""

    def __init__(self, line: list[str]) -> None:
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.told: queue.SimpleQueue[Read] = queue.SimpleQueue()
        self.partitions: set[int] = set()
        self.threads = [threading.Thread(target=work) for work in (self._listen, self._watch)]
        for thread in self.threads:
            thread.start()

    def poll(self) -> list[Read]:
        try:
            found = [self.told.get(timeout=0.2)]
        except queue.Empty:
            return []
        while not self.told.empty():
            found.append(self.told.get())
        return found

    def rest(self) -> list[Read]:
        """What it had printed before it ended."""
        return [self.told.get() for _ in range(self.told.qsize())]

    def assignment(self) -> set[int]:
        return set(self.partitions)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        for thread in self.threads:
            thread.join(HANG_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.told.put(_read(line))

    def _watch(self) -> None:
        for line in self.process.stderr or ():
            _, rebalanced, what = line.partition("): ")
            if "rebalanced" in line and rebalanced:
                told = set(map(int, re.findall(r"\[(\d+)\]", what)))
                if "assign" in line:
                    self.partitions = self.partitions | told
                else:
                    self.partitions = self.partitions - told


class KcatSender:
    """A kcat that sends what it is given line by line."""

    def __init__(self, line: list[str]) -> None:
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.waiting: list[Callable[[], None]] = []

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(value.decode() + "\n")
        self.process.stdin.flush()
        self.waiting.append(acknowledged)

    def flush(self) -> None:
        _, told = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, told
        for acknowledged in self.waiting:
            acknowledged()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def _line(row: Row) -> str:
    value = "" if row.value is None else row.value.decode()
    return f"{value}\n" if row.key is None else f"{row.key.decode()}{DELIMITER}{value}\n"


def _read(line: str) -> Read:
    told = json.loads(line)
    key, value, names = told["key"], told["payload"], told.get("headers", [])
    headers = tuple((names[i], names[i + 1].encode()) for i in range(0, len(names), 2))
    row = Row(key and key.encode(), value if value is None else value.encode(), headers)
    return Read(told["partition"], told["offset"], row, told["ts"])

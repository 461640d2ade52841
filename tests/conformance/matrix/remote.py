"""Clients of other languages behind the common vocabulary: a worker program that does what it is told.

One JSON object a line, both ways. A request has a number and what to do; its answer has the same number and
either `ok` or `error`. Requests are answered in any order: whoever asks waits for the answer, and asks
nothing of the same producer or consumer meanwhile. A record that was acknowledged is told unasked, as
`{"acked": token}`. The requests:

    create topic partitions · delete topic · topics · config topic name · set-config topic name value
    ends topic partition · offset-at topic partition timestamp
    groups · group-state group · committed topic group partition
    producer name codec idempotent transactional · send name topic records · flush name
    begin name · commit-transaction name · abort name
    consumer name topic partitions level group kind · poll name · commit name
    close name

Texts stand for bytes. `send` is answered when the records are handed over; each has a token that is told when
it is acknowledged. `poll` waits 200 ms at most; its answer is records and the assignment.
Left to others: the workers (workers/).
"""

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from driving import CODECS, Read, Row, until

ANSWER_S_MAX = 90.0


class Refused(Exception):
    """The client's own error, in its words."""


class Worker:
    """The program. `ask` returns its answer, or raises what the client has raised."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self.acknowledged: dict[int, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def number(self) -> int:
        """A number that no other request or record has."""
        return next(self._numbers)

    def ask(self, what: str, **given: Any) -> Any:
        """Do this; wait for the answer."""
        number, answers = self.number(), SimpleQueue[dict[str, Any]]()
        self._waiting[number] = answers
        line = json.dumps({"id": number, "do": what, **given})
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = answers.get(timeout=ANSWER_S_MAX)
        if "error" in answer:
            raise Refused(f"{what}: {answer['error']}")
        return answer["ok"]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):  # a library that writes where it should not
                sys.stderr.write(line)
                continue
            told = json.loads(line)
            if "acked" in told:
                self.acknowledged.pop(told["acked"], lambda: None)()
            else:
                self._waiting.pop(told["id"]).put(told)
        for answers in [*self._waiting.values()]:
            answers.put({"error": "the worker has ended"})

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._listener.join(20)
        self._process.stdout.close()


class Remote:
    """A client that a worker program drives."""

    codecs = CODECS
    can = frozenset({"admin"})

    def __init__(self, name: str, command: list[str], bootstrap: str) -> None:
        self.name = name
        self.worker = Worker([*command, bootstrap])
        self.ask = self.worker.ask

    def close(self) -> None:
        """End the program."""
        self.worker.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        self.ask("create", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        self.ask("delete", topic=topic)

    def topics(self) -> dict[str, int]:
        told: dict[str, int] = self.ask("topics")
        return told

    def set_config(self, topic: str, name: str, value: str) -> None:
        self.ask("set-config", topic=topic, name=name, value=value)

    def config(self, topic: str, name: str) -> str:
        return str(self.ask("config", topic=topic, name=name))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        first, last = self.ask("ends", topic=topic, partition=partition)
        return first, last

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        return int(self.ask("offset-at", topic=topic, partition=partition, timestamp=timestamp_ms))

    def groups(self) -> set[str]:
        return set(self.ask("groups"))

    def group_state(self, group: str) -> str:
        return str(self.ask("group-state", group=group)).lower()

    def committed(self, topic: str, group: str, partition: int) -> int:
        return int(self.ask("committed", topic=topic, group=group, partition=partition))

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        with self._opened("producer", codec=codec, idempotent=idempotent, transactional=None) as name:
            sender = RemoteSender(self.worker, name, topic)
            acknowledged: list[None] = []
            sent = [sender.send_row(row, lambda: acknowledged.append(None)) for row in rows]
            sender.flush()
            until(lambda: len(acknowledged) == len(sent), "every record is acknowledged", 30)

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        found: list[Read] = []
        deadline = time.monotonic() + 30
        with self.reader(topic, partitions) as reader:
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += reader.poll()
        return found

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["RemoteSender"]:
        with self._opened("producer", codec="none", idempotent=idempotent, transactional=None) as name:
            yield RemoteSender(self.worker, name, topic)

    @contextmanager
    def transactional(self, name: str) -> Iterator["RemoteTransactional"]:
        with self._opened("producer", codec="none", idempotent=True, transactional=name) as opened:
            yield RemoteTransactional(self.worker, opened)

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["RemoteMember"]:
        given = {
            "topic": topic,
            "partitions": [*partitions],
            "level": level,
            "group": None,
            "kind": "default",
        }
        with self._opened("consumer", **given) as name:
            yield RemoteMember(self.worker, name)

    @contextmanager
    def member(self, topic: str, group: str, kind: str = "default") -> Iterator["RemoteMember"]:
        given = {
            "topic": topic,
            "partitions": None,
            "level": "read_uncommitted",
            "group": group,
            "kind": kind,
        }
        with self._opened("consumer", **given) as name:
            yield RemoteMember(self.worker, name)

    @contextmanager
    def _opened(self, opened: str, **given: Any) -> Iterator[str]:
        name = f"{opened}-{self.worker.number()}"
        self.ask(opened, name=name, **given)
        try:
            yield name
        finally:
            self.ask("close", name=name)


class RemoteSender:
    """A producer with acks=all."""

    def __init__(self, worker: Worker, name: str, topic: str) -> None:
        self.worker, self.name, self.topic = worker, name, topic

    def send(self, value: bytes, acknowledged: Callable[[], object]) -> None:
        self.send_row(Row(None, value), acknowledged)

    def send_row(self, row: Row, acknowledged: Callable[[], object]) -> None:
        """The same for a whole record."""
        token = self.worker.number()
        self.worker.acknowledged[token] = acknowledged
        headers = [[name, value.decode()] for name, value in row.headers]
        record = {"token": token, "headers": headers, "timestamp": row.timestamp_ms}
        record |= {
            name: None if given is None else given.decode()
            for name, given in (("key", row.key), ("value", row.value))
        }
        self.worker.ask("send", name=self.name, topic=self.topic, **record)

    def flush(self) -> None:
        self.worker.ask("flush", name=self.name)


class RemoteTransactional:
    """A producer with a transactional id."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.worker, self.name = worker, name

    def begin(self) -> None:
        self.worker.ask("begin", name=self.name)

    def send(self, topic: str, value: bytes) -> None:
        RemoteSender(self.worker, self.name, topic).send(value, lambda: None)

    def commit(self) -> None:
        self.worker.ask("commit-transaction", name=self.name)

    def abort(self) -> None:
        self.worker.ask("abort", name=self.name)


class RemoteMember:
    """A consumer, in a group or not."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.worker, self.name = worker, name
        self._assigned: set[int] = set()

    def poll(self) -> list[Read]:
        told = self.worker.ask("poll", name=self.name)
        self._assigned = set(told["assignment"])
        return [_read(one) for one in told["records"]]

    def assignment(self) -> set[int]:
        return self._assigned

    def commit(self) -> None:
        self.worker.ask("commit", name=self.name)


def _read(told: dict[str, Any]) -> Read:
    key, value = (None if told[name] is None else told[name].encode() for name in ("key", "value"))
    headers = tuple((name, content.encode()) for name, content in told["headers"])
    return Read(told["partition"], told["offset"], Row(key, value, headers), told["timestamp"])

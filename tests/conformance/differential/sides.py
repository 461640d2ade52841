"""One of the two brokers as the cases see it: connections by name, what `$x` stands for, request and answer.

A request is made of the same fields for both sides, so its bytes are the same but for what a broker itself
has given out before: ids of topics, of producers, of members. An answer that does not come is an answer, too:
`closed`, `silent`.
"""

import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import ClientEnd
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.groups import FindCoordinatorRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.conformance.differential.notation import Topic
from tests.conformance.differential.requests import Building

PATIENCE_S = 20.0  # for one answer, and for what `until` waits for
READY_S = 60.0  # for what only makes ready: a topic with many partitions, on a busy machine
AGAIN_S = 0.02


class Unsayable(Exception):
    """This version of a request cannot carry the fields."""


class NoAnswer(Exception):
    """`closed`: the broker ended the connection; `silent`: nothing came in time."""


class Line:
    """One connection. It is opened again when the broker has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket: socket.socket | None = None
        self.end = ClientEnd("differential")

    def send(self, request: Any, version: int) -> None:
        try:
            frame = b"".join(bytes(part) for part in self.end.send(request, version))
        except (TypeError, AttributeError, struct.error) as error:
            raise Unsayable(str(error)) from error
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        with suppress(ConnectionError):  # closed meanwhile: so there will be no answer
            self.socket.sendall(frame)

    def answer(self, within_s: float | None = None) -> Any:
        """The next answer; None if there is none to come."""
        if not self.end.waiting:
            return None
        assert self.socket is not None
        self.socket.settimeout(within_s or PATIENCE_S)
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            return self.end.receive(self._exactly(size))[1]
        except (ConnectionError, TimeoutError) as error:
            self.close()
            raise NoAnswer("silent" if isinstance(error, TimeoutError) else "closed") from None

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket, self.end = None, ClientEnd("differential")

    def _exactly(self, size: int) -> bytes:
        assert self.socket is not None
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)


class Names(dict[str, Any]):
    """What `$x` stands for in one round; a name that nobody has bound is made up from the round's."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def __missing__(self, name: str) -> str:
        assert not name.endswith(".id"), f"${name}: no such topic"
        self[name] = f"{name}-{self.tag}"
        return str(self[name])


class Side:
    """A broker, its connections, and the names of the round that is asked now."""

    def __init__(self, title: str, port: int) -> None:
        self.title, self.port = title, port
        self.lines: dict[str, Line] = {}
        self.names = Names("")
        self.rounds: dict[str, Names] = {}

    def line(self, name: str) -> Line:
        if name not in self.lines:
            self.lines[name] = Line(self.port)
        return self.lines[name]

    def close(self) -> None:
        """Every connection: members and sessions of a round do not outlive it."""
        for line in self.lines.values():
            line.close()
        self.lines.clear()

    def send(self, on: str, api: Api, fields: Mapping[str, Any], version: int) -> None:
        self.line(on).send(Building(self.names).request(api, fields, version), version)

    def ask(self, request: Any, version: int) -> Any:
        """For the cases' own ends, on a connection of its own."""
        line = self.line("apart")
        line.send(request, version)
        return line.answer(READY_S)

    def versions(self) -> dict[int, range]:
        """What the broker says that it serves."""
        answer = self.ask(ApiVersionsRequest(), 0)
        return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}

    def make_ready(self) -> None:
        """Let it create the topics of its coordinators, and take ids for producers."""
        deadline = time.monotonic() + READY_S
        asked = (
            FindCoordinatorRequest(key="any"),
            FindCoordinatorRequest(key="any", key_type=1),
            InitProducerIdRequest(transaction_timeout_ms=1000),
            InitProducerIdRequest(transactional_id="any", transaction_timeout_ms=1000),
        )
        while any(self.ask(request, 2).error_code for request in asked):
            assert time.monotonic() < deadline, f"{self.title}: no coordinator, or no id for a producer"
            time.sleep(AGAIN_S)

    def create(self, rounds: list[tuple[Names, list[Topic]]]) -> None:
        """The topics of all rounds at once; their ids get names."""
        wanted = [(names, topic) for names, topics in rounds for topic in topics]
        if not wanted:
            return
        places = {names[topic.name]: (names, topic.name) for names, topic in wanted}
        asked = [
            CreatableTopic(
                name=names[topic.name],
                num_partitions=topic.partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
            )
            for names, topic in wanted
        ]
        for result in self.ask(CreateTopicsRequest(topics=asked, timeout_ms=60_000), 7).topics:
            assert result.error_code == 0, f"{self.title}: {result}"
            names, name = places[result.name]
            names[f"{name}.id"] = result.topic_id
        self._wait_led(list(places))

    def _wait_led(self, topics: list[str]) -> None:
        asked = [MetadataRequestTopic(name=name) for name in topics]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)
            if not any(t.error_code or any(p.error_code for p in t.partitions) for t in answer.topics):
                return
            assert time.monotonic() < deadline, f"{self.title}: no leaders"
            time.sleep(AGAIN_S)


def known_as(names: Mapping[str, Any]) -> dict[Any, str]:
    """Texts, ids and producers by the names that stand for them; `$pid…` is a producer's."""
    found: dict[Any, str] = {}
    for name, value in names.items():
        if name.startswith("pid"):
            found["producer", value] = f"${name}"
        elif isinstance(value, str | UUID) and value:
            found[value] = f"${name}"
    return found


def served_by_both(ours: Side, theirs: Side) -> dict[Api, list[int]]:
    """The versions of each API that both say they serve, and that our messages have."""
    one, other = ours.versions(), theirs.versions()
    return {
        api: [v for v in APIS[api].served if v in one[api] and v in other[api]]
        for api in Api
        if api in one and api in other
    }

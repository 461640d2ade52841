"""Requests and responses between processes as readable lines for the trace, with epochs and offsets.

It decodes the bytes of every connection with the message declarations of `protocol/`. Uninteresting messages
(an empty fetch, a heartbeat) are left out. Left to others: carrying the bytes (`environment/network.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..protocol.apis import APIS, Api, response_header_version
from ..protocol.batches import headers
from ..protocol.connection import FrameSplitter, parse_head
from ..protocol.errors import ErrorCode
from ..protocol.schema import decode
from ..zookeeper.client import Check, Create, Delete, MultiFailed, Op, SetData

if TYPE_CHECKING:
    from .environment.network import Transport

FRAME_BYTES_MAX = 1 << 28
DATA_SHOWN_MAX = 200
Note = Callable[[str], None]
Asked = tuple[Api, int, list[str]]
SILENT = frozenset((Api.API_VERSIONS, Api.METADATA, Api.HEARTBEAT, Api.FIND_COORDINATOR))


class Talk:
    """Decodes the traffic of all connections of a world."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._ears: WeakKeyDictionary[Transport, _Ear] = WeakKeyDictionary()
        self._topics: dict[str, str] = {}  # id -> name, from LeaderAndIsr requests

    def hear(self, transport: Transport, data: bytes) -> None:
        """One end of a connection writes these bytes."""
        ear = self._ears.get(transport)
        if ear is None:
            ear = self._ears[transport] = _Ear(self._topics)
            if transport.dialled:
                self._ears[transport.peer] = _Ear(self._topics, ear.asked)
        who, whom = transport.host.name, transport.remote.name
        for frame in ear.frames(data):
            said = ear.request(frame) if transport.dialled else ear.response(frame)
            for line in said:
                for id, name in self._topics.items():
                    line = line.replace(id, name)
                self._note(f"{who} {'to' if transport.dialled else 'answers'} {whom}: {line}")

    def to_zookeeper(self, who: str, ops: Sequence[Op], outcome: object) -> None:
        """A write to ZooKeeper, and its outcome."""
        told = ", ".join(WRITES[type(op)](op) for op in ops)
        if isinstance(outcome, MultiFailed):
            causes = [type(error).__name__ for error in outcome.results]
            self._note(f"ZooKeeper refuses {who}: {told}: {', '.join(causes)}")
        elif isinstance(outcome, list):
            self._note(f"ZooKeeper accepts from {who}: {told}")


class _Ear:
    """One direction of a connection; both directions share the requests that are open."""

    def __init__(self, topics: dict[str, str], asked: dict[int, Asked] | None = None) -> None:
        self._topics = topics
        self.asked: dict[int, Asked] = {} if asked is None else asked
        self._splitter = FrameSplitter(FRAME_BYTES_MAX)

    def frames(self, data: bytes) -> Iterator[memoryview]:
        """The frames that these bytes complete."""
        at = 0
        while at < len(data):
            room = self._splitter.room()
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            yield from self._splitter.received(size)

    def request(self, frame: memoryview) -> list[str]:
        """A request, as lines."""
        head = parse_head(frame)
        api = Api(head.api_key)
        message, _ = decode(APIS[api].request, head.version, frame, head.body_at)
        self.asked[head.correlation_id] = api, head.version, _names(api, message)
        if api in SILENT:
            return []
        if api is Api.LEADER_AND_ISR:
            self._topics.update((str(topic.topic_id), topic.topic_name) for topic in message.topic_states)
        says = REQUESTS.get(api)
        name = _title(api)
        return [name] if says is None else [f"{name} {line}" for line in says(message)]

    def response(self, frame: memoryview) -> list[str]:
        """A response, as lines."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id not in self.asked:
            return []
        api, version, names = self.asked.pop(correlation_id)
        if api in SILENT:
            return []
        at = 5 if response_header_version(api, version) == 1 else 4
        message, _ = decode(APIS[api].response, version, frame, at)
        says = RESPONSES.get(api)
        if says is not None:
            return [f"{_title(api)} {line}" for line in says(message, names)]
        code = getattr(message, "error_code", 0)
        return [f"{_title(api)} {_code(code)}"]


def _title(api: Api) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))


def _code(code: int) -> str:
    return "done" if not code else ErrorCode(code).name


def _names(api: Api, message: Any) -> list[str]:
    """The topics of a fetch in order: its response names them only by id."""
    return [topic.topic or str(topic.topic_id) for topic in message.topics] if api is Api.FETCH else []


def _batches(records: Any) -> str:
    if not records:
        return "nothing"
    data = bytes(records)
    spans = [
        (header.base_offset, header.last_offset, header.leader_epoch)
        for position, header in headers(data)
        if position + header.size <= len(data)
    ]
    told = [f"{first}..{last} of epoch {epoch}" for first, last, epoch in spans]
    return " ".join(told) or "part of a batch"


def _produce(message: Any) -> Iterator[str]:
    for topic in message.topic_data:
        for part in topic.partition_data:
            sequences = [
                f"{header.base_sequence}..{header.last_sequence}"
                for _, header in headers(bytes(part.records or b""))
            ]
            yield f"{topic.name}-{part.index}: sequences {' '.join(sequences)}, acks={message.acks}"


def _produced(message: Any, names: list[str]) -> Iterator[str]:
    for topic in message.responses:
        for part in topic.partition_responses:
            told = _code(part.error_code) if part.error_code else f"at {part.base_offset}"
            yield f"{topic.name}-{part.index}: {told}"


def _fetch(message: Any) -> Iterator[str]:
    for topic in message.topics:
        for part in topic.partitions:
            yield (
                f"{topic.topic or topic.topic_id}-{part.partition} from {part.fetch_offset}, epoch "
                f"{part.current_leader_epoch}, last record of epoch {part.last_fetched_epoch}"
            )


def _fetched(message: Any, names: list[str]) -> Iterator[str]:
    if message.error_code:
        yield _code(message.error_code)
    for topic in message.responses:
        name = topic.topic or topic.topic_id
        for part in topic.partitions:
            parting = getattr(part, "diverging_epoch", None)
            if part.error_code:
                yield f"{name}-{part.partition_index}: {_code(part.error_code)}"
            elif parting is not None and parting.end_offset >= 0:
                told = f"logs diverge in epoch {parting.epoch} at {parting.end_offset}"
                yield f"{name}-{part.partition_index}: {told}"
            elif part.records:
                told = f"{_batches(part.records)}, high watermark {part.high_watermark}"
                yield f"{name}-{part.partition_index}: {told}"


def _roles(message: Any) -> Iterator[str]:
    who = f"controller {message.controller_id} of epoch {message.controller_epoch}"
    yield f"by {who}, number {message.control_sequence}"
    for topic in message.topic_states:
        for part in topic.partition_states:
            yield (
                f"{topic.topic_name}-{part.partition_index}: leader {part.leader} "
                f"in epoch {part.leader_epoch}, ISR {part.isr}, version {part.partition_epoch}"
            )


def _stop(message: Any) -> Iterator[str]:
    for topic in message.topic_states:
        for part in topic.partition_states:
            yield (
                f"{topic.topic_name}-{part.partition_index} in epoch {part.leader_epoch}"
                f"{', and delete it' if part.delete_partition else ''}"
            )


def _metadata(message: Any) -> Iterator[str]:
    yield f"controller epoch {message.controller_epoch}, brokers {[b.id for b in message.live_brokers]}"


def _ask_end(message: Any) -> Iterator[str]:
    for topic in message.topics:
        for part in topic.partitions:
            yield f"{topic.topic}-{part.partition}: where does epoch {part.leader_epoch} end?"


def _tell_end(message: Any, names: list[str]) -> Iterator[str]:
    for topic in message.topics:
        for part in topic.partitions:
            told = f"epoch {part.leader_epoch} ends at {part.end_offset}"
            yield f"{topic.topic}-{part.partition}: {_code(part.error_code) if part.error_code else told}"


def _data(data: bytes) -> str:
    return data.decode(errors="replace")[:DATA_SHOWN_MAX]


WRITES: dict[type[Op], Callable[[Any], str]] = {
    Create: lambda op: f"create {op.path} {_data(op.data)}",
    SetData: lambda op: f"set {op.path} {_data(op.data)} if it has version {op.version}",
    Delete: lambda op: f"delete {op.path} if it has version {op.version}",
    Check: lambda op: f"if {op.path} {f'has version {op.version}' if op.version >= 0 else 'exists'}",
}
REQUESTS: dict[Api, Callable[[Any], Iterator[str]]] = {
    Api.PRODUCE: _produce,
    Api.FETCH: _fetch,
    Api.LEADER_AND_ISR: _roles,
    Api.STOP_REPLICA: _stop,
    Api.UPDATE_METADATA: _metadata,
    Api.OFFSET_FOR_LEADER_EPOCH: _ask_end,
}
RESPONSES: dict[Api, Callable[[Any, list[str]], Iterator[str]]] = {
    Api.PRODUCE: _produced,
    Api.FETCH: _fetched,
    Api.OFFSET_FOR_LEADER_EPOCH: _tell_end,
}

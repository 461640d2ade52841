"""Random requests to a running broker: structure-aware frames of all APIs and versions, whole and damaged.

A message is drawn field by field from its schema; names and ids that exist are put in, waits are made short.
Several are sent at once on a connection, then one that is damaged. `make fuzz FRAMES=… SEED=…` is the long
run. What must hold:

- the broker lives, and writes no traceback;
- every request that is whole is answered, in the schema's form, and with no error that nobody foresaw;
  behind a damaged one the connection may end;
- the log of a topic grows by the batches that were accepted and by nothing else;
- the broker's memory stays below what it had, and a cap.

Left to others: the decoders alone (tests/protocol/test_fuzz.py), brokers in trouble (faults/, simulation/).
"""

import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import ClientEnd
from strandline.protocol.error_codes import ErrorCode
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.schema import fields_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from tests.protocol.damaged import batch  # noqa: E402
from tests.protocol.samples import sample  # noqa: E402
from tests.protocol.test_fuzz import damaged  # noqa: E402

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
}
STILL, VICTIM = "still", "victim"  # what only Produce may change, and what anything may
ANSWER_S = 20.0
HELD_S = 0.5  # a damaged request may be one that waits
TOGETHER_MAX = 12
MEMORY_CAP = 200 << 20
TELL_EVERY = 100_000  # frames
DIFFICULT = {Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS, Api.ALTER_PARTITION_REASSIGNMENTS}
DIFFICULT |= {Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS, Api.ELECT_LEADERS, Api.DELETE_RECORDS}
"""They write to ZooKeeper or wait for it, or change what is there: fewer of them, and only of the victim."""
CHANGING = DIFFICULT | {api for api in Api if api.name == "WRITE_TXN_MARKERS"}
SHORT_MS = {
    "max_wait_ms": 5, "timeout_ms": 200, "rebalance_timeout_ms": 5, "session_timeout_ms": 100,
    "transaction_timeout_ms": 1000,
}  # fmt: skip
GROUPS, IDS = ("g", "h"), ("x", "y")


@dataclass
class Told:
    """What was found: counts, and complaints."""

    sent: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    after_damage: Counter[str] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


class Drawing:
    """Draws messages of all APIs and versions that clients are offered."""

    def __init__(self, random: Random, topic_ids: dict[str, UUID]) -> None:
        self.random, self.topic_ids = random, topic_ids
        self.pairs = [(api, v) for api, entry in APIS.items() if entry.advertised for v in entry.served]

    def message(self) -> tuple[Any, int]:
        """A request and its version."""
        while True:
            api, version = self.random.choice(self.pairs)
            if api not in DIFFICULT or self.random.random() < 0.03:
                break
        message = sample(APIS[api].request, version, self.random)
        self._fit(message, VICTIM if api in CHANGING else STILL)
        if api == Api.CREATE_TOPICS:
            for topic in message.topics:
                topic.num_partitions = self.random.choice((-1, 0, 1, 2, -(1 << 31), (1 << 31) - 1))
        if api == Api.PRODUCE:
            message.timeout_ms = 5000  # what times out may be written or not
        return message, version

    def _fit(self, message: Any, topic: str) -> None:
        """Put in what exists, so that requests come further than to their names; let nothing wait long."""
        for one in fields_of(type(message)):
            value = getattr(message, one.name)
            if isinstance(one.wire, type):
                for each in value if isinstance(value, list) else [value] if value is not None else []:
                    self._fit(each, topic)
            elif one.name in SHORT_MS:
                setattr(message, one.name, min(value, SHORT_MS[one.name]))
            elif one.name == "records":
                setattr(message, one.name, self._batch() if self.random.random() < 0.9 else value)
            elif not one.array and self.random.random() < 0.7:
                fitting = self._fitting(one.name, topic)
                if fitting is not None:
                    setattr(message, one.name, fitting)

    def _batch(self) -> bytes:
        """A batch of offsets from 0 on, as a producer sends it; its records may be damaged."""
        return bytes(8) + batch(self.random)[8:]

    def _fitting(self, name: str, topic: str) -> Any:
        match name:
            case "topic" | "name" | "resource_name":
                return topic
            case "topic_id":
                return self.topic_ids[topic]
            case "partition" | "partition_index" | "index":
                return self.random.choice((0, 0, 0, 1))
            case "group_id":
                return self.random.choice(GROUPS)
            case "transactional_id" | "v3_and_below_transactional_id":
                return self.random.choice(IDS)
            case "acks":
                return self.random.choice((-1, 1))
            case "fetch_offset":
                return self.random.choice((0, 0, 1, 5))
        return None


class Fuzz:
    """One broker, and what is sent to it."""

    def __init__(self, local: LocalCluster, seed: int) -> None:
        self.local, self.told, self.random = local, Told(), Random(seed)
        (self.broker,) = local.brokers.values()
        with Admin(local.bootstrap) as admin:
            for name in (STILL, VICTIM):
                admin.create_topic(name, partitions=2, replication_factor=1)
            ids = {each.name: each.topic_id for each in admin.describe_topics([STILL, VICTIM])}
        self.drawing = Drawing(self.random, ids)
        self.accepted_bytes = 0
        self.is_enough = False  # ends a run early

    def run(self, frames: int) -> Told:
        """Send so many frames, or as many as go well."""
        began, tell_at = time.monotonic(), TELL_EVERY
        while (sent := self.told.sent.total()) < frames and not self.told.complaints and not self.is_enough:
            self._connection()
            if sent >= tell_at:
                print(f"{sent} frames in {time.monotonic() - began:.0f} s", flush=True)
                tell_at += TELL_EVERY
        self._alive()
        return self.told

    def _connection(self) -> None:
        """Some requests and a damaged one on a connection of their own."""
        end = ClientEnd("fuzz")
        asked = [self.drawing.message() for _ in range(self.random.randint(1, TOGETHER_MAX))]
        asked = [(m, v) for m, v in asked if getattr(m, "acks", 1) != 0]
        whole = [b"".join(bytes(part) for part in end.send(message, version)) for message, version in asked]
        other, version = self.drawing.message()
        if type(other).__name__ in ("ProduceRequest", "FetchRequest", "JoinGroupRequest"):
            other, version = MetadataRequest(), 1  # damage could make them valid, or wait for long
        other_frame = b"".join(bytes(part) for part in ClientEnd("fuzz").send(other, version))
        bad = damaged(other_frame[4:], self.random)
        for message, _ in asked:
            self.told.sent[type(message).__name__] += 1
        self.told.sent["damaged"] += 1
        with suppress(ConnectionRefusedError), self._line() as line:
            line.sendall(b"".join(whole))
            frames = _frames(line)
            for message, version in asked:
                frame = next(frames, None)
                if frame is None:
                    self.told.complaints.append(f"no answer to {message} v{version}")
                    return
                self.told.answered += 1
                self._look(message, version, end.receive(frame)[1])
            line.sendall(struct.pack(">i", len(bad)) + bad)
            line.settimeout(HELD_S)
            self.told.after_damage["closed" if next(frames, None) is None else "answered"] += 1

    def _line(self) -> socket.socket:
        try:
            return socket.create_connection(("127.0.0.1", self.broker.port), ANSWER_S)
        except ConnectionRefusedError:
            self.told.complaints.append("nobody listens any more")
            raise

    def _look(self, message: Any, version: int, answer: Any) -> None:
        codes = list(_codes(answer, version))
        self.told.errors.update(codes)
        if ErrorCode.UNKNOWN_SERVER_ERROR in codes:
            self.told.complaints.append(f"{message} v{version}: {answer}")
        if type(message).__name__ == "ProduceRequest":
            self._accepted(message, answer)

    def _accepted(self, message: Any, answer: Any) -> None:
        """Count the bytes of batches that STILL must have now. Others may have been created meanwhile."""
        fine = {
            (topic.name, one.index)
            for topic in answer.responses
            for one in topic.partition_responses
            if topic.name == STILL and one.error_code == 0
        }
        for topic in message.topic_data:
            for one in topic.partition_data:
                if (topic.name, one.index) in fine:
                    fine.discard((topic.name, one.index))  # named twice, it is written once
                    self.accepted_bytes += len(one.records)

    def _alive(self) -> None:
        """What must hold in the end."""
        complaints = self.told.complaints
        log = self.broker.log.read_text(errors="replace")
        if not self.broker.alive or "Traceback" in log:
            complaints.append(f"the broker has ended, or has written a traceback: {log[-3000:]}")
            return
        written = sum(path.stat().st_size for path in Path(self.local.directory).rglob(f"{STILL}-*/*.log"))
        if written != self.accepted_bytes:
            complaints.append(f"{written} bytes are in the log, {self.accepted_bytes} were accepted")
        if (used := _resident(self.broker.pid)) > MEMORY_CAP:
            complaints.append(f"the broker uses {used >> 20} MiB")


def _frames(line: socket.socket) -> Iterator[bytes]:
    """The frames that come until the broker ends the connection."""
    data = bytearray()
    while True:
        while len(data) >= 4 and len(data) - 4 >= (size := struct.unpack_from(">i", data)[0]):
            yield bytes(data[4 : 4 + size])
            del data[: 4 + size]
        try:
            more = line.recv(1 << 16)
        except (ConnectionError, TimeoutError):
            more = b""
        if not more:
            return
        data += more


def _codes(value: Any, version: int) -> Iterator[int]:
    for one in fields_of(type(value)):
        if not one.present(version):
            continue
        found = getattr(value, one.name)
        if isinstance(one.wire, type):
            for each in found if isinstance(found, list) else [found] if found is not None else []:
                yield from _codes(each, version)
        elif one.name.endswith("error_code"):
            yield found


def _resident(pid: int | None) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def main(frames: int, seed: int) -> None:
    """The long run. Ctrl-C ends it early: it tells what it has found so far."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), 1, settings=SETTINGS) as local:
        fuzz = Fuzz(local, seed)
        for end in (signal.SIGINT, signal.SIGTERM):
            signal.signal(end, lambda *_: setattr(fuzz, "is_enough", True))
        told = fuzz.run(frames)
    print(f"{told.sent.total()} frames, {told.answered} answers, {dict(told.after_damage)}, seed {seed}")
    print(*told.complaints, sep="\n")
    sys.exit(bool(told.complaints))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

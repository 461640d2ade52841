"""A server on a real loopback socket, with handlers that a test can hold back."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from strandline.broker.config.broker import BrokerConfig
from strandline.broker.handlers import api_versions
from strandline.broker.network.exchange import Exchange, HandlerEntry
from strandline.broker.network.metrics import Metrics
from strandline.broker.network.server import Server
from strandline.broker.network.timings import Timings
from strandline.broker.turn import Turn
from strandline.protocol.apis import Api, header_version
from strandline.protocol.errors import ApiError, ErrorCode, InvalidGroupId
from strandline.protocol.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from strandline.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.schema import encode, spec_of

BIG = "x" * 20_000


def config(**changes: Any) -> BrokerConfig:
    """One broker on a port of the system's choice, with two listeners."""
    values = {
        "broker_id": 1,
        "log_dirs": "/nowhere",
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT",
        "zookeeper": {"connect": "127.0.0.1:1"},
    }
    return BrokerConfig.model_validate(values | changes)


def frame(request: object, version: int, correlation_id: int = 1, client_id: bytes = b"test") -> bytes:
    """A request as a client sends it."""
    key = spec_of(type(request)).key
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    if header_version(key, version) == 2:
        head += b"\0"
    body = b"".join(bytes(part) for part in encode(request, version))
    return struct.pack(">i", len(head) + len(body)) + head + body


def heartbeat(correlation_id: int, group: str = "g") -> bytes:
    """A request that stays parked until the test answers it."""
    return frame(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 0, correlation_id)


async def correlation_id(reader: asyncio.StreamReader) -> int:
    """Read one answer, and tell whose it is."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    return int.from_bytes((await reader.readexactly(size))[:4], "big")


class TellsAtOnce:
    """Holds no answer back; who does is test_held_answers.py's matter."""

    def hold(self, *_: object) -> bool:
        return False

    def creating(self, topic: str) -> None: ...

    def created(self, topic: str) -> None: ...


class Stage:
    """The server under test, what its handlers were given, and what they hold back."""

    def __init__(self, settings: BrokerConfig, timings: Timings | None = None) -> None:
        self.parked: list[Exchange] = []
        self.groups: list[str] = []
        self.turns = 0
        self.failures: list[BaseException] = []
        self.creations: list[asyncio.Future[Any]] = []
        self.creating: list[Exchange] = []
        self.refused: list[ErrorCode] = []
        self.metrics = Metrics()
        self.turn = Turn(self.failures.append)
        self.turn.after_settling(self.settled)
        self.server = Server(
            settings, self.metrics, self.handlers(), self.turn, self.failures.append, timings
        )
        self.admission = self.server.admission
        self.ports: Mapping[str, int] = {}
        self.writers: list[asyncio.StreamWriter] = []

    def handlers(self) -> dict[Api, HandlerEntry]:
        return {
            Api.HEARTBEAT: HandlerEntry(self.park, lambda q, e: HeartbeatResponse(error_code=e.code)),
            Api.METADATA: HandlerEntry(self.big, lambda q, e: None),
            Api.CREATE_TOPICS: HandlerEntry(self.create, self.not_created),
            Api.LIST_GROUPS: HandlerEntry(self.broken, lambda q, e: ListGroupsResponse(groups=[])),
            Api.CONTROLLED_SHUTDOWN: HandlerEntry(self.park, lambda q, e: None),
            **api_versions.HANDLERS,
        }

    def park(self, broker: Any, exchange: Exchange, request: HeartbeatRequest) -> None:
        if getattr(request, "group_id", "g") == "bad":
            raise InvalidGroupId
        self.groups.append(getattr(request, "group_id", ""))
        self.parked.append(exchange)

    def big(self, broker: Any, exchange: Exchange, request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[], cluster_id=BIG)

    async def create(
        self, broker: Any, exchange: Exchange, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        hold = asyncio.get_running_loop().create_future()
        self.creations.append(hold)
        self.creating.append(exchange)
        return CreateTopicsResponse(topics=await hold or [])

    def not_created(self, request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
        self.refused.append(error.code)
        return CreateTopicsResponse(topics=[])

    def broken(self, broker: Any, exchange: Exchange, request: ListGroupsRequest) -> None:
        raise AssertionError("this cannot be")

    def settled(self) -> None:
        self.turns += 1

    def answer(self, index: int) -> None:
        """Answer a parked heartbeat."""
        self.parked[index].answer(HeartbeatResponse())

    async def connect(self, listener: str = "CLIENT") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[listener])
        self.writers.append(writer)
        return reader, writer

    async def until(self, condition: Any) -> None:
        """Wait until something has happened, at most five seconds."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def stage(timings: Timings | None = None, **changes: Any) -> AsyncIterator[Stage]:
    """A running server; afterwards nothing of it is left."""
    settings = config(**changes)
    made = Stage(settings, timings)
    made.ports = await made.server.bind(settings.endpoints)
    made.server.open(made)
    try:
        yield made
    finally:
        for hold in made.creations:
            hold.cancel()
        for writer in made.writers:
            writer.close()
        for writer in made.writers:
            with suppress(OSError):
                await writer.wait_closed()
        await made.server.stop()


async def fill(s: Stage) -> socket.socket:
    """A peer that asks and asks and never reads, until it is not served any more."""
    sock = socket.create_connection(("127.0.0.1", s.ports["CLIENT"]))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    rest = frame(MetadataRequest(topics=None), 2, 1) * 10_000
    for _ in range(100):
        with suppress(BlockingIOError):
            rest = rest[sock.send(rest) :]
        await asyncio.sleep(0.002)
    await s.until(lambda: not next(iter(s.admission.connections)).writable)
    return sock


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(20):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))

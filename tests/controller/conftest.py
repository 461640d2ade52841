"""A ZooKeeper namespace for each test, and a wire to it that can be cut, stalled and made deaf."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from strandline.broker.network.api_ranges import BETWEEN_BROKERS
from strandline.controller.challenges import Respondent
from strandline.controller.controller import Controller, ControllerOptions
from strandline.controller.failure_detector import Patience
from strandline.protocol.connection import frame_response
from strandline.protocol.messages import control
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import SessionState
from strandline.zookeeper.kazoo_client import KazooZkClient
from tests.listener import Listener, read_request
from tests.patience import HANG_S


class Wire:
    """A TCP proxy in front of ZooKeeper."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self.target = (host, int(port))
        self.deaf = False  # what the server answers is lost
        self.stalled = asyncio.Event()  # set: what the client sends passes
        self.stalled.set()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        self.writers += [writer, far_writer]
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self.pump(reader, far_writer, True), self.pump(far_reader, writer, False))

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outward: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if outward:
                    await self.stalled.wait()
                elif self.deaf:
                    continue
                writer.write(data)
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.close()


@asynccontextmanager
async def wire_to(target: str) -> AsyncIterator[tuple[Wire, str]]:
    wire = Wire(target)
    listener = Listener(wire.serve)
    try:
        yield wire, f"127.0.0.1:{await listener.listen()}"
    finally:
        listener.close()
        wire.stalled.set()
        wire.cut()
        await asyncio.sleep(0)


@asynccontextmanager
async def session(hosts: str, timeout_ms: int = 4000, **options: object) -> AsyncIterator[KazooZkClient]:
    zk = KazooZkClient(hosts, timeout_ms, connect_timeout_s=10, **options)  # type: ignore[arg-type]
    await zk.start()
    try:
        yield zk
    finally:
        await zk.close()


async def kill(zk: KazooZkClient) -> None:
    """As when the process is killed: the connection breaks, the session stays behind."""
    zk._closing = True
    zk._state = SessionState.SUSPENDED
    await zk._tasks.stop()  # else a heartbeat may find that kazoo's thread has ended
    client = zk._client
    client._stopped.set()
    client._connection._socket.shutdown(socket.SHUT_RDWR)
    await asyncio.to_thread(client._connection.connection_stopped.wait, HANG_S)
    client.handler.stop()
    client.close()


@pytest.fixture
def kill_session() -> Callable[..., object]:
    return kill


@pytest.fixture
def chroot(zookeeper: str) -> str:
    """A path of its own in the ZooKeeper of this run."""
    client = KazooClient(zookeeper)
    client.start()
    path = f"/test-{uuid4().hex}"
    client.create(path)
    client.stop()
    client.close()
    return path


@pytest.fixture
def hosts(zookeeper: str, chroot: str) -> str:
    return zookeeper + chroot


@pytest.fixture
def open_session() -> Callable[..., object]:
    return session


@pytest.fixture
def open_wire() -> Callable[..., object]:
    return wire_to


DICE = random.Random(1)


def begins_at_the_first(size: int) -> bytes:
    """Chance, except where a topic's replicas begin: at the first broker, with no shift."""
    return bytes(8) if size == 8 else DICE.randbytes(size)


class FakeBroker:
    """A broker's registration and listener, and a real `Controller`. It keeps the control requests it got."""

    def __init__(
        self,
        hosts: str,
        broker_id: int,
        session_ms: int = 10_000,
        rack: str | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.id = broker_id
        self.rack = rack
        self.random_bytes = random_bytes or begins_at_the_first
        self.zk = KazooZkClient(hosts, session_ms, connect_timeout_s=10)
        self.requests: list[Any] = []
        self.speaks: dict[int, int] = {}  # the highest version, where it is not the newest
        self.versions: dict[int, int] = {}  # of the last request of each kind
        self.heard_at: dict[tuple[str, int], float] = {}
        self.incarnation = 0
        self.answers_challenges = True
        self.patience = Patience()  # of its controller with others
        self.failure: BaseException | None = None
        self.controller: Controller
        self.respondent: Respondent
        self._listener = Listener(self._serve)

    async def start(self, **options: Any) -> None:
        await self.zk.start()
        self.respondent = Respondent(self.zk, self.id, self.failed)
        await self.listen()
        await self.register()
        config = ControllerOptions(self.id, "PLAINTEXT", **({"patience": self.patience} | options))
        self.controller = Controller(config, self.zk, self, self.random_bytes, self.failed)
        await self.controller.start()

    def wall_ms(self) -> int:
        return 1234

    async def listen(self) -> None:
        """Be reached; once more at the same port after `hide`."""
        self.port = await self._listener.listen()

    async def register(self, intact: bool = True) -> None:
        await znodes.ensure_paths(self.zk)
        document, _ = await znodes.read_incarnation(self.zk, self.id)
        self.incarnation = document.incarnation + 1
        since = 1 if intact else self.incarnation
        endpoint = documents.Endpoint("PLAINTEXT", "127.0.0.1", self.port)
        registration = documents.RegistrationDocument.of(
            [endpoint], 0, self.incarnation, since, rack=self.rack
        )
        begin = self.respondent.begin if self.answers_challenges else None
        await znodes.register_broker(self.zk, self.id, registration, [], begin=begin)

    def failed(self, failure: BaseException) -> None:
        self.failure = failure

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, request = await read_request(reader)
            self.versions[head.api_key] = head.version
            if isinstance(request, ApiVersionsRequest):
                speaks = self.speaks
                rows = [replace(r, max_version=speaks.get(r.api_key, r.max_version)) for r in BETWEEN_BROKERS]
                answer: Any = ApiVersionsResponse(api_keys=rows)
            else:
                answer = self._obey(request)
            writer.writelines(frame_response(head.api_key, head.version, head.correlation_id, answer))

    def _obey(self, request: Any) -> Any:
        self.requests.append(request)
        now = asyncio.get_running_loop().time()
        match request:
            case control.LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        self.heard_at[f"{topic.topic_name}-{state.partition_index}", state.leader_epoch] = now
                return control.LeaderAndIsrResponse()
            case control.StopReplicaRequest():
                return control.StopReplicaResponse()
            case _:
                return control.UpdateMetadataResponse()

    def hide(self) -> None:
        """Nobody reaches it any more."""
        self._listener.close()

    def hang_up(self) -> None:
        """All connections to it end."""
        self._listener.cut()

    async def stall(self) -> None:
        """Nobody reaches it, and it answers nobody; its session lives on."""
        self.hide()
        await self.respondent.stop()

    async def die(self) -> None:
        """As with kill -9: sockets close, the session stays behind."""
        await self.stall()
        await kill(self.zk)
        await self.controller.halt()

    async def stop(self) -> None:
        await self.controller.stop()
        self.hide()  # before what takes a while: what was just accepted ends, too
        await self.respondent.stop()
        await self.zk.close()


@pytest.fixture
def fake_broker(hosts: str) -> Callable[..., FakeBroker]:
    return lambda broker_id, **options: FakeBroker(hosts, broker_id, **options)

"""The HTTP server on a real socket, of a broker that is still starting: limits, and who is answered."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from strandline.broker.config.broker import BrokerConfig
from strandline.broker.errors import StartFailed
from strandline.broker.web import routes, server
from strandline.broker.web.answer import Answer, Asked, as_json
from strandline.broker.web.listener import WebListener
from strandline.broker.web.routes import Route
from strandline.broker.web.view import View
from tests.patience import HANG_S


def config(**web: str) -> BrokerConfig:
    return BrokerConfig.model_validate(
        {
            "broker_id": 1,
            "zookeeper": {"connect": "127.0.0.1:1"},
            "web": {"listener": "127.0.0.1:0", **web},
        }
    )


STUCK_S = 1.0
"""Whoever cannot write for so long is held back."""


@asynccontextmanager
async def listening(**web: str) -> AsyncIterator[WebListener]:
    made = WebListener(config(**web))
    try:
        await made.open()
        await made.opened()
        yield made
    finally:
        await made.stop()


def port_of(web: WebListener) -> int:
    assert web.place is not None
    return web.place[1]


async def sent(
    port: int, text: str, host: str = "localhost", body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Send a request line, perhaps with further headers; read the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    line, _, further = text.partition("\n")
    further = "".join(f"{header}\r\n" for header in further.split("\n") if header)
    writer.write(f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{further}\r\n".encode() + body)
    try:
        head, _, told = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        await ended(writer)
    status, *headers = head.decode().split("\r\n")
    named = dict(header.lower().split(": ", 1) for header in headers)
    return int(status.split(" ")[1]), named, told


async def ended(writer: asyncio.StreamWriter) -> None:
    """Close the connection, which the server may have reset."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def with_route(patch: pytest.MonkeyPatch, handler: Any, **more: Any) -> None:
    patch.setattr(routes, "ROUTES", (Route("/tried/{name}", handler, "", early=True, **more),))


async def test_a_starting_broker_is_healthy_and_not_ready() -> None:
    async with listening() as web:
        status, headers, body = await sent(port_of(web), "GET /health")
        assert (status, json.loads(body)["status"]) == (200, "starting")
        assert headers["content-type"] == "application/json"
        assert headers["x-content-type-options"] == "nosniff"
        status, _, body = await sent(port_of(web), "GET /ready")
        assert (status, json.loads(body)["reasons"]) == (503, [{"why": "starting"}])
        status, headers, body = await sent(port_of(web), "GET /metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert b"kafka_server_kafkaserver_brokerstate 1\n" in body
        web.view.failure = AssertionError("broken")
        assert (await sent(port_of(web), "GET /health"))[0] == 503


async def test_paths_and_methods_that_are_not_there() -> None:
    async with listening() as web:
        assert (await sent(port_of(web), "GET /nothing"))[0] == 404
        assert (await sent(port_of(web), "POST /health\nContent-Length: 0"))[0] == 405
        status, _, body = await sent(port_of(web), "HEAD /health")
        assert (status, body) == (200, b"")


async def test_parts_of_a_path_and_the_query_reach_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(view: View, asked: Asked) -> Answer:
        return as_json([asked.parts["name"], dict(asked.query), asked.flag("in_sync")])

    with_route(monkeypatch, handler)
    async with listening() as web:
        _, _, body = await sent(port_of(web), "GET /tried/a%2Fb?x=1&in_sync")
        assert json.loads(body) == ["a/b", {"x": "1", "in_sync": ""}, True]


async def test_a_foreign_host_or_origin_is_refused() -> None:
    async with listening(hosts="cluster.example") as web:
        assert (await sent(port_of(web), "GET /health", host="evil.example"))[0] == 403
        assert (await sent(port_of(web), "GET /health", host="cluster.example:80"))[0] == 200
        assert (await sent(port_of(web), "GET /health\nOrigin: http://evil.example"))[0] == 403


async def test_a_handler_that_fails_or_takes_too_long_is_answered_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.05)

    async def handler(view: View, asked: Asked) -> Answer:
        if asked.parts["name"] == "slow":
            await asyncio.Event().wait()
        raise ValueError("a bug")

    with_route(monkeypatch, handler)
    async with listening() as web:
        assert (await sent(port_of(web), "GET /tried/slow"))[0] == 503
        assert (await sent(port_of(web), "GET /tried/bug"))[0] == 500


async def test_a_body_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(view: View, asked: Asked) -> Answer:
        return as_json(len(asked.body))

    with_route(monkeypatch, handler, method="POST")
    async with listening() as web:
        assert (await sent(port_of(web), "POST /tried/x\nContent-Length: 3", body=b"abc"))[2] == b"3\n"
        size = server.BODY_BYTES_MAX + 1
        assert (await sent(port_of(web), f"POST /tried/x\nContent-Length: {size}"))[0] == 413
        chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (size, bytes(size))
        answered = await sent(port_of(web), "POST /tried/x\nTransfer-Encoding: chunked", body=chunk)
        assert answered[0] == 413


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server has ended the connection."""
    try:
        async with asyncio.timeout(HANG_S):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_connections_are_limited_and_the_idlest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever holds so many could keep the probes out."""
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    async with listening() as web:
        first, writer = await asyncio.open_connection("127.0.0.1", port_of(web))
        second, busy = await asyncio.open_connection("127.0.0.1", port_of(web))
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await first.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200"), "and it stays open"
        assert (await sent(port_of(web), "GET /health"))[0] == 200
        assert await closed(second), "nothing was asked on it"
        connections = web._server._connections  # type: ignore[union-attr]
        assert len(connections._open) <= 2
        writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(first.readuntil(b"HTTP/1.1 503"), HANG_S)  # the first goes on
        await ended(busy)
        await ended(writer)


async def test_a_request_that_never_ends_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTION_S", 0.05)
    monkeypatch.setattr(server, "TICK_S", 0.02)
    async with listening() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(web))
        writer.write(b"GET /health HTTP/1.1\r\nHost: local")
        assert await closed(reader)
        await ended(writer)


async def test_who_does_not_read_is_aborted_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTION_S", 0.5)
    monkeypatch.setattr(server, "TICK_S", 0.05)

    async def handler(view: View, asked: Asked) -> Answer:
        return Answer(bytes(32 << 20))

    monkeypatch.setattr(routes, "ROUTES", (*routes.ROUTES, Route("/large", handler, "", early=True)))
    async with listening() as web:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port_of(web)))
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.setblocking(False)
        assert (await sent(port_of(web), "GET /health"))[0] == 200
        connections = web._server._connections  # type: ignore[union-attr]
        async with asyncio.timeout(HANG_S):
            while connections._open:
                await asyncio.sleep(0.01)
        slow.close()


async def test_requests_that_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends one after the other, and reads no answer, is held back; the broker does not keep them all."""

    async def handler(view: View, asked: Asked) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    with_route(monkeypatch, handler)
    some, sent_bytes = b"GET /tried/x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000, 0
    async with listening() as web:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(web))
        with suppress(TimeoutError):
            while sent_bytes < 64 << 20:
                writer.write(some)
                await asyncio.wait_for(writer.drain(), STUCK_S)
                sent_bytes += len(some)
        assert sent_bytes < 32 << 20, "no more than the kernel's buffers hold"
        writer.transport.abort()


async def test_headers_are_few_and_short() -> None:
    async with listening() as web:
        many = "".join(f"\nX-{number}: 1" for number in range(server.HEADERS_MAX - 10))
        assert (await sent(port_of(web), f"GET /health{many}"))[0] == 200
        assert (await sent(port_of(web), f"GET /health{many}{many}"))[0] == 400
        assert (await sent(port_of(web), f"GET /health\nCookie: {'c' * 8_000}"))[0] == 200
        assert (await sent(port_of(web), f"GET /health\nCookie: {'c' * 8_200}"))[0] == 400
        assert (await sent(port_of(web), f"GET /health?{'c' * 8_000}"))[0] == 200
        assert (await sent(port_of(web), f"GET /health?{'c' * 8_200}"))[0] == 400


def kept_of(web: WebListener) -> int:
    """Bytes of headers that wait for their answers."""
    connections = web._server._connections  # type: ignore[union-attr]
    waiting = [message for reader in connections._open for message, _ in reader._messages]
    return sum(len(name) + len(value) for message in waiting for name, value in message.raw_headers)


async def test_who_sends_requests_ahead_is_not_kept_with_all_their_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 32 could have 64 headers of 8 KiB. The answer to the first still comes, then the end."""
    monkeypatch.setattr(server, "LINGER_S", 0.2)
    monkeypatch.setattr(server, "TICK_S", 0.05)
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(view: View, asked: Asked) -> Answer:
        begun.set()
        await go.wait()
        return as_json("first")

    with_route(monkeypatch, handler)
    large = "".join(f"X-{number}: {'x' * 8_000}\r\n" for number in range(50))
    async with listening() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(web))
        writer.write(b"GET /tried/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await begun.wait()
        with suppress(ConnectionError, TimeoutError):
            for _ in range(32):
                writer.write(f"GET /tried/x HTTP/1.1\r\nHost: localhost\r\n{large}\r\n".encode())
                await asyncio.wait_for(writer.drain(), 0.5)
                assert kept_of(web) <= server.UNREAD_BYTES_MAX
        go.set()
        with suppress(ConnectionError):
            assert b"first" in await asyncio.wait_for(reader.read(), HANG_S), "and then the connection ends"
        writer.transport.abort()
        assert (await sent(port_of(web), "GET /tried/x"))[0] == 200


async def test_a_body_in_pieces_may_be_as_large_as_allowed_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handler(view: View, asked: Asked) -> Answer:
        return as_json(len(asked.body))

    with_route(monkeypatch, handler, method="POST")
    head = f"POST /tried/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {server.BODY_BYTES_MAX}\r\n\r\n"
    async with listening() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(web))
        for _ in range(5):
            writer.write(head.encode() + bytes(server.BODY_BYTES_MAX))
            await asyncio.wait_for(reader.readuntil(b"%d\n" % server.BODY_BYTES_MAX), HANG_S)
        await ended(writer)


async def test_a_compressed_body_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(view: View, asked: Asked) -> Answer:
        return as_json(len(asked.body))

    with_route(monkeypatch, handler, method="POST")
    body = gzip.compress(bytes(10 << 20))
    async with listening() as web:
        wanted = f"POST /tried/x\nContent-Encoding: gzip\nContent-Length: {len(body)}"
        status, _, told = await sent(port_of(web), wanted, body=body)
        assert (status, json.loads(told)) == (200, len(body))


async def test_a_port_in_use_ends_the_start_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        web = WebListener(config(listener=f"127.0.0.1:{port}"))
        with pytest.raises(StartFailed, match=f"strandline.web.listener: 127.0.0.1:{port} is in use"):
            await web.open()
        await web.stop()


async def test_without_the_option_there_is_nothing() -> None:
    async with listening(listener="") as web:
        assert web.place is None and web._server is None

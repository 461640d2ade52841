"""What a peer may do to a server: pipeline, dawdle, lie about sizes, speak HTTP."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from strandline.broker.network.receive_buffer import START_BYTES
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.cluster_harness import Stage, correlation_id, frame, heartbeat, is_closed, run, stage


def test_answers_leave_in_the_order_of_the_requests() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(heartbeat(1) + frame(ApiVersionsRequest(), 0, 2) + heartbeat(3))
            await s.until(lambda: len(s.parked) == 2)
            s.answer(1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(correlation_id(reader), 0.05)
            s.answer(0)
            assert [await correlation_id(reader) for _ in range(3)] == [1, 2, 3]
            writer.close()

    run(story())


def test_one_turn_of_the_loop_settles_once_with_one_write() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(b"".join(frame(ApiVersionsRequest(), 0, n) for n in range(50)))
            assert [await correlation_id(reader) for _ in range(50)] == list(range(50))
            assert s.turns <= 3
            assert s.metrics.requests == 50

    run(story())


def test_a_frame_may_come_byte_by_byte() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            for byte in heartbeat(9, group="slow"):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            await s.until(lambda: s.groups == ["slow"])
            s.answer(0)
            assert await correlation_id(reader) == 9

    run(story())


def test_a_frame_larger_than_the_arena_is_received_and_the_memory_given_back() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            large = "g" * 30_000
            writer.write(heartbeat(1) + b"".join(heartbeat(n, large) for n in range(2, 12)))
            await s.until(lambda: len(s.parked) == 11)
            assert set(s.groups[1:]) == {large}
            big = frame(MetadataRequest(topics=None), 1, 12)[4:]
            body = frame(CreateTopicsRequest(topics=[], timeout_ms=0), 2, 13)[4:] + bytes(9 << 20)
            writer.write(struct.pack(">i", len(big)) + big)
            writer.write(struct.pack(">i", len(body)) + body)
            (connection,) = s.admission.connections
            await s.until(lambda: s.metrics.malformed == 1)  # the zeros behind the end of CreateTopics
            assert 9 << 20 < connection.arena.capacity < 10 << 20
            assert await is_closed(reader)

    run(story())


def test_memory_is_released_while_a_connection_is_idle() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(frame(ApiVersionsRequest(), 0, 1))
            assert await correlation_id(reader) == 1
            (connection,) = s.admission.connections
            assert connection.arena.capacity == START_BYTES
            connection.expire(connection.heard_at + 11)
            assert connection.arena.capacity == 0
            writer.write(frame(ApiVersionsRequest(), 0, 2))
            assert await correlation_id(reader) == 2

    run(story())


def test_an_answer_for_a_peer_that_has_left_is_dropped() -> None:
    async def story() -> None:
        async with stage() as s:
            _, writer = await s.connect()
            writer.write(heartbeat(1))
            await s.until(lambda: s.parked)
            writer.close()
            await s.until(lambda: not s.admission.connections)
            s.answer(0)
            await asyncio.sleep(0.01)
            assert s.failures == []

    run(story())


def test_acks_0_has_no_answer_and_its_failure_ends_the_connection() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(heartbeat(1) + heartbeat(2))
            await s.until(lambda: len(s.parked) == 2)
            s.parked[0].skip()
            s.answer(1)
            assert await correlation_id(reader) == 2
            writer.write(heartbeat(3))
            await s.until(lambda: len(s.parked) == 3)
            s.parked[2].close()
            assert await is_closed(reader)

    run(story())


def test_later_frames_wait_for_a_coroutine_handler() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(frame(CreateTopicsRequest(topics=[]), 2, 1) + heartbeat(2))
            await s.until(lambda: s.creations)
            await asyncio.sleep(0.02)
            assert s.parked == []
            s.creations[0].set_result(None)
            await s.until(lambda: s.parked)
            s.answer(0)
            assert [await correlation_id(reader), await correlation_id(reader)] == [1, 2]

    run(story())


def unforeseen(s: Stage) -> None:
    s.creations[0].set_exception(KeyError("unforeseen"))


def unwritable(s: Stage) -> None:
    s.creations[0].set_result([CreatableTopicResult(name="t", error_message="x" * 33_000)])


@pytest.mark.parametrize("trouble", [unforeseen, unwritable])
def test_what_an_administrator_asks_ends_no_broker(trouble: Callable[[Stage], None]) -> None:
    """Else the client asks the next controller, and ends that one, too."""

    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(
                frame(CreateTopicsRequest(topics=[], timeout_ms=0), 2, 1) + frame(ApiVersionsRequest(), 0, 2)
            )
            await s.until(lambda: s.creations)
            trouble(s)
            assert [await correlation_id(reader) for _ in range(2)] == [1, 2]
            assert not s.failures and s.refused == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(story())


def test_nor_does_what_fails_after_its_answer() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(
                frame(CreateTopicsRequest(topics=[], timeout_ms=0), 2, 1) + frame(ApiVersionsRequest(), 0, 2)
            )
            await s.until(lambda: s.creations)
            s.creating[0].answer(CreateTopicsResponse(topics=[]))
            unforeseen(s)
            assert [await correlation_id(reader) for _ in range(2)] == [1, 2]
            assert not s.failures

    run(story())


def test_a_broken_invariant_ends_the_broker_whoever_asked() -> None:
    async def story() -> None:
        async with stage() as s:
            _, writer = await s.connect()
            writer.write(frame(CreateTopicsRequest(topics=[], timeout_ms=0), 2, 3))
            await s.until(lambda: s.creations)
            s.creations[0].set_exception(AssertionError("this cannot be"))
            await s.until(lambda: s.failures)

    with pytest.raises(AssertionError, match="this cannot be"):
        run(story())


def test_too_many_open_exchanges_stop_the_reading() -> None:
    async def story() -> None:
        async with stage(queued_max_requests=10) as s:
            reader, writer = await s.connect()
            writer.write(b"".join(heartbeat(n) for n in range(25)))
            await s.until(lambda: len(s.parked) == 10)
            await asyncio.sleep(0.02)
            assert len(s.parked) == 10
            for n in range(25):
                await s.until(lambda n=n: len(s.parked) > n)
                s.answer(n)
            assert [await correlation_id(reader) for _ in range(25)] == list(range(25))

    run(story())


def test_a_peer_that_does_not_read_is_not_served_without_bound() -> None:
    async def story() -> None:
        async with stage() as s:
            sock = socket.create_connection(("127.0.0.1", s.ports["CLIENT"]))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            request = frame(MetadataRequest(topics=None), 2, 1)
            sent = 0
            for _ in range(200):
                try:
                    sent += sock.send(request * 50)
                except BlockingIOError:
                    await asyncio.sleep(0.002)
            sock.setblocking(True)
            await s.until(lambda: not all(each.writable for each in s.admission.connections))
            (connection,) = s.admission.connections
            served = s.metrics.requests
            await asyncio.sleep(0.05)
            held = (connection.unsent_bytes, connection.transport.get_write_buffer_size())
            sock.close()
            assert s.metrics.requests == served < sent // len(request)
            assert held[0] <= (1 << 20) + 30_000
            assert held[1] <= 2 << 20

    run(story())


def test_early_connections_are_served_after_the_opening() -> None:
    async def story() -> None:
        async with stage() as s:
            s.turn.is_open = False
            reader, writer = await s.connect()
            writer.write(frame(ApiVersionsRequest(), 0, 1))
            await asyncio.sleep(0.02)
            assert s.metrics.requests == 0
            s.server.open(s)
            assert await correlation_id(reader) == 1

    run(story())

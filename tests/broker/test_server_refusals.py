"""What a server does not put up with: lies about sizes, HTTP, silence, requests that are not for clients."""

import asyncio
import socket
import struct

import pytest

from strandline.broker.network import admission, server
from strandline.broker.network import connection as connection_module
from strandline.protocol.apis import Api
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.control import ControlledShutdownRequest
from strandline.protocol.messages.group_admin import ListGroupsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.topics import CreateTopicsRequest
from strandline.protocol.schema import decode
from tests.broker.cluster_harness import correlation_id, fill, frame, heartbeat, is_closed, run, stage


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(">i", -1), "a request of -1 bytes"),
        (struct.pack(">i", 0), "a request of 0 bytes"),
        (struct.pack(">i", (100 << 20) + 1), "a request of 104857601 bytes: expected 8 to 104857600"),
        (b"GET / HTTP/1.1\r\n\r\n", "received HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "received TLS"),
        (struct.pack(">ihhih", 10, 99, 0, 1, -1), "api key 99 version 0"),
        (struct.pack(">ihhih", 10, Api.METADATA, 99, 1, -1), "api key 3 version 99"),
        (struct.pack(">ihhih", 10, Api.METADATA, -1, 1, -1), "api key 3 version -1"),
        (struct.pack(">ihhih", 10, Api.HEARTBEAT, 0, 1, 500), "client_id ends beyond the frame"),
        (struct.pack(">ihhihi", 14, Api.METADATA, 1, 1, -1, 1 << 30), "topics is longer than the frame"),
        (frame(ApiVersionsRequest(), 0)[4:].join([struct.pack(">i", 15), b"x"]), "1 bytes are left after"),
        (
            frame(ControlledShutdownRequest(broker_id=1), 3),
            "api key 7 version 3 is not supported on listener CLIENT",
        ),
    ],
)
def test_what_a_peer_may_not_send_ends_its_connection(
    sent: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(admission.logger, "warning", lambda event, **fields: told.append(fields["why"]))

    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(sent)
            assert await is_closed(reader)
            assert s.metrics.malformed == 1
            assert s.parked == []
            assert s.failures == []
            reader, writer = await s.connect()
            writer.write(frame(ApiVersionsRequest(), 0, 5))
            assert await correlation_id(reader) == 5, "others are served as before"

    run(story())
    assert len(told) == 1
    assert why in told[0]


def test_answers_before_the_malformed_frame_still_leave() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(frame(ApiVersionsRequest(), 0, 1) + b"\xff\xff\xff\xff")
            assert await correlation_id(reader) == 1
            assert await is_closed(reader)

    run(story())


def test_librdkafkas_question_for_all_topics_is_understood() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            body = bytes.fromhex("0003000c0000000300077264 6b61666b61 00 00 00 00 00 01 00 00")
            writer.write(struct.pack(">i", len(body)) + body)
            assert await correlation_id(reader) == 3

    run(story())


def test_complaints_are_logged_once_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(admission.logger, "warning", lambda event, **fields: told.append(fields["times"]))

    async def story() -> None:
        async with stage() as s:
            for _ in range(20):
                reader, writer = await s.connect()
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await is_closed(reader)
            assert s.metrics.malformed == 20

    run(story())
    assert len(told) <= 2


def test_an_end_in_the_middle_of_a_frame_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with stage() as s:
            _, writer = await s.connect()
            writer.write(heartbeat(1)[:-3])
            await s.until(lambda: s.metrics.bytes_in)
            writer.close()
            await s.until(lambda: not s.admission.connections)
            assert (s.parked, s.metrics.connections_closed) == ([], 1)

    run(story())


def test_an_expected_error_is_answered_by_the_refusal() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            writer.write(heartbeat(1, group="bad"))
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert await reader.readexactly(size) == struct.pack(">ih", 1, 24)
            assert s.metrics.refused == 1

    run(story())


def test_an_unknown_version_of_api_versions_is_told_the_known_ones() -> None:
    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect()
            body = struct.pack(">hhih", Api.API_VERSIONS, 99, 7, -1) + b"\0\1\2 from the future"
            writer.write(struct.pack(">i", len(body)) + body)
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
            response, end = decode(ApiVersionsResponse, 0, answer, 4)
            assert (end, answer[:4]) == (size, struct.pack(">i", 7))
            assert response.error_code == 35
            assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 4)]

    run(story())


def test_deadlines_for_silence_and_for_half_a_frame() -> None:
    async def story() -> None:
        async with stage(connections_max_idle_ms=5_000, partial_frame_timeout_ms=500) as s:
            reader, writer = await s.connect()
            writer.write(heartbeat(1)[:10])
            await s.until(lambda: s.metrics.bytes_in)
            (connection,) = s.admission.connections
            connection.expire(connection.heard_at + 0.4)
            assert not connection.closed
            connection.expire(connection.heard_at + 0.6)
            assert await is_closed(reader)
            reader, writer = await s.connect()
            writer.write(heartbeat(2))
            await s.until(lambda: s.parked)
            connection = list(s.admission.connections)[-1]
            connection.expire(connection.heard_at + 6)
            assert not connection.closed, "who waits for an answer is not idle"
            s.answer(0)
            assert await correlation_id(reader) == 2
            connection.expire(connection.heard_at + 6)
            assert await is_closed(reader)
            assert s.metrics.deadlines_passed == 2

    run(story())


def test_who_has_just_been_answered_is_not_idle() -> None:
    """A member that joined long ago, and waited for the others, has something to ask now."""

    async def story() -> None:
        async with stage(connections_max_idle_ms=5_000) as s:
            reader, writer = await s.connect()
            writer.write(heartbeat(1))
            await s.until(lambda: s.parked)
            (connection,) = s.admission.connections
            connection.heard_at -= 900
            s.answer(0)
            assert await correlation_id(reader) == 1
            connection.expire(s.admission.now + 1)
            assert not connection.closed
            connection.expire(s.admission.now + 6)
            assert await is_closed(reader)

    run(story())


def test_a_peer_that_never_reads_is_let_go_of_in_the_end() -> None:
    async def story() -> None:
        async with stage(connections_max_idle_ms=5_000) as s:
            sock = await fill(s)
            (connection,) = s.admission.connections
            connection.expire(connection.heard_at + 6)
            assert connection.closed
            await asyncio.sleep(0.05)
            assert s.admission.connections, "what is answered may still leave"
            connection.expire(connection.heard_at + 12)
            await s.until(lambda: not s.admission.connections)
            sock.close()

    run(story())


@pytest.mark.parametrize(("listener", "taken"), [("CLIENT", False), ("PLAINTEXT", True)])
def test_only_records_and_brokers_make_large_frames(
    listener: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "SMALL_FRAME_BYTES_MAX", 1000)

    async def story() -> None:
        async with stage() as s:
            reader, writer = await s.connect(listener)
            topics = [MetadataRequestTopic(name="") for _ in range(500)]
            writer.write(frame(MetadataRequest(topics=topics), 1, 7))
            if taken:
                assert await correlation_id(reader) == 7
            else:
                assert await is_closed(reader)
                assert s.metrics.malformed == 1
                assert s.metrics.requests == 0, "nothing was made of it"

    run(story())


def test_brokers_speak_on_their_listener_only() -> None:
    async def story() -> None:
        async with stage() as s:
            _, writer = await s.connect("PLAINTEXT")
            writer.write(frame(ControlledShutdownRequest(broker_id=1), 3, 4))
            await s.until(lambda: s.parked)
            assert s.parked[0].internal
            _, writer = await s.connect("CLIENT")
            writer.write(heartbeat(1))
            await s.until(lambda: len(s.parked) == 2)
            assert not s.parked[1].internal
            assert (s.parked[1].listener.name, s.parked[1].client_id) == ("CLIENT", "test")

    run(story())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_true_is_handed_to_the_node() -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with stage() as s:
            _, writer = await s.connect()
            writer.write(frame(ListGroupsRequest(), 0, 1))
            await s.until(lambda: s.failures)
            assert str(s.failures[0]) == "this cannot be"

    run(story())


def test_a_place_for_so_many_connections_only() -> None:
    async def story() -> None:
        async with stage(max_connections=1) as s:
            first, writer = await s.connect()
            second, _ = await s.connect()
            assert await is_closed(second)
            writer.write(frame(ApiVersionsRequest(), 0, 1))
            assert await correlation_id(first) == 1

    run(story())


def test_a_port_in_use_is_told_in_one_sentence() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            with pytest.raises(server.StartFailed, match=f"127.0.0.1:{port} is in use by another process"):
                async with stage(**settings):
                    pass

    run(story())


def test_the_time_of_a_coroutine_handler_is_not_held_against_the_next_frame() -> None:
    async def story() -> None:
        async with stage(partial_frame_timeout_ms=500) as s:
            _, writer = await s.connect()
            slow = frame(CreateTopicsRequest(topics=[]), 2, 1)
            writer.write(slow[:9])
            await s.until(lambda: s.metrics.bytes_in)
            writer.write(slow[9:] + heartbeat(2)[:7])
            await s.until(lambda: s.creations)
            (connection,) = s.admission.connections
            connection.expire(connection.heard_at + 60)
            assert not connection.closed
            s.creations[0].set_result(None)
            await s.until(lambda: connection.partial_since is not None)
            connection.expire(s.admission.now + 60)
            assert connection.closed

    run(story())

"""A flood of clients leaves brokers their place: their connections, and memory to read their requests."""

import asyncio

import pytest

from strandline.broker.network.request_memory import Intake
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.cluster_harness import Stage, correlation_id, frame, heartbeat, is_closed, run, stage

LARGE = frame(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 249) for _ in range(1000)]), 2, 7)
CLIENTS, BROKERS = "CLIENT", "PLAINTEXT"


def test_a_broker_is_let_in_where_no_client_is_and_the_most_silent_client_makes_room() -> None:
    async def story() -> None:
        async with stage(max_connections=2) as s:
            silent, _ = await s.connect(CLIENTS)
            await s.until(lambda: len(s.admission.connections) == 1)
            next(iter(s.admission.connections)).heard_at -= 60
            busy, writer = await s.connect(CLIENTS)
            await s.until(lambda: len(s.admission.connections) == 2)
            refused, _ = await s.connect(CLIENTS)
            assert await is_closed(refused)
            broker, to_broker = await s.connect(BROKERS)
            to_broker.write(frame(ApiVersionsRequest(), 0, 5))
            assert await correlation_id(broker) == 5
            assert await is_closed(silent)
            writer.write(frame(ApiVersionsRequest(), 0, 6))
            assert await correlation_id(busy) == 6

    run(story())


def test_with_one_listener_nobody_can_tell_brokers_from_clients() -> None:
    async def story() -> None:
        async with stage(max_connections=1, listeners="PLAINTEXT://127.0.0.1:0") as s:
            await s.connect(BROKERS)
            await s.until(lambda: len(s.admission.connections) == 1)
            refused, _ = await s.connect(BROKERS)
            assert await is_closed(refused)

    run(story())


@pytest.mark.parametrize("goes", [False, True], ids=["it is executed", "its client goes"])
def test_large_requests_wait_unread_until_there_is_memory_and_brokers_do_not(goes: bool) -> None:
    async def story() -> None:
        async with stage(queued_max_request_bytes=100_000) as s:
            first, to_first = await s.connect(CLIENTS)
            to_first.write(LARGE[:-1])
            await s.until(lambda: s.admission.intake.bytes == len(LARGE))
            second, to_second = await s.connect(CLIENTS)
            to_second.write(LARGE)
            await s.until(lambda: s.admission.intake.waiting == 1)
            small, to_small = await s.connect(CLIENTS)
            to_small.write(frame(ApiVersionsRequest(), 0, 5))
            assert await correlation_id(small) == 5, "what fits into the first memory claims none"
            broker, to_broker = await s.connect(BROKERS)
            to_broker.write(LARGE)
            assert await correlation_id(broker) == 7
            if goes:
                to_first.close()
            else:
                to_first.write(LARGE[-1:])
                assert await correlation_id(first) == 7
            assert await correlation_id(second) == 7
            await s.until(lambda: s.admission.intake.bytes == s.admission.intake.waiting == 0)

    run(story())


def test_who_waits_for_memory_is_not_late() -> None:
    async def story() -> None:
        async with stage(queued_max_request_bytes=1, partial_frame_timeout_ms=1) as s:
            s.admission.intake.bytes = 1  # somebody else's
            waiting, writer = await s.connect(CLIENTS)
            writer.write(LARGE)
            await s.until(lambda: s.admission.intake.waiting == 1)
            await tick(s)
            s.admission.intake.bytes = 0
            s.admission.intake.release(s)  # type: ignore[arg-type]
            assert await correlation_id(waiting) == 7

    run(story())


async def tick(s: Stage) -> None:
    await asyncio.sleep(0.01)
    for connection in list(s.admission.connections):
        connection.expire(asyncio.get_running_loop().time())


class Someone:
    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> None:
        self.runs += 1


def test_claims_are_granted_in_their_order_and_the_last_may_exceed_the_bound() -> None:
    intake = Intake(100)
    one, two, three = Someone(), Someone(), Someone()
    assert intake.claim(one, 5000) and not intake.claim(two, 60) and not intake.claim(three, 60)
    assert intake.claim(one, 5000) and not intake.claim(two, 60), "asking again changes nothing"
    intake.release(one)
    assert (two.runs, three.runs, intake.bytes, intake.waiting) == (1, 1, 120, 0)
    intake.release(three)
    intake.release(two)
    assert intake.bytes == 0
    assert Intake(-1).claim(one, 1 << 40)


def test_parked_requests_are_answered_as_before() -> None:
    async def story() -> None:
        async with stage(queued_max_request_bytes=1) as s:
            reader, writer = await s.connect(CLIENTS)
            writer.write(heartbeat(1))
            await s.until(lambda: s.parked)
            s.answer(0)
            assert await correlation_id(reader) == 1

    run(story())

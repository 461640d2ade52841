"""How long requests take, phase by phase: by a clock that the test moves."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from strandline.broker.network.connection import ServerConnection
from strandline.broker.network.exchange import Exchange
from strandline.broker.network.timed_connection import TimedConnection
from strandline.broker.network.timings import BUCKETS, TIMED_MAX, Durations, Times, Timings
from strandline.broker.web.metrics.declared import BOUNDS_S, FIRST_BITS, QUANTILES
from strandline.broker.web.metrics.page import quantiles_of
from strandline.broker.web.metrics.requests import Recent
from strandline.protocol.apis import Api
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.cluster_harness import correlation_id, frame, heartbeat, stage

MS = 1_000_000


class Clock:
    """Nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


async def test_each_phase_of_a_request_is_counted_when_its_answer_leaves() -> None:
    clock = Clock()
    timings = Timings(clock)
    async with stage(timings) as s:
        reader, writer = await s.connect()

        def executing(*given: object) -> None:
            clock.now += 3 * MS
            s.parked.append(given[1])  # type: ignore[arg-type]

        (connection,) = s.admission.connections
        assert isinstance(connection, TimedConnection)
        service = connection.service
        for key, route in service.routes[False].items():
            if route.api is Api.HEARTBEAT:
                service.routes[False][key] = replace(route, handle=executing)
        writer.write(heartbeat(1) + heartbeat(2))
        await s.until(lambda: len(s.parked) == 2)
        assert sum(timings[Api.HEARTBEAT].total) == 0
        clock.now += 5 * MS
        s.answer(1)  # its answer waits for the first
        await s.until(lambda: not connection.dirty)
        clock.now += 7 * MS
        s.answer(0)
        assert [await correlation_id(reader) for _ in range(2)] == [1, 2]
        phases = {name: sum_ns / MS for name, (_, sum_ns) in timings[Api.HEARTBEAT].phases().items()}
        assert phases == {"queue": 0 + 3, "local": 3 + 3, "remote": (3 + 12) + 5, "send": 0 + 7, "total": 36}
        for counts, _ in timings[Api.HEARTBEAT].phases().values():
            assert sum(counts) == 2
        counted = {(each.api, each.version): each.count for each in s.metrics.calls if each.count}
        assert counted == {(Api.HEARTBEAT, 0): 2}
        assert not s.failures


async def test_what_is_answered_at_once_waits_for_nobody_and_a_lost_peer_is_not_counted() -> None:
    timings = Timings(Clock())
    async with stage(timings) as s:
        reader, writer = await s.connect()
        writer.write(b"".join(frame(ApiVersionsRequest(), 0, n) for n in range(20)))
        assert [await correlation_id(reader) for _ in range(20)] == list(range(20))
        assert timings[Api.API_VERSIONS].remote[0] == 20
        writer.write(heartbeat(1))
        await s.until(lambda: s.parked)
        writer.close()
        await s.until(lambda: not s.admission.connections)
        s.answer(0)
        await asyncio.sleep(0)
        assert sum(timings[Api.HEARTBEAT].total) == 0


async def test_a_broker_without_an_http_server_times_nothing() -> None:
    async with stage() as s:
        await s.connect()
        await s.until(lambda: s.admission.connections)
        assert [type(each) for each in s.admission.connections] == [ServerConnection]
    async with stage(Timings(Clock())) as s:
        await s.connect()
        await s.until(lambda: s.admission.connections)
        assert [type(each) for each in s.admission.connections] == [TimedConnection]


async def test_of_many_requests_a_sample_is_timed_and_stands_for_all() -> None:
    timings = Timings(Clock())
    async with stage(timings) as s:
        timings.adapt(3 * TIMED_MAX)
        assert timings.every == 3
        reader, writer = await s.connect()
        for number in range(300):
            writer.write(frame(ApiVersionsRequest(), 0, number))
            assert await correlation_id(reader) == number
        total = sum(timings[Api.API_VERSIONS].total)
        assert 200 <= total <= 400 and total % 3 == 0, "each stands for three"
        assert [each.count for each in s.metrics.calls if each.count] == [300]
        timings.adapt(3 * TIMED_MAX + 300)  # it is quiet again: every request is timed
        assert timings.every == timings.until_next == 1


def test_a_burst_is_timed_in_samples_before_its_second_is_over() -> None:
    timings, timed, burst = Timings(Clock()), 0, 64 * TIMED_MAX
    for _ in range(burst):
        timings.until_next -= 1
        if not timings.until_next:
            times = Times(timings, timings.every, arrived_ns=0)
            timings.draw()
            times.executed()
            times.left(cast(Exchange, SimpleNamespace(api=Api.PRODUCE, is_follower=False)))
            timed += 1
    assert timed < 8 * TIMED_MAX
    assert sum(timings[Api.PRODUCE].total) == pytest.approx(burst, rel=0.1), "each stands for those left out"
    timings.adapt(0)
    assert timings.every == 1


def test_the_sample_is_not_every_nth() -> None:
    timings = Timings(Clock())
    timings.every = 8
    pauses = []
    for _ in range(2000):
        timings.draw()
        pauses.append(timings.until_next)
    assert set(pauses) == set(range(1, 16)) and 7.7 < sum(pauses) / len(pauses) < 8.3


@pytest.mark.parametrize("ns, place", [(0, 0), (1, 1), (16_383, 14), (16_384, 15), (1 << 62, 63)])
def test_a_bucket_is_the_bit_length(ns: int, place: int) -> None:
    durations = Durations()
    durations.add(ns)
    assert durations.counts.index(1) == place < BUCKETS
    if FIRST_BITS <= place < FIRST_BITS + len(BOUNDS_S):
        assert BOUNDS_S[place - FIRST_BITS] / 2 <= ns / 1e9 < BOUNDS_S[place - FIRST_BITS]


def test_quantiles_are_within_their_bucket() -> None:
    durations = Durations()
    assert list(quantiles_of(durations.counts)) == []
    for _ in range(98):
        durations.add(MS)
    for _ in range(2):
        durations.add(1000 * MS)
    told = dict(quantiles_of(durations.counts))
    assert tuple(told) == QUANTILES
    assert 0.5 < told["0.50"] <= told["0.98"] <= 2 and 500 < told["0.99"] <= told["0.999"] < 2000
    durations.add(1 << 60)
    assert dict(quantiles_of(durations.counts))["0.999"] <= BOUNDS_S[-1] * 1000


def test_quantiles_are_of_the_last_minute() -> None:
    recent, counts = Recent(), [0] * BUCKETS
    key = "Produce", "total"

    def scraped(now: float, added: int) -> int:
        counts[5] += added
        return recent.since(now, {key: list(counts)})[key][5]

    assert scraped(0, 10) == 10  # since the start
    assert scraped(5, 1) == 1
    assert scraped(15, 2) == 3
    assert scraped(60, 4) == 7
    assert scraped(80, 8) == 12  # since 15
    assert scraped(1000, 16) == 16  # since 80

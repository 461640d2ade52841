"""The world's own promises: virtual time, dead hosts stay dead, links keep order, one seed one story."""

import asyncio

import pytest

from strandline.simulation.environment.host import CrashedHost, Host
from strandline.simulation.environment.loop import SimLoop, Stuck


def run(loop: SimLoop, coro: object) -> object:
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(coro)  # type: ignore[arg-type]
    finally:
        loop.drain()
        loop.close()
        asyncio.set_event_loop(None)


class Recorder(asyncio.Protocol):
    """Keeps what arrives; answers `ping` by `pong`."""

    def __init__(self) -> None:
        self.heard, self.lost = b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if data == b"ping":
            self.transport.write(b"pong")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def test_an_hour_passes_at_once() -> None:
    loop = SimLoop(1)

    async def story() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run(loop, story()) == 3600


def test_a_deadlock_is_found_at_once() -> None:
    loop = SimLoop(1)
    with pytest.raises(Stuck):
        run(loop, asyncio.Event().wait())


def test_bytes_keep_their_order_and_a_cut_only_delays_them() -> None:
    loop = SimLoop(3)

    async def story() -> tuple[bytes, bytes]:
        served: list[Recorder] = []

        async def serve() -> None:
            await loop.create_server(lambda: served.append(Recorder()) or served[-1], "b", 1)

        await loop.spawn(Host("b"), serve())
        a = Host("a")
        _, near = await loop.spawn(a, loop.create_connection(Recorder, "b", 1))
        for part in (b"1", b"2", b"3"):
            near.transport.write(part)
        await asyncio.sleep(1)
        before = served[0].heard
        loop.network.cut("a", "b")
        near.transport.write(b"4")
        await asyncio.sleep(5)
        assert served[0].heard == before
        loop.network.heal()
        await asyncio.sleep(1)
        return before, served[0].heard

    assert run(loop, story()) == (b"123", b"1234")


def test_a_crashed_host_is_heard_of_no_more() -> None:
    loop = SimLoop(5)
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(loop.time())
            await asyncio.sleep(1)

    async def story() -> bool:
        served: list[Recorder] = []

        async def serve() -> None:
            await loop.create_server(lambda: served.append(Recorder()) or served[-1], "b", 1)
            loop.call_later(3, beats.append, -1.0)

        b = Host("b")
        await loop.spawn(b, serve())
        loop.spawn(b, beat())
        _, near = await loop.spawn(Host("a"), loop.create_connection(Recorder, "b", 1))
        await asyncio.sleep(2.5)
        loop.crash(b)
        await asyncio.sleep(5)
        with pytest.raises(ConnectionRefusedError):
            await loop.spawn(Host("a"), loop.create_connection(Recorder, "b", 1))
        with pytest.raises(CrashedHost):
            await loop.spawn(b, loop.create_connection(Recorder, "a", 1))
        return near.lost

    assert run(loop, story()) is True
    assert len(beats) == 3 and min(beats) >= 0, "neither its tasks nor its timers ran on"


@pytest.mark.parametrize("sent", ["before", "meanwhile", "after", "never"])
def test_a_machine_that_is_back_resets_what_it_does_not_know(sent: str) -> None:
    loop = SimLoop(5)

    async def story() -> list[bool]:
        async def serve() -> None:
            await loop.create_server(Recorder, "b", 1)

        b = Host("b")
        await loop.spawn(b, serve())
        _, near = await loop.spawn(Host("a"), loop.create_connection(Recorder, "b", 1))
        told = []
        for moment in ("before", "meanwhile", "after"):
            if moment == sent:
                near.transport.write(b"1")
            if moment == "before":
                loop.crash(b, vanishes=True)
            elif moment == "meanwhile":
                await asyncio.sleep(5)
                told.append(near.lost)
                loop.network.is_back("b")
        await asyncio.sleep(0.1)
        return [*told, near.lost]

    assert run(loop, story()) == [False, sent != "never"]


def test_the_same_seed_tells_the_same_story() -> None:
    def story(seed: int) -> list[float]:
        loop, seen = SimLoop(seed), list[float]()

        async def one(host: Host) -> None:
            for _ in range(5):
                await asyncio.sleep(loop.random.random())
                await asyncio.to_thread(seen.append, loop.time())

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(one(Host(name)))

        run(loop, all_of_them())
        return seen

    assert story(7) == story(7) != story(8)


def test_what_a_dead_process_closes_late_is_not_its_successors() -> None:
    loop = SimLoop(4)

    async def story() -> None:
        async def serve() -> asyncio.AbstractServer:
            return await loop.create_server(Recorder, "b", 1)

        first, second = Host("b"), Host("b")
        old = await loop.spawn(first, serve())
        loop.crash(first)
        new = await loop.spawn(second, serve())
        old.close()
        assert new.is_serving() and not old.is_serving()
        await loop.spawn(Host("a"), loop.create_connection(Recorder, "b", 1))
        new.close()
        with pytest.raises(ConnectionRefusedError):
            await loop.spawn(Host("a"), loop.create_connection(Recorder, "b", 1))

    run(loop, story())

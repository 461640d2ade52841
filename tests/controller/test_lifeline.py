"""When a peer counts as dead, and when it does not."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strandline.controller.lifeline import Lifeline, Patience


class Peer:
    def __init__(self) -> None:
        self.accepted = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server
        self.port = 0

    async def listen(self) -> None:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.append(writer)
        await asyncio.sleep(0)

    def cut(self, listening: bool) -> None:
        if not listening:
            self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


def play(story: Callable[[Peer, list[float], Lifeline], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        peer, deaths = Peer(), []
        loop = asyncio.get_running_loop()
        await peer.listen()
        lifeline = Lifeline(("127.0.0.1", peer.port), Patience(), lambda: deaths.append(loop.time()))
        task = asyncio.ensure_future(lifeline.run())
        await asyncio.sleep(0.15)
        assert peer.accepted == 1
        await story(peer, deaths, lifeline)
        task.cancel()
        await asyncio.wait([task])
        peer.cut(listening=False)
        await asyncio.sleep(0)

    asyncio.run(scene())


def test_a_peer_that_refuses_is_dead_after_three_hundred_milliseconds() -> None:
    async def story(peer: Peer, deaths: list[float], lifeline: Lifeline) -> None:
        cut_at = asyncio.get_running_loop().time()
        peer.cut(listening=False)
        await asyncio.sleep(0.6)
        assert len(deaths) == 1 and lifeline.is_dead
        assert 0.29 <= deaths[0] - cut_at < 0.5
        await peer.listen()
        await asyncio.sleep(1.2)
        assert not lifeline.is_dead and len(deaths) == 1

    play(story)


def test_a_peer_that_can_be_reached_again_has_no_verdict() -> None:
    async def story(peer: Peer, deaths: list[float], lifeline: Lifeline) -> None:
        peer.cut(listening=False)
        await asyncio.sleep(0.15)
        await peer.listen()
        await asyncio.sleep(0.4)
        assert deaths == [] and peer.accepted == 2

    play(story)


def test_a_silent_peer_has_no_verdict() -> None:
    async def story(peer: Peer, deaths: list[float], lifeline: Lifeline) -> None:
        await asyncio.sleep(0.6)
        assert deaths == [] and peer.accepted == 1

    play(story)


def test_a_peer_that_hangs_up_at_once_is_not_besieged() -> None:
    async def story(peer: Peer, deaths: list[float], lifeline: Lifeline) -> None:
        for _ in range(100):
            peer.cut(listening=True)
            await asyncio.sleep(0.005)
        assert deaths == [] and peer.accepted < 12

    play(story)


def test_a_host_that_swallows_everything_is_dead_too() -> None:
    async def scene() -> None:
        with socket.socket() as full:  # a listener whose queue is full drops what comes
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            crowd = [socket.socket() for _ in range(4)]
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            deaths: list[float] = []
            loop = asyncio.get_running_loop()
            started = loop.time()
            lifeline = Lifeline(full.getsockname(), Patience(), lambda: deaths.append(loop.time()))
            task = asyncio.ensure_future(lifeline.run())
            await asyncio.sleep(0.5)
            assert len(deaths) == 1 and 0.29 <= deaths[0] - started < 0.45
            task.cancel()
            await asyncio.wait([task])
            for one in crowd:
                one.close()

    asyncio.run(scene())


@pytest.mark.parametrize("steps", range(6))
def test_a_process_that_stood_still_itself_gives_no_verdict(steps: int) -> None:
    async def scene() -> None:
        peer, deaths = Peer(), []
        await peer.listen()
        lifeline = Lifeline(("127.0.0.1", peer.port), Patience(), lambda: deaths.append(1))
        task = asyncio.ensure_future(lifeline.run())
        for _ in range(steps):
            await asyncio.sleep(0)  # so far has it come with its first connection
        time.sleep(0.35)  # noqa: ASYNC251 - the process stands still, that is the story
        await asyncio.sleep(0.1)
        assert not deaths and peer.accepted, "the peer was there all the time"
        peer.cut(listening=False)
        await asyncio.sleep(0.5)
        assert len(deaths) == 1, "the next time counts again"
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scene())

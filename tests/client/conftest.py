"""Fixtures of the client's tests: a cluster double on loopback, and a runner for coroutines."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.client.broker_harness import Double
from tests.patience import HANG_S

Runner = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Runner:
    """Run a coroutine to its end, within a time that only a hanging one needs."""

    def runner(work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await work

        return asyncio.run(bounded())

    return runner


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """A double in a thread of its own, for callers that block."""
    ready = threading.Event()
    found: list[str] = []
    stop: list[Any] = []

    async def serve() -> None:
        async with Double(2) as double:
            found.extend(double.servers)
            end = asyncio.Event()
            stop.extend((asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(HANG_S)
    yield found
    stop[0].call_soon_threadsafe(stop[1].set)
    thread.join(HANG_S)

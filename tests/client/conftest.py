"""Fixtures of the client's tests: a cluster double on loopback, and a runner for coroutines."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

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

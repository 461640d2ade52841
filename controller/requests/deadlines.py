"""Deadlines of administrators' requests, from the timeouts that the requests give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...protocol.errors import NotController, RequestTimedOut, UnknownServerError
from ...zookeeper.client import ZkError
from ...zookeeper.documents import BadDocument
from ...zookeeper.znodes import ControllerMoved


def deadline_in(timeout_ms: float) -> float:
    """The loop time that is `timeout_ms` from now."""
    return asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000


async def by(deadline: float, work: Awaitable[None]) -> None:
    """Wait for work until a deadline. Raises the error that tells the client why it is not finished."""
    try:
        async with asyncio.timeout_at(deadline):
            await work
    except TimeoutError as error:
        raise RequestTimedOut("started, but not completed in time") from error
    except ControllerMoved as moved:
        raise NotController() from moved
    except (ZkError, BadDocument) as error:
        raise UnknownServerError(f"ZooKeeper: {error!r}") from error

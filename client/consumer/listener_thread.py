"""A thread for the listeners of a blocking consumer, so that they may call the consumer.

On the client's own loop such a call would deadlock, and stop the heartbeats. Listeners are called one at a
time, in the order of events. If a listener returns an awaitable, it is awaited on the loop.
Left to others: when a listener is told something (subscription.py).
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from ...base.types import TopicPartition
from .subscription import RebalanceListener

Callback = Callable[[list[TopicPartition]], Any]


class ListenerThread:
    """The thread. It starts with the first call and ends with `close()`."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, so is a listener."""
        return threading.current_thread() is self._thread

    async def call(self, callback: Callback, partitions: list[TopicPartition]) -> None:
        """Call it in the thread, and wait here."""
        result = await asyncio.get_running_loop().run_in_executor(
            self._executor, copy_context().run, self._call, callback, partitions
        )
        if inspect.isawaitable(result):
            await result

    def close(self) -> None:
        """Wait for the call under way, then end the thread."""
        self._executor.shutdown()

    def _call(self, callback: Callback, partitions: list[TopicPartition]) -> Any:
        self._thread = threading.current_thread()
        return callback(partitions)


class Relayed(RebalanceListener):
    """A listener that is called in the other thread."""

    def __init__(self, listener: RebalanceListener, thread: ListenerThread) -> None:
        self._listener = listener
        self._thread = thread

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Relay."""
        await self._thread.call(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """Relay."""
        await self._thread.call(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Relay."""
        await self._thread.call(self._listener.on_partitions_lost, partitions)

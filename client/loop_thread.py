"""An asyncio client behind blocking calls: a private event loop in one thread of its own.

Left to others: what is called (sync.py), what is done (producer/producer.py, consumer/consumer.py,
admin/admin.py).
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

T = TypeVar("T")

SETTLE_SECONDS_MAX = 1.0  # an interrupted caller waits for the loop, which may be at work on a serializer


class Call:
    """Work for a caller in another thread, who may be gone when it is done."""

    def __init__(self, undo: Callable[[], None] | None) -> None:
        self.is_abandoned = False
        self._undo = undo
        self._task: asyncio.Task[Any] | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work, on the loop; at its end look whether somebody waits for it."""
        if self.is_abandoned:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        result = await work()
        if self.is_abandoned:
            self.abandon()
        return result

    def abandon(self) -> None:
        """Nobody waits for it any more: end it, or undo what it has done. May be called twice."""
        if self._task is None:
            return  # it will not begin
        self._task.cancel()
        if self._undo is not None:
            self._undo()


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._gate = threading.Lock()  # nothing is submitted after the loop has ended
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._thread.is_alive()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[], None] | None = None) -> T:
        """Run `work` on the loop and wait for it. An interrupt cancels it; if it is done by then, nobody gets
        its result, and `undo` is called on the loop."""
        self._check_thread()
        call = Call(undo)
        future: Future[T] | None = None
        try:
            with self._gate:
                if self._is_closing:
                    raise RuntimeError("the client is closed")
                future = asyncio.run_coroutine_threadsafe(call.run(work), self._loop)
            return future.result()
        except BaseException as trouble:  # an interrupt comes at any of these lines
            ended = future is not None and future.done() and not future.cancelled()
            if future is not None and ended and future.exception() is trouble:
                raise
            call.is_abandoned = True
            self._settle(call.abandon)
            raise

    def call(self, action: Callable[[], T]) -> T:
        """Run a plain function on the loop and wait for it."""

        async def work() -> T:
            return action()

        return self.run(work)

    def close(self) -> None:
        """End the loop and its thread."""
        self._check_thread()
        with self._gate:
            if not self._is_closing:
                self._is_closing = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _settle(self, action: Callable[[], None]) -> None:
        """Run a plain function on the loop, after all that was submitted before, and wait for it."""
        done = threading.Event()

        def settle() -> None:
            action()
            done.set()

        with self._gate:
            if self._is_closing:
                return
            self._loop.call_soon_threadsafe(settle)
        done.wait(SETTLE_SECONDS_MAX)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call from the client's own thread would deadlock; call it from another thread"
            )

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


class Face:
    """What the three blocking clients share: the thread, start and close."""

    _thread: LoopThread
    _inner: Any

    def _begin(self, name: str, build: Callable[[], Any]) -> None:
        """Build and start the asyncio client inside its loop; on failure nothing is left behind."""
        self._thread = LoopThread(name)

        async def start() -> Any:
            return await build().start()

        try:
            self._inner = self._thread.run(start)
        except BaseException:
            self._thread.close()
            raise

    def close(self, **options: Any) -> None:
        """Finish and end the thread. May be called twice."""
        if not self._thread.is_open:
            return
        try:
            self._thread.run(lambda: self._inner.close(**options))
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

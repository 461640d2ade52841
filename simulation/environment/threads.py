"""Simulated threads: each pauses before every call to a file, and the loop runs meanwhile.

A thread is a greenlet with its own stack; only one runs at a time. It pauses before each call to a disk
(`breathe`) and resumes when its timer fires, so the seed decides what happens in between. When its process
crashes it runs on to its end at once, and its writes to files fail. The storage's locks are replaced too: a
thread that waits for one pauses; if the loop waits for one, it runs the holder until it is free.
Left to others: how long a call takes, and the future that awaits it (`loop.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
from collections.abc import Callable

from greenlet import getcurrent, greenlet

from ..patches import Patches

LOCK_NAMES = ("Lock", "Mutex")
LOCK_USERS = "strandline.storage."


class _Here:
    """Which thread is running now."""

    worker: Worker | None = None  # None in the loop's own thread, which may do a thread's work itself
    stands_in = False


class Worker:
    """One job in a simulated thread."""

    def __init__(self, work: Callable[[], object], on_pause: Callable[[Worker], object]) -> None:
        self.ended = False
        self._on_pause = on_pause
        self._stack = greenlet(work)
        self._stack.gr_context = contextvars.copy_context()

    def step(self) -> None:
        """Run the thread up to its next call to a file, or to its end."""
        if self.ended:
            return
        before, loop = _here.worker, asyncio._get_running_loop()
        _here.worker = self
        asyncio._set_running_loop(None)  # a real thread has no running loop either
        try:
            self._stack.parent = getcurrent()
            self._stack.switch()
        finally:
            asyncio._set_running_loop(loop)
            _here.worker = before
            self.ended = self._stack.dead
        if not self.ended:
            self._on_pause(self)

    def pause(self) -> None:
        """Called in the thread: go back to the loop."""
        self._stack.parent.switch()


_here = _Here()


def breathe() -> None:
    """Called before every file operation: a simulated thread pauses here."""
    if _here.worker is not None:
        _here.worker.pause()


def stand_in(work: Callable[[], object]) -> None:
    """The loop does a thread's work itself, without a pause."""
    _here.stands_in = True
    try:
        work()
    finally:
        _here.stands_in = False


def is_loop() -> bool:
    """Whether this runs on the event loop, where anything slow blocks the whole process."""
    return _here.worker is None and not _here.stands_in


class TurnLock:
    """A lock between the loop and its threads, or between threads. Not reentrant."""

    def __init__(self, waits: Callable[[], object]) -> None:
        self._waits = waits  # called when the loop waits for a thread
        self._held = False
        self._holder: Worker | None = None

    def acquire(self) -> bool:
        """Wait until it is free, and take it."""
        me = _here.worker
        if self._held and me is None:
            self._waits()
        while self._held:
            if me is not None:
                me.pause()
            elif self._holder is None or self._holder.ended:
                raise RuntimeError("deadlock: the loop waits for a lock that no thread will release")
            else:
                self._holder.step()
        self._held, self._holder = True, me
        return True

    def release(self) -> None:
        """Free the lock."""
        self._held, self._holder = False, None

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_in_turn(patches: Patches, waits: Callable[[], object]) -> None:
    """Patch the storage to use TurnLock; `waits` is called when the loop waits for one."""
    make = functools.partial(TurnLock, waits)
    for name, module in list(sys.modules.items()):
        for lock in LOCK_NAMES if name.startswith(LOCK_USERS) else ():
            if getattr(module, lock, None) is threading.Lock:
                patches.put(module, lock, make)

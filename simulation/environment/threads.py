"""Threads of a simulated process: they stop at each call to a file, and the loop runs on meanwhile.

A thread is a greenlet, a stack of its own: one runs at a time, whoever has the baton. It gives it back before
each call to a disk (`breathe`) and goes on when its timer fires, so the seed decides what happens in between.
When its process crashes it is woken once more, finds every door shut and ends. The locks of the storage
stand in for real ones: a thread that waits for one gives the baton back; the loop, if it ever waits, lets the
holder run.
Left to others: how long a call takes and who asked for it (`loop.py`).
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
    """Who has the baton."""

    worker: Worker | None = None  # none in the loop's own thread, which may do a thread's work itself
    stands_in = False


class Worker:
    """One piece of work that a thread does."""

    def __init__(self, work: Callable[[], object], on_pause: Callable[[Worker], object]) -> None:
        self.ended = False
        self._on_pause = on_pause
        self._stack = greenlet(work)
        self._stack.gr_context = contextvars.copy_context()

    def step(self) -> None:
        """Let the thread run up to its next call to a file, or to its end."""
        if self.ended:
            return
        before, loop = _here.worker, asyncio._get_running_loop()
        _here.worker = self
        asyncio._set_running_loop(None)  # no thread but the loop's own has one
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
        """In the thread: let others run."""
        self._stack.parent.switch()


_here = _Here()


def breathe() -> None:
    """A file is about to be called: in a thread, others may run first."""
    if _here.worker is not None:
        _here.worker.pause()


def stand_in(work: Callable[[], object]) -> None:
    """The loop does what a thread would do, in one breath."""
    _here.stands_in = True
    try:
        work()
    finally:
        _here.stands_in = False


def is_loop() -> bool:
    """Whether whatever takes long here keeps everybody else of the process waiting."""
    return _here.worker is None and not _here.stands_in


class TurnLock:
    """A lock between the loop and its threads, or between threads. Not reentrant."""

    def __init__(self, waits: Callable[[], object]) -> None:
        self._waits = waits  # is called when the loop waits for a thread
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
                raise RuntimeError("the loop waits for a lock that nobody will release")
            else:
                self._holder.step()
        self._held, self._holder = True, me
        return True

    def release(self) -> None:
        """Let others have it."""
        self._held, self._holder = False, None

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_in_turn(patches: Patches, waits: Callable[[], object]) -> None:
    """From now on the storage takes locks that know of the baton; `waits` hears of it when the loop waits."""
    make = functools.partial(TurnLock, waits)
    for name, module in list(sys.modules.items()):
        for lock in LOCK_NAMES if name.startswith(LOCK_USERS) else ():
            if getattr(module, lock, None) is threading.Lock:
                patches.put(module, lock, make)

"""Threads of a simulated process: they stop at each call to a file, and the loop runs on meanwhile.

Real threads, of which one runs at a time: whoever has the baton. A thread gives it back before each call to
a disk (`breathe`) and goes on when its timer fires, so the seed decides what happens in between. When its
process crashes it is woken once more, finds every door shut and ends. The locks of the storage stand in for
real ones: a thread that waits for one gives the baton back; the loop, if it ever waits, lets the holder run.
Left to others: how long a call takes and who asked for it (`loop.py`).
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable

from .patches import Patches

STUCK_S = 60.0
"""Real seconds. A thread that does not give the baton back waits for something that nobody here knows."""
LOCK_NAMES = ("Lock", "Mutex")
LOCK_USERS = "strandline.storage."


class _Baton(threading.local):
    """The worker whose thread this is; none in the loop's own, which may do a thread's work itself."""

    worker: Worker | None = None
    stands_in = False


class Worker:
    """One piece of work that a thread does."""

    def __init__(self, work: Callable[[], object], on_pause: Callable[[Worker], object]) -> None:
        self.ended = False
        self._on_pause = on_pause
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, work), daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let the thread run up to its next call to a file, or to its end."""
        if self.ended:
            return
        self._go.release()
        if not self._back.acquire(timeout=STUCK_S):
            raise RuntimeError(f"a thread has not come back for {STUCK_S:g} s")
        if self.ended:
            self._thread.join()
        else:
            self._on_pause(self)

    def pause(self) -> None:
        """In the thread: let others run."""
        self._back.release()
        self._go.acquire()

    def _run(self, work: Callable[[], object]) -> None:
        _here.worker = self
        self._go.acquire()
        try:
            work()
        finally:
            self.ended = True
            self._back.release()


_here = _Baton()


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

"""Ends a process whose event loop hangs.

A separate thread keeps the ZooKeeper session alive, so a broker whose loop hangs would look alive forever.
The watchdog, another thread, checks that the loop still runs callbacks. Past the limit it ends the process,
and the session with it. A process stopped by SIGSTOP does not count as hanging: the watchdog measures time by
its own wake-ups, which stop too.
"""

import asyncio
import faulthandler
import os
import sys
import threading
from typing import Self

INTERVAL_S = 0.5
STALL_S = 1.0


class Watchdog:
    """Watches `loop` from a thread while the context lasts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        self._loop, self._limit_s = loop, limit_s
        self._ticks = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _tick(self) -> None:
        self._ticks += 1

    def _watch(self) -> None:
        seen, silent_s, told = -1, 0.0, False
        while not self._stopped.wait(INTERVAL_S):
            if self._ticks != seen:
                seen, silent_s, told = self._ticks, 0.0, False
                self._ask()
                continue
            silent_s += INTERVAL_S
            if silent_s > STALL_S and not told:
                told = True
                sys.stderr.write(f'{{"event": "loop_stalled", "seconds": {silent_s}}}\n')
                faulthandler.dump_traceback()
            if silent_s > self._limit_s:
                sys.stderr.write('{"event": "loop_stuck", "remedy": "the process exits; start it again"}\n')
                sys.stderr.flush()
                os._exit(1)

    def _ask(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._tick)
        except RuntimeError:
            self._stopped.set()  # the loop has closed

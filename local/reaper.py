"""Waits for the end of a process, however it ends, and ends what it had begun: `reaper.py PID TOKEN`.

A process that dies by SIGKILL cannot clean up, so this one does: whoever has `OWNER_OF_CLUSTER=TOKEN` in its
environment is killed, and `/tmp/strandline-TOKEN-*` removed. It is run as a file, by itself, with nothing of
the package loaded: it starts in milliseconds, and is there in time. Left to others: who is owned (owned.py).
"""

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "OWNER_OF_CLUSTER"
SWEEP_S = 0.05
SWEEPS_WITHOUT = 3  # a child that was just forked has its environment a moment later
SWEEPS_MAX = 200


def wait_gone(pid: int) -> None:
    """Return when the process is not there any more, or not our parent."""
    with suppress(ProcessLookupError):
        watched = os.pidfd_open(pid)
        if os.getppid() == pid:
            select.select([watched], [], [])


def owned(token: str) -> list[int]:
    """The processes with this token in their environment."""
    wanted = f"{VARIABLE}={token}".encode()
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdigit() and wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def sweep(token: str) -> None:
    """Kill all that are owned, until no more come."""
    without = 0
    for _ in range(SWEEPS_MAX):
        victims = owned(token)
        without = 0 if victims else without + 1
        if without == SWEEPS_WITHOUT:
            return
        for victim in victims:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(victim, signal.SIGKILL)
        time.sleep(SWEEP_S)


def main() -> None:
    parent, token = int(sys.argv[1]), sys.argv[2]
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)  # what ends a whole terminal ends our parent, too
    wait_gone(parent)
    sweep(token)
    for directory in Path(tempfile.gettempdir()).glob(f"strandline-{token}-*"):
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()

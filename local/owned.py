"""Processes that end when the one that began them ends, even by SIGKILL.

They have a token of ours in their environment, and so have their children; another process waits for our end
and then kills all that have it (reaper.py). Neither PR_SET_PDEATHSIG nor a pipe would do: the first strikes
when the thread that started a process ends, the second is held open by forks of ours.
"""

import os
import secrets
import sys
from functools import cache
from pathlib import Path

from .reaper import VARIABLE


@cache
def _token(process: int) -> str:
    """The token of this process; its reaper is started once."""
    token = f"{process}-{secrets.token_hex(4)}"
    line = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(process), token]
    nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    os.posix_spawn(sys.executable, line, _without_token(), file_actions=nothing, setsid=True)
    return token


def _without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def mark() -> dict[str, str]:
    """Environment variables for processes that shall not outlive this one."""
    return {VARIABLE: _token(os.getpid())}


def temporary_prefix() -> str:
    """How a temporary directory begins that shall not outlive this process."""
    return f"strandline-{_token(os.getpid())}-"

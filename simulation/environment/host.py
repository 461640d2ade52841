"""A host stands for one process: tasks, timers and connections that it starts belong to it.

A context variable says whose code is running. Once a host has crashed, its code can reach neither network,
disk nor ZooKeeper. A host that is stopped (as by SIGSTOP) stands still: its timers, and what arrives for it,
wait until it resumes.
"""

from __future__ import annotations

import asyncio
import contextvars


class CrashedHost(ConnectionError):
    """Code of a crashed process tried to use network, disk or ZooKeeper. It ends with its tasks."""


class Host:
    """One run of one process. A restart is a new Host with the same name."""

    def __init__(self, name: str) -> None:
        self.name, self.alive = name, True
        self.stopped = False
        self.is_leaving = False  # it has been told to stop
        self.held: list[asyncio.TimerHandle] = []  # what it missed while stopped

    def __repr__(self) -> str:
        return f"{self.name}{'' if self.alive else ' (dead)'}"


OUTSIDE = Host("outside")
HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("HOST", default=OUTSIDE)


def current_host() -> Host:
    """The process whose code is running now."""
    return HOST.get()

"""Broker processes on this machine: start, signal, wait; identified by pid and command line.

A broker outlives the command that started it (`strandline up`), so its pid is kept in a file. By then the pid
may belong to another process, so we check its command line before we send a signal.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

EFFORT_S = 0.01  # the result of `_effort_s` on the machine where the time limits were set


ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every one of this machine, with the one to reach a server there from here."""

PAUSED_STATES = "Tt"  # of /proc: stopped by a signal, or by a debugger
DEAD_STATES = "ZX"


class State(StrEnum):
    """What a process does: `paused` is alive and stands still (SIGSTOP), `stopped` is no longer there."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


def state_of(pid: int | None, marker: str) -> State:
    """The state of process `pid`. One whose command line lacks `marker` is another's: ours is stopped.

    A process that is being killed runs until the last of its threads is gone: they hold its ports.
    """
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state in DEAD_STATES and len(os.listdir(f"/proc/{pid}/task")) > 1:
            return State.RUNNING  # its first thread is dead, and with it the command line
    except OSError:
        return State.STOPPED
    if marker.encode() not in line or state in DEAD_STATES:
        return State.STOPPED
    return State.PAUSED if state in PAUSED_STATES else State.RUNNING


def runs(pid: int, marker: str) -> bool:
    """Whether process `pid` is alive and its command line contains `marker`."""
    return state_of(pid, marker) is not State.STOPPED


def joined(host: str, port: int) -> str:
    """`host:port`, with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def wait_gone(pid: int, marker: str, wait_s: float) -> bool:
    """Wait until process `pid` is gone, at most `wait_s` seconds. True if it is."""
    deadline = time.monotonic() + wait_s
    while runs(pid, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Child(Protocol):
    """What is needed of a Popen."""

    pid: int

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass
class BrokerProcess:
    """One broker: its directory, its ports and, while it runs, its process."""

    id: int
    directory: Path
    port: int
    internal_port: int
    zookeeper: str
    settings: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    bind: str | None = None  # where clients and browsers are heard, if not at `host`; brokers meet at `host`
    advertised: str | None = None  # the host that clients are sent to, if not where they are heard
    within: tuple[str, ...] = ()  # a command that starts the broker's command, e.g. nsenter
    environment: dict[str, str] = field(default_factory=dict)
    web_port: int | None = None  # of the HTTP server, if there is to be one
    pid: int | None = None
    child: Child | None = field(default=None, repr=False)
    spawn: "Callable[[BrokerProcess], Child] | None" = field(default=None, repr=False)  # else by exec

    @property
    def reached(self) -> str:
        """The host where clients on this machine reach it."""
        bound = self.bind or self.host
        return ANY_ADDRESS.get(bound, bound)

    @property
    def address(self) -> str:
        """Where clients on this machine reach it."""
        return joined(self.reached, self.port)

    @property
    def advertised_address(self) -> str:
        """Where it sends clients."""
        return joined(self.advertised or self.reached, self.port)

    @property
    def page(self) -> str | None:
        """The URL of the HTTP server."""
        return None if self.web_port is None else f"http://{joined(self.reached, self.web_port)}/"

    @property
    def config(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.pid is not None and runs(self.pid, str(self.config))

    @property
    def state(self) -> State:
        """Running, paused or stopped, as the system says now."""
        return state_of(self.pid, str(self.config)) if self.alive else State.STOPPED

    @property
    def places(self) -> dict[str, str]:
        """The settings that say who and where it is: no other broker has the same."""
        inner, bound = joined(self.host, self.internal_port), self.bind or self.host
        apart = bound != self.host or self.advertised is not None
        return {
            "broker.id": str(self.id),
            "listeners": f"CLIENT://{joined(bound, self.port)},INTERNAL://{inner}",
            **(
                {"advertised.listeners": f"CLIENT://{self.advertised_address},INTERNAL://{inner}"}
                if apart
                else {}
            ),
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.directory / "data"),
            "zookeeper.connect": self.zookeeper,
            **({} if self.web_port is None else {"strandline.web.listener": joined(bound, self.web_port)}),
        }

    def write_config(self) -> None:
        """Write `server.properties`; settings of the caller win over these."""
        lines = self.places | self.settings
        self.directory.mkdir(parents=True, exist_ok=True)
        escaped = {name: str(value).replace("\\", "\\\\") for name, value in lines.items()}
        self.config.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))

    def start(self) -> None:
        """Write the configuration and start the process. The caller must wait until it answers."""
        self.write_config()
        self.launch()

    def launch(self) -> None:
        """Start the process with the configuration that is there. The caller must wait until it answers."""
        assert not self.alive, f"broker {self.id} is already running"
        self.child = self.spawn(self) if self.spawn is not None else self._exec()
        self.pid = self.child.pid

    def _exec(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "strandline.cli.main", "broker", "--config", str(self.config)]
            return subprocess.Popen(
                [*self.within, *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
                env={**os.environ, **self.environment},
            )

    def signal(self, sign: signal.Signals) -> None:
        if self.alive and self.pid is not None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(10)

    def stop(self, wait_s: float = 45) -> None:
        """SIGTERM: a controlled shutdown. SIGKILL if it takes longer than `wait_s` seconds."""
        self.signal(signal.SIGTERM)
        if not self.wait(wait_s):
            self.kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, wait_s: float) -> bool:
        """Wait until the process has ended, at most `wait_s` seconds. True if it has."""
        if self.child is not None:
            try:
                self.child.wait(wait_s)
            except subprocess.TimeoutExpired:
                return False
            return True
        return self.pid is None or wait_gone(self.pid, str(self.config), wait_s)


def machine_is_slower() -> float:
    """The factor (at least 1) by which time limits must grow here: for a shared or a slow machine."""
    shared = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return shared * max(1.0, min(_effort_s() for _ in range(3)) / EFFORT_S)


def _effort_s() -> float:
    """CPU seconds of a fixed piece of work now: a virtual machine's speed may halve within an hour."""
    begun_s = time.process_time()
    sum(number * number for number in range(200_000))
    return time.process_time() - begun_s

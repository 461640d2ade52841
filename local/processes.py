"""Broker processes on this machine: start, signal, wait; identified by pid and command line.

A broker outlives the command that started it (`strandline up`), so its pid is kept in a file. By then the pid
may belong to another process, so we check its command line before we send a signal.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

EFFORT_S = 0.01  # the result of `_effort_s` on the machine where the time limits were set


def runs(pid: int, marker: str) -> bool:
    """Whether process `pid` is alive and its command line contains `marker`."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return marker.encode() in line and state != "Z"


def wait_gone(pid: int, marker: str, wait_s: float) -> bool:
    """Wait until process `pid` is gone, at most `wait_s` seconds. True if it is."""
    deadline = time.monotonic() + wait_s
    while runs(pid, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


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
    within: tuple[str, ...] = ()  # a command that starts the broker's command, e.g. nsenter
    environment: dict[str, str] = field(default_factory=dict)
    web_port: int | None = None  # of the HTTP server, if there is to be one
    pid: int | None = None
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def page(self) -> str | None:
        """The URL of the HTTP server."""
        return None if self.web_port is None else f"http://{self.host}:{self.web_port}/"

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

    def write_config(self) -> None:
        """Write `server.properties`; settings of the caller win over these."""
        lines = {
            "broker.id": str(self.id),
            "listeners": f"CLIENT://{self.host}:{self.port},INTERNAL://{self.host}:{self.internal_port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.directory / "data"),
            "zookeeper.connect": self.zookeeper,
            **({} if self.web_port is None else {"strandline.web.listener": f"{self.host}:{self.web_port}"}),
            **self.settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def start(self) -> None:
        """Start the process. The caller must wait until it answers."""
        assert not self.alive, f"broker {self.id} is already running"
        self.write_config()
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "strandline.cli.main", "broker", "--config", str(self.config)]
            self.child = subprocess.Popen(
                [*self.within, *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
                env={**os.environ, **self.environment},
            )
        self.pid = self.child.pid

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

"""A real ZooKeeper from the jars inside the `pyspark` wheel: nothing to download, nothing to install.

`Zookeeper` is one server process, a child of this one or what an earlier command has started; `command()` is
the command line alone, to run it in the foreground.
Left to others: what is stored in it (`zookeeper/znodes.py`).
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from ..base.extras import require
from .ports import free_ports
from .processes import State, runs, state_of, wait_gone

JAR_STEMS = ("zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-")
"""The jars that the server needs. The rest of Spark's jars would only slow its start."""

JAVA_MISSING = (
    "Java is missing: ZooKeeper and Spark need Java 17 or newer. "
    "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"
)
START_S, END_S = 60.0, 10.0
MEMORY_FLAGS = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

CONFIG = """tickTime={tick_ms}
dataDir={data}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,mntr,dump,cons
minSessionTimeout=1000
maxSessionTimeout=60000
"""

CONFIG_NAME = "zoo.cfg"

LOGGING = """status = warn
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{{1}}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = OUT
"""


class EnvironmentProblem(Exception):
    """The machine lacks something; the message says what, and how to fix it. Exit status 1."""


def java() -> str:
    """The path of `java`. Raises EnvironmentProblem if there is none. Its version is not checked."""
    found = shutil.which("java")
    if found is None:
        raise EnvironmentProblem(JAVA_MISSING)
    return found


def jars() -> list[Path]:
    """The jars of a ZooKeeper server, from `pyspark`, which is not imported. Raises ExtraMissing."""
    require("pyspark", "local", "a local ZooKeeper")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is a package with files"
    folder = Path(spec.origin).parent / "jars"
    return sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(JAR_STEMS))


def command(directory: Path, port: int, host: str = "127.0.0.1", tick_ms: int = 1000) -> list[str]:
    """Write the server's configuration under `directory`, and return the command that runs it."""
    directory.mkdir(parents=True, exist_ok=True)
    config, logging = directory / CONFIG_NAME, directory / "log4j2.properties"
    config.write_text(CONFIG.format(data=directory / "data", port=port, host=host, tick_ms=tick_ms))
    logging.write_text(LOGGING.format())
    return [
        java(),
        *MEMORY_FLAGS,
        f"-Dlog4j2.configurationFile={logging}",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-cp",
        ":".join(map(str, jars())),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a ZooKeeper serves requests there (`srvr` is refused while it starts)."""
    try:
        with socket.create_connection((host, port), timeout_s) as sock:
            sock.sendall(b"srvr")
            return b"Zookeeper version" in sock.recv(4096)
    except OSError:
        return False


class Zookeeper:
    """One ZooKeeper process on this machine, with its directory and port."""

    def __init__(self, directory: Path, port: int | None = None, tick_ms: int = 1000) -> None:
        self.directory, self.host = directory, "127.0.0.1"
        self.port = port or free_ports(1)[0]
        self.tick_ms = tick_ms
        self.environment: dict[str, str] = {}  # besides ours
        self.process: subprocess.Popen[bytes] | None = None
        self.found_pid: int | None = None  # of one that another process started

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "zookeeper.log"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else self.found_pid

    @property
    def _marker(self) -> str:
        return str(self.directory / CONFIG_NAME)

    @property
    def state(self) -> State:
        """Running, paused or stopped, as the system says now."""
        return state_of(self.pid, self._marker)

    def start(self, wait_s: float = START_S) -> None:
        """Start, and wait until it answers. Raises EnvironmentProblem if it does not."""
        self.launch()
        self.wait(wait_s)

    def launch(self) -> None:
        """Start the process and return at once."""
        line = command(self.directory, self.port, self.host, self.tick_ms)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                line,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def wait(self, wait_s: float = START_S) -> None:
        """Wait until the launched server answers, at most `wait_s` seconds."""
        assert self.process is not None, "launch() comes before wait()"
        deadline = time.monotonic() + wait_s
        while not answers(self.host, self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise EnvironmentProblem(f"ZooKeeper did not start; see {self.log}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL. What it had acknowledged is in its log; sessions survive a restart until they time out."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal, if it runs."""
        pid = self.pid
        if pid is not None and runs(pid, self._marker):
            os.kill(pid, sign)

    def _end(self, sign: signal.Signals) -> None:
        self.send_signal(sign)
        if self.process is not None:
            self.process.wait(timeout=END_S)
        elif self.found_pid is not None and not wait_gone(self.found_pid, self._marker, END_S):
            raise EnvironmentProblem(f"ZooKeeper (process {self.found_pid}) does not end; see {self.log}")
        self.process = self.found_pid = None

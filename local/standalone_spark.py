"""A standalone Spark on this machine: a master and workers as processes of their own, under one directory.

It is what a cluster of machines is, but for the network: each worker is started with an environment of its
own, so its executors may run another Python. The scripts are those inside the `pyspark` wheel, which is not
imported.
Left to others: applications, which are handed `url` (spark-submit, a session's `master`).
"""

import importlib.util
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.extras import require
from .embedded_zookeeper import EnvironmentProblem, java
from .ports import free_ports

READY_S = 90.0
ASK_S = 5.0
END_S = 20.0
HOST = "127.0.0.1"
DAEMON_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


def home() -> Path:
    """Spark's directory. Raises ExtraMissing or EnvironmentProblem if it cannot run here."""
    java()
    require("pyspark", "spark", "Spark on this machine")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is a package with files"
    return Path(spec.origin).parent


@dataclass
class SparkProcess:
    """A master, a worker or a driver, with all that it has started: executors are in its process group."""

    name: str
    directory: Path
    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def start(self) -> None:
        """Start the process. The caller must wait until it answers."""
        assert not self.alive, f"{self.name} is already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        spark = home()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [str(spark / "bin" / "spark-class"), *self.arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
                env={
                    **inherited,
                    "SPARK_HOME": str(spark),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_CONF_DIR": str(self.directory),
                    "SPARK_WORKER_DIR": str(self.directory / "work"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": DAEMON_FLAGS,
                    **self.environment,
                },
            )

    def kill(self) -> None:
        """SIGKILL for it and for its executors, as if the machine had gone. Returns when it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what is left of it after a while."""
        self._end(signal.SIGTERM)
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        if self.child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(END_S)


class StandaloneSpark:
    """A master and some workers; every method blocks."""

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        *,
        cores: int = 2,
        memory_mb: int = 1024,
        environments: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Workers have ids 1, 2, …, and each the environment variables of `environments[id]`."""
        self.directory = directory.resolve()
        port, self.ui_port = free_ports(2)
        self.url = f"spark://{HOST}:{port}"
        self.master = self._process("Master", "master", {}, "--port", port, "--webui-port", self.ui_port)
        offered = ("--cores", cores, "--memory", f"{memory_mb}m", "--webui-port", 0, self.url)
        self.workers = {
            id: self._process("Worker", f"worker-{id}", (environments or {}).get(id, {}), *offered)
            for id in range(1, workers + 1)
        }

    def _process(
        self, kind: str, name: str, environment: Mapping[str, str], *arguments: object
    ) -> SparkProcess:
        java_class = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        given = [java_class, "--host", HOST, *map(str, arguments)]
        return SparkProcess(name, self.directory / name, given, environment)

    def start(self) -> None:
        """Start everything, and wait until the master knows all workers."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            self.master.start()
            self._until(lambda: self._state() is not None, "the master does not answer")
            for worker in self.workers.values():
                worker.start()
            self.wait_ready()
            undo.pop_all()

    def wait_ready(self) -> None:
        """Wait until the master knows all workers that run, and no other."""
        self._until(
            lambda: self.known_workers() == sum(worker.alive for worker in self.workers.values()),
            "the master does not know its workers",
        )

    def known_workers(self) -> int:
        """How many workers the master counts on."""
        state = self._state() or {}
        return sum(worker["state"] == "ALIVE" for worker in state.get("workers", ()))

    def cores_used(self) -> int:
        """The cores that executors have, all workers together."""
        state = self._state() or {}
        return sum(worker["coresused"] for worker in state.get("workers", ()) if worker["state"] == "ALIVE")

    def stop(self) -> None:
        """End all processes."""
        for process in (*self.workers.values(), self.master):
            process.stop()

    def kill(self) -> None:
        """SIGKILL for every process that still runs."""
        for process in (*self.workers.values(), self.master):
            process.kill()

    def __enter__(self) -> "StandaloneSpark":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _state(self) -> dict[str, Any] | None:
        """What the master says of itself and its workers; None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.ui_port}/json/", timeout=ASK_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return found

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + READY_S
        running = [process for process in (self.master, *self.workers.values()) if process.alive]
        while not holds():
            for process in running:
                if not process.alive:
                    raise EnvironmentProblem(f"Spark's {process.name} has ended; see {process.log}")
            if time.monotonic() > deadline:
                raise EnvironmentProblem(f"{otherwise}; see {self.master.log}")
            time.sleep(0.05)

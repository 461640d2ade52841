"""Brokers that start in a fraction of a second: forked from a process that has loaded everything already.

Most of a broker's start is the loading of modules, and that is the same for each. `spawn` asks the nursery of
this process, which is started when first wanted and lives as long as we do. It has no thread when it forks.
What must be loaded before the interpreter needs a process of its own (`local/processes.py`).
"""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from typing import Any

from ..local.cluster import LocalCluster
from ..local.owned import mark
from ..local.processes import BrokerProcess

BEGIN_S = 60.0
PROGRAM = "strandline.cli.serve"
"""By name, as a process is started by one: nothing here is built on the command line."""


class Forked:
    """A child of the nursery, with what callers need of a Popen. Its exit status is not known: -1."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._watched: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._watched, self.returncode = None, -1

    def poll(self) -> int | None:
        """None while it runs."""
        return self.returncode if self._is_gone(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. subprocess.TimeoutExpired if it does not come in time."""
        if not self._is_gone(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return -1

    def _is_gone(self, within_s: float | None) -> bool:
        if self._watched is not None and select.select([self._watched], [], [], within_s)[0]:
            os.close(self._watched)
            self._watched, self.returncode = None, -1
        return self._watched is None


class _Nursery:
    """Our end of the pipes."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._pids, pids = os.pipe()
        line = [sys.executable, "-m", "strandline.testing.nursery"]
        redirected = [(os.POSIX_SPAWN_DUP2, orders, 0), (os.POSIX_SPAWN_DUP2, pids, 1)]
        os.posix_spawn(sys.executable, line, {**os.environ, **mark()}, file_actions=redirected, setsid=True)
        os.close(orders)
        os.close(pids)
        self._turn = threading.Lock()

    def ask(self, order: dict[str, Any]) -> int:
        """The pid of the child."""
        with self._turn:
            os.write(self._orders, json.dumps(order).encode() + b"\n")
            if not select.select([self._pids], [], [], BEGIN_S)[0]:
                raise TimeoutError(f"no broker was forked within {BEGIN_S:g} s")
            told = os.read(self._pids, 64)
        if not told:
            raise ChildProcessError("the nursery of brokers has ended")
        return int(told)


@cache
def _nursery(process: int) -> _Nursery:
    return _Nursery()


def prepare() -> None:
    """Begin to load what brokers need, if that has not been done."""
    _nursery(os.getpid())


def spawn(broker: BrokerProcess) -> Forked:
    """Start the broker with the configuration that it has written."""
    order = {
        "config": str(broker.config),
        "log": str(broker.log),
        "directory": str(broker.directory),
        "environment": {**os.environ, **broker.environment},
    }
    return Forked(_nursery(os.getpid()).ask(order))


def forked(cluster: LocalCluster) -> LocalCluster:
    """The same cluster, whose brokers are forked from now on."""
    for broker in cluster.brokers.values():
        broker.spawn = spawn
    return cluster


# -- in the nursery


def _serve() -> None:
    """Fork for each order, until no more come. Children that end are reaped by the kernel."""
    importlib.import_module("strandline.broker.node")
    importlib.import_module(PROGRAM)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            os._exit(_child(json.loads(line)))
        os.write(1, f"{pid}\n".encode())


def _child(order: dict[str, Any]) -> int:
    """Be a broker; the exit status."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for target, source in ((0, nowhere), (1, log), (2, log)):
        os.dup2(source, target)
    for each in (nowhere, log):
        os.close(each)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["strandline", "broker", "--config", order["config"]]
    status = 1
    with suppress(BaseException):
        status = _broker(sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _broker(arguments: list[str]) -> int:
    try:
        status: int = importlib.import_module(PROGRAM).main(arguments)
        return status
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()  # nobody else will: the process ends without the interpreter's own end
        raise


def _main() -> None:
    gc.disable()
    importlib.import_module("strandline.cli.main").spare_imports()
    _serve()


if __name__ == "__main__":
    _main()

"""Runs `strandline` in processes forked from one that has the whole command line loaded.

A start costs milliseconds of the processor then, not a second. As a program this file is that process: it
reads orders as lines of JSON (words, environment, files, a time) and answers each with an exit status.
Left to others: what must be loaded before the interpreter, and commands beside which a test goes on.
"""

import atexit
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

LATE = -signal.SIGKILL
"""The status of a command that took too long."""


class CommandLine:
    """The process that forks. One command runs at a time."""

    def __init__(self) -> None:
        line = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._turn = threading.Lock()

    def run(
        self,
        words: list[str],
        directory: Path,
        environment: Mapping[str, str],
        files: Mapping[str, Path],
        within_s: float | None = None,
    ) -> int:
        """The exit status of a command in `directory`. `files` are its stdin, stdout and stderr.

        Past `within_s` seconds it is killed, and the status is LATE.
        """
        order = {
            "words": words,
            "directory": str(directory),
            "environment": dict(environment),
            "within_s": within_s,
            **{name: str(path) for name, path in files.items()},
        }
        assert self._process.stdin and self._process.stdout
        with self._turn:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.wait(30)


@cache
def command_line() -> CommandLine:
    """The one of this process; it ends with it."""
    made = CommandLine()
    atexit.register(made.close)
    return made


def run(
    words: list[str], environment: Mapping[str, str], within_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, in the current directory, with its output captured.

    Raises subprocess.TimeoutExpired.
    """
    with tempfile.TemporaryDirectory(prefix="strandline-command-") as place:
        files = {name: Path(place) / name for name in ("stdout", "stderr")}
        status = command_line().run(
            words, Path.cwd(), environment, {"stdin": Path(os.devnull), **files}, within_s
        )
        out, err = (path.read_text() for path in files.values())
    if status == LATE:
        raise subprocess.TimeoutExpired(["strandline", *words], within_s, out, err)
    return subprocess.CompletedProcess(["strandline", *words], status, out, err)


# -- in the process that forks


def serve() -> None:
    """Obey until no more orders come."""
    from strandline.cli.app import COMMANDS, GROUPS, PASSED_THROUGH

    importlib.import_module("strandline.cli.serve")  # `strandline broker` loads these two when it is asked to
    importlib.import_module("strandline.broker.node")
    for module in {*(name for name, _ in COMMANDS.values()), *GROUPS.values(), *PASSED_THROUGH.values()}:
        importlib.import_module(f"strandline.cli.{module}")
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(_run(order))
        answers.write(f"{_ended(pid, order['within_s'])}\n")
        answers.flush()


def _ended(pid: int, within_s: float | None) -> int:
    """The status of a child that has ended, or is killed then."""
    watched = os.pidfd_open(pid)
    if not select.select([watched], [], [], within_s)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(order: dict[str, Any]) -> int:
    from strandline.cli.main import main

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(order[name], flags), number)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["strandline", *order["words"]]
    status: Any = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(status or 0)


if __name__ == "__main__":
    serve()

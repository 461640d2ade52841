"""The command line against a cluster that `strandline up` started, shared by all of these tests."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strandline.local.cluster import PORT_STEPS, find
from strandline.local.ports import is_free, keep
from tests.command_line import CommandLine, command_line


@dataclass
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class Shell:
    """Runs `strandline` as a person would, with the cluster's address in the environment."""

    directory: Path
    commands: CommandLine
    bootstrap: str = ""
    zookeeper: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: object, given: str | bytes = b"", expect: int = 0) -> Done:
        status = self._run(words, given.encode() if isinstance(given, str) else given, expect)
        return Done(status, *((self.directory / name).read_text() for name in ("stdout", "stderr")))

    def _run(self, words: Sequence[object], given: bytes, expect: int) -> int:
        files = {name: self.directory / name for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_bytes(given)
        status = self.commands.run([str(word) for word in words], self.directory, self.environment, files)
        out, err = (files[name].read_text(errors="replace") for name in ("stdout", "stderr"))
        assert "Traceback" not in err, err
        assert status == expect, f"{words}: status {status}\n{out}\n{err}"
        return status

    def raw(self, *words: object) -> bytes:
        """The bytes that a command prints."""
        self._run(words, b"", 0)
        return (self.directory / "stdout").read_bytes()

    @property
    def environment(self) -> dict[str, str]:
        named = {"BOOTSTRAP_SERVERS": self.bootstrap} if self.bootstrap else {}
        return {**os.environ, "HOME": str(self.directory), "COLUMNS": "160", **named, **self.more}

    def up(self, *words: object) -> None:
        """Start a cluster in the directory."""
        told = self("up", "--dir", self.directory / "cluster", "--port", free_port(), "--json", *words).json
        self.bootstrap, self.zookeeper = told["bootstrap"], told["zookeeper"]

    def end(self) -> None:
        """SIGKILL for what still runs."""
        local = find(self.directory / "cluster")
        for broker in local.brokers.values():
            broker.kill()
        self("down", "--dir", self.directory / "cluster")


def until(holds: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """Wait until it holds; fails if it does not within `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.1)


def free_port() -> int:
    """A port for `up`: it and all that are counted from it for six brokers. Nobody else is given them."""
    first = 16_000 + os.getpid() % 300 * 20
    while not all(
        keep(port) and is_free(port) for step in PORT_STEPS for port in range(first + step, first + step + 6)
    ):
        first += 20
    return first


@pytest.fixture(scope="session")
def strandline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The command, and three brokers that it started."""
    shell = Shell(tmp_path_factory.mktemp("cli"), command_line())
    settings = {
        "log.segment.bytes": 16384,
        "log.index.interval.bytes": 512,
        "group.initial.rebalance.delay.ms": 0,
    }
    shell.up(*(word for name, value in settings.items() for word in ("--override", f"{name}={value}")))
    yield shell
    shell.end()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Shell]:
    """The command without any cluster; one that the test starts is ended."""
    shell = Shell(tmp_path, command_line())
    yield shell
    if (tmp_path / "cluster" / "cluster.json").exists():
        shell.end()


@pytest.fixture
def topic(strandline: Shell) -> str:
    """A topic of one partition on three brokers."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    strandline("topics", "create", name, "--partitions", 1, "--replication-factor", 3)
    return name

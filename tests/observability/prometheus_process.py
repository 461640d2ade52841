"""A Prometheus of our own: on a port that the system chose, with its files in a directory of the test."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from strandline.local.ports import free_ports

START_S = 60.0
ASK_S = 10.0


def binary() -> str | None:
    """The path of Prometheus, if it is installed: apt-get install prometheus."""
    return shutil.which("prometheus")


class Prometheus:
    """One process. `config` is the text of its configuration."""

    def __init__(self, directory: Path, config: str) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        (directory / "prometheus.yml").write_text(config)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        path = binary()
        assert path is not None
        with (self.directory / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    path,
                    f"--config.file={self.directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now. Raises HTTPError if it is malformed."""
        found = self._ask(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        series: list[dict[str, Any]] = json.loads(found)["data"]["result"]
        return series

    def _ask(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=ASK_S) as answer:
            body: bytes = answer.read()
        return body

    def _wait_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._ask("/-/ready")
                return
            except OSError:
                log = (self.directory / "prometheus.log").read_text()
                assert self.process.poll() is None, f"Prometheus has ended:\n{log}"
                assert time.monotonic() < deadline, f"Prometheus is not ready:\n{log}"
                time.sleep(0.1)

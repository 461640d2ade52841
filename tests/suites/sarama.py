"""sarama's functional tests: five brokers behind toxiproxy, `go test -tags functional` in a copy of its tree.

The tests dial 127.0.0.1:29091 to 29095 and ask toxiproxy to cut these; the brokers tell clients these
addresses and listen elsewhere. Some tests call `docker compose stop|start kafka-N` and `docker compose exec
kafka-1 <a tool of Kafka>`: a `docker` first on their PATH (`plugins/docker`) does that to the cluster.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from strandline.local.ports import free_ports, is_free
from tests.conformance.kafka_peer import jars
from tests.patience import HANG_S
from tests.suites.declared import Asked, Suite
from tests.suites.running import PLUGINS
from tests.suites.shape import Cluster, Shape
from tests.suites.suite import Run, SuiteProblem

TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
FIRST_PORT = 29090  # of broker N: FIRST_PORT + N
KAFKA_VERSION = "3.9.1"
BUILD_MAX_S, SUITE_MAX_S, READY_MAX_S = 600, 3600, 10


def go() -> str:
    found = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if found is None:
        raise SuiteProblem("no Go compiler: install Go 1.25 or newer (https://go.dev/dl)")
    return found


def toxiproxy_program() -> Path:
    """toxiproxy's server, built once per user."""
    folder = Path.home() / ".cache" / "strandline" / "suites" / "toxiproxy-2.12.0"
    program = folder / "server"
    if not program.exists():
        line, told = [go(), "install", TOXIPROXY], {**os.environ, "GOBIN": str(folder)}
        done = subprocess.run(
            line, env=told, capture_output=True, text=True, timeout=BUILD_MAX_S, check=False
        )
        if done.returncode:
            raise SuiteProblem(
                f"toxiproxy could not be built (is Go's module proxy reachable?): {done.stderr[-500:]}"
            )
    return program


@contextmanager
def toxiproxy(ports: Mapping[int, int], folder: Path) -> Iterator[str]:
    """It runs, with a proxy `kafkaN` for each broker; its address."""
    for id in ports:
        if not is_free(FIRST_PORT + id):
            raise SuiteProblem(f"port {FIRST_PORT + id} is in use: sarama's tests dial it")
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    with (folder / "toxiproxy.log").open("wb") as log:
        line = [str(toxiproxy_program()), "-host", "127.0.0.1", "-port", str(port)]
        child = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + READY_MAX_S
        while is_free(port):
            if child.poll() is not None or time.monotonic() > deadline:
                raise SuiteProblem(
                    f"toxiproxy did not start: {(folder / 'toxiproxy.log').read_text()[-500:]}"
                )
            time.sleep(0.02)
        for id, real in ports.items():
            proxy = {
                "name": f"kafka{id}",
                "listen": f"127.0.0.1:{FIRST_PORT + id}",
                "upstream": f"127.0.0.1:{real}",
            }
            body = json.dumps({**proxy, "enabled": True}).encode()
            urllib.request.urlopen(
                urllib.request.Request(f"{address}/proxies", body), timeout=READY_MAX_S
            ).close()
        yield address
    finally:
        child.kill()
        child.wait(HANG_S)


class Stage:
    """Stops and starts brokers for `plugins/docker`, one request at a time: `stop 3` is answered `done`."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster, self.path = cluster, path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                peer.sendall(self._do(peer.recv(100).decode()).encode())

    def _do(self, asked: str) -> str:
        what, _, id = asked.partition(" ")
        if what == "start" and self.cluster.is_up(int(id)):
            return "done"
        try:
            {"stop": self.cluster.stop_broker, "start": self.cluster.start_broker}[what](int(id))
        except (KeyError, ValueError, AssertionError, OSError) as error:
            return f"{asked!r} was not done: {error}"
        return "done"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@dataclass(frozen=True, kw_only=True)
class GoSuite(Suite):
    """`go test`, with its events."""

    def play(self, checkout: Path, cluster: Cluster, scratch: Path, asked: Asked) -> Run:
        work = scratch / "work"
        shutil.copytree(checkout, work, ignore=shutil.ignore_patterns(".git"))
        subprocess.run(["chmod", "-R", "u+w", str(work)], check=True)  # Go's module cache is read-only
        line = [go(), "test", "-json", "-tags", "functional", "-vet=off", "-count=1", "-p=1", "-parallel=1"]
        line += [f"-timeout={SUITE_MAX_S}s", "-run", asked.only or f"^({'|'.join(functional(work))})$"]
        line += ["-failfast"] if asked.first else []
        hanging = asked.reasons.hanging(asked.peer)
        skip = [pattern for one in asked.reasons.left_out for pattern in one.tests] + hanging
        line += ["-skip", "|".join(f"^{each}$" for each in skip)] if skip else []
        with ExitStack() as stack:
            address = stack.enter_context(toxiproxy(cluster.ports, scratch))
            stage = Stage(cluster, scratch / "stage")
            stack.callback(stage.close)
            told = {**os.environ, **self._environment(cluster, address, stage)}
            with (scratch / "go-test.json").open("wb") as report:
                subprocess.run(
                    [*line, "."], cwd=work, env=told, stdout=report, timeout=SUITE_MAX_S, check=False
                )
        run = read_events(scratch / "go-test.json", Run(self.name, self.version, asked.peer))
        run.tests.update(dict.fromkeys(hanging, "failed"))
        return run

    def _environment(self, cluster: Cluster, address: str, stage: Stage) -> dict[str, str]:
        return {
            "TOXIPROXY_ADDR": address,
            "KAFKA_VERSION": KAFKA_VERSION,
            "PATH": f"{PLUGINS}:{os.environ['PATH']}",
            "STRANDLINE_PYTHON": sys.executable,
            "STRANDLINE_STAGE": str(stage.path),
            "STRANDLINE_JARS": str(jars()),
            "STRANDLINE_BOOTSTRAP": cluster.bootstrap.split(",")[0],
        }


def read_events(report: Path, run: Run) -> Run:
    """The outcome of each test and of each of its parts; a test that never ended has failed."""
    outcomes = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    last: dict[str, list[str]] = {}
    for line in report.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        test = event.get("Test")
        if not test:
            continue
        if event["Action"] == "run":
            run.tests[test] = "failed"
        elif event["Action"] == "output":
            last.setdefault(test, []).append(event["Output"])
        elif event["Action"] in outcomes:
            run.tests[test] = outcomes[event["Action"]]
            run.seconds += 0 if "/" in test else float(event.get("Elapsed", 0))
            if event["Action"] != "pass":
                run.said[test] = "".join(last.get(test, ()))[-400:].strip()
    if not run.tests:
        raise SuiteProblem(f"sarama: no test ran: {report.read_text()[-1500:]}")
    _count_parts(run)
    return run


def _count_parts(run: Run) -> None:
    """A test with parts counts by its parts, unless it failed by itself."""
    for test in {test.rpartition("/")[0] for test in run.tests if "/" in test}:
        parts = [outcome for part, outcome in run.tests.items() if part.startswith(test + "/")]
        if run.tests.get(test) != "failed" or "failed" in parts:
            run.tests.pop(test, None)
            run.said.pop(test, None)


def functional(sources: Path) -> list[str]:
    """The names of the functional tests; the same build has all of the unit tests."""
    files = [*sources.glob("functional_*_test.go")]
    found = [
        name for file in files for name in re.findall(r"^func (Test\w+)\(t ", file.read_text(), re.MULTILINE)
    ]
    if not found:
        raise SuiteProblem(f"{sources} has no functional tests: is it a checkout of sarama?")
    return sorted(found)


SARAMA = GoSuite(
    name="sarama",
    title="sarama",
    version="1.60.1",
    checkout="sarama",  # its sources do not state their version
    shape=Shape(
        brokers=5,
        settings={
            "default.replication.factor": "2",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "1",  # as in the properties that Kafka ships: one of two dies
            "auto.create.topics.enable": "false",
            "delete.topic.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        },
        each=lambda id: {"broker.rack": str(id)},
        advertised=lambda id: FIRST_PORT + id,
    ),
)

"""Connect workers of one group, and what is said to them through their REST interface.

Left to others: what the connectors are to do, and who dies when (test_connect.py).
"""

import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.local.ports import free_ports
from tests.conformance.streams.brokers import Brokers
from tests.conformance.streams.jvm import Jvm, complaints

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
STRING = "org.apache.kafka.connect.storage.StringConverter"
INTERNAL = ("config", "offset", "status")
STARTING = "Kafka Connect worker initializing ..."
JOINED = re.compile(r"Joined group at generation (\d+) with protocol version")
PROTOCOL = re.compile(r"\[Worker .*Successfully joined group with generation .*protocol='(\w+)'")
WAIT_S = 120.0
REST_S_MAX = 30.0
SETTINGS = {  # who is dead is noticed soon, and its work is given away at once
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "consumer.session.timeout.ms": "6000",  # of sinks
    "consumer.isolation.level": "read_committed",  # they would copy what a source has taken back
    "scheduled.rebalance.max.delay.ms": "1000",
    "offset.flush.interval.ms": "500",
    "exactly.once.source.support": "enabled",
    "key.converter": STRING,
    "value.converter": STRING,
}


class Refused(Exception):
    """A worker answered with an error that it may not answer with for long."""


class Workers:
    """The workers of one group."""

    def __init__(self, brokers: Brokers, folder: Path, group: str) -> None:
        self.brokers, self.folder, self.group = brokers, folder, group
        self.ports: dict[str, int] = {}
        self.running: dict[str, Jvm] = {}

    def start(self, *names: str) -> None:
        for name in names:
            port = self.ports.setdefault(name, free_ports(1)[0])
            self.running[name] = Jvm(name, self.folder, MAIN, [str(self._settings(name, port))])

    def _settings(self, name: str, port: int) -> Path:
        told = {
            "bootstrap.servers": self.brokers.bootstrap,
            "group.id": self.group,
            "listeners": f"http://127.0.0.1:{port}",
            **{f"{what}.storage.topic": self.topic(what) for what in INTERNAL},
            **SETTINGS,
        }
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        return path

    def topic(self, what: str) -> str:
        """The topic in which the group keeps its `config`, `offset` or `status`."""
        return f"{self.group}-{what}"

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def stop(self, name: str) -> None:
        """SIGTERM: it leaves its group."""
        one = self.running.pop(name)
        one.process.terminate()
        one.process.wait(40)
        one.kill()

    def end(self) -> None:
        """Whatever runs is killed."""
        while self.running:
            self.running.popitem()[1].kill()

    def complaints(self) -> Counter[str]:
        """WARN and above in the logs of all workers, whether they run or not."""
        return complaints(*sorted(self.folder.glob("*.log")))

    # ------------------------------------------------------------ REST

    def ask(self, method: str, path: str, body: object = None, by: str = "") -> Any:
        """The answer of some worker: each passes on what is not its own. Raises Refused, OSError."""
        name = by or sorted(self.running)[-1]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[name]}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=REST_S_MAX) as answer:
                told = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(told) if told else None

    def until(self, true: Callable[[], object], what: str, wait_s: float = WAIT_S) -> None:
        """Wait until `true()`, while all workers run. While they rebalance they refuse, or do not answer."""
        deadline = time.monotonic() + wait_s
        why = ""
        while True:
            try:
                if true():
                    return
            except (Refused, OSError) as error:
                why = str(error)
            for one in self.running.values():
                assert one.alive, f"{one.name} has ended before {what}: {one.last_words()}"
            last = "".join(one.last_words() for one in self.running.values())
            assert time.monotonic() < deadline, f"not {what} in {wait_s} s ({why}): {last}"
            time.sleep(0.05)

    def ready(self) -> None:
        """Wait until all of them answer, and are of one generation of the group."""
        for name in self.running:
            self.until(lambda name=name: self.ask("GET", "/connectors", by=name) is not None, "answered", 180)
        self.joined()

    def joined(self) -> None:
        """Wait until all of them are of one generation of the group, by what they log of themselves."""
        self.until(lambda: len(set(map(self._generation, self.running))) == 1, "one generation", 180)

    def _generation(self, name: str) -> str:
        """The last that a worker has joined since its start; its own name as long as there is none."""
        log = self.running[name].log.read_text(errors="replace").rpartition(STARTING)[2]
        found = JOINED.findall(log)
        return found[-1] if found else name

    def protocols(self) -> set[str]:
        """By which protocols they have joined."""
        logs = [one.log.read_text(errors="replace") for one in self.running.values()]
        return {each for log in logs for each in PROTOCOL.findall(log)}

    def stopped(self, connector: str) -> None:
        """Stop a connector: its tasks end, its offsets may be changed."""
        self.ask("PUT", f"/connectors/{connector}/stop")

        def has_stopped() -> bool:
            status = self.ask("GET", f"/connectors/{connector}/status")
            return status["connector"]["state"] == "STOPPED" and not status["tasks"]

        self.until(has_stopped, f"{connector} has stopped")

    def create(self, connector: str, **config: object) -> None:
        """A connector; `connector_class` stands for `connector.class`."""
        told = {key.replace("_", "."): str(value) for key, value in config.items()}

        def put() -> bool:
            self.ask("PUT", f"/connectors/{connector}/config", told)
            return True

        self.until(put, f"{connector} is there")

    def states(self, connector: str) -> list[tuple[str, str]]:
        """State and worker's port of each task of a connector."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return [(task["state"], task["worker_id"].rpartition(":")[2]) for task in status["tasks"]]

    def owner(self, connector: str) -> str:
        """Wait until the only task of a connector runs on a worker that runs; the worker's name."""
        names = {str(port): name for name, port in self.ports.items()}

        def runs() -> bool:
            states = self.states(connector)
            return len(states) == 1 and states[0][0] == "RUNNING" and names.get(states[0][1]) in self.running

        self.until(runs, f"the task of {connector} runs")
        return names[self.states(connector)[0][1]]

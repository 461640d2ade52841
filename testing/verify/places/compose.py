"""Brokers in containers of Docker Compose, by the `docker` command: killed, stopped, paused, cut from the
network.

A broker is a container of the project whose service is called `broker-N`. Left to others: bringing the
project up (docker-compose.yml).
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..faults import Power
from .base import Place, PlaceProblem, all_done
from .commands import run

SERVICE = re.compile(r"broker-(\d+)")
LISTENER = re.compile(r"\w+://((?:localhost|127\.0\.0\.1):\d+)")
ADVERTISED, LOG_DIRS = "STRANDLINE_ADVERTISED_LISTENERS", "STRANDLINE_LOG_DIRS"
STOP_S = 60
START_S = 60.0


class ComposePlace(Place):
    """A project that is up."""

    name = "compose"
    powers = frozenset({Power.PROCESSES, Power.PAUSES, Power.ISOLATION})

    def __init__(self, project: str, bootstrap: str | None = None) -> None:
        """Raises PlaceProblem if no engine answers, or the project has no brokers."""
        self.project = project
        found = run(
            ["docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={project}"]
        ).split()
        described: list[dict[str, Any]] = json.loads(run(["docker", "inspect", *found])) if found else []
        self._containers: dict[int, dict[str, Any]] = {}
        for one in described:
            service = one["Config"]["Labels"].get("com.docker.compose.service", "")
            if number := SERVICE.fullmatch(service):
                self._containers[int(number[1])] = one
        if not self._containers:
            raise PlaceProblem(
                f"the compose project {project!r} has no containers of services broker-1, broker-2, …: "
                f"bring it up "
                "with `docker compose up -d`, or name it as in `docker compose ls`"
            )
        self._bootstrap = bootstrap or ",".join(self._listeners())
        self._copies = Path(tempfile.mkdtemp(prefix="strandline-verify-"))
        self._paused: set[int] = set()
        self._cut: set[int] = set()

    def _listeners(self) -> Iterable[str]:
        for id, one in sorted(self._containers.items()):
            found = LISTENER.search(environment(one).get(ADVERTISED, ""))
            if found is None:
                raise PlaceProblem(
                    f"container {self._name(id)} advertises no listener at localhost: give --bootstrap-server"
                )
            yield found[1]

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _ids(self) -> Iterable[int]:
        return self._containers

    def _name(self, broker: int) -> str:
        return str(self._containers[broker]["Name"]).lstrip("/")

    def start(self) -> None:
        self.wait_ready(START_S)

    def kill(self, broker: int) -> None:
        run(["docker", "kill", self._name(broker)])

    def stop(self, broker: int) -> None:
        run(["docker", "stop", "--time", str(STOP_S), self._name(broker)])

    def launch(self, broker: int) -> None:
        run(["docker", "start", self._name(broker)])

    def pause(self, broker: int) -> None:
        run(["docker", "pause", self._name(broker)])
        self._paused.add(broker)

    def resume(self, broker: int) -> None:
        run(["docker", "unpause", self._name(broker)])
        self._paused.discard(broker)

    def isolate(self, broker: int, *, reset: bool = False) -> None:
        """Packets vanish: a network that is taken from a container resets nothing."""
        self._cut.add(broker)
        for network in self._networks(broker):
            run(["docker", "network", "disconnect", network, self._name(broker)])

    def heal(self, broker: int) -> None:
        for network, details in self._networks(broker).items():
            aliases = [word for alias in details.get("Aliases") or () for word in ("--alias", alias)]
            run(["docker", "network", "connect", *aliases, network, self._name(broker)])
        self._cut.discard(broker)

    def _networks(self, broker: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self._containers[broker]["NetworkSettings"]["Networks"]
        return found

    def mend(self) -> None:
        all_done(
            [
                *((self.resume, broker) for broker in list(self._paused)),
                *((self.heal, broker) for broker in list(self._cut)),
                *((self.launch, broker) for broker in self.ids),  # nothing happens to one that runs
            ]
        )

    def directories(self) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for broker, one in self._containers.items():
            inside = environment(one).get(LOG_DIRS)
            if inside is None or "," in inside:
                return {}
            target = self._copies / str(broker)
            shutil.rmtree(target, ignore_errors=True)
            run(["docker", "cp", f"{self._name(broker)}:{inside}", str(target)])
            found[broker] = target
        return found

    def logs(self) -> dict[int, str]:
        return {id: run(["docker", "logs", self._name(id)]) for id in self._containers}

    def close(self) -> None:
        self.mend()
        shutil.rmtree(self._copies, ignore_errors=True)


def environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container."""
    pairs: list[str] = container["Config"].get("Env") or []
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

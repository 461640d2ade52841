"""The client processes of a run: started, killed, frozen and stopped; one that ends too early gets another
life.

Left to others: what they do (clients/), the faults that hit them (nemesis.py).
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ...client.sync import Admin
from ...protocol.errors import ApiError
from .clients.client import LIVES_OF_A_CLIENT, Job
from .kinds import KINDS
from .places import Place
from .scenario import ClientPart, Scenario

FENCE_S = 60.0
STOP_S = 60.0
MODULE = "strandline.testing.verify.clients.worker"


class Fleet:
    """All clients of a scenario; those in `left_out` are not started."""

    def __init__(
        self, place: Place, scenario: Scenario, folder: Path, prefix: str, clients: Iterable[ClientPart]
    ) -> None:
        self.place, self.scenario, self.folder, self.prefix = place, scenario, folder, prefix
        self.parts = {
            f"{part.called}-{number}": part for part in clients for number in range(1, part.count + 1)
        }
        self.lives = dict.fromkeys(self.parts, 0)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.zombies: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> None:
        """Its next life."""
        self.lives[name] += 1
        history = self.folder / f"{name}.{self.lives[name]}.history"
        word = self._job(name, history).packed()
        with history.with_suffix(".log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.place.within, sys.executable, "-W", "ignore", "-m", MODULE, word],
                stdin=subprocess.DEVNULL, stderr=log, stdout=log, start_new_session=True,
            )  # fmt: skip

    def _job(self, name: str, history: Path) -> Job:
        part, scenario = self.parts[name], self.scenario
        count = {topic: scenario.topics[topic].partitions for topic in scenario.topics_of(part)}
        return Job(
            kind=part.kind,
            library=part.library,
            name=name,
            life=list(self.parts).index(name) * LIVES_OF_A_CLIENT + self.lives[name],
            bootstrap=self.place.bootstrap,
            history=str(history),
            seed=scenario.seed,
            prefix=self.prefix,
            topics={self.prefix + topic: partitions for topic, partitions in count.items()},
            to=None if part.to is None else self.prefix + part.to,
            protocol=part.protocol,
            transaction_ms=round(scenario.transaction_timeout_s * 1000),
        )

    def start_all(self) -> None:
        """The first life of each."""
        for name in self.parts:
            self.start(name)

    def tend(self) -> None:
        """The next life of all that have ended."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.start(name)

    def kill_one(self, draw: random.Random) -> str:
        """SIGKILL for one that has transactions or is a member of a group. Returns its name."""
        name = draw.choice(
            [name for name, part in self.parts.items() if self._transacts(part) or KINDS[part.kind].is_member]
        )
        self.running[name].kill()
        self.running[name].wait(10)
        return name

    def freeze_one(self, draw: random.Random, replaced: bool) -> tuple[str, Callable[[], None]]:
        """SIGSTOP for one that has transactions: its name, and how to wake it.

        If it is to be `replaced`, its next life begins at once.
        """
        name = draw.choice([name for name, part in self.parts.items() if self._transacts(part)])
        frozen = self.running[name]
        frozen.send_signal(signal.SIGSTOP)
        if replaced:
            self.zombies.append(frozen)
            self.start(name)
        return name, lambda: frozen.send_signal(signal.SIGCONT)

    @staticmethod
    def _transacts(part: ClientPart) -> bool:
        return KINDS[part.kind].transacts

    def stop(self, which: Callable[[ClientPart], bool]) -> None:
        """SIGTERM for these, which end what they have begun; SIGKILL after STOP_S."""
        names = [name for name, part in self.parts.items() if which(part) and name in self.running]
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for name in names:
            process = self.running.pop(name)
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def fence(self, which: Callable[[ClientPart], bool]) -> None:
        """Whatever transaction these have left open is aborted. Raises ApiError after FENCE_S."""
        ids = [
            self.prefix + name for name, part in self.parts.items() if which(part) and self._transacts(part)
        ]
        deadline = time.monotonic() + FENCE_S
        with Admin(self.place.bootstrap) as admin:
            while ids:
                try:
                    admin.fence_producers(ids)
                    return
                except ApiError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)

    def kill(self) -> None:
        """All that are left."""
        for process in (*self.running.values(), *self.zombies):
            process.kill()
            process.wait(10)
        self.running.clear()

"""Brokers of two versions in one cluster, while all kinds of clients are judged (`strandline verify`).

    strandline.testing.verify drives clients and judges what they were told;
    a `Roller` takes each broker from one version to the other and back, lap by lap.

Left to others: where versions come from (versions.py), how long it goes on (test_two_versions.py).
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strandline.local.cluster import LocalCluster
from strandline.testing.verify.nemesis import wait_full
from strandline.testing.verify.places.local import LocalPlace
from strandline.testing.verify.scenario import Scenario

LOAD = "load and faults"
FULL_S = 120.0
CALM_S = (0.5, 3.0)  # with two versions side by side, before the next broker
DOWN_S = (0.0, 2.0)


class TwoVersions(LocalPlace):
    """A cluster of the run's own. `version_of` says which sources each broker is started from; None: ours."""

    def __init__(self, folder: Path, scenario: Scenario, first: Path | None) -> None:
        settings = scenario.cluster.properties()
        super().__init__(
            LocalCluster(folder / "cluster", scenario.cluster.brokers, settings=settings), is_ours=True
        )
        for broker in self.ids:
            self.install(broker, first)

    def install(self, broker: int, version: Path | None) -> None:
        """The version that the broker is started from the next time."""
        environment = self.cluster.brokers[broker].environment
        environment.pop("PYTHONPATH", None)
        if version is not None:
            environment["PYTHONPATH"] = str(version)


@dataclass
class Roller:
    """Watches a run (a `Screen`), and rolls through the brokers for as long as its load lasts.

    `laps` are the versions that all brokers get, one lap after the other, and again from the first; the first
    round is gone to its end however short the load is. Most brokers are stopped in order, some killed.
    """

    place: TwoVersions
    topics: Sequence[str]
    laps: Sequence[Path | None]
    seed: int
    kills: float = 0.25
    steps: list[str] = field(default_factory=list)
    trouble: BaseException | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def phase(self, what: str) -> None:
        """Roll while there is load; the next phase begins when no broker is between two versions."""
        if what == LOAD:
            self._thread = threading.Thread(target=self._roll, name="roller", daemon=True)
            self._thread.start()
        elif self._thread is not None:
            self._over.set()
            self._thread.join()

    def fault(self, what: str) -> None:
        """There are no others."""

    def tick(self, answered: Counter[str], faults: int) -> None:
        """Nothing: the thread has its own pace."""

    def _roll(self) -> None:
        draw, lap = random.Random(self.seed), 0
        try:
            while lap < len(self.laps) or not self._over.is_set():
                self._lap(self.laps[lap % len(self.laps)], draw)
                lap += 1
        except BaseException as trouble:
            self.trouble = trouble

    def _lap(self, version: Path | None, draw: random.Random) -> None:
        for broker in draw.sample(self.place.ids, len(self.place.ids)):
            killed = draw.random() < self.kills
            self.place.kill(broker) if killed else self.place.stop(broker)
            time.sleep(draw.uniform(*DOWN_S))
            self.place.install(broker, version)
            self.place.launch(broker)
            self.place.cluster.wait_member(broker)
            wait_full(self.place, list(self.topics), FULL_S)
            name = "this version" if version is None else version.name
            self.steps.append(f"broker {broker} {'killed' if killed else 'stopped'}, then {name}")
            time.sleep(draw.uniform(*CALM_S))

"""Brokers as processes of this machine: a cluster of the run's own, or the one that `strandline up` started.

Left to others: networks of their own (namespaces.py), brokers of Apache Kafka (kafka.py).
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from ....local.cluster import LocalCluster, changing, find
from ....local.embedded_zookeeper import EnvironmentProblem
from ..faults import Power
from ..power_loss import lose_unsynced
from .base import Place, PlaceProblem, all_done


class LocalPlace(Place):
    """A `LocalCluster`. One of the run's own is started, and gone in the end."""

    name = "local"
    powers = frozenset({Power.PROCESSES, Power.PAUSES, Power.DISKS, Power.SYNCS})

    def __init__(self, cluster: LocalCluster, *, is_ours: bool) -> None:
        self.cluster, self.is_ours = cluster, is_ours
        if not is_ours:
            self.powers = self.powers - {Power.DISKS, Power.SYNCS}  # it holds what others may need
        self._paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def _ids(self) -> Iterable[int]:
        return self.cluster.brokers

    @property
    def zookeeper(self) -> str | None:
        return self.cluster.zookeeper

    def start(self) -> None:
        try:
            if self.is_ours:
                self.cluster.directory.mkdir(parents=True, exist_ok=True)
                self.cluster.start()
            else:
                self.cluster.wait_ready()
        except EnvironmentProblem as problem:
            raise PlaceProblem(str(problem)) from None

    def wait_ready(self, wait_s: float) -> None:
        try:
            self.cluster.wait_ready(wait_s=wait_s)
        except EnvironmentProblem as problem:
            raise PlaceProblem(str(problem)) from None

    def kill(self, broker: int) -> None:
        self.cluster.brokers[broker].kill()
        self._paused.discard(broker)

    def stop(self, broker: int) -> None:
        self.cluster.brokers[broker].stop()

    def launch(self, broker: int) -> None:
        if self.is_ours:
            self.cluster.brokers[broker].start()
            return
        with changing(self.cluster.directory):  # it keeps its configuration; other commands find its process
            self.cluster.brokers[broker].launch()
            self.cluster.save()

    def pause(self, broker: int) -> None:
        self._paused.add(broker)
        self.cluster.brokers[broker].pause()

    def resume(self, broker: int) -> None:
        self.cluster.brokers[broker].resume()
        self._paused.discard(broker)

    def lose_disk(self, broker: int) -> None:
        shutil.rmtree(self._data(broker))

    def lose_unsynced(self, broker: int) -> None:
        lose_unsynced(self._data(broker))

    def _data(self, broker: int) -> Path:
        return self.cluster.brokers[broker].directory / "data"

    def mend(self) -> None:
        dead = [id for id, broker in self.cluster.brokers.items() if not broker.alive]
        all_done([*((self.resume, id) for id in list(self._paused)), *((self.launch, id) for id in dead)])

    def directories(self) -> dict[int, Path]:
        return {id: self._data(id) for id in self.cluster.brokers}

    def logs(self) -> dict[int, str]:
        return {
            id: broker.log.read_text(errors="replace")
            for id, broker in self.cluster.brokers.items()
            if broker.log.exists()
        }

    def stop_all(self) -> bool:
        if self.is_ours:
            self.cluster.stop()
        return self.is_ours

    def close(self) -> None:
        if self.is_ours:
            self.cluster.kill()
        else:
            self.mend()


def running(directory: Path) -> LocalPlace:
    """The cluster that `strandline up` started in `directory`. Raises PlaceProblem."""
    try:
        cluster = find(directory)
    except EnvironmentProblem as problem:
        raise PlaceProblem(str(problem)) from None
    if dead := [id for id, broker in cluster.brokers.items() if not broker.alive]:
        raise PlaceProblem(
            f"of the cluster in {directory} brokers {dead} do not run: start them before it is put to the "
            f"test"
        )
    return LocalPlace(cluster, is_ours=False)

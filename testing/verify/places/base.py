"""What the rest of a run knows of the place where the brokers live.

Left to others: each place.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....base.types import TopicPartition
from ....client.sync import Admin
from ....local.embedded_zookeeper import EnvironmentProblem
from ....protocol.errors import ApiError
from ....zookeeper.client import ZkError, ZkUnreachable
from ...waiting import until
from ..faults import FAULTS, Power

KAFKAS, OURS = "Kafka's", "Strandline's"
CLIENTS, ZOOKEEPER = "clients", "zookeeper"
ASK_MS = 2_000


class PlaceProblem(Exception):
    """The place lacks something; the message says what, and how to mend it."""


TROUBLES = (
    PlaceProblem, EnvironmentProblem, ApiError, OSError, ZkError, ZkUnreachable, AssertionError,
)  # fmt: skip
"""What may keep a broker from being mended."""


def all_done(calls: Iterable[tuple[Any, ...]]) -> None:
    """Make each of these calls, `(function, *arguments)`, though others fail; raises the first failure then.
    A broker that cannot be mended is no reason to leave the others as they are.
    """
    failures: list[Exception] = []
    for function, *arguments in calls:
        try:
            function(*arguments)
        except TROUBLES as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


class Place(ABC):
    """Brokers with ids. Every method blocks. What `powers` does not name must not be asked for."""

    name: str
    powers: frozenset[Power] = frozenset()
    within: Sequence[str] = ()
    """What stands before the command of a client, so that it runs where clients live."""
    is_ours = False
    """Whether the cluster is there for this run only; else its topics get a prefix, and it is left as it
    was.
    """
    has_tracebacks = True
    """Whether `logs` are those of Strandline, in which no traceback may stand."""
    kind = "Strandline"

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients."""

    @property
    def ids(self) -> list[int]:
        """The ids of all brokers, dead or alive."""
        return sorted(self._ids())

    @abstractmethod
    def _ids(self) -> Iterable[int]: ...

    @property
    def zookeeper(self) -> str | None:
        """ZooKeeper's address, if it can be asked from here."""
        return None

    def software(self, broker: int) -> str:
        """Whose broker it is (KAFKAS, OURS), where there are several kinds; else empty."""
        return ""

    def able(self) -> list[str]:
        """The faults that can be done here."""
        return [name for name, fault in FAULTS.items() if fault.needs <= self.powers]

    @abstractmethod
    def start(self) -> None:
        """Start what is to be started for the run, and wait until it is ready."""

    def wait_ready(self, wait_s: float) -> None:
        """Wait until all brokers know each other and a controller. Raises PlaceProblem."""
        wanted = len(self.ids)
        try:
            until(lambda: self._knows(wanted), wait_s, f"{wanted} brokers and a controller", every_s=0.2)
        except AssertionError as failure:
            raise PlaceProblem(f"the cluster at {self.bootstrap} is not ready: {failure}") from None

    def _knows(self, brokers: int) -> bool:
        try:
            with Admin(self.bootstrap, request_timeout_ms=ASK_MS, default_api_timeout_ms=ASK_MS) as admin:
                cluster = admin.describe_cluster()
        except (ApiError, OSError):
            return False
        return len(cluster.brokers) >= brokers and cluster.controller_id >= 0

    # ------------------------------------------------------------ faults

    def kill(self, broker: int) -> None:
        """SIGKILL, and wait until it is gone."""
        raise NotImplementedError

    def stop(self, broker: int) -> None:
        """A controlled shutdown, to its end."""
        raise NotImplementedError

    def launch(self, broker: int) -> None:
        """Start a broker that does not run; return at once."""
        raise NotImplementedError

    def pause(self, broker: int) -> None:
        """SIGSTOP."""
        raise NotImplementedError

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        raise NotImplementedError

    def cut(self, broker: int, *others: int | str, reset: bool = False) -> None:
        """Nothing comes from these (brokers, CLIENTS, ZOOKEEPER) any more; with `reset` they get a RST."""
        raise NotImplementedError

    def isolate(self, broker: int, *, reset: bool = False) -> None:
        """Cut it from everybody."""
        self.cut(broker, CLIENTS, ZOOKEEPER, *(id for id in self.ids if id != broker), reset=reset)

    def heal(self, broker: int) -> None:
        """All links of this broker as before."""
        raise NotImplementedError

    def lose_disk(self, broker: int) -> None:
        """Everything in the log directories of a broker that does not run is gone."""
        raise NotImplementedError

    def lose_unsynced(self, broker: int) -> None:
        """As after a loss of power: of a broker that does not run, what it had not synced is gone."""
        raise NotImplementedError

    @abstractmethod
    def mend(self) -> None:
        """Every link carries, every broker runs. To be called at any time."""

    # ------------------------------------------------------------ evidence

    def directories(self) -> dict[int, Path]:
        """The log directory of each broker, readable now; empty where nobody can look into them."""
        return {}

    def logs(self) -> dict[int, str]:
        """What each broker has logged; empty where nobody can read it."""
        return {}

    def examined(self, holders: Mapping[TopicPartition, Sequence[int]]) -> list[str]:
        """What somebody else's tools find wrong in the directories of brokers that have stopped; `holders`
        of each partition's replicas.
        """
        return []

    # ------------------------------------------------------------ the end

    def stop_all(self) -> bool:
        """A controlled shutdown of a cluster that is there for this run only; False if it is not."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Nothing of what this run has started is left."""

"""Brokers and clients in network namespaces of this machine, whose links can be cut. Needs root, or user
namespaces.

The whole process moves to a network of its own first (`leave_the_network`), and everything goes with it.
Left to others: the namespaces (testing/namespaces.py), the processes (local.py).
"""

from collections.abc import Mapping
from pathlib import Path

from ...namespaces import HERE, Field, Node
from ..faults import Power
from .base import CLIENTS, ZOOKEEPER
from .local import LocalPlace

CLIENTS_NODE = 100


class Apart(LocalPlace):
    """What can be done where each broker lives in a namespace of its own."""

    name = "namespaces"
    powers = frozenset(Power)
    field: Field
    clients: Node

    def lay_out(self, folder: Path) -> None:
        """The network, three ZooKeepers, and where clients live: before anything else of a place."""
        folder.mkdir(parents=True, exist_ok=True)
        self.field = Field(folder, apart=True)
        self.clients = self.field.node(CLIENTS_NODE)
        self.within = self.clients.within

    def cut(self, broker: int, *others: int | str, reset: bool = False) -> None:
        where = {CLIENTS: self.clients.address, ZOOKEEPER: HERE}
        addresses = (where[each] if isinstance(each, str) else self._host(each) for each in others)
        self.field.nodes[broker].cut(*addresses, reset=reset)

    def _host(self, broker: int) -> str:
        return self.cluster.brokers[broker].host

    def heal(self, broker: int) -> None:
        self.field.nodes[broker].heal()

    def mend(self) -> None:
        self.field.heal()
        super().mend()

    def close(self) -> None:
        super().close()
        self.field.close()


class NamespacesPlace(Apart):
    """Three ZooKeepers, and brokers each in a namespace."""

    def __init__(self, folder: Path, brokers: int, settings: Mapping[str, str]) -> None:
        """To be called after `leave_the_network`. ZooKeeper runs when it returns."""
        self.lay_out(folder)
        super().__init__(self.field.cluster(folder / "cluster", brokers, settings), is_ours=True)

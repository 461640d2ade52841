"""The systems that are measured beside each other, by name: Strandline first, its peers after it.

`MEASURED` are those of a sitting that is not told which; `SYSTEMS` are all there are.
"""

from collections.abc import Mapping
from pathlib import Path

from strandline.local.owned import mark
from strandline.local.processes import BrokerProcess

from .kafka import RELEASES, Kafka41
from .system import System


class Strandline(System):
    """Our brokers."""

    name = "strandline"
    title = "Strandline"
    warm_up_s = 3.0
    failover_max_s = 5.0
    spark_source = "strandline"

    def __init__(self, directory: Path, brokers: int, more: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, brokers, more)
        assert self.zookeeper is not None
        address = self.zookeeper.address
        self.processes = {
            id: BrokerProcess(
                id, self.folder(id), port, inner, address, dict(self.settings), environment=mark()
            )
            for id, (port, inner) in self.ports.items()
        }


MEASURED: tuple[type[System], ...] = (Strandline, *RELEASES)
SYSTEMS = {kind.name: kind for kind in (*MEASURED, Kafka41)}

"""The parts of one running broker, as handlers see them.

`node.py` fills it; nobody else builds parts or keeps them. A part is reached through its field here, so
that no handler holds on to something that is replaced whole (`metadata` is a new Picture after each
UpdateMetadata).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.kinds import BrokerId, Clock, Incarnation
from .config import BrokerConfig
from .metadata import Picture
from .metrics import Metrics

if TYPE_CHECKING:
    from ..controller.service import Controller
    from .forward import Forwarder
    from .groups import GroupCoordinator
    from .producer_ids import ProducerIds
    from .replicas import Replicas


@dataclass(slots=True)
class Broker:
    """What a handler may use."""

    config: BrokerConfig
    clock: Clock
    cluster_id: str
    incarnation: Incarnation
    metadata: Picture
    metrics: Metrics
    replicas: "Replicas"
    groups: "GroupCoordinator"
    controller: "Controller"
    forwarder: "Forwarder"
    producer_ids: "ProducerIds"
    wake: Callable[[], None]
    """Asks for the end of the turn: `replicas.sweep()`, then all answered heads leave. Cheap, idempotent."""
    fail: Callable[[BaseException], None]
    """What cannot be true has happened: the node logs it and stops."""

    @property
    def id(self) -> BrokerId:
        """This broker's id."""
        return self.config.id

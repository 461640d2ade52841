"""View: what the routes may see of a broker, from the moment its ports are bound until it has ended.

While the broker starts there are no parts yet, and recovery of logs may take minutes: then `broker` is None.
Left to others: who fills it in (broker/node.py).
"""

from dataclasses import field
from typing import TYPE_CHECKING

from ...base.values import dataclass
from ..config.broker import BrokerConfig
from .api_peers import Peers
from .readiness import Readiness

if TYPE_CHECKING:
    from ...zookeeper.client import ZkClient
    from ..context import BrokerContext
    from ..network.admission import Admission
    from ..network.timings import Timings


@dataclass(slots=True)
class View:
    """The parts of a broker that exist so far."""

    config: BrokerConfig
    zk: "ZkClient | None" = None
    broker: "BrokerContext | None" = None
    admission: "Admission | None" = None
    timings: "Timings | None" = None
    stopping: bool = False
    failure: BaseException | None = None
    connections: int = 0
    """How many the HTTP server has, to a second."""
    questions: int = 0
    """For how many questions of `/why` other brokers are being asked."""
    exposition: object = None
    """What makes `/metrics`, from the first time it is asked for."""
    peers: Peers = field(default_factory=Peers)
    """Asks the other brokers, for the page."""
    readiness: Readiness = field(default_factory=Readiness)
    """What `/ready` last found."""
    reads: int = 0
    """How many reads of records are being answered."""
    late_s: float = 0.0
    """By how much the event loop was late at most, in the last seconds."""

    @property
    def phase(self) -> str:
        """Where the broker is in its life."""
        if self.failure is not None:
            return "failed"
        if self.stopping:
            return "stopping"
        return "running" if self.broker is not None else "starting"

"""The parts of one running broker, as handlers see them.

Only `node.py` builds them. Handlers reach a part through its field here each time and do not keep it, because
some are replaced as a whole (`metadata` is a new Picture after each UpdateMetadata).
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..base.types import BrokerId, Clock, Incarnation
from ..base.values import dataclass
from ..storage.directories.log_manager import Logs
from .config.broker import BrokerConfig
from .config.live import LiveConfig
from .metadata.cache import MetadataCache, Picture
from .network.metrics import Metrics
from .replicas.shared import ReplicaShared

if TYPE_CHECKING:
    from ..controller.controller import Controller
    from .config.groups import GroupSettings
    from .fetch.client_sessions import ClientSessions
    from .fetch.follower_sessions import FollowerSessions
    from .fetch.parked import ParkedReplicas
    from .follower.fetcher import Fetchers
    from .forward import Forwarder
    from .groups.coordinator import GroupCoordinator
    from .metadata.held_answers import HeldAnswers
    from .producer_ids import ProducerIds
    from .replicas.isr_writer import IsrWriter
    from .replicas.replicas import Replicas
    from .replicas.topic_configs import TopicSettings
    from .roles.leader_and_isr import LeaderAndIsr
    from .throttle import Throttle
    from .transactions.coordinator import TransactionCoordinator
    from .transactions.verification import Verification
    from .upkeep.compaction import Compactor
    from .upkeep.delete_records import Deletions
    from .upkeep.log_dir_moves import LogDirMoves


@dataclass(slots=True)
class BrokerContext:
    """What a handler may use."""

    live: LiveConfig
    clock: Clock
    cluster_id: str
    cache: MetadataCache
    metrics: Metrics
    logs: Logs
    shared: ReplicaShared
    replicas: "Replicas"
    settings: "TopicSettings"
    isr: "IsrWriter"
    parked: "ParkedReplicas"
    sessions: "FollowerSessions"
    client_sessions: "ClientSessions"
    fetchers: "Fetchers"
    leader_throttle: "Throttle"
    deletions: "Deletions"
    roles: "LeaderAndIsr"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    controller: "Controller"
    forwarder: "Forwarder"
    producer_ids: "ProducerIds"
    verification: "Verification"
    cleaning: "Compactor"
    moves: "LogDirMoves"
    held: "HeldAnswers"
    group_settings: "GroupSettings"
    refresh: Callable[[], Awaitable[None]]
    """Looks for changed settings in ZooKeeper: a client sees what it has changed, by whichever broker."""
    fail: Callable[[BaseException], None]
    """An invariant is broken: the node logs it and stops."""
    web: tuple[str, int] | None = None
    """Where the HTTP server listens."""

    @property
    def config(self) -> BrokerConfig:
        """The present configuration. A change replaces it, so do not keep it across an await."""
        return self.live.current

    @property
    def metadata(self) -> Picture:
        """The cluster as the controller last announced it. An update replaces it; it never changes itself."""
        return self.cache.picture

    @property
    def incarnation(self) -> Incarnation:
        """The number of this start. A lost ZooKeeper session begins another."""
        return self.shared.incarnation

    @property
    def id(self) -> BrokerId:
        """This broker's id."""
        return self.config.id

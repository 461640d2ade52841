"""Which broker a partition is fetched from: its leader, or a replica that this says is nearer (KIP-392).

A leader that knows the consumer's rack may answer with the name of another replica, and without records. That
one is asked then, for as long as metadata is good for. If it fails, or does not have the offset yet, the
leader is asked again, without a rack for as long: otherwise it would name the same one.
A leader of an epoch before that of the last record has been replaced, and does not know it: brokers may still
name it, and the log that it has may end before the position. Others are looked for, but not for ever: where
brokers know no topic ids, it may be that the topic was made again.
Left to others: what is fetched (fetcher.py), who leads (network/cluster.py).
"""

from collections.abc import Iterable

from ...base.types import NO_EPOCH
from ..config import ConsumerConfig
from ..network.cluster import PROPAGATION_SECONDS, Cluster
from .positions import PartitionPosition

NONE = -1


class Sources:
    """Whom to ask."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._rack = config.client_rack
        self._good_for = config.metadata_max_age_ms / 1000

    def of(self, place: PartitionPosition, now: float) -> int | None:
        """The broker to ask now; None if there is none yet."""
        leader = self._cluster.leader(place.partition)
        if leader is None:
            return None
        topic = self._cluster.view.topics[place.partition.topic]
        last_epoch = place.last_epoch if place.is_of(topic.topic_id) else NO_EPOCH
        if 0 <= leader.leader_epoch < last_epoch:
            place.superseded_until = place.superseded_until or now + PROPAGATION_SECONDS
            if now < place.superseded_until:
                self._cluster.doubt(place.partition, leader.leader, leader.leader_epoch)
                return None
        else:
            place.superseded_until = 0.0
        if now < place.nearer_until and place.nearer in self._cluster.view.brokers:
            return place.nearer
        return leader.leader

    def rack(self, places: Iterable[PartitionPosition], now: float) -> str:
        """What these are fetched with: no rack if one of them is to come from its leader."""
        return "" if any(now < place.leader_only_until for place in places) else self._rack

    def named(self, place: PartitionPosition, broker: int, now: float) -> None:
        """The leader has named a replica that is nearer."""
        if broker in self._cluster.view.brokers:
            place.nearer, place.nearer_until = broker, now + self._good_for
        else:
            self._cluster.refresh_soon()
            place.leader_only_until = now + self._good_for

    def failed(self, place: PartitionPosition, broker: int, now: float) -> bool:
        """This broker did not serve the partition. True if it is the nearer one, so that the leader can; also
        if it was to be asked only until a moment ago."""
        if place.nearer != broker:
            return False
        place.nearer, place.nearer_until = NONE, 0.0
        place.leader_only_until = now + self._good_for
        return True

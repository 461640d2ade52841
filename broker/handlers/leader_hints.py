"""Where the leader went (KIP-951), so that a client need not refresh its metadata to find out.

A hint is given only for NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, and only if this broker knows of
another leader. Then the response also has that leader's address on the client's listener.
"""

from typing import TYPE_CHECKING

from ...base.types import NO_EPOCH, NO_LEADER, TopicPartition
from ...protocol.errors import ErrorCode
from ...protocol.messages.common import LeaderIdAndEpoch, NodeEndpoint

if TYPE_CHECKING:
    from ..context import BrokerContext

ELSEWHERE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class LeaderHints:
    """The hints of one response."""

    __slots__ = ("_broker", "_endpoints", "_listener")

    def __init__(self, broker: "BrokerContext", listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        """The leaders named so far."""
        return list(self._endpoints.values())

    def leader_of(self, topic: str, partition: int, code: int) -> LeaderIdAndEpoch | None:
        """The leader and its epoch, if they help a client that gets `code`."""
        if code not in ELSEWHERE:
            return None
        leader, epoch = self._newest(TopicPartition(topic, partition))
        picture = self._broker.metadata
        if leader in (NO_LEADER, self._broker.id):
            return None
        address = picture.address(leader, self._listener)
        if address is None:
            return None
        self._endpoints[leader] = NodeEndpoint(
            node_id=leader, host=address.host, port=address.port, rack=picture.brokers[leader].rack
        )
        return LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)

    def _newest(self, tp: TopicPartition) -> tuple[int, int]:
        """Leader and epoch, the newest known: a replica here hears of a new leader before the picture."""
        known = self._broker.metadata.partition(*tp)
        told = [(NO_LEADER, NO_EPOCH) if known is None else (known.leader, known.leader_epoch)]
        replica = self._broker.replicas.find(tp)
        if replica is not None:
            told += [(replica.leader_id, replica.leader_epoch), replica.successor]
        return max(told, key=lambda each: each[1])

"""Where the leader went (KIP-951), so that a client need not refresh its metadata to find out.

A hint is given only for errors that say "not here", and only if this broker knows a leader other than
itself; then the response also lists where that leader is reached on the client's listener.
"""

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.messages.common import LeaderIdAndEpoch, NodeEndpoint

if TYPE_CHECKING:
    from ..context import Broker

ELSEWHERE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class LeaderHints:
    """The hints of one response."""

    __slots__ = ("_broker", "_endpoints", "_listener")

    def __init__(self, broker: "Broker", listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        """The leaders named so far."""
        return list(self._endpoints.values())

    def leader_of(self, topic: str, partition: int, code: int) -> LeaderIdAndEpoch | None:
        """Who leads, if that is of use to a client that gets `code`."""
        if code not in ELSEWHERE:
            return None
        picture = self._broker.metadata
        known = picture.partition(topic, partition)
        if known is None or known.leader < 0 or known.leader == self._broker.id:
            return None
        address = picture.address(known.leader, self._listener)
        if address is None:
            return None
        self._endpoints[known.leader] = NodeEndpoint(
            node_id=known.leader,
            host=address.host,
            port=address.port,
            rack=picture.brokers[known.leader].rack,
        )
        return LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)

"""ElectLeaders 0-2: an administrator asks for preferred or unclean elections; forwarded to the controller.

v1 kind of election · v2 flexible. Left to others: who may lead, and all the rest (controller/).
"""

from typing import TYPE_CHECKING, Any

from ...protocol.apis import Api
from ...protocol.errors import ApiError
from ...protocol.messages.elections import (
    ElectionPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

TIMEOUT_MS_MAX = 300_000


async def elect(broker: "BrokerContext", exchange: Exchange, request: ElectLeadersRequest) -> Any:
    """Forwarded: only the controller knows which replica may lead."""
    timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
    return await broker.forwarder.submit(request, timeout_ms)


def refuse(request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    """The error for the whole response and at every partition: version 0 has only the latter."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=one.topic,
                partition_result=[
                    ElectionPartitionResult(
                        partition_id=number, error_code=error.code, error_message=error.message
                    )
                    for number in one.partitions
                ],
            )
            for one in request.topic_partitions or []
        ],
    )


HANDLERS = {Api.ELECT_LEADERS: HandlerEntry(elect, refuse)}

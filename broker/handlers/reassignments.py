"""AlterPartitionReassignments 0 and ListPartitionReassignments 0: forwarded to the controller.

Left to others: what may move where, and how (controller/).
"""

from typing import TYPE_CHECKING, Any

from ...protocol.apis import Api
from ...protocol.errors import ApiError
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ..network.exchange import Exchange, HandlerEntry
from .topics import TIMEOUT_MS_MAX

if TYPE_CHECKING:
    from ..context import BrokerContext


async def alter(
    broker: "BrokerContext", exchange: Exchange, request: AlterPartitionReassignmentsRequest
) -> Any:
    """Forwarded: only the controller knows which replicas there are."""
    return await broker.forwarder.submit(request, _timeout_ms(request))


async def list_ongoing(
    broker: "BrokerContext", exchange: Exchange, request: ListPartitionReassignmentsRequest
) -> Any:
    """Forwarded: only the controller knows what is moving."""
    return await broker.forwarder.submit(request, _timeout_ms(request))


def _timeout_ms(request: AlterPartitionReassignmentsRequest | ListPartitionReassignmentsRequest) -> int:
    return min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)


def refuse_alter(
    request: AlterPartitionReassignmentsRequest, error: ApiError
) -> AlterPartitionReassignmentsResponse:
    """The whole request is refused."""
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def refuse_list(
    request: ListPartitionReassignmentsRequest, error: ApiError
) -> ListPartitionReassignmentsResponse:
    """The whole request is refused."""
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


HANDLERS = {
    Api.ALTER_PARTITION_REASSIGNMENTS: HandlerEntry(alter, refuse_alter),
    Api.LIST_PARTITION_REASSIGNMENTS: HandlerEntry(list_ongoing, refuse_list),
}

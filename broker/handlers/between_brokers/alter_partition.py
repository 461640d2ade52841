"""AlterPartition 0-3, from leaders of Apache Kafka: the controller writes their new ISRs.

Left to others: what may be written (controller/requests/isr_changes.py).
"""

from typing import TYPE_CHECKING, Any

from ....protocol.apis import Api
from ....protocol.errors import ApiError
from ....protocol.messages.control import AlterPartitionRequest, AlterPartitionResponse
from ...network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ...context import BrokerContext


async def handle(broker: "BrokerContext", exchange: Exchange, request: AlterPartitionRequest) -> Any:
    """Only the controller answers: a leader that asks another broker looks for the controller anew."""
    return await broker.controller.ask(request)


def refuse(request: AlterPartitionRequest, error: ApiError) -> AlterPartitionResponse:
    """The whole request is refused."""
    return AlterPartitionResponse(error_code=error.code)


HANDLERS = {Api.ALTER_PARTITION: HandlerEntry(handle, refuse)}

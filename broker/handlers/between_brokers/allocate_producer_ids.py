"""AllocateProducerIds 0, from brokers of Apache Kafka: a block of producer ids.

Left to others: how blocks are reserved (zookeeper/producer_ids.py).
"""

from typing import TYPE_CHECKING, Any

from ....protocol.apis import Api
from ....protocol.errors import ApiError
from ....protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ...context import BrokerContext


async def handle(broker: "BrokerContext", exchange: Exchange, request: AllocateProducerIdsRequest) -> Any:
    """Only the controller answers."""
    return await broker.controller.ask(request)


def refuse(request: AllocateProducerIdsRequest, error: ApiError) -> AllocateProducerIdsResponse:
    """Only the error code."""
    return AllocateProducerIdsResponse(error_code=error.code)


HANDLERS = {Api.ALLOCATE_PRODUCER_IDS: HandlerEntry(handle, refuse)}

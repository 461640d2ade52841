"""ControlledShutdown 3, between brokers: a broker that is about to stop hands over its leaderships.

Left to others: what the controller does (controller/), what the broker does with the answer (shutdown.py).
"""

from typing import TYPE_CHECKING

from ....protocol.apis import Api
from ....protocol.errors import ApiError, NotController
from ....protocol.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from ...network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ...context import BrokerContext


async def handle(
    broker: "BrokerContext", exchange: Exchange, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """The partitions that the broker still leads."""
    if not broker.controller.active:
        raise NotController
    return await broker.controller.controlled_shutdown(request.broker_id, request.broker_epoch)


def refuse(request: ControlledShutdownRequest, error: ApiError) -> ControlledShutdownResponse:
    """Only the error code."""
    return ControlledShutdownResponse(error_code=error.code)


HANDLERS = {Api.CONTROLLED_SHUTDOWN: HandlerEntry(handle, refuse)}

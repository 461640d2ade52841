"""InitProducerId 0-4: an id for an idempotent producer.

v2 flexible · v3 the producer sends the id and epoch it has and gets the next epoch · v4 may answer
PRODUCER_FENCED
Transactions are not served: a transactional id is refused.
Left to others: where ids come from (producer_ids.py), deduplication (storage/log/producer_state.py).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, InvalidRequest, error_for
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

EPOCH_MAX = (1 << 15) - 1


async def handle(
    broker: "BrokerContext", exchange: Exchange, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id with epoch 0, or the next epoch of the id that the producer has."""
    if request.transactional_id is not None:
        raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequest("expected both a producer id and an epoch, or neither")
    if 0 <= request.producer_epoch < EPOCH_MAX - 1:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    return InitProducerIdResponse(producer_id=await broker.producer_ids.take(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, error: ApiError) -> InitProducerIdResponse:
    """No id, and the code."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


HANDLERS = {Api.INIT_PRODUCER_ID: HandlerEntry(handle, refuse)}

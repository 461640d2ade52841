"""InitProducerId 0-5: an id and an epoch for a producer.

v2 flexible · v3 the producer sends the id and epoch it has · v4 may answer PRODUCER_FENCED, older versions
INVALID_PRODUCER_EPOCH · v5 may answer TRANSACTION_ABORTABLE
With a transactional id its coordinator must be asked, who fences whoever had that id before, and gives the
next epoch to the one who has it. If a transaction has to end before that, the answer waits
(transactions/patience.py). Without one the answer is a new id, whatever the producer has.
Left to others: where ids come from (producer_ids.py), deduplication (storage/log/producer_state.py), who
may have a transactional id (transactions/transaction.py).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, InvalidRequest
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ..network.exchange import Exchange, HandlerEntry
from ..transactions.state import Answer, InitAsked, ProducerIdentity, Reply
from .transactions.patience import BEGIN_PATIENCE_S, Patient
from .transactions.progress import fit

if TYPE_CHECKING:
    from ..context import BrokerContext

NONE = -1
FENCED_SINCE = 4


async def handle(
    broker: "BrokerContext", exchange: Exchange, request: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    """A new id with epoch 0, or what the coordinator of the transactional id says."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise InvalidRequest("expected both a producer id and an epoch, or neither")
    if request.transactional_id is not None:
        await _init_transactional(broker, exchange, request, request.transactional_id)
        return None
    return InitProducerIdResponse(producer_id=await broker.producer_ids.take(), producer_epoch=0)


async def _init_transactional(
    broker: "BrokerContext", exchange: Exchange, request: InitProducerIdRequest, transactional_id: str
) -> None:
    """Parked until what is open has ended and the coordinator's record is committed."""
    has = ProducerIdentity(request.producer_id, request.producer_epoch)
    asked = InitAsked(request.transaction_timeout_ms, None if has.id == NONE else has)

    def answer(told: Answer) -> None:
        exchange.answer(
            InitProducerIdResponse(
                error_code=fit(told.error, exchange, FENCED_SINCE),
                producer_id=told.producer.id,
                producer_epoch=told.producer.epoch,
            )
        )

    def ask_again(answered: Reply) -> None:
        broker.transactions.init_again(transactional_id, asked, answered)

    patient = Patient(broker, exchange, transactional_id, ask_again, answer, BEGIN_PATIENCE_S)
    await broker.transactions.init(transactional_id, asked, patient.answered)


def refuse(request: InitProducerIdRequest, error: ApiError) -> InitProducerIdResponse:
    """No id, and the code."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


HANDLERS = {Api.INIT_PRODUCER_ID: HandlerEntry(handle, refuse)}

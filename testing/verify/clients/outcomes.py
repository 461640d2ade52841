"""How records and transactions of the bundled client end, noted: what its producers and copiers share."""

import asyncio
from collections.abc import Sequence

from ....client.producer.producer import Producer
from ....client.producer.transactions import TransactionAborted
from ....client.results import Receipt
from ....protocol.errors import ApiError, RequestTimedOut
from ...anomalies import Action, Record, Type
from .client import STOP, Client


async def settled(
    client: Client, records: Sequence[Record], sent: "Sequence[asyncio.Future[Receipt]]", number: int
) -> None:
    """Wait for all records of a transaction, and note what became of each."""
    for record, receipt in zip(records, await asyncio.gather(*sent, return_exceptions=True), strict=True):
        if isinstance(receipt, BaseException):
            client.notes.note(Type.INFO, Action.SEND, [record], transaction=number, error=repr(receipt))
        else:
            found = record._replace(offset=receipt.offset)
            client.notes.note(Type.OK, Action.SEND, [found], transaction=number)


async def end(client: Client, producer: Producer, number: int, commit: bool) -> bool:
    """Commit or abort; True if it was committed. Raises what ends the producer."""
    while commit:
        client.notes.note(Type.INVOKE, Action.COMMIT, transaction=number)
        try:
            await producer.commit()
            client.notes.note(Type.OK, Action.COMMIT, transaction=number)
            return True
        except RequestTimedOut as error:  # not known yet: to be asked again
            client.notes.note(Type.INFO, Action.COMMIT, transaction=number, error=repr(error))
            if STOP.is_set():
                raise
        except (ApiError, TransactionAborted) as error:
            client.notes.note(Type.INFO, Action.COMMIT, transaction=number, error=repr(error))
            break
    await abort(client, producer, number)
    return False


async def abort(client: Client, producer: Producer, number: int) -> None:
    """Abort, and note it."""
    client.notes.note(Type.INVOKE, Action.ABORT, transaction=number)
    await producer.abort()
    client.notes.note(Type.OK, Action.ABORT, transaction=number)


async def initialized(client: Client, producer: Producer) -> None:
    """Get the epoch of this life; all lives before are fenced."""
    client.notes.note(Type.INVOKE, Action.INIT)
    await producer.init_transactions()
    client.notes.note(Type.OK, Action.INIT)

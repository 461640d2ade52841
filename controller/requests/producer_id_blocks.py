"""AllocateProducerIds: brokers of Apache Kafka get their blocks of producer ids from the controller.

Left to others: how blocks are reserved (zookeeper/producer_ids.py), where our own brokers take theirs.
"""

from __future__ import annotations

import asyncio

from ...protocol.errors import CoordinatorNotAvailable, StaleBrokerEpoch
from ...protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...zookeeper.client import ZkError
from ...zookeeper.documents import BadDocument
from ...zookeeper.producer_ids import next_producer_ids
from .reach import Reach

ANSWER_S = 10.0


class ProducerIdBlocks:
    """Answers AllocateProducerIds during one term."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def allocate(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """A block that nobody else has. Raises StaleBrokerEpoch for an earlier start of the broker, and
        CoordinatorNotAvailable while ZooKeeper does not answer.
        """
        known = self._reach.state().brokers.get(request.broker_id)
        if known is None or known.epoch != request.broker_epoch:
            raise StaleBrokerEpoch(
                f"broker {request.broker_id} is not registered with broker epoch {request.broker_epoch}"
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                first, end = await next_producer_ids(self._reach.zk, request.broker_id)
        except (ZkError, BadDocument, TimeoutError) as error:
            raise CoordinatorNotAvailable(f"cannot allocate producer ids: {error}") from error
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=end - first)

"""Allocates producer ids from blocks of a thousand that are reserved in ZooKeeper for this broker.

A block is reserved before its first id is used, so no id is ever used twice. The rest of a block is lost when
the broker stops. Left to others: sequences and epochs of producers
(storage/log/producer_state.py).
"""

import asyncio

from ..base.types import BrokerId, ProducerId
from ..protocol.errors import CoordinatorNotAvailable
from ..zookeeper.client import ZkClient, ZkError
from ..zookeeper.documents import BadDocument
from ..zookeeper.producer_ids import next_producer_ids

BLOCK_TIMEOUT_S = 10.0


class ProducerIds:
    """The rest of this broker's block. One caller at a time fetches the next block, for all who wait. If that
    fails they all hear so: one after the other they would wait for as many deadlines.
    """

    def __init__(self, zk: ZkClient, broker: BrokerId) -> None:
        self._zk = zk
        self._broker = broker
        self._next = 0
        self._end = 0
        self._fetching = asyncio.Lock()
        self._failures = 0
        self._failure = ""

    async def take(self) -> ProducerId:
        """A new producer id. Raises CoordinatorNotAvailable while ZooKeeper cannot be reached."""
        while self._next >= self._end:
            before = self._failures
            async with self._fetching:
                if self._next >= self._end:
                    if self._failures != before:
                        raise CoordinatorNotAvailable(self._failure)
                    await self._fetch()
        taken = self._next
        self._next += 1
        return ProducerId(taken)

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(BLOCK_TIMEOUT_S):
                first, end = await next_producer_ids(self._zk, self._broker)
        except (ZkError, BadDocument, TimeoutError) as error:
            self._failures += 1
            self._failure = f"cannot allocate producer ids: {str(error) or type(error).__name__}"
            raise CoordinatorNotAvailable(self._failure) from error
        self._next, self._end = first, end

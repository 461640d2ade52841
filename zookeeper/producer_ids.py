"""Blocks of producer ids: each broker takes one on demand, and no id is ever given out twice.

Left to others: handing out the ids of a block (`broker/producer_ids.py`).
"""

from __future__ import annotations

from . import documents
from .client import MultiFailed, NoNode, SetData, ZkClient, ZkError
from .znodes import create_if_absent

PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = (1 << 63) - 1


async def next_producer_ids(zk: ZkClient, broker: int) -> tuple[int, int]:
    """Take a block of producer ids: first id, and one past the last. Lost answers leave gaps.

    Brokers of Apache Kafka make the node without content at their start. Raises ZkError, BadDocument.
    """
    while True:
        try:
            data, stat = await zk.get(documents.PRODUCER_IDS)
        except NoNode:
            nothing = documents.ProducerIdBlock(broker=broker, block_start="-1", block_end="-1")
            await create_if_absent(zk, documents.PRODUCER_IDS, nothing.data())
            continue
        first = int(documents.parse(documents.ProducerIdBlock, data).block_end) + 1 if data else 0
        last = first + PRODUCER_ID_BLOCK - 1
        if last > PRODUCER_ID_MAX:
            raise ZkError("no producer ids are left: all have been allocated")
        block = documents.ProducerIdBlock(broker=broker, block_start=str(first), block_end=str(last))
        try:
            await zk.multi([SetData(documents.PRODUCER_IDS, block.data(), stat.version)])
        except MultiFailed:
            continue  # another broker took this block
        return first, last + 1

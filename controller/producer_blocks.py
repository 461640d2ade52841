"""Blocks of producer ids: each broker takes one when it needs some, and no id is ever given out twice.

Left to others: handing out the ids of a block (`broker/producer_ids.py`).
"""

from __future__ import annotations

from . import documents as d
from .registry import MultiFailed, NoNode, Registry, RegistryError, SetData
from .znodes import create_if_absent

PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = (1 << 63) - 1


async def next_producer_ids(registry: Registry, broker: int) -> tuple[int, int]:
    """A block of producer ids of our own: first id, and one past the last. Lost answers leave gaps."""
    while True:
        try:
            data, stat = await registry.get(d.PRODUCER_IDS)
        except NoNode:
            nothing = d.ProducerIdBlock(broker=broker, block_start="-1", block_end="-1")
            await create_if_absent(registry, d.PRODUCER_IDS, nothing.data())
            continue
        first = int(d.parse(d.ProducerIdBlock, data).block_end) + 1
        last = first + PRODUCER_ID_BLOCK - 1
        if last > PRODUCER_ID_MAX:
            raise RegistryError("all producer ids have been given out")
        block = d.ProducerIdBlock(broker=broker, block_start=str(first), block_end=str(last))
        try:
            await registry.multi([SetData(d.PRODUCER_IDS, block.data(), stat.version)])
        except MultiFailed:
            continue  # another broker took this block
        return first, last + 1

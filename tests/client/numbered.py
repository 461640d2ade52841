"""Records whose values are numbers, so that a test sees at a glance which came, and in which order."""

import asyncio

from strandline.client import Consumer
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import Partition
from tests.patience import HANG_S


def fill(log: Partition, values: range, per_batch: int = 5) -> None:
    """These numbers, in batches of so many."""
    for first in values[::per_batch]:
        builder = BatchBuilder()
        for n in range(first, min(first + per_batch, values.stop)):
            builder.append(1000 + n, None, b"%d" % n)
        log.append(builder.build())


async def take(consumer: Consumer, count: int) -> list[int]:
    """The next so many, and none of the following."""
    found: list[int] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            found += [int(one.value) for one in await consumer.poll(50, max_records=count - len(found))]
    return found

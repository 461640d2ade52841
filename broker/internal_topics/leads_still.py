"""Whether this broker leads a partition still, where ZooKeeper says nothing of it, or its role is changing.

A change of roles is waited for: it may be that another broker leads, and has led for long. It takes a disk's
time, so not for ever.

Each other broker that must acknowledge what is written here has to fetch twice. The second fetch was sent
after the answer to the first, so after the question: who had gone over to a successor by then, or was it,
would not have sent it. One proves nothing, as it may have been on its way for long.
Why: docs/decisions/0067-a-coordinator-in-doubt-answers-nobody.md
"""

import asyncio
from typing import TYPE_CHECKING

from ..network.exchange import HELD_S_MAX

if TYPE_CHECKING:
    from ..replicas.partition import Partition

LOOK_EVERY_S = 0.05
FETCHES = 2


async def leads_still(partition: "Partition") -> bool:
    """Whether nobody else led the partition when this was called. False if that is not known in time."""
    time = partition.shared.loop.time
    deadline = time() + HELD_S_MAX
    while partition.changing and time() < deadline:
        await asyncio.sleep(LOOK_EVERY_S)
    leader = partition.leading
    if leader is None:
        return False
    deadline = time() + FETCHES * leader.options.silent_seconds_max
    for _ in range(FETCHES):
        since = time()
        while partition.is_in_doubt and not leader.all_fetched_since(since):
            if time() >= deadline:
                return False
            await asyncio.sleep(LOOK_EVERY_S)
    return partition.leading is leader

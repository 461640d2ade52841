"""A leader looks at a batch that a follower does not get past.

A follower checks what it is sent and writes nothing that is bad; it has no word in the protocol to say so,
but it asks again. If the batch is bad here, this replica is offline from now on, so that one that has good
bytes is elected, and nobody else is sent the bad ones.
Left to others: when to look (replication/leader.py), what an offline replica means (upkeep/disk_failures.py).
"""

import errno

import structlog

from ...base.types import Offset
from ...replication.leader import Leader
from ...storage.disk import LogDamaged, disk_error
from ...storage.segment.verify_batch import damage_at
from .partition import Partition

logger = structlog.get_logger(__name__)


async def check_batch(partition: Partition, leader: Leader, offset: Offset) -> None:
    """Read the batch that holds `offset` from the disk and check all of it."""
    each = partition.log
    generation, segments = each.generation, list(each.segments)
    loop = partition.host.loop
    try:
        wrong = await loop.run_in_executor(
            None, damage_at, segments, offset, each.end_offset, each.gaps_allowed
        )
    except FileNotFoundError:
        return  # retention has taken it meanwhile
    except OSError as error:
        if partition.leading is leader:
            partition.disk_failed(disk_error(each.directory, error))
        return
    unchanged = each.generation == generation and each.segments[: len(segments)] == segments
    if wrong and unchanged and partition.leading is leader:
        partition.disk_failed(LogDamaged(each.directory, OSError(errno.EIO, wrong)))
    elif not wrong:
        logger.info("batch_checked", partition=str(partition.tp), offset=offset)

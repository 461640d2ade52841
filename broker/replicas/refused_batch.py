"""A leader verifies a batch on disk when a follower keeps fetching it without getting past it.

A follower refuses a corrupt batch, but the protocol has no way to report that: it only fetches again. If the
batch is corrupt on the leader's disk, the leader's replica goes offline. Then a replica with good data is
elected, and nobody else gets the corrupt batch.
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
    """Read the batch that holds `offset` from disk and verify it."""
    each = partition.log
    generation, segments = each.generation, list(each.segments)
    loop = partition.shared.loop
    try:
        wrong = await loop.run_in_executor(
            None, damage_at, segments, offset, each.end_offset, each.gaps_allowed
        )
    except FileNotFoundError:
        return  # retention has removed it meanwhile
    except OSError as error:
        if partition.leading is leader:
            partition.disk_failed(disk_error(each.directory, error))
        return
    unchanged = each.generation == generation and each.segments[: len(segments)] == segments
    if wrong and unchanged and partition.leading is leader:
        partition.disk_failed(LogDamaged(each.directory, OSError(errno.EIO, wrong)))
    elif not wrong:
        logger.info("batch_checked", partition=str(partition.tp), offset=offset)

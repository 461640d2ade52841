"""What a follower checks in a run of batches before it writes them. Pure.

Offsets must rise. Gaps are allowed, as in Kafka: compaction may have left some in the leader's log, now or
before the topic's policy was changed, and only the leader can check them.
Left to others: fetching them (broker/follower/fetcher.py), writing them (log/log.py).
"""

from typing import NamedTuple

from ...protocol.batches import crc_ok, headers
from ...protocol.primitives import Buffer, Malformed
from .batch_walk import CorruptBatch, Placed


class NotNext(Exception):
    """Replicated batches begin before the end of this log."""


class ReplicatedRun(NamedTuple):
    """Batches to be appended, and whether offsets are missing before or between them."""

    batches: list[Placed]
    has_gaps: bool


def checked_run(records: Buffer, expected: int, epoch: int, epoch_max: int | None) -> ReplicatedRun:
    """The complete batches of `records`, if they continue a log that ends at `expected` with `epoch`.

    A batch cut short at the end is ignored: a fetch may end anywhere. Batches before a bad one are good. The
    next fetch then begins with the bad one and raises CorruptBatch or NotNext.
    """
    run: list[Placed] = []
    has_gaps = False
    try:
        for position, header in headers(records):
            base = header.base_offset
            if not crc_ok(records, position, header):
                raise CorruptBatch(f"the checksum of the batch at {base} does not match")
            if header.leader_epoch < epoch or (epoch_max is not None and header.leader_epoch > epoch_max):
                raise CorruptBatch(
                    f"the batch at {base} has leader epoch {header.leader_epoch} after {epoch}"
                )
            if base < expected:
                raise NotNext(f"received a batch at {base}: the log ends at {expected}")
            has_gaps = has_gaps or base > expected
            expected, epoch = header.next_offset, header.leader_epoch
            run.append((position, header))
    except (CorruptBatch, NotNext):
        if not run:
            raise
    except Malformed as error:
        if not run:
            raise CorruptBatch(str(error)) from error
    return ReplicatedRun(run, has_gaps)

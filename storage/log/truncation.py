"""What a truncation would remove from a log: which records, and where they are in which files.

Left to others: the truncation itself (log.py), where a copy is kept (storage/quarantine.py).
"""

from typing import NamedTuple

from .leader_epochs import EpochHistory
from .segments import Segments


class Leaving(NamedTuple):
    """The end of a log that would be removed, from `from_offset` on."""

    from_offset: int
    end_offset: int  # exclusive
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, first offset)
    files: tuple[tuple[str, int], ...]  # (path, position it is removed from)


def leaving(chain: Segments, epochs: EpochHistory, offset: int, end_offset: int) -> Leaving:
    """What a truncation to `offset` would remove from a log that ends at `end_offset`. Raises DiskError."""
    with chain.guarded():
        end = chain.boundary_before(offset)
        files = chain.leaving(end)
    going = EpochHistory(epochs.entries)
    going.truncate_from_start(end)
    return Leaving(end, end_offset, tuple(going.entries), tuple(files))

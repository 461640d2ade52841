"""What a truncation would remove from a log: which records, and where they are in which files.

Left to others: the truncation itself (log.py), where a copy is kept (storage/quarantine.py).
"""

from typing import NamedTuple


class Leaving(NamedTuple):
    """The end of a log that would be removed, from `from_offset` on."""

    from_offset: int
    end_offset: int  # exclusive
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, first offset)
    files: tuple[tuple[str, int], ...]  # (path, position it is removed from)

"""What a cut would take out of a log: which records, and where they stand in which files.

Left to others: the cut itself (log.py), where its copy is kept (storage/quarantine.py).
"""

from typing import NamedTuple


class Leaving(NamedTuple):
    """The end of a log, from `from_offset` on."""

    from_offset: int
    end_offset: int  # exclusive
    epochs: tuple[tuple[int, int], ...]  # (leader epoch, first offset)
    files: tuple[tuple[str, int], ...]  # (path, position from which on it goes)

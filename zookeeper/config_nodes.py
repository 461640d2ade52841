"""Overrides: what a config znode says, and which of two readings of it is the newer one.

A znode's birth (czxid) and data version order all that ever stood at its path, also across deletion and
creation. So a reading that comes late, by whatever way, never replaces a newer one.
Left to others: which settings there are and what they mean (storage/config.py, broker/config/broker.py).
Why: docs/decisions/0033-settings-have-an-edition.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import documents
from .client import NoNode, ZkClient

UNKNOWN = -1  # as a birth and as a version: of a node that is not there, or was not told


class Overrides(NamedTuple):
    """Settings by name, with the place of the reading in the history of its znode."""

    names: Mapping[str, str]
    born: int = UNKNOWN
    version: int = UNKNOWN

    @property
    def edition(self) -> tuple[int, int]:
        """Greater is newer."""
        return self.born, self.version

    @property
    def exists(self) -> bool:
        """Whether there was such a znode."""
        return self.version != UNKNOWN


NOTHING = Overrides({})


async def read_overrides(registry: ZkClient, path: str) -> Overrides:
    """What stands there, NOTHING without a node. Raises `BadDocument`."""
    try:
        data, stat = await registry.get(path)
    except NoNode:
        return NOTHING
    return Overrides(documents.parse(documents.ConfigDocument, data).config, stat.czxid, stat.version)

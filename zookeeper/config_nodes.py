"""Overrides: the content of a config znode, and which of two reads of it is newer.

A znode's creation (czxid) and data version order everything that was ever at its path, even across deletion
and creation. So a read that arrives late, in whatever way, never replaces a newer one.
Left to others: which settings there are and what they mean (storage/config.py, broker/config/broker.py).
Why: docs/decisions/0033-settings-have-an-edition.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import documents
from .client import NoNode, Stat, ZkClient

UNKNOWN = -1  # czxid and version of a node that does not exist, or when they were not given
VERSION_MAX = (1 << 31) - 1


class Overrides(NamedTuple):
    """Settings by name, with the place of the read in the history of its znode."""

    names: Mapping[str, str]
    born: int = UNKNOWN
    version: int = UNKNOWN

    @property
    def edition(self) -> tuple[int, int]:
        """Greater is newer."""
        return self.born, self.version

    @property
    def exists(self) -> bool:
        """Whether the znode existed."""
        return self.version != UNKNOWN

    def voided(self) -> Overrides:
        """Nothing, and newer than all that was ever in this node: it is gone."""
        return Overrides({}, self.born, VERSION_MAX)


NOTHING = Overrides({})


async def read_overrides(zk: ZkClient, path: str) -> Overrides:
    """The overrides at `path`, NOTHING without a node. Raises `BadDocument`."""
    try:
        data, stat = await zk.get(path)
    except NoNode:
        return NOTHING
    return overrides_in(data, stat)


def overrides_in(data: bytes, stat: Stat) -> Overrides:
    """The overrides that a node holds. Raises `BadDocument`."""
    return Overrides(documents.parse(documents.ConfigDocument, data).config, stat.czxid, stat.version)

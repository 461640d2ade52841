"""Overrides: the content of a config znode, and which of two reads of it is newer.

A znode's creation (czxid) and data version order everything that was ever at its path, even across deletion
and creation. So a read that arrives late, in whatever way, never replaces a newer one.
A tool may have written a setting that no string of the protocol can hold. It is as if it were not there:
nobody could be told of it, nor, in the same message, of anything else.
Left to others: which settings there are and what they mean (storage/config.py, broker/config/broker.py).
Why: docs/decisions/0033-settings-have-an-edition.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from ..protocol.decoder import TEXT_MAX
from . import documents
from .client import NoNode, Stat, ZkClient

logger = structlog.get_logger(__name__)

UNKNOWN = -1  # czxid and version of a node that does not exist, or when they were not given
VERSION_MAX = (1 << 31) - 1
NAME_SHOWN_MAX = 100


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


async def read_overrides(zk: ZkClient, path: str, *, whole: bool = False) -> Overrides:
    """The overrides at `path`, NOTHING without a node. `whole`: with those that are too long, for whoever
    writes the node again. Raises `BadDocument`.
    """
    try:
        data, stat = await zk.get(path)
    except NoNode:
        return NOTHING
    return overrides_in(data, stat, path, whole=whole)


def overrides_in(data: bytes, stat: Stat, path: str, *, whole: bool = False) -> Overrides:
    """The overrides that the node `path` holds. Raises `BadDocument`."""
    found: Mapping[str, str] = documents.parse(documents.ConfigDocument, data).config
    if not whole and not all(fits(name) and fits(text) for name, text in found.items()):
        found = {name: text for name, text in found.items() if _may_be_told(path, name, text)}
    return Overrides(found, stat.czxid, stat.version)


def fits(text: str) -> bool:
    """Whether it is a string that the protocol can hold."""
    return len(text) * 4 <= TEXT_MAX or len(text.encode()) <= TEXT_MAX  # a character has four bytes at most


def _may_be_told(path: str, name: str, text: str) -> bool:
    told = fits(name) and fits(text)
    if not told:
        reason = f"no string of the protocol has more than {TEXT_MAX} bytes"
        entity = path.removeprefix("/config/")
        logger.error("config_ignored", entity=entity, name=name[:NAME_SHOWN_MAX], reason=reason)
    return told

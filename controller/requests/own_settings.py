"""Settings of a broker that it writes itself, because the controller is one of Apache Kafka.

Our controllers write settings for everybody. Kafka's refuse those of another broker ("Unexpected broker id"):
each of its brokers writes its own. The write is conditional, as ever, but has no controller's fence.
Left to others: what an alteration does (config_changes.py), the other settings (configs.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from ...zookeeper import documents
from ...zookeeper.client import MultiFailed, NoNode, Unknown, ZkClient
from ...zookeeper.config_nodes import read_overrides
from .config_changes import Alteration, Catalogue
from .configs import RETRY_S, WRITE_MS, ops_of, settings_of
from .deadlines import by, deadline_in

logger = structlog.get_logger(__name__)


async def alter_own(zk: ZkClient, catalogue: Catalogue, wanted: Alteration, validate_only: bool) -> None:
    """Check, write and announce. Raises ApiError."""
    await by(deadline_in(WRITE_MS), _write(zk, catalogue, wanted, validate_only))


async def _write(zk: ZkClient, catalogue: Catalogue, wanted: Alteration, validate_only: bool) -> None:
    while True:
        try:
            found = await read_overrides(zk, wanted.path, whole=True)
            settings = settings_of(catalogue, wanted, found.names, await _registered(zk))
            if validate_only:
                return
            await zk.multi(ops_of(wanted, found, settings))
        except Unknown:  # it may have landed, or may yet: the same again changes nothing more
            await asyncio.sleep(RETRY_S)
        except MultiFailed:  # another client was quicker
            continue
        else:
            logger.info("configs_altered", entity=wanted.entity, settings=wanted.changed)
            return


async def _registered(zk: ZkClient) -> dict[int, list[documents.Endpoint]]:
    """Where the brokers are reached that run now, as far as their nodes can be read."""
    found = {}
    for name in await zk.children(documents.BROKER_IDS):
        with suppress(NoNode, documents.BadDocument):
            data, _ = await zk.get(documents.broker_path(int(name)))
            found[int(name)] = documents.parse(documents.RegistrationDocument, data).listeners()
    return found

"""Reads what Kafka keeps in ZooKeeper and its brokers do not tell: quotas, ACLs, passwords, tokens, what a
quorum of controllers (KRaft) has left there, and which nodes not everybody may write.

Nothing is written. A node that is not there has nothing; one that may not be read is listed.
Left to others: what follows from it (checks_settings.py, checks_security.py, checks_state.py).
"""

import asyncio
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from pydantic import Field

from ....base.types import TopicPartition
from ....zookeeper import documents
from ....zookeeper.client import NoNode, ZkClient, ZkError
from ....zookeeper.documents import BadDocument, Document, parse
from ....zookeeper.kazoo_client import KazooZkClient
from ..ask_zookeeper import SESSION_MS
from .facts import OF_ALL, Registered, Settings, Znodes

USERS, CLIENTS, IPS = "/config/users", "/config/clients", "/config/ips"
ACLS = "/kafka-acl"
ACLS_OF_PATTERNS = "/kafka-acl-extended"
TOKENS = "/delegation_token/tokens"
MIGRATION = "/migration"
FEATURE = "/feature"
SCRAM = "SCRAM-"
NODES_AT_ONCE = 100

D = TypeVar("D", bound=Document)


class Nodes(ZkClient, Protocol):
    """A session that also knows of a node's ACL."""

    async def is_open(self, path: str) -> bool:
        """Whether everybody may do everything with it. Raises ZkError."""


class QuorumDocument(Document):
    """`/migration`: how far a quorum of controllers has taken over what is in ZooKeeper."""

    kraft_controller_id: int = -1


class OwnedControllerDocument(Document):
    """`/controller`, version 2: the epoch of a quorum that owns it, -1 if there is none."""

    brokerid: int
    quorum_epoch: int | None = Field(-1, alias="kraftControllerEpoch")


class FeatureDocument(Document):
    """`/feature`: features that are finalized; without a quorum there are none."""

    features: dict[str, Any] = Field(default_factory=dict)


async def ask_znodes(hosts: str, wait_s: float) -> Znodes:
    """All of it, in one session. Raises ZkUnreachable."""
    zk = KazooZkClient(hosts, SESSION_MS, connect_timeout_s=wait_s, request_timeout_s=wait_s)
    await zk.start()
    try:
        return await Reading(zk).all()
    finally:
        await zk.close()


class Reading:
    """Reads the nodes one after another, and notes what cannot be read."""

    def __init__(self, zk: Nodes) -> None:
        self._zk = zk
        self._unreadable: dict[str, str] = {}

    async def all(self) -> Znodes:
        """Everything that the checks ask for."""
        users = await self._configs(USERS)
        quotas: dict[str, Settings] = {}
        for user, of_user in users.items():
            quotas[f"user {unquote(user)}"] = _quotas(of_user)
            for client, found in (await self._configs(f"{USERS}/{user}/clients")).items():
                quotas[f"user {unquote(user)}, client {unquote(client)}"] = found
        for kind, path in (("client", CLIENTS), ("ip", IPS)):
            for name, found in (await self._configs(path)).items():
                quotas[f"{kind} {unquote(name)}"] = found
        dynamic = await self._configs(documents.BROKER_CONFIGS)
        return Znodes(
            await self._brokers(),
            {OF_ALL if id == documents.ALL_BROKERS else id: found for id, found in dynamic.items() if found},
            {name: found for name, found in quotas.items() if found},
            tuple(unquote(user) for user, found in users.items() if any(map(_is_password, found))),
            await self._acls(),
            len(await self._children(TOKENS)),
            await self._quorum(),
            await self._features(),
            await self._pending(),
            self._unreadable,
            await self._guarded(),
            tuple(await self._children(documents.TOPICS)),
        )

    async def _brokers(self) -> dict[int, Registered]:
        found = {}
        for name in await self._children(documents.BROKER_IDS):
            one = await self._document(documents.RegistrationDocument, f"{documents.BROKER_IDS}/{name}")
            if one is not None and name.isdigit():
                listeners = [endpoint.partition("://")[0] for endpoint in one.endpoints]
                protocols = {each: one.listener_security_protocol_map.get(each, each) for each in listeners}
                found[int(name)] = Registered(protocols, one.rack, one.is_kafkas)
        return found

    async def _configs(self, path: str) -> dict[str, Settings]:
        """The settings in each node below `path`, by its name, which is quoted."""
        names = await self._children(path)
        found: dict[str, Settings] = {}
        for at in range(0, len(names), NODES_AT_ONCE):
            some = names[at : at + NODES_AT_ONCE]
            read = await asyncio.gather(
                *(self._document(documents.ConfigDocument, f"{path}/{name}") for name in some)
            )
            found |= {
                name: one.config if one is not None else {} for name, one in zip(some, read, strict=True)
            }
        return found

    async def _acls(self) -> tuple[str, ...]:
        """Each resource that has ACLs, as its type and its name."""
        found = []
        kinds = [(ACLS, "")]
        kinds += [(f"{ACLS_OF_PATTERNS}/{each}", "*") for each in await self._children(ACLS_OF_PATTERNS)]
        for folder, star in kinds:
            for kind in await self._children(folder):
                for name in await self._children(f"{folder}/{kind}"):
                    found.append(f"{kind} {name}{star}")
        return tuple(sorted(found))

    async def _quorum(self) -> str | None:
        owner = await self._document(OwnedControllerDocument, documents.CONTROLLER)
        if owner is not None and owner.quorum_epoch is not None and owner.quorum_epoch >= 0:
            return f"controller {owner.brokerid} of a quorum holds {documents.CONTROLLER}"
        begun = await self._document(QuorumDocument, MIGRATION)
        if begun is not None and begun.kraft_controller_id >= 0:
            return f"controller {begun.kraft_controller_id} of a quorum has written {MIGRATION}"
        return None

    async def _features(self) -> tuple[str, ...]:
        found = await self._document(FeatureDocument, FEATURE)
        return () if found is None else tuple(sorted(found.features))

    async def _pending(self) -> tuple[str, ...]:
        """What was asked of the controller by a node, which it removes when that is done."""
        found = []
        for path in (documents.REASSIGN_PARTITIONS, documents.PREFERRED_ELECTION):
            if await self._get(path) is not None:
                found.append(path)
        deleted = await self._children(documents.DELETE_TOPICS)
        return (*found, *(f"{documents.DELETE_TOPICS}/{name}" for name in deleted))

    async def _guarded(self) -> tuple[str, ...]:
        """Of the nodes that brokers of ours write, those with which not everybody may do everything. Kafka
        gives an ACL to what it makes while zookeeper.set.acl holds: each topic may differ.
        """
        paths = ["/", *documents.PERSISTENT_PATHS, documents.CONTROLLER_EPOCH, documents.PRODUCER_IDS]
        for topic in await self._children(documents.TOPICS):
            paths += (documents.topic_path(topic), documents.topic_config_path(topic))
            paths.append(documents.state_path(TopicPartition(topic, 0)))
        found = []
        for at in range(0, len(paths), NODES_AT_ONCE):
            some = paths[at : at + NODES_AT_ONCE]
            opens = await asyncio.gather(*map(self._is_open, some))
            found += [path for path, is_open in zip(some, opens, strict=True) if not is_open]
        return tuple(found)

    async def _is_open(self, path: str) -> bool:
        """True also of what is not there, or does not tell: that is listed."""
        try:
            return await self._zk.is_open(path)
        except NoNode:
            pass
        except (ZkError, TimeoutError) as error:
            self._unreadable[path] = str(error) or type(error).__name__
        return True

    # --- single nodes ------------------------------------------------------------------------------

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self._zk.children(path))
        except NoNode:
            return []
        except (ZkError, TimeoutError) as error:
            self._unreadable[path] = str(error) or type(error).__name__
            return []

    async def _get(self, path: str) -> bytes | None:
        try:
            data, _ = await self._zk.get(path)
        except NoNode:
            return None
        except (ZkError, TimeoutError) as error:
            self._unreadable[path] = str(error) or type(error).__name__
            return None
        return data

    async def _document(self, kind: type[D], path: str) -> D | None:
        """None if there is no node, or an empty one."""
        data = await self._get(path)
        if not data:
            return None
        try:
            return parse(kind, data)
        except BadDocument as bad:
            self._unreadable[path] = str(bad)
            return None


def _is_password(name: str) -> bool:
    return name.startswith(SCRAM)


def _quotas(found: Settings) -> Settings:
    return {name: value for name, value in found.items() if not _is_password(name)}

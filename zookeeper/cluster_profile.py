"""All brokers of a cluster keep to one semantics profile: `/cluster/id` names it, registrations bear it out.

A broker that starts holds its profile against the node, and registers on condition that the node is still
the same. So of two that start at once under different profiles one is refused, and an ordinary start asks
nothing more than before. If the profiles differ, whoever is registered decides; if nobody is, or nobody
under another profile, the node takes over the one that starts: a stopped cluster may change its profile.
A registration that names no profile, of an earlier version or of Kafka, is not held against anybody.
Left to others: what a profile is (replication/profiles.py), registering (znodes.py), how long to wait
(broker/registration.py).
Why: docs/decisions/0044-one-profile-for-all-brokers.md
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from . import documents
from .client import Check, MultiFailed, NoNode, SetData, ZkClient
from .znodes import create_if_absent


class ProfileDiffers(Exception):
    """Another registered broker runs under another profile."""

    def __init__(self, broker: int, profile: str) -> None:
        super().__init__(f"broker {broker} runs under {profile}")
        self.broker = broker
        self.profile = profile


class Agreement(NamedTuple):
    """`/cluster/id`: which cluster this is, under which profile, and the version in which it was read."""

    document: documents.ClusterIdDocument
    version: int

    @property
    def unchanged(self) -> Check:
        """The condition of a registration."""
        return Check(documents.CLUSTER_ID, self.version)


async def read_agreement(registry: ZkClient, random_bytes: bytes, profile: str) -> Agreement:
    """What holds in this cluster; its id is made from 16 random bytes by whoever comes first."""
    proposal = documents.ClusterIdDocument(
        id=documents.uuid_to_text(UUID(bytes=random_bytes)), profile=profile
    )
    await create_if_absent(registry, "/cluster", b"")
    await create_if_absent(registry, documents.CLUSTER_ID, proposal.data())
    return await _read(registry)


async def agree(registry: ZkClient, broker: int, profile: str) -> Agreement:
    """The agreement, once it names `profile`. Raises ProfileDiffers while a registered broker has another.

    The registrations are looked at before the node is written, for most who ask are wrong, and after it:
    from then on nobody registers on the word of the old one.
    """
    await _look_at_others(registry, broker, profile)
    while True:
        known = await _read(registry)
        if known.document.profile == profile:
            break
        changed = known.document.model_copy(update={"profile": profile})
        try:
            await registry.multi([SetData(documents.CLUSTER_ID, changed.data(), known.version)])
        except MultiFailed:
            continue  # somebody else starts just now
    await _look_at_others(registry, broker, profile)
    return known


async def _read(registry: ZkClient) -> Agreement:
    data, stat = await registry.get(documents.CLUSTER_ID)
    return Agreement(documents.parse(documents.ClusterIdDocument, data), stat.version)


async def _look_at_others(registry: ZkClient, broker: int, profile: str) -> None:
    for name in await registry.children(documents.BROKER_IDS):
        if not name.isdigit() or int(name) == broker:
            continue
        try:
            data, _ = await registry.get(documents.broker_path(int(name)))
            theirs = documents.parse(documents.RegistrationDocument, data).profile
        except (NoNode, documents.BadDocument):
            continue
        if theirs not in (None, profile):
            raise ProfileDiffers(int(name), theirs)

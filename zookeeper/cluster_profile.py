"""One semantics profile for all brokers of a cluster: `/cluster/id` names it, and so does each registration.

A starting broker compares its profile with the node, and registers on condition that the node is unchanged.
So if two start at once with different profiles, one is refused; an ordinary start costs no extra request.
If the profiles differ, the registered brokers decide. If none is registered with another profile, the node
takes the starting broker's: a stopped cluster may change its profile. A registration without a profile, from
an earlier version or from Kafka, does not count.
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
    """Another registered broker has another profile."""

    def __init__(self, broker: int, profile: str) -> None:
        super().__init__(f"broker {broker} runs under {profile}")
        self.broker = broker
        self.profile = profile


class Agreement(NamedTuple):
    """`/cluster/id`: the cluster's id and profile, and the node's version when it was read."""

    document: documents.ClusterIdDocument
    version: int

    @property
    def unchanged(self) -> Check:
        """The condition of a registration."""
        return Check(documents.CLUSTER_ID, self.version)


async def read_agreement(zk: ZkClient, random_bytes: bytes, profile: str) -> Agreement:
    """The cluster's agreement; the first broker makes its id from 16 random bytes."""
    proposal = documents.ClusterIdDocument(
        id=documents.uuid_to_text(UUID(bytes=random_bytes)), profile=profile
    )
    await create_if_absent(zk, "/cluster", b"")
    await create_if_absent(zk, documents.CLUSTER_ID, proposal.data())
    return await _read(zk)


async def agree(zk: ZkClient, broker: int, profile: str) -> Agreement:
    """The agreement, once it names `profile`. Raises ProfileDiffers while a registered broker has another.

    The registrations are checked before the node is written, because usually the caller has the wrong
    profile, and again afterwards, because from then on nobody can register under the old one.
    """
    await _look_at_others(zk, broker, profile)
    while True:
        known = await _read(zk)
        if known.document.profile == profile:
            break
        changed = known.document.model_copy(update={"profile": profile})
        try:
            await zk.multi([SetData(documents.CLUSTER_ID, changed.data(), known.version)])
        except MultiFailed:
            continue  # another broker is starting at the same time
    await _look_at_others(zk, broker, profile)
    return known


async def _read(zk: ZkClient) -> Agreement:
    data, stat = await zk.get(documents.CLUSTER_ID)
    return Agreement(documents.parse(documents.ClusterIdDocument, data), stat.version)


async def _look_at_others(zk: ZkClient, broker: int, profile: str) -> None:
    for name in await zk.children(documents.BROKER_IDS):
        if not name.isdigit() or int(name) == broker:
            continue
        try:
            data, _ = await zk.get(documents.broker_path(int(name)))
            theirs = documents.parse(documents.RegistrationDocument, data).profile
        except (NoNode, documents.BadDocument):
            continue
        if theirs not in (None, profile):
            raise ProfileDiffers(int(name), theirs)

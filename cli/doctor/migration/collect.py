"""Collects the facts before a move: what the doctor sees of any cluster, and then what only a move asks for.

What cannot be seen is listed as such, and keeps nothing else from being looked at.
Left to others: what each part asks (the files ask_*.py), what follows (checks_*.py).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....base.types import TopicPartition
from ....protocol.errors import ApiError, ClusterAuthorizationFailed
from ....zookeeper.client import ZkUnreachable
from ..ask_zookeeper import servers_of
from ..collect import Wishes, collect
from ..facts import Facts, PartitionFacts, Reach
from ..findings import plural
from ..probe import Failed, Probe, place_of
from .ask_cluster import ask_broker_settings, ask_heads, ask_topic_settings
from .ask_files import look_into, read_config
from .ask_znodes import ask_znodes
from .facts import Directory, Head, MigrationFacts, Settings, Znodes

PARTITIONS_MAX = 5_000
"""Of so many partitions the first batch is fetched: each may be a megabyte."""

CLIENTS = (
    "the versions of requests that clients use: brokers do not tell them; docs/protocol.md has those that "
    "are served, which all clients since Kafka 0.11 know"
)


@dataclass(frozen=True, slots=True)
class Places:
    """What is on this machine: configuration files of brokers, log directories."""

    configs: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()


async def collect_migration(wishes: Wishes, places: Places) -> MigrationFacts:
    """All facts that can be seen from here. Raises WrongUsage if a file that was named cannot be read."""
    files = {str(path): read_config(path) for path in places.configs}
    directories: tuple[Directory, ...] = tuple(
        [await asyncio.to_thread(look_into, path) for path in places.directories]
    )
    cluster = await collect(wishes)
    not_seen: list[str] = []
    probes = await _probes(cluster, wishes.wait_s)
    try:
        settings, denied = await _settings(cluster, probes, not_seen)
        topics = await _topics(cluster, probes, not_seen)
        heads = await _heads(cluster, probes, not_seen)
    finally:
        await asyncio.gather(*(probe.close() for probe in probes.values()))
    znodes = await _znodes(cluster, wishes.wait_s, not_seen)
    if not directories:
        not_seen.append("segments after the first of each log: give the log directories here with --log-dir")
    if cluster.live:
        not_seen.append(CLIENTS)
    return MigrationFacts(
        cluster, {**settings, **files}, topics, heads, znodes, directories, tuple(not_seen), denied
    )


async def _probes(cluster: Facts, wait_s: float) -> dict[int, Probe]:
    """A connection to each broker that answers at the address that it advertises."""
    found = {}
    for id, broker in cluster.live.items():
        place = place_of(broker.dial.address)
        if place is None or broker.dial.broker not in (None, id):
            continue
        try:
            found[id] = await Probe.opened(place, wait_s)
        except Failed:
            continue  # it answered a moment ago; what it would have been asked is listed as not seen
    return found


async def _settings(
    cluster: Facts, probes: Mapping[int, Probe], not_seen: list[str]
) -> tuple[dict[str, Settings], tuple[int, ...]]:
    """Those of Kafka's brokers, for ours were started with theirs; and the brokers that give us no right to
    them.
    """
    found: dict[str, Settings] = {}
    denied = []
    for id, broker in cluster.brokers.items():
        if broker.is_strandline:
            continue
        try:
            if id not in probes:
                raise OSError("it does not answer")
            found[f"broker {id}"] = await ask_broker_settings(probes[id], id)
        except (OSError, ApiError) as error:
            not_seen.append(f"settings of broker {id}: {error}; give its file here with --config")
            if isinstance(error, ClusterAuthorizationFailed):
                denied.append(id)
    return found, tuple(denied)


async def _topics(
    cluster: Facts, probes: Mapping[int, Probe], not_seen: list[str]
) -> Mapping[str, Settings] | None:
    for id in sorted(probes):
        try:
            return await ask_topic_settings(probes[id], cluster.topics)
        except (OSError, ApiError) as error:
            not_seen.append(f"settings of topics: broker {id}: {error}")
    return None


async def _heads(
    cluster: Facts, probes: Mapping[int, Probe], not_seen: list[str]
) -> Mapping[TopicPartition, Head] | None:
    if not probes:
        return None
    led: dict[TopicPartition, PartitionFacts] = {
        tp: one for tp, one in sorted(cluster.partitions().items()) if not one.offline
    }
    wanted = dict(list(led.items())[:PARTITIONS_MAX])
    heads, silent = await ask_heads(probes, wanted)
    if silent:
        not_seen.append(f"formats of {plural(len(silent), 'partition')}: their leaders do not answer")
    if len(led) > len(wanted):
        not_seen.append(
            f"formats of {plural(len(led) - len(wanted), 'partition')}: {PARTITIONS_MAX:,} are looked at"
        )
    return heads


async def _znodes(cluster: Facts, wait_s: float, not_seen: list[str]) -> Znodes | None:
    zookeeper = cluster.zookeeper
    reached = [one.address for one in zookeeper.servers if one.reach is Reach.ANSWERS] if zookeeper else []
    if zookeeper is not None and reached and zookeeper.session is None:
        try:
            return await ask_znodes(",".join(reached) + servers_of(zookeeper.connect)[1], wait_s)
        except ZkUnreachable as error:
            not_seen.append(f"quotas, ACLs, settings made while running: {error}")
            return None
    not_seen.append("quotas, ACLs, settings made while running: there is no session of ZooKeeper from here")
    return None

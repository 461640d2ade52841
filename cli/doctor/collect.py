"""Collects the facts: bootstrap servers, then every broker where it says it is, then the rest side by side.

Every wait has a deadline, and nothing depends on a broker that does not answer: what cannot be seen is listed
as such.
Left to others: what each part asks (the files ask_*.py), what follows (checks_*.py).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...base.types import TopicPartition
from ...local.members import seen_from
from ...protocol.errors import ApiError
from ...protocol.messages.metadata import MetadataRequest, MetadataResponse
from .ask_broker import Asked, ask_broker, dial, opinion_of
from .ask_groups import ask_groups, watch
from .ask_topics import ask_moves, ask_topics, ask_why, worth_explaining
from .ask_transactions import ask_transactions
from .ask_zookeeper import ask_zookeeper, servers_of
from .checks_groups import held_back
from .facts import BrokerFacts, Dial, Facts, LocalProcess, Reach, TopicFacts, ZkFacts
from .local_brokers import local_processes
from .probe import Failed, Place, Probe, address_of, place_of

SETTLE_S = 1.0  # after which views that differ are asked for again: announcements take a moment
LISTENERS_MAX = 50


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for. `wait_s` bounds every single answer, `watch_s` the watching of groups."""

    bootstrap: tuple[Place, ...]
    wait_s: float = 3.0
    watch_s: float = 6.0
    zookeeper: str | None = None
    directory: Path | None = None


async def collect(wishes: Wishes) -> Facts:
    """All facts that can be seen from here."""
    dials, answers = await _bootstrap(wishes)
    local, local_zookeeper = _local(wishes, dials)
    if not answers:
        connect = wishes.zookeeper or local_zookeeper
        zookeeper = await ask_zookeeper(connect, wishes.wait_s) if connect else None
        not_seen = ["everything else: no bootstrap server answers"]
        return Facts(dials, zookeeper=zookeeper, local=local, not_seen=tuple(not_seen))
    places: dict[int, Place] = {}
    for told in answers:
        places |= {one.node_id: (one.host, one.port) for one in told.brokers}
    asked = dict(
        zip(
            sorted(places),
            await asyncio.gather(*(ask_broker(id, places[id], wishes.wait_s) for id in sorted(places))),
            strict=True,
        )
    )
    try:
        return await _rest(wishes, dials, answers, asked, local)
    finally:
        await asyncio.gather(*(one.probe.close() for one in asked.values() if one.probe is not None))


async def _bootstrap(wishes: Wishes) -> tuple[tuple[Dial, ...], list[MetadataResponse]]:
    """Each bootstrap server, and the brokers that those that answer tell of."""

    async def ask(place: Place) -> tuple[Dial, MetadataResponse | None]:
        address = address_of(*place)
        try:
            probe = await Probe.opened(place, wishes.wait_s)
        except Failed as failure:
            return failure.dial(address), None
        try:
            told = await probe.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        except (OSError, ApiError) as error:
            return Dial(address, Reach.SILENT, f"Metadata: {error}", probe.ips), None
        finally:
            await probe.close()
        return Dial(address, Reach.ANSWERS, "", probe.ips, None, told.cluster_id, probe.took_s), told

    found = await asyncio.gather(*map(ask, wishes.bootstrap))
    return tuple(one for one, _ in found), [told for _, told in found if told is not None]


def _local(wishes: Wishes, dials: tuple[Dial, ...]) -> tuple[Mapping[int, LocalProcess], str | None]:
    """The processes and the ZooKeeper of `strandline up`, if this is its cluster."""
    if wishes.directory is None:
        return {}, None
    addresses = [dial.address.replace("localhost", "127.0.0.1") for dial in dials]
    cluster = seen_from(wishes.directory, addresses)
    return ({}, None) if cluster is None else (local_processes(cluster), cluster.zookeeper)


async def _rest(
    wishes: Wishes,
    dials: tuple[Dial, ...],
    answers: list[MetadataResponse],
    asked: Mapping[int, Asked],
    local: Mapping[int, LocalProcess],
) -> Facts:
    # a broker that answers where another one should be would be asked for what it does not have
    live = {
        id: one
        for id, one in asked.items()
        if one.probe is not None and one.dial.broker in (None, id) and one.metadata is not None
    }
    await _settle(live)
    named = named_by_brokers(asked.values())
    zookeeper_at = wishes.zookeeper or (None if named is None or is_elsewhere(named, dials) else named)
    (topics, moving), zookeeper, groups = await asyncio.gather(
        _topics(live),
        _zookeeper(zookeeper_at, wishes.wait_s),
        ask_groups(live.values()),
    )
    evidence, samples, listeners = await asyncio.gather(
        ask_why(worth_explaining(topics), asked.values(), wishes.wait_s),
        watch(groups, topics, live, wishes.watch_s),
        _listeners(zookeeper, asked, wishes.wait_s),
    )
    transactions = await ask_transactions(held_back(samples[0], samples[-1]), topics, live)
    brokers = {id: replace(one.facts(), listeners=listeners.get(id, {})) for id, one in asked.items()}
    return Facts(
        dials,
        brokers,
        topics,
        moving,
        evidence,
        groups,
        samples,
        transactions,
        zookeeper,
        local,
        (
            *_not_seen(brokers, live, answers, zookeeper_at or named, zookeeper is not None),
            *(line for _, one in sorted(asked.items()) for line in one.unseen.values()),
        ),
    )


async def _settle(live: Mapping[int, Asked]) -> None:
    """Ask again for views that differ, after a moment: then what is left is no announcement on its way."""
    opinions = [opinion_of(one.metadata) for one in live.values() if one.metadata is not None]
    if all(one == opinions[0] for one in opinions[1:]):
        return
    await asyncio.sleep(SETTLE_S)

    async def again(one: Asked) -> None:
        assert one.probe is not None
        try:
            one.metadata = await one.probe.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        except (OSError, ApiError) as error:
            one.failed["metadata"] = str(error)

    await asyncio.gather(*(again(one) for one in live.values()))


async def _topics(live: Mapping[int, Asked]) -> tuple[Mapping[str, TopicFacts], frozenset[TopicPartition]]:
    """Topics as the controller sees them, else as the broker that knows most brokers does."""

    def rank(one: Asked) -> tuple[bool, int]:
        assert one.metadata is not None
        return one.metadata.controller_id == one.id, len(one.metadata.brokers)

    best = max(live.values(), key=rank, default=None)
    if best is None or best.metadata is None or best.probe is None:
        return {}, frozenset()
    try:
        topics, moving = await asyncio.gather(ask_topics(best.metadata, best.probe), ask_moves(best.probe))
    except (OSError, ApiError) as error:
        best.failed["topics"] = str(error)
        return {}, frozenset()
    return topics, moving


def named_by_brokers(asked: Iterable[Asked]) -> str | None:
    """The first zookeeper.connect; None if no broker has one, as with a quorum of controllers."""
    return next((found for one in asked if (found := one.configs.get("zookeeper.connect"))), None)


def is_elsewhere(connect: str, dials: Iterable[Dial]) -> bool:
    """Whether ZooKeeper's address means another machine here: the brokers' own, and they are not here."""
    places, _ = servers_of(connect)
    reached = [ip for dial in dials if dial.answers for ip in dial.ips]
    own = [host == "localhost" or host.startswith("127.") or host == "::1" for host, _ in places]
    return all(own) and bool(reached) and not any(ip.startswith("127.") or ip == "::1" for ip in reached)


async def _zookeeper(connect: str | None, wait_s: float) -> ZkFacts | None:
    return None if connect is None else await ask_zookeeper(connect, wait_s)


async def _listeners(
    zookeeper: ZkFacts | None, asked: Mapping[int, Asked], wait_s: float
) -> dict[int, dict[str, Dial]]:
    """The listeners of the registrations that were not dialled yet."""
    wanted: list[tuple[int, str, str, Place]] = []
    for id, endpoints in (zookeeper.registered if zookeeper and zookeeper.registered else {}).items():
        for endpoint in endpoints:
            place = place_of(endpoint)
            if place is not None and not (id in asked and asked[id].place == place):
                wanted.append((id, endpoint.partition("://")[0], address_of(*place), place))
    wanted = wanted[:LISTENERS_MAX]
    dials = await asyncio.gather(*(dial(address, place, wait_s, id) for id, _, address, place in wanted))
    found: dict[int, dict[str, Dial]] = {}
    for (id, name, _, _), one in zip(wanted, dials, strict=True):
        found.setdefault(id, {})[name] = one
    return found


def _not_seen(
    brokers: Mapping[int, BrokerFacts],
    live: Mapping[int, Asked],
    answers: list[MetadataResponse],
    zookeeper_at: str | None,
    is_zookeeper_seen: bool,
) -> list[str]:
    """What could not be looked at, with the reason."""
    found = []
    foreign = sorted(id for id, one in brokers.items() if one.answers and one.process is None)
    if foreign:
        ids = ", ".join(map(str, foreign))
        found.append(
            f"clocks, memory and limits of brokers {ids}: only Strandline's brokers of this version tell them"
        )
    if zookeeper_at is None and live:
        found.append("ZooKeeper: no broker names one, and --zookeeper is not given")
    elif zookeeper_at is not None and not is_zookeeper_seen:
        found.append(
            f"ZooKeeper: {zookeeper_at} is the brokers' own machine; give its address here with --zookeeper"
        )
    if answers and not live:
        found.append("topics and groups: no broker answers at the address that it advertises")
    return found

"""Checks of what brokers agree on: the controller, their number, leaders, versions, clocks, ZooKeeper. Pure.

Left to others: whether they are reached at all (checks_network.py).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from ...base.types import NO_LEADER, TopicPartition
from ...protocol.apis import Api
from .facts import BrokerFacts, Facts, Opinion, Reach, ZkFacts, ZkServer
from .findings import Finding, Severity, named, plural

AHEAD_MS_MAX = 1_000
AHEAD_MS_HARMFUL = 60_000
OUTSTANDING_MAX = 100  # requests that wait in a ZooKeeper server
LATENCY_MS_MAX = 2_000  # a third of the default session timeout
SESSION_S_MAX = 2.0
STANDALONE = "standalone"


def check_cluster(facts: Facts) -> Iterator[Finding]:
    """All findings about what brokers, and ZooKeeper, have in common."""
    yield from _unanswered(facts)
    yield from _controller(facts)
    yield from _members(facts)
    yield from _stale(facts)
    yield from _versions(facts)
    yield from _clocks(facts)
    if facts.zookeeper is not None:
        yield from _zookeeper(facts, facts.zookeeper)


def _unanswered(facts: Facts) -> Iterator[Finding]:
    """A broker that answers some requests and not others."""
    for broker in facts.live.values():
        if broker.failed:
            yield Finding(
                Severity.WARNING,
                "broker_answers_in_part",
                f"broker {broker.id}",
                f"broker {broker.id} did not answer about {named(broker.failed)}",
                f"see the log of broker {broker.id} at this time: a request failed or took too long",
                tuple(f"{what}: {why}" for what, why in broker.failed.items()),
                {"failed": dict(broker.failed)},
            )


def _opinions(facts: Facts) -> dict[int, Opinion]:
    return {id: broker.opinion for id, broker in facts.live.items() if broker.opinion is not None}


def _controller(facts: Facts) -> Iterator[Finding]:
    """With a quorum of controllers (KRaft) brokers name any broker: nothing to compare."""
    said = {id: opinion.controller for id, opinion in _opinions(facts).items()}
    if not said or facts.has_quorum_controller:
        return
    if set(said.values()) == {NO_LEADER}:
        yield Finding(
            Severity.CRITICAL,
            "no_controller",
            "controller",
            "no broker knows a controller: no leader is elected and no topic can be created",
            "see whether the brokers have ZooKeeper sessions (session_changed in their logs), then "
            "controller_elected",
        )
    elif len(set(said.values())) > 1:
        told = ", ".join(f"broker {id}: {_who(controller)}" for id, controller in sorted(said.items()))
        yield Finding(
            Severity.CRITICAL,
            "controllers_differ",
            "controller",
            f"the brokers do not name the same controller ({told})",
            "a broker that is cut off keeps an old view: check its connection to the controller and to "
            "ZooKeeper",
            (),
            {"controllers": said},
        )
    zookeeper = facts.zookeeper
    if zookeeper is not None and zookeeper.controller is not None:
        wrong = [id for id, one in sorted(said.items()) if one not in (zookeeper.controller, NO_LEADER)]
        if wrong and len(set(said.values())) == 1:
            yield Finding(
                Severity.CRITICAL,
                "controller_not_in_zookeeper",
                "controller",
                f"ZooKeeper has broker {zookeeper.controller} as controller, the brokers name broker "
                f"{said[wrong[0]]}",
                f"see the log of broker {zookeeper.controller}: it has not announced itself",
                (),
                {"zookeeper": zookeeper.controller, "brokers": said},
            )


def _who(controller: int) -> str:
    return "none" if controller == NO_LEADER else str(controller)


def _members(facts: Facts) -> Iterator[Finding]:
    """Brokers that do not know each other."""
    opinions = _opinions(facts)
    everybody = frozenset().union(*(one.brokers for one in opinions.values())) if opinions else frozenset()
    lacking = {id: sorted(everybody - one.brokers) for id, one in opinions.items() if everybody - one.brokers}
    if lacking:
        told = "; ".join(f"broker {id} does not know broker {named(gone)}" for id, gone in lacking.items())
        yield Finding(
            Severity.WARNING,
            "members_differ",
            "brokers",
            f"the brokers do not know the same brokers: {told}",
            "wait a moment after a start; if it stays, check the connections from the controller to them",
            (),
            {"unknown": lacking},
        )


def _stale(facts: Facts) -> Iterator[Finding]:
    """Brokers with older leaders than others know."""
    opinions = _opinions(facts)
    newest: dict[TopicPartition, int] = {}
    for opinion in opinions.values():
        for tp, (_, epoch) in opinion.leaders.items():
            newest[tp] = max(newest.get(tp, epoch), epoch)
    for id, opinion in sorted(opinions.items()):
        old = [tp for tp, (_, epoch) in opinion.leaders.items() if epoch < newest[tp]]
        if old:
            yield Finding(
                Severity.WARNING,
                "leaders_stale",
                f"broker {id}",
                f"broker {id} knows older leaders of {plural(len(old), 'partition')} than others: "
                f"{named(old)}",
                f"check the connection from the controller to broker {id}: clients that ask it go wrong",
                (),
                {"broker": id, "partitions": [str(tp) for tp in old]},
            )


# --- versions and clocks ---------------------------------------------------------------------------


def _versions(facts: Facts) -> Iterator[Finding]:
    live = facts.live
    software = {
        id: str(broker.process["version"]) for id, broker in live.items() if broker.process is not None
    }
    spoken = {
        id: version.partition("-")[0]  # Kafka says 3.9-IV0
        for id, broker in live.items()
        if (version := broker.configs.get("inter.broker.protocol.version"))
    }
    kinds = {id: "Strandline" if broker.is_strandline else "Kafka" for id, broker in live.items()}
    for check, what, found, remedy in (
        (
            "software_differs",
            "software",
            kinds,
            "go on with the move when it suits: nothing hurries, but until the last broker has moved Kafka's "
            "weaker rules hold where its brokers have a hand (docs/migration.md)",
        ),
        (
            "versions_differ",
            "versions",
            software,
            "go on with the upgrade when it suits: what only the new version can do comes when all have it",
        ),
        (
            "protocol_versions_differ",
            "inter.broker.protocol.version",
            spoken,
            "finish the rolling upgrade of Kafka: set the same for all of its brokers",
        ),
    ):
        if len(set(found.values())) > 1:
            told = ", ".join(f"broker {id}: {value}" for id, value in sorted(found.items()))
            yield Finding(
                Severity.WARNING,
                check,
                "brokers",
                f"the brokers run different {what} ({told})",
                remedy,
                (),
                {"brokers": found},
            )
    yield from _apis(live)


def _apis(live: Mapping[int, BrokerFacts]) -> Iterator[Finding]:
    """Versions of requests that some brokers offer and others do not."""
    tables = {id: broker.apis for id, broker in live.items() if broker.apis}
    differing: list[int] = []
    for key in sorted({key for table in tables.values() for key in table}):
        if len({table.get(key) for table in tables.values()}) > 1:
            differing.append(key)
    if differing:
        names = [Api(key).name if key in Api._value2member_map_ else str(key) for key in differing]
        usual = Counter(tuple(sorted(table.items())) for table in tables.values()).most_common(1)[0][0]
        others = sorted(id for id, table in tables.items() if tuple(sorted(table.items())) != usual)
        yield Finding(
            Severity.WARNING,
            "requests_differ",
            "brokers",
            f"{named(f'broker {id}' for id in others)} offers other versions of "
            f"{plural(len(names), 'request')} than the other brokers: {named(names)}",
            "finish the upgrade, or the move: until then one broker may refuse what another one does",
            (),
            {"requests": names, "brokers": others},
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    for id, broker in sorted(facts.live.items()):
        clock = broker.clock
        if clock is None or abs(clock.ahead_ms) - clock.plus_minus_ms <= AHEAD_MS_MAX:
            continue
        direction = "ahead of" if clock.ahead_ms > 0 else "behind"
        yield Finding(
            Severity.CRITICAL if abs(clock.ahead_ms) >= AHEAD_MS_HARMFUL else Severity.WARNING,
            "clock",
            f"broker {id}",
            f"the clock of broker {id} is {abs(clock.ahead_ms) / 1000:.1f} s {direction} the one here: "
            "timestamps, retention by time and lookups by time are off by as much",
            "let chrony or ntpd keep the time on both machines",
            (f"measured by {clock.how}, ±{clock.plus_minus_ms:.0f} ms",),
            {"ahead_ms": clock.ahead_ms, "plus_minus_ms": clock.plus_minus_ms},
        )


# --- ZooKeeper -------------------------------------------------------------------------------------


def _zookeeper(facts: Facts, zookeeper: ZkFacts) -> Iterator[Finding]:
    for server in zookeeper.servers:
        yield from _server(facts, server)
    yield from _ensemble(zookeeper)
    if zookeeper.session is not None:
        yield Finding(
            Severity.NOTE if _brokers_connected(facts) else Severity.CRITICAL,
            "zookeeper_session",
            zookeeper.connect,
            f"no ZooKeeper session from here at {zookeeper.connect}: {zookeeper.session}",
            "start a majority of its servers, or open the way to them; brokers go on without it, but elect "
            "no leaders",
        )
    elif zookeeper.session_s is not None and zookeeper.session_s > SESSION_S_MAX:
        yield Finding(
            Severity.WARNING,
            "zookeeper_slow",
            zookeeper.connect,
            f"a ZooKeeper session took {zookeeper.session_s:.1f} s: brokers may lose theirs",
            "give ZooKeeper a disk of its own for its transaction log, and memory without swap",
        )
    for path, why in zookeeper.unreadable.items():
        yield Finding(
            Severity.WARNING,
            "znode_unreadable",
            path,
            f"{path} in ZooKeeper cannot be read: {why}",
            "check the chroot in zookeeper.connect and the ACLs of that node",
        )
    yield from _registered(facts, zookeeper)


def _brokers_connected(facts: Facts) -> bool:
    """Whether the brokers themselves say that they have a session."""
    said = [broker.process.get("registry_connected") for broker in facts.live.values() if broker.process]
    return bool(said) and all(said)


def _server(facts: Facts, server: ZkServer) -> Iterator[Finding]:
    if server.reach is not Reach.ANSWERS:
        yield Finding(
            Severity.NOTE if _brokers_connected(facts) else Severity.WARNING,
            "zookeeper_server",
            server.address,
            f"ZooKeeper server {server.address} cannot be reached from here: {server.reach.value}"
            + (f" ({server.detail})" if server.detail else ""),
            "start it, if brokers cannot reach it either; nothing, if it is theirs alone",
        )
    elif server.words is False:
        yield Finding(
            Severity.NOTE,
            "zookeeper_words_off",
            server.address,
            f"ZooKeeper server {server.address} does not allow the four-letter word srvr: its version, mode "
            "and load are not seen",
            "4lw.commands.whitelist=srvr,ruok,mntr in its zoo.cfg, and restart it",
        )
    if server.outstanding is not None and server.outstanding > OUTSTANDING_MAX:
        yield Finding(
            Severity.WARNING,
            "zookeeper_busy",
            server.address,
            f"{server.outstanding} requests wait in ZooKeeper server {server.address}",
            "see whether its disk is slow (fsync warnings in its log) or its heap is too small",
        )
    if server.latency_max_ms is not None and server.latency_max_ms > LATENCY_MS_MAX:
        yield Finding(
            Severity.NOTE,
            "zookeeper_latency",
            server.address,
            f"a request took {server.latency_max_ms:.0f} ms in ZooKeeper server {server.address} since its "
            "statistics were reset",
            "see its log for pauses of that length: a session timeout must be longer",
        )


def _ensemble(zookeeper: ZkFacts) -> Iterator[Finding]:
    versions = {server.address: server.version for server in zookeeper.servers if server.version}
    if len(set(versions.values())) > 1:
        told = ", ".join(f"{address}: {version}" for address, version in versions.items())
        yield Finding(
            Severity.WARNING,
            "zookeeper_versions",
            zookeeper.connect,
            f"the ZooKeeper servers run different versions ({told})",
            "finish the upgrade of the ensemble",
        )
    modes = [server.mode for server in zookeeper.servers if server.mode]
    if len(zookeeper.servers) > 1 and STANDALONE in modes:
        yield Finding(
            Severity.CRITICAL,
            "zookeeper_split",
            zookeeper.connect,
            "a ZooKeeper server runs alone (standalone) though zookeeper.connect names several: brokers may "
            "see different data",
            "list all servers in each zoo.cfg (server.1=…), or name only one in zookeeper.connect",
        )
    elif modes == [STANDALONE]:
        yield Finding(
            Severity.NOTE,
            "zookeeper_standalone",
            zookeeper.connect,
            "ZooKeeper is a single server: while it is down no leader is elected",
            "three servers, if that matters; for tests and a single machine one is right",
        )


def _registered(facts: Facts, zookeeper: ZkFacts) -> Iterator[Finding]:
    """Brokers in ZooKeeper that others do not know, and the other way round."""
    opinions = _opinions(facts)
    if zookeeper.registered is None or not opinions:
        return
    known = frozenset().union(*(one.brokers for one in opinions.values()))
    unknown = sorted(frozenset(zookeeper.registered) - known)
    if unknown:
        yield Finding(
            Severity.WARNING,
            "registered_not_announced",
            "brokers",
            f"{named(f'broker {id}' for id in unknown)} is registered in ZooKeeper, and no broker tells "
            "clients of it",
            "wait a moment after a start; if it stays, see the controller's log",
            (),
            {"brokers": unknown},
        )
    if zookeeper.cluster_id:
        others = {broker.dial.cluster_id for broker in facts.live.values()} - {None}
        if others and zookeeper.cluster_id not in others:
            yield Finding(
                Severity.CRITICAL,
                "zookeeper_of_another_cluster",
                zookeeper.connect,
                f"ZooKeeper at {zookeeper.connect} has cluster {zookeeper.cluster_id}, the brokers are of "
                f"{named(sorted(map(str, others)))}",
                "correct zookeeper.connect (its chroot, too), or --zookeeper",
            )
